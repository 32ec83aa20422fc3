//! Nobody grants rights that they do not have: checks on writes of roles and bindings.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::forbidden::forbidden_because;
use super::rbac::{Rbac, is_superuser};
use super::rule::{PolicyRule, path_matches};
use crate::attributes::{Attributes, User};
use crate::error::{ApiError, ApiResult};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Call before a Role, ClusterRole, RoleBinding or ClusterRoleBinding is written. Other resources pass.
pub(crate) fn check_escalation(
    user: &User,
    attributes: &Attributes,
    object: &Value,
    rbac: &Rbac,
) -> ApiResult<()> {
    if attributes.group != GROUP || is_superuser(user) {
        return Ok(());
    }
    match attributes.resource.as_str() {
        "roles" | "clusterroles" => check_role(user, attributes, object, rbac),
        "rolebindings" | "clusterrolebindings" => check_binding(user, attributes, object, rbac),
        _ => Ok(()),
    }
}

fn check_role(user: &User, attributes: &Attributes, object: &Value, rbac: &Rbac) -> ApiResult<()> {
    let escalate = Attributes { verb: "escalate".into(), subresource: String::new(), ..attributes.clone() };
    if rbac.authorize(user, &escalate).allowed {
        return Ok(());
    }
    let refuse =
        |cause: &str| Err(forbidden_because(GROUP, &attributes.resource, object_name(object), cause));
    let rules: Vec<PolicyRule> = object["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rule| PolicyRule::deserialize(rule).ok())
        .collect();
    if let Some(cause) = missing(user, &attributes.namespace, &rules, rbac) {
        return refuse(&cause);
    }
    let selectors = object.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    if selectors.is_some_and(|list| !list.is_empty()) {
        let star = || vec!["*".to_string()];
        let everything = [
            PolicyRule { verbs: star(), api_groups: star(), resources: star(), ..Default::default() },
            PolicyRule { verbs: star(), non_resource_urls: star(), ..Default::default() },
        ];
        if missing(user, "", &everything, rbac).is_some() {
            return refuse("must have cluster-admin privileges to use the aggregationRule");
        }
    }
    Ok(())
}

fn check_binding(user: &User, attributes: &Attributes, object: &Value, rbac: &Rbac) -> ApiResult<()> {
    let field = |name: &str| object["roleRef"][name].as_str().unwrap_or_default();
    let (kind, name) = (field("kind"), field("name"));
    let resource = if kind == "Role" { "roles" } else { "clusterroles" };
    let bind = Attributes {
        verb: "bind".into(),
        group: field("apiGroup").to_string(),
        resource: resource.into(),
        namespace: attributes.namespace.clone(),
        name: name.to_string(),
        ..Default::default()
    };
    if rbac.authorize(user, &bind).allowed {
        return Ok(());
    }
    let rules = rbac.referenced_rules(kind, name, &attributes.namespace).map_err(|_| {
        // The API server reports a missing role as if the binding were missing.
        let message = format!("{}.{GROUP} {name:?} not found", attributes.resource);
        let details = json!({"name": name, "group": GROUP, "kind": attributes.resource});
        ApiError::new(404, "NotFound", message).with_details(details)
    })?;
    match missing(user, &attributes.namespace, &rules, rbac) {
        Some(cause) => Err(forbidden_because(GROUP, &attributes.resource, object_name(object), &cause)),
        None => Ok(()),
    }
}

/// The words for the rights among `rules` that the user does not hold, if any.
fn missing(user: &User, namespace: &str, rules: &[PolicyRule], rbac: &Rbac) -> Option<String> {
    let (held, problem) = rbac.rules_for(user, namespace);
    let missing: Vec<PolicyRule> = rules
        .iter()
        .flat_map(break_down)
        .filter(|part| !held.iter().any(|owner| covers(owner, part)))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let mut text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.into_iter().collect::<Vec<_>>().join("\n")
    );
    if let Some(problem) = problem {
        text.push_str(&format!("; resolution errors: [{problem}]"));
    }
    Some(text)
}

/// Rules with at most one verb, group, resource and name each, which together say the same.
fn break_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..Default::default()
                };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    let named = |n| PolicyRule { resource_names: one(n), ..part.clone() };
                    parts.extend(rule.resource_names.iter().map(named));
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            parts.push(PolicyRule { verbs: one(verb), non_resource_urls: one(url), ..Default::default() });
        }
    }
    parts
}

/// Whether one held rule includes a broken-down part.
fn covers(owner: &PolicyRule, part: &PolicyRule) -> bool {
    let all = |held: &[String], wanted: &[String]| {
        held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w))
    };
    let resources = owner.resources.iter().any(|r| r == "*")
        || part.resources.iter().all(|wanted| {
            owner.resources.contains(wanted)
                || wanted
                    .split_once('/')
                    .is_some_and(|(_, sub)| owner.resources.contains(&format!("*/{sub}")))
        });
    let names = owner.resource_names.is_empty()
        || (!part.resource_names.is_empty()
            && part.resource_names.iter().all(|n| owner.resource_names.contains(n)));
    let paths = part
        .non_resource_urls
        .iter()
        .all(|wanted| owner.non_resource_urls.iter().any(|held| path_matches(held, wanted)));
    all(&owner.verbs, &part.verbs) && all(&owner.api_groups, &part.api_groups) && resources && names && paths
}

