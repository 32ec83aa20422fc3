//! Access reviews: answers and refusals, worded as a v1.37 API server words them.

use super::*;
use crate::auth::bootstrap_objects;

fn rbac() -> Rbac {
    let objects = bootstrap_objects();
    let of = |kind: &'static str| objects.iter().filter(move |o| o["kind"] == kind);
    Rbac::build([], [], of("ClusterRole"), of("ClusterRoleBinding"))
}

fn alice() -> User {
    User { name: "alice".into(), uid: "u1".into(), groups: vec!["dev".into(), "system:authenticated".into()] }
}

#[test]
fn the_answer_names_the_binding_that_allows() {
    let review = json!({"spec": {"resourceAttributes":
        {"verb": "create", "group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews"}}});
    let answer = self_subject_access_review(&review, &alice(), &rbac()).unwrap();
    assert_eq!(answer["kind"], "SelfSubjectAccessReview");
    assert_eq!(answer["metadata"], json!({}));
    assert_eq!(
        answer["status"],
        json!({"allowed": true, "reason":
        "RBAC: allowed by ClusterRoleBinding \"system:basic-user\" of ClusterRole \"system:basic-user\" to Group \"system:authenticated\""})
    );
}

#[test]
fn groups_alone_name_a_subject() {
    let review = json!({"spec": {"groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    assert_eq!(subject_access_review(&review, &rbac()).unwrap()["status"], json!({"allowed": true}));
}

#[test]
fn refusals() {
    let cases: [(&str, ApiResult<Value>, &str); 3] = [
        (
            "nothing at all, and metadata",
            subject_access_review(&json!({"metadata": {"name": "x"}, "spec": {}}), &rbac()),
            r#".authorization.k8s.io "" is invalid: [spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified, metadata: Invalid value: {"name":"x"}: must be empty]"#,
        ),
        (
            "a local review of a path",
            local_subject_access_review(
                &json!({"spec": {"user": "a", "nonResourceAttributes": {"path": "/x"}}}),
                "default",
                &rbac(),
            ),
            r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":""}: disallowed on this kind of request"#,
        ),
        (
            "a selector said twice",
            self_subject_access_review(
                &json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector":
                    {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}}}}),
                &alice(),
                &rbac(),
            ),
            r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements"#,
        ),
    ];
    for (rule, result, message) in cases {
        assert_eq!(result.unwrap_err().message, message, "{rule}");
    }
}

#[test]
fn rules_reviews_list_resource_and_path_rules_apart() {
    let review = json!({"spec": {"namespace": "default"}});
    let answer = self_subject_rules_review(&review, &alice(), &rbac()).unwrap();
    assert_eq!(answer["spec"], json!({}));
    let status = &answer["status"];
    assert_eq!(status["incomplete"], false);
    assert!(status["resourceRules"].as_array().unwrap().contains(&json!({"verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]})));
    assert!(status["nonResourceRules"].as_array().unwrap().contains(&json!({"verbs": ["get"],
        "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]})));
}
