//! Whatever is sent, the embedded server answers, and what it refuses leaves the store as it was.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

use bytes::Bytes;
use embedded_apiserver::{Cluster, Options};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

const PATHS: [&str; 16] = [
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/web",
    "/api/v1/namespaces/default/pods/web/status",
    "/api/v1/namespaces/default/pods/web/eviction",
    "/api/v1/namespaces/default/pods/web/binding",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/nodes/n1",
    "/apis/apps/v1/namespaces/default/deployments/web",
    "/apis/apps/v1/namespaces/default/deployments/web/scale",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/example.com/v1/widgets/w",
    "/api/v1/namespaces/%ff/pods/..%2f",
];

const TYPES: [&str; 9] = [
    "application/json",
    "application/yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
];

const QUERIES: [&str; 12] = [
    "",
    "dryRun=All",
    "fieldManager=x&force=true",
    "limit=-1",
    "limit=1&continue=%7B%7D",
    "labelSelector=a%20in%20(",
    "fieldSelector=spec.nodeName%3D%3D%3D",
    "resourceVersion=99999999999999999999",
    "resourceVersion=5&resourceVersionMatch=Exact",
    "gracePeriodSeconds=-9223372036854775808",
    "fieldValidation=Strict&pretty=%00",
    "propagationPolicy=Sideways",
];

/// Objects that are nearly right, to be spoiled.
fn seeds() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}, "deleteOptions": {"preconditions": {"uid": "x"}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
        json!([{"op": "replace", "path": "/metadata/labels", "value": {"x": "y"}}, {"op": "test", "path": "/spec/-1", "value": null}]),
        json!({"metadata": {"finalizers": ["a/b"], "$setElementOrder/finalizers": ["a/b"]}, "spec": {"$patch": "replace"}}),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "u", "resourceAttributes": {"verb": "get"}}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [{"name": "a.b.c", "rules": []}]}),
    ]
}

/// Puts something else somewhere in the object.
fn spoil(value: &mut Value, path: &[u8], with: &Value) {
    let Some((step, rest)) = path.split_first() else {
        *value = with.clone();
        return;
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = *step as usize % fields.len();
            if let Some(field) = fields.values_mut().nth(at) {
                spoil(field, rest, with);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = *step as usize % items.len();
            spoil(&mut items[at], rest, with);
        }
        other => *other = with.clone(),
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        ".{0,12}".prop_map(Value::from),
        Just(json!("9".repeat(400))),
    ];
    scalar.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z$/.]{0,8}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let spoiled = (0..seeds().len(), prop::collection::vec(any::<u8>(), 0..5), anything()).prop_map(
        |(seed, path, with)| {
            let mut value = seeds().swap_remove(seed);
            spoil(&mut value, &path, &with);
            value.to_string().into_bytes()
        },
    );
    prop_oneof![
        6 => spoiled,
        1 => anything().prop_map(|value| value.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ]
}

fn request() -> impl Strategy<Value = (usize, usize, usize, usize, Vec<u8>)> {
    (0..METHODS.len(), 0..PATHS.len(), 0..TYPES.len(), 0..QUERIES.len(), body())
}

/// A cluster with something in it to spoil.
async fn cluster() -> Cluster {
    let cluster = Cluster::new(Options { housekeeping: false, seed: Some(1), ..Options::default() });
    for (path, object) in [
        ("/api/v1/nodes", json!({"metadata": {"name": "n1"}})),
        ("/api/v1/namespaces/default/pods", seeds().swap_remove(0)),
        ("/api/v1/namespaces/default/configmaps", seeds().swap_remove(1)),
        ("/apis/apps/v1/namespaces/default/deployments", seeds().swap_remove(3)),
    ] {
        let (code, answer) =
            send(&cluster, Method::POST, path, "application/json", object.to_string().into_bytes()).await;
        assert_eq!(code, 201, "{answer}");
    }
    cluster
}

async fn send(
    cluster: &Cluster,
    method: Method,
    uri: &str,
    content_type: &str,
    body: Vec<u8>,
) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", content_type)
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = cluster.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    // A watch would not end; nothing here asks for one.
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Each case is a run of requests on one cluster, so that one may spoil the ground for the next.
    #[test]
    fn every_request_gets_an_answer_and_refusals_change_nothing(requests in prop::collection::vec(request(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cluster = cluster().await;
            for (method, path, content_type, query, body) in requests {
                let before = cluster.store().revision();
                let uri = format!("{}?{}", PATHS[path], QUERIES[query]);
                let shown = String::from_utf8_lossy(&body).into_owned();
                let (code, answer) = send(&cluster, METHODS[method].clone(), &uri, TYPES[content_type], body).await;
                let after = cluster.store().revision();
                prop_assert!((200..600).contains(&code), "{uri} {shown}: {code}");
                prop_assert!(code < 300 || before == after, "{uri} {shown}: {code} {answer} but the store moved");
                let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&METHODS[method]);
                prop_assert!(!is_read || before == after, "{uri} {shown}: a read moved the store");
                let is_dry_run = QUERIES[query] == "dryRun=All";
                prop_assert!(!is_dry_run || before == after, "{uri} {shown}: a dry run moved the store");
            }
            Ok(())
        })?;
    }
}
