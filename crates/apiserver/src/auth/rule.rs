//! One RBAC rule and what it matches.

use serde::{Deserialize, Deserializer, Serialize};

use crate::attributes::Attributes;

/// `rules[]` of a Role or ClusterRole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PolicyRule {
    #[serde(deserialize_with = "null_as_empty")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl PolicyRule {
    /// Whether this rule alone allows the request.
    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_star(&self.verbs, &attributes.verb) {
            return false;
        }
        if is_path_request(attributes) {
            return self.non_resource_urls.iter().any(|url| path_matches(url, &attributes.path));
        }
        has_or_star(&self.api_groups, &attributes.group)
            && self
                .resources
                .iter()
                .any(|r| resource_matches(r, &attributes.resource, &attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }
}

/// A request about a URL path instead of a resource, such as `/healthz`.
pub(crate) fn is_path_request(attributes: &Attributes) -> bool {
    attributes.resource.is_empty() && !attributes.path.is_empty()
}

fn has_or_star(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// `*` is every resource and subresource, `pods` only the resource itself, `pods/log` one subresource of one
/// resource, and `*/scale` one subresource of every resource. `pods/*` means nothing special to RBAC.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    matches!(rule.split_once('/'), Some((r, s)) if s == subresource && (r == "*" || r == resource))
}

/// A trailing `*` makes the rest a prefix.
pub(super) fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| s.to_string()).collect()
    }

    #[test]
    fn resources_of_a_rule() {
        let cases = [
            ("a star matches a resource", "*", "pods", "", true),
            ("a star matches a subresource", "*", "pods", "log", true),
            ("a resource matches itself", "pods", "pods", "", true),
            ("a resource does not include its subresources", "pods", "pods", "log", false),
            ("a named subresource", "pods/eviction", "pods", "eviction", true),
            ("a named subresource is not the resource", "pods/eviction", "pods", "", false),
            ("a subresource of every resource", "*/scale", "deployments", "scale", true),
            ("and only that subresource", "*/scale", "deployments", "status", false),
            ("not a shorter one with the same ending", "*/subscale", "deployments", "scale", false),
            ("resource slash star is no wildcard", "pods/*", "pods", "log", false),
        ];
        for (rule_name, rule, resource, subresource, expected) in cases {
            assert_eq!(resource_matches(rule, resource, subresource), expected, "{rule_name}");
        }
    }

    #[test]
    fn paths_of_a_rule() {
        let cases = [
            ("exact", "/healthz", "/healthz", true),
            ("exact is no prefix", "/healthz", "/healthz/etcd", false),
            ("star suffix is a prefix", "/apis/*", "/apis/apps/v1", true),
            ("the prefix includes its slash", "/apis/*", "/apis", false),
            ("a star alone", "*", "/anything", true),
        ];
        for (rule_name, rule, path, expected) in cases {
            assert_eq!(path_matches(rule, path), expected, "{rule_name}");
        }
    }

    #[test]
    fn a_rule_with_names_allows_only_these_and_never_an_unnamed_request() {
        let rule = PolicyRule {
            verbs: strings(&["get", "list"]),
            api_groups: strings(&[""]),
            resources: strings(&["pods"]),
            resource_names: strings(&["a"]),
            ..Default::default()
        };
        let mut attributes = Attributes {
            verb: "get".into(),
            resource: "pods".into(),
            name: "a".into(),
            ..Default::default()
        };
        assert!(rule.allows(&attributes));
        attributes.name = "b".into();
        assert!(!rule.allows(&attributes));
        attributes.verb = "list".into();
        attributes.name = String::new();
        assert!(!rule.allows(&attributes));
    }

    #[test]
    fn resource_rules_say_nothing_about_paths_nor_the_reverse() {
        let everything = PolicyRule {
            verbs: strings(&["*"]),
            api_groups: strings(&["*"]),
            resources: strings(&["*"]),
            ..Default::default()
        };
        let paths =
            PolicyRule { verbs: strings(&["get"]), non_resource_urls: strings(&["*"]), ..Default::default() };
        let path = Attributes { verb: "get".into(), path: "/metrics".into(), ..Default::default() };
        let pods = Attributes { verb: "get".into(), resource: "pods".into(), ..Default::default() };
        assert!(!everything.allows(&path) && everything.allows(&pods));
        assert!(paths.allows(&path) && !paths.allows(&pods));
    }

    #[test]
    fn lists_that_are_null_read_as_empty() {
        let rule: PolicyRule =
            serde_json::from_value(serde_json::json!({"verbs": ["get"], "resourceNames": null})).unwrap();
        assert_eq!(rule, PolicyRule { verbs: strings(&["get"]), ..Default::default() });
    }
}
