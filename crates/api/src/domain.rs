//! DNS subdomains as RFC 1123 and Kubernetes understand them: interceptor classes and requester names are such domains.

/// The longest subdomain Kubernetes accepts.
pub const SUBDOMAIN_MAX_LENGTH: usize = 253;

/// The pattern of a subdomain, for the schemas. [`is_subdomain`] says the same in code.
pub const SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Whether the text is an RFC 1123 subdomain: lower-case letters, digits and `-` in labels joined by dots, every label starting
/// and ending with a letter or digit, 253 characters at most.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_MAX_LENGTH && text.split('.').all(is_label)
}

/// Kubernetes limits the whole subdomain and not its labels, so a label may be longer than 63 characters here.
fn is_label(label: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            alphanumeric(first) && alphanumeric(last) && bytes.iter().all(|&b| alphanumeric(b) || b == b'-')
        }
        _ => false,
    }
}

/// The domain above this one: `apps.k8s.io` for `replicaset.apps.k8s.io`. A single label has none.
pub fn parent(domain: &str) -> Option<&str> {
    domain.split_once('.').map(|(_, parent)| parent)
}

/// Whether `domain` lies below `ancestor`, at any depth. A domain does not lie below itself.
pub fn is_below(domain: &str, ancestor: &str) -> bool {
    domain.strip_suffix(ancestor).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subdomain_is_lower_case_labels_joined_by_dots() {
        for good in ["a", "0", "a.b", "replicaset.apps.k8s.io", "a--b.c", "x1.2y"] {
            assert!(is_subdomain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "A.b", "a_b", "a/b", "a b", "ä.b"] {
            assert!(!is_subdomain(bad), "{bad}");
        }
        assert!(is_subdomain(&"a".repeat(253)));
        assert!(!is_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn the_parent_is_what_follows_the_first_label() {
        assert_eq!(parent("replicaset.apps.k8s.io"), Some("apps.k8s.io"));
        assert_eq!(parent("single"), None);
    }

    #[test]
    fn below_means_whole_labels() {
        assert!(is_below("deployment.apps.k8s.io", "apps.k8s.io"));
        assert!(is_below("customfeature.replicaset.apps.k8s.io", "apps.k8s.io"));
        assert!(!is_below("apps.k8s.io", "apps.k8s.io"));
        assert!(!is_below("myapps.k8s.io", "apps.k8s.io"));
        assert!(!is_below(".apps.k8s.io", "apps.k8s.io"));
    }
}
