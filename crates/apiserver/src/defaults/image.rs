//! Reading an image reference for its tag.

/// Whether the image is the latest of its name: no tag and no digest, or the tag `latest`.
pub(super) fn is_latest(reference: &str) -> bool {
    let (name, digest) = match reference.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (reference, None),
    };
    // A colon before a slash is a registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none() && !name.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn no_tag_means_latest_but_not_with_a_digest() {
        for latest in ["nginx", "nginx:latest", "host:5000/nginx", "host:5000/a/nginx:latest"] {
            assert!(is_latest(latest), "{latest}");
        }
        for other in ["nginx:1", "host:5000/nginx:1", "nginx@sha256:abc", "nginx:1@sha256:abc", ""] {
            assert!(!is_latest(other), "{other}");
        }
    }
}