/// Joins parts that differ in the verb only, so that the message stays readable.
fn compact(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    type Key = (Vec<String>, Vec<String>, Vec<String>);
    let (mut joined, mut rest): (BTreeMap<Key, PolicyRule>, Vec<PolicyRule>) = Default::default();
    for part in parts {
        if !part.non_resource_urls.is_empty() {
            rest.push(part);
            continue;
        }
        let key = (part.api_groups.clone(), part.resources.clone(), part.resource_names.clone());
        match joined.get_mut(&key) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => {
                joined.insert(key, part);
            }
        }
    }
    rest.extend(joined.into_values());
    rest
}

fn describe(rule: &PolicyRule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts: Vec<String> = fields
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted(list)))
        .collect();
    format!("{{{}}}", parts.join(", "))
}

fn quoted(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" "))
}

fn object_name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> User {
        User {
            name: "alice".into(),
            uid: String::new(),
            groups: vec!["dev".into(), "system:authenticated".into()],
        }
    }

    fn rbac(rules: Value) -> Rbac {
        let role = json!({"metadata": {"name": "held"}, "rules": rules});
        let strong = json!({"metadata": {"name": "strong"},
            "rules": [{"verbs": ["delete"], "apiGroups": [""], "resources": ["nodes"]}]});
        let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "held"},
            "subjects": [{"kind": "User", "name": "alice"}]});
        Rbac::build([], [], [&role, &strong], [&binding])
    }

    fn writing(resource: &str, namespace: &str) -> Attributes {
        Attributes {
            verb: "create".into(),
            group: GROUP.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            ..Default::default()
        }
    }

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "more"}, "rules": rules})
    }

    #[test]
    fn granting_what_one_lacks_is_refused_and_listed() {
        let object = role(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "nodes"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]));
        let error =
            check_escalation(&alice(), &writing("clusterroles", ""), &object, &rbac(json!([]))).unwrap_err();
        assert_eq!(
            error.message,
            "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"alice\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
        );
        assert_eq!(error.code, 403);
    }

    #[test]
    fn what_counts_as_holding_a_right() {
        let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let named =
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        let log = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}]);
        let any_log = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["*/log"]}]);
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        let escalate = json!([{"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["clusterroles"]}]);
        let cases = [
            ("the same right", &pods, &pods, true),
            ("nothing held", &json!([]), &pods, false),
            ("a star", &all, &pods, true),
            ("a star is not held by one who has a verb", &pods, &all, false),
            ("a named right is part of the whole", &pods, &named, true),
            ("the whole is not part of a named right", &named, &pods, false),
            ("a subresource of every resource", &any_log, &log, true),
            ("the verb escalate", &escalate, &all, true),
        ];
        for (rule, held, granted, expected) in cases {
            let object = role(granted.clone());
            let result =
                check_escalation(&alice(), &writing("clusterroles", ""), &object, &rbac(held.clone()));
            assert_eq!(result.is_ok(), expected, "{rule}");
        }
    }

    #[test]
    fn an_aggregation_rule_needs_everything() {
        let object = json!({"metadata": {"name": "more"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
        let error =
            check_escalation(&alice(), &writing("clusterroles", ""), &object, &rbac(json!([]))).unwrap_err();
        assert!(error.message.ends_with("must have cluster-admin privileges to use the aggregationRule"));
    }

    #[test]
    fn a_binding_needs_the_rights_of_the_role_or_the_verb_bind() {
        let object = |role: &str| json!({"metadata": {"name": "more"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}});
        let attributes = writing("rolebindings", "default");
        let none = rbac(json!([]));
        assert_eq!(check_escalation(&alice(), &attributes, &object("strong"), &none).unwrap_err().code, 403);
        let bind = rbac(
            json!([{"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["strong"]}]),
        );
        assert!(check_escalation(&alice(), &attributes, &object("strong"), &bind).is_ok());
        let missing = check_escalation(&alice(), &attributes, &object("gone"), &none).unwrap_err();
        assert_eq!(missing.message, "rolebindings.rbac.authorization.k8s.io \"gone\" not found");
    }

    #[test]
    fn masters_and_other_resources_pass() {
        let object = role(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        let root = User { name: "root".into(), uid: String::new(), groups: vec!["system:masters".into()] };
        assert!(check_escalation(&root, &writing("clusterroles", ""), &object, &rbac(json!([]))).is_ok());
        let pods = Attributes { resource: "pods".into(), ..Default::default() };
        assert!(check_escalation(&alice(), &pods, &object, &rbac(json!([]))).is_ok());
    }
}
