//! Impersonation: who may act as whom, and the refusals of a v1.37 API server.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::*;

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

fn list_pods() -> Attributes {
    Attributes {
        verb: "list".into(),
        resource: "pods".into(),
        namespace: "default".into(),
        ..Default::default()
    }
}

fn rbac(rules: Value) -> Rbac {
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"}]});
    Rbac::build([], [], [&role], [&binding])
}

fn acting(rbac: &Rbac, list: &[(&str, &str)]) -> ApiResult<User> {
    let alice = User { name: "alice".into(), ..Default::default() };
    impersonate(&alice, &wanted(&headers(list))?.unwrap(), &list_pods(), rbac)
}

#[test]
fn without_headers_nobody_is_impersonated() {
    assert_eq!(wanted(&headers(&[("Accept", "x")])).unwrap(), None);
}

#[test]
fn a_group_without_a_user_is_a_bad_request() {
    let error = wanted(&headers(&[("Impersonate-Group", "bob")])).unwrap_err();
    assert_eq!(error.code, 400);
    assert_eq!(
        error.message,
        r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"bob"}, Extra:map[string][]string(nil)} without impersonating a user name"#
    );
}

#[test]
fn without_any_right_the_first_mode_that_applies_is_named() {
    let cases = [
        ("a user", "bob", "user-info"),
        ("a service account", "system:serviceaccount:ns:sa", "serviceaccount"),
        ("a node", "system:node:n1", "arbitrary-node"),
    ];
    for (rule, name, mode) in cases {
        let error = acting(&rbac(json!([])), &[("Impersonate-User", name)]).unwrap_err();
        let expected = format!(
            r#"pods is forbidden: User "alice" cannot impersonate-on:{mode}:list resource "pods" in API group "" in the namespace "default""#
        );
        assert_eq!(error.message, expected, "{rule}");
    }
}

#[test]
fn the_old_right_suffices() {
    let rbac = rbac(
        json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"]}]),
    );
    let bob = acting(&rbac, &[("Impersonate-User", "bob"), ("Impersonate-Group", "g")]).unwrap();
    assert_eq!(
        (bob.name.as_str(), bob.groups.as_slice()),
        ("bob", &["g".to_string(), AUTHENTICATED.into()][..])
    );
    let account = acting(&rbac, &[("Impersonate-User", "system:serviceaccount:ns:sa")]).unwrap();
    assert_eq!(
        account.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
    );
    let anonymous = acting(&rbac, &[("Impersonate-User", "system:anonymous")]).unwrap();
    assert_eq!(anonymous.groups, ["system:unauthenticated"]);
}

#[test]
fn groups_are_checked_too() {
    let rbac = rbac(json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}]));
    assert!(acting(&rbac, &[("Impersonate-User", "bob")]).is_ok());
    assert!(acting(&rbac, &[("Impersonate-User", "bob"), ("Impersonate-Group", "ops")]).is_err());
    assert!(acting(&rbac, &[("Impersonate-User", "bob"), ("Impersonate-Uid", "7")]).is_err());
    assert!(acting(&rbac, &[("Impersonate-User", "bob"), ("Impersonate-Extra-Team", "x")]).is_err());
}

#[test]
fn the_constrained_right_holds_for_its_verbs_only_and_never_for_masters() {
    let rbac = rbac(json!([
        {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"]},
        {"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]},
    ]));
    assert!(acting(&rbac, &[("Impersonate-User", "bob")]).is_ok());
    let alice = User { name: "alice".into(), ..Default::default() };
    let bob = wanted(&headers(&[("Impersonate-User", "bob")])).unwrap().unwrap();
    let delete = Attributes { verb: "delete".into(), ..list_pods() };
    assert!(impersonate(&alice, &bob, &delete, &rbac).is_err());
    let error = acting(&rbac, &[("Impersonate-User", "bob"), ("Impersonate-Group", MASTERS)]).unwrap_err();
    assert!(error.message.ends_with("impersonating the system:masters group is not allowed"), "{error}");
}

#[test]
fn keys_of_extra_values_are_unescaped() {
    let wanted = wanted(&headers(&[("Impersonate-User", "bob"), ("Impersonate-Extra-Acme.com%2Fteam", "x")]));
    assert_eq!(wanted.unwrap().unwrap().extra["acme.com/team"], ["x"]);
}
