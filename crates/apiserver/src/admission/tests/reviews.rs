//! The AdmissionReview that a webhook receives.

use super::*;

/// The review of the request, with its uid taken out.
async fn review(case: &Case, changes: Value) -> Value {
    let seen = Arc::new(Mutex::new(Value::Null));
    let kept = seen.clone();
    let endpoint = in_process(move |review: Value| {
        *kept.lock() = review.clone();
        std::future::ready(Ok(respond(&review, json!({"allowed": true}))))
    });
    case.validate(&one_validating(changes, endpoint)).await.unwrap();
    let mut review = seen.lock().clone();
    let uid = review["request"].as_object_mut().unwrap().remove("uid").unwrap();
    let parts: Vec<usize> = uid.as_str().unwrap().split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    review
}

#[tokio::test]
async fn a_create() {
    let case = Case::create();
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    assert_eq!(
        review(&case, json!({})).await,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "settings", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "alice", "uid": "u1", "groups": ["dev"]},
            "object": case.object, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    );
}

#[tokio::test]
async fn a_delete_has_only_an_old_object() {
    let case = Case::delete();
    let request = &review(&case, json!({})).await["request"];
    assert_eq!(request["operation"], "DELETE");
    assert_eq!(request["object"], Value::Null);
    assert_eq!(Some(&request["oldObject"]), case.old.as_ref());
    assert_eq!(request["options"]["kind"], "DeleteOptions");
}

#[tokio::test]
async fn a_subresource_has_the_kind_of_its_body() {
    let mut case = Case::create();
    case.attributes.resource = "pods".into();
    case.attributes.subresource = "eviction".into();
    case.attributes.name = "web-0".into();
    case.kind = Kind { group: "policy".into(), version: "v1".into(), kind: "Eviction".into() };
    case.dry_run = true;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}]);
    let request = &review(&case, json!({"rules": rules})).await["request"];
    assert_eq!(request["subResource"], "eviction");
    assert_eq!(request["requestSubResource"], "eviction");
    assert_eq!(request["kind"], json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
    assert_eq!(request["resource"]["resource"], "pods");
    assert_eq!(request["name"], "web-0", "the name in the URL");
    assert_eq!(request["dryRun"], true);
}

#[tokio::test]
async fn a_namespace_is_in_itself() {
    let mut case = Case::create();
    case.attributes.resource = "namespaces".into();
    case.attributes.namespace = String::new();
    case.object = json!({"metadata": {"name": "shop"}});
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}]);
    let request = &review(&case, json!({"rules": rules})).await["request"];
    assert_eq!((&request["name"], &request["namespace"]), (&json!("shop"), &json!("shop")));
}

#[tokio::test]
async fn options_are_passed_on() {
    let mut case = Case::create();
    case.options = json!({"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"});
    assert_eq!(review(&case, json!({})).await["request"]["options"], case.options);
}

#[tokio::test]
async fn the_older_version_is_spoken_too_and_checked_less() {
    let endpoint = in_process(|review: Value| {
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1beta1");
        let patch = BASE64_STANDARD.encode(r#"[{"op":"add","path":"/data/z","value":"1"}]"#);
        std::future::ready(Ok(json!({"response": {"allowed": true, "patch": patch}})))
    });
    let mut case = Case::create();
    case.mutate(&one_mutating(json!({"admissionReviewVersions": ["v1beta1", "v1"]}), endpoint))
        .await
        .unwrap();
    assert_eq!(case.object["data"]["z"], "1");
}

#[test]
fn the_calls_can_be_spawned() {
    fn is_send<T: Send>(_: T) {}
    let webhooks = Webhooks::default();
    let mut case = Case::create();
    is_send(case.mutate(&webhooks));
    is_send(case.validate(&webhooks));
}
