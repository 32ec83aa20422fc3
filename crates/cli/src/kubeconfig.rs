//! What may be told of a kubeconfig that cannot be used: not what is in it.

use kube::config::KubeconfigError;

/// Why it cannot be used. The reader of YAML would quote the lines around a mistake, which may have a token in them.
pub fn why_unusable(why: &KubeconfigError) -> String {
    match why {
        KubeconfigError::Parse(mistake) => match mistake.location() {
            Some(at) => format!("its YAML is wrong at line {}, column {}", at.line(), at.column()),
            None => "its YAML is wrong".to_owned(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_mistake_is_told_by_its_place_and_no_secret_with_it() {
        let text = "apiVersion: v1\nusers:\n- name: u\n  user:\n    token: SECRET\n   wrong: indent\n";
        let told = why_unusable(&Kubeconfig::from_yaml(text).unwrap_err());
        assert!(told.starts_with("its YAML is wrong at line "), "{told}");
        assert!(!told.contains("SECRET") && !told.contains('\n'), "{told}");
        let mistyped = why_unusable(&Kubeconfig::from_yaml("users: SECRET\n").unwrap_err());
        assert!(!mistyped.contains("SECRET"), "{mistyped}");
    }
}
