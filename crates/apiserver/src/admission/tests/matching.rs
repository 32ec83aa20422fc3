//! Which requests a webhook sees.

use super::*;

/// Whether a webhook with these changes is called for the request.
async fn is_called(changes: Value, case: &Case) -> bool {
    let log = Log::default();
    let seen = log.clone();
    let endpoint = in_process(move |review| {
        seen.add("called");
        std::future::ready(Ok(respond(&review, json!({"allowed": true}))))
    });
    case.validate(&one_validating(changes, endpoint)).await.unwrap();
    !log.entries().is_empty()
}

#[tokio::test]
async fn selectors() {
    let labelled = || {
        let mut case = Case::create();
        case.object["metadata"]["labels"] = json!({"app": "web"});
        case
    };
    let unlabelling = || {
        let mut case = labelled();
        case.operation = Operation::Update;
        case.old = Some(case.object.clone());
        case.object["metadata"]["labels"] = json!({});
        case
    };
    let namespaces =
        json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["namespaces"]}]);
    let namespace = |operation: Operation| {
        let mut case = Case::create();
        case.attributes.resource = "namespaces".into();
        case.attributes.namespace = String::new();
        case.attributes.name = "default".into();
        case.operation = operation;
        case.object = json!({"metadata": {"name": "default", "labels": {"env": "test"}}});
        case
    };
    let by_namespace = |env: &str| json!({"namespaceSelector": {"matchLabels": {"env": env}}});
    let namespaces_by = |env: &str| {
        let mut changes = by_namespace(env);
        changes["rules"] = namespaces.clone();
        changes
    };
    let by_object = json!({"objectSelector": {"matchLabels": {"app": "web"}}});
    let cases = [
        ("the namespace has the label", by_namespace("prod"), Case::create(), true),
        ("the namespace has another", by_namespace("test"), Case::create(), false),
        (
            "a namespace being written: its new labels",
            namespaces_by("test"),
            namespace(Operation::Create),
            true,
        ),
        (
            "a namespace being deleted: its stored labels",
            namespaces_by("prod"),
            namespace(Operation::Delete),
            true,
        ),
        ("the object has the label", by_object.clone(), labelled(), true),
        ("the object has no labels", by_object.clone(), Case::create(), false),
        ("the object had the label", by_object.clone(), unlabelling(), true),
    ];
    for (rule, changes, case, expected) in cases {
        assert_eq!(is_called(changes, &case).await, expected, "{rule}");
    }
}

#[tokio::test]
async fn objects_of_the_cluster_are_not_exempted_by_namespace() {
    let mut case = Case::create();
    case.attributes.resource = "nodes".into();
    case.attributes.namespace = String::new();
    let changes = json!({"namespaceSelector": {"matchLabels": {"env": "none"}},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    assert!(is_called(changes, &case).await);
}

#[tokio::test]
async fn a_missing_namespace_is_not_found() {
    let changes = json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}});
    let webhooks = one_validating(changes, answering(json!({"allowed": true})));
    let mut case = Case::create();
    case.attributes.namespace = "gone".into();
    let error = case.validate(&webhooks).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (404, "namespaces \"gone\" not found"));
}

#[tokio::test]
async fn a_broken_selector_fails_the_requests_it_would_judge() {
    let changes = json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
    let webhooks = one_validating(changes, answering(json!({"allowed": true})));
    assert_eq!(Case::create().validate(&webhooks).await.unwrap_err().code, 500);
    let mut pod = Case::create();
    pod.attributes.resource = "pods".into();
    assert!(pod.validate(&webhooks).await.is_ok());
}

#[tokio::test]
async fn webhook_configurations_are_never_sent_to_webhooks() {
    let group = "admissionregistration.k8s.io";
    let mut case = Case::create();
    case.attributes.group = group.into();
    case.attributes.resource = "validatingwebhookconfigurations".into();
    case.kind =
        Kind { group: group.into(), version: "v1".into(), kind: "ValidatingWebhookConfiguration".into() };
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    assert!(!is_called(json!({"rules": rules}), &case).await);
    let webhooks = one_validating(json!({"rules": rules}), answering(json!({"allowed": true})));
    assert!(!webhooks.any_match(&case.attributes, &case.kind, Operation::Create));
}

#[test]
fn the_cheap_question_whether_anything_matches() {
    assert!(Webhooks::default().is_empty());
    let creates = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let webhooks = one_mutating(json!({"rules": creates}), answering(json!({"allowed": true})));
    let case = Case::create();
    assert!(!webhooks.is_empty());
    assert!(webhooks.any_match(&case.attributes, &case.kind, Operation::Create));
    assert!(!webhooks.any_match(&case.attributes, &case.kind, Operation::Update));
}
