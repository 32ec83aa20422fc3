//! The user names and groups of service accounts.

use crate::attributes::User;

const USER_PREFIX: &str = "system:serviceaccount:";
const ALL: &str = "system:serviceaccounts";

/// `system:serviceaccount:NAMESPACE:NAME`.
pub(crate) fn username(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// Namespace and name, if the user name is that of a service account.
pub(crate) fn split_username(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

/// The groups that every service account of a namespace is in.
pub(crate) fn groups(namespace: &str) -> Vec<String> {
    vec![ALL.to_string(), format!("{ALL}:{namespace}")]
}

/// The user that a token of the service account stands for.
pub(crate) fn user(namespace: &str, name: &str, uid: &str) -> User {
    let mut groups = groups(namespace);
    groups.push(super::AUTHENTICATED.to_string());
    User { name: username(namespace, name), uid: uid.to_string(), groups }
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// Dot-separated labels, as names of nodes and service accounts are.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

fn is_dns_part(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_of_service_accounts() {
        let cases = [
            ("a service account", "system:serviceaccount:ns:sa", Some(("ns", "sa"))),
            ("its name may have dots", "system:serviceaccount:ns:a.b", Some(("ns", "a.b"))),
            ("an ordinary user", "alice", None),
            ("a part too many", "system:serviceaccount:ns:sa:x", None),
            ("a part too few", "system:serviceaccount:ns", None),
            ("a namespace must be a name", "system:serviceaccount:N_S:sa", None),
            ("no empty parts", "system:serviceaccount::sa", None),
        ];
        for (rule, name, expected) in cases {
            assert_eq!(split_username(name), expected, "{rule}");
        }
    }

    #[test]
    fn a_service_account_is_in_three_groups() {
        let user = user("shop", "cart", "u1");
        assert_eq!(user.name, "system:serviceaccount:shop:cart");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
        );
    }
}
