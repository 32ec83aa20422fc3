//! The rules of RBAC, one test each.

use serde_json::json;

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), uid: String::new(), groups: groups.iter().map(|g| g.to_string()).collect() }
}

fn get_pods(namespace: &str) -> Attributes {
    Attributes {
        verb: "get".into(),
        version: "v1".into(),
        resource: "pods".into(),
        namespace: namespace.into(),
        name: "web".into(),
        ..Default::default()
    }
}

fn pod_reader(kind: &str, namespace: Option<&str>) -> Value {
    json!({"kind": kind, "metadata": {"name": "reader", "namespace": namespace},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
}

fn binding(name: &str, namespace: Option<&str>, role_kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects})
}

#[test]
fn subjects_and_the_reason_that_names_them() {
    let cases = [
        ("a user", json!({"kind": "User", "name": "alice"}), user("alice", &[]), Some(r#"User "alice""#)),
        ("another user", json!({"kind": "User", "name": "alice"}), user("bob", &[]), None),
        (
            "a service account of another namespace",
            json!({"kind": "ServiceAccount", "name": "cart", "namespace": "shop"}),
            service_account::user("other", "cart", "u"),
            None,
        ),
        (
            "a cluster binding needs the namespace of a service account",
            json!({"kind": "ServiceAccount", "name": "cart"}),
            service_account::user("shop", "cart", "u"),
            None,
        ),
    ];
    let role = pod_reader("ClusterRole", None);
    for (rule, subject, caller, expected) in cases {
        let binding = binding("readers", None, "ClusterRole", "reader", json!([subject]));
        let rbac = Rbac::build([], [], [&role], [&binding]);
        let decision = rbac.authorize(&caller, &get_pods("default"));
        let reason = expected.map(|s| {
            format!(r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to {s}"#)
        });
        assert_eq!(decision.allowed, expected.is_some(), "{rule}");
        assert_eq!(decision.reason, reason.unwrap_or_default(), "{rule}");
    }
}

#[test]
fn a_role_binding_grants_in_its_namespace_only() {
    let role = pod_reader("Role", Some("shop"));
    let binding =
        binding("readers", Some("shop"), "Role", "reader", json!([{"kind": "User", "name": "alice"}]));
    let rbac = Rbac::build([&role], [&binding], [], []);
    let alice = user("alice", &[]);
    let decision = rbac.authorize(&alice, &get_pods("shop"));
    assert_eq!(
        decision.reason,
        r#"RBAC: allowed by RoleBinding "readers/shop" of Role "reader" to User "alice""#
    );
    assert!(!rbac.authorize(&alice, &get_pods("default")).allowed);
    assert!(!rbac.authorize(&alice, &get_pods("")).allowed, "nor across namespaces");
}

#[test]
fn a_role_binding_may_grant_a_cluster_role_and_finds_service_accounts_next_to_it() {
    let role = pod_reader("ClusterRole", None);
    let binding = binding(
        "b",
        Some("shop"),
        "ClusterRole",
        "reader",
        json!([{"kind": "ServiceAccount", "name": "cart"}]),
    );
    let rbac = Rbac::build([], [&binding], [&role], []);
    assert!(rbac.authorize(&service_account::user("shop", "cart", ""), &get_pods("shop")).allowed);
}

#[test]
fn a_missing_role_is_named_in_the_refusal() {
    let alice = json!([{"kind": "User", "name": "alice"}]);
    let cluster = binding("a", None, "ClusterRole", "gone", alice.clone());
    let local = binding("b", Some("shop"), "Role", "lost", alice);
    let rbac = Rbac::build([], [&local], [], [&cluster]);
    let alice = user("alice", &[]);
    assert_eq!(
        rbac.authorize(&alice, &get_pods("")).reason,
        r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#
    );
    assert_eq!(
        rbac.authorize(&alice, &get_pods("shop")).reason,
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "lost" not found]"#
    );
}

#[test]
fn aggregated_roles_hold_what_they_select_through_several_steps() {
    let rules = |resource: &str| json!([{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]);
    let aggregate = |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    let view = json!({"metadata": {"name": "view", "labels": {"to-edit": "true"}}, "aggregationRule": aggregate("to-view")});
    let edit = json!({"metadata": {"name": "edit"}, "aggregationRule": aggregate("to-edit"), "rules": rules("stale")});
    let leaf = json!({"metadata": {"name": "leaf", "labels": {"to-view": "true"}}, "rules": rules("pods")});
    let bound = binding("b", None, "ClusterRole", "edit", json!([{"kind": "User", "name": "alice"}]));
    let rbac = Rbac::build([], [], [&view, &edit, &leaf], [&bound]);
    let (rules, problem) = rbac.rules_for(&user("alice", &[]), "default");
    assert_eq!(problem, None);
    assert_eq!(rules.len(), 1, "the stored rules of an aggregated role do not count");
    assert_eq!(rules[0].resources, ["pods"]);
}

#[test]
fn a_binding_that_names_a_user_twice_gives_its_rules_once() {
    let role = pod_reader("ClusterRole", None);
    let both = json!([{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "ops"}]);
    let bound = binding("b", None, "ClusterRole", "reader", both);
    let rbac = Rbac::build([], [], [&role], [&bound]);
    assert_eq!(rbac.rules_for(&user("alice", &["ops"]), "default").0.len(), 1);
}
