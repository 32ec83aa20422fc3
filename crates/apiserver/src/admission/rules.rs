//! `rules[]` of a webhook: which operations on which resources it wants to see.

use serde::Deserialize;
use serde_json::Value;

use super::request::{Kind, Operation};
use crate::attributes::Attributes;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<String>,
}

impl Rule {
    /// Those rules that can be read; the others match nothing.
    pub(super) fn parse_list(list: &Value) -> Vec<Self> {
        list.as_array().into_iter().flatten().filter_map(Self::parse).collect()
    }

    pub(super) fn parse(rule: &Value) -> Option<Self> {
        Self::deserialize(rule).ok()
    }

    pub(super) fn matches(&self, attributes: &Attributes, operation: Operation) -> bool {
        has(&self.api_versions, &attributes.version) && self.matches_in_any_version(attributes, operation)
    }

    /// Whether it names the request, but for the version of its resource.
    pub(super) fn matches_in_any_version(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.scope_matches(attributes)
            && has(&self.operations, operation.as_str())
            && has(&self.api_groups, &attributes.group)
            && self.resources.iter().any(|rule| {
                let (resource, subresource) = rule.split_once('/').unwrap_or((rule, ""));
                (resource == "*" || resource == attributes.resource)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    }

    /// Namespaces themselves are cluster-scoped, although their requests name a namespace.
    fn scope_matches(&self, attributes: &Attributes) -> bool {
        let is_namespace =
            attributes.group.is_empty() && attributes.version == "v1" && attributes.resource == "namespaces";
        let in_cluster = is_namespace || attributes.namespace.is_empty();
        match self.scope.as_deref() {
            None | Some("*") => true,
            Some("Namespaced") => !in_cluster,
            Some("Cluster") => in_cluster,
            Some(_) => false,
        }
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Requests that no webhook ever sees: those on webhook configurations and policies, as a broken webhook must not
/// stop its own repair, and those for reviews, as webhooks may ask for reviews themselves.
pub(super) fn is_exempt(attributes: &Attributes, kind: &Kind) -> bool {
    match (attributes.group.as_str(), attributes.resource.as_str()) {
        ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews") => true,
        (
            "authorization.k8s.io",
            "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "subjectaccessreviews",
        ) => true,
        _ => {
            kind.group == "admissionregistration.k8s.io"
                && matches!(
                    kind.kind.as_str(),
                    "ValidatingWebhookConfiguration"
                        | "MutatingWebhookConfiguration"
                        | "ValidatingAdmissionPolicy"
                        | "ValidatingAdmissionPolicyBinding"
                        | "MutatingAdmissionPolicy"
                        | "MutatingAdmissionPolicyBinding"
                )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes(group: &str, resource: &str, subresource: &str, namespace: &str) -> Attributes {
        Attributes {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: namespace.into(),
            ..Default::default()
        }
    }

    fn matches(change: Value, attributes: &Attributes, operation: Operation) -> bool {
        let mut rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        for (key, value) in change.as_object().unwrap() {
            rule[key] = value.clone();
        }
        Rule::parse_list(&json!([rule])).iter().any(|rule| rule.matches(attributes, operation))
    }

    #[test]
    fn what_a_rule_matches() {
        let pod = attributes("", "pods", "", "default");
        let eviction = attributes("", "pods", "eviction", "default");
        let node = attributes("", "nodes", "", "");
        let namespace = attributes("", "namespaces", "", "shop");
        let deployment = attributes("apps", "deployments", "", "default");
        let resources = |list: &[&str]| json!({"resources": list});
        let create = Operation::Create;
        let cases = [
            ("all equal", json!({}), &pod, create, true),
            ("another operation", json!({}), &pod, Operation::Delete, false),
            ("any operation", json!({"operations": ["*"]}), &pod, Operation::Delete, true),
            ("another group", json!({}), &deployment, create, false),
            ("any group", json!({"apiGroups": ["*"], "resources": ["*"]}), &deployment, create, true),
            ("another version", json!({"apiVersions": ["v1beta1"]}), &pod, create, false),
            ("any version", json!({"apiVersions": ["*"]}), &pod, create, true),
            ("a resource is not its subresources", resources(&["pods"]), &eviction, create, false),
            ("one subresource", resources(&["pods/eviction"]), &eviction, create, true),
            ("one subresource is not the resource", resources(&["pods/eviction"]), &pod, create, false),
            ("all subresources of one resource", resources(&["pods/*"]), &eviction, create, true),
            ("and the resource itself, too", resources(&["pods/*"]), &pod, create, true),
            ("a star is all resources", resources(&["*"]), &node, create, true),
            ("but no subresources", resources(&["*"]), &eviction, create, false),
            ("a subresource of all", resources(&["*/eviction"]), &eviction, create, true),
            ("all and all subresources", resources(&["*/*"]), &eviction, create, true),
            ("namespaced", json!({"scope": "Namespaced"}), &pod, create, true),
            (
                "namespaced, not cluster",
                json!({"scope": "Namespaced", "resources": ["*"]}),
                &node,
                create,
                false,
            ),
            ("cluster", json!({"scope": "Cluster", "resources": ["*"]}), &node, create, true),
            ("cluster, not namespaced", json!({"scope": "Cluster"}), &pod, create, false),
            (
                "a namespace is of the cluster",
                json!({"scope": "Cluster", "resources": ["*"]}),
                &namespace,
                create,
                true,
            ),
            (
                "a namespace is not namespaced",
                json!({"scope": "Namespaced", "resources": ["*"]}),
                &namespace,
                create,
                false,
            ),
        ];
        for (rule, change, attributes, operation, expected) in cases {
            assert_eq!(matches(change, attributes, operation), expected, "{rule}");
        }
    }

    #[test]
    fn requests_that_no_webhook_sees() {
        let kind =
            |group: &str, kind: &str| Kind { group: group.into(), version: "v1".into(), kind: kind.into() };
        let registration = "admissionregistration.k8s.io";
        let hooks = attributes(registration, "validatingwebhookconfigurations", "", "");
        assert!(is_exempt(&hooks, &kind(registration, "ValidatingWebhookConfiguration")));
        let review = attributes("authorization.k8s.io", "subjectaccessreviews", "", "");
        assert!(is_exempt(&review, &kind("authorization.k8s.io", "SubjectAccessReview")));
        assert!(!is_exempt(&attributes("", "pods", "", "default"), &kind("", "Pod")));
    }
}
