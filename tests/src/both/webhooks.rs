//! Admission webhooks, written once and asked by both API servers: the same requests, the same answers.

use crate::webhook_server::WebhookServer;
use crate::{Answer, TestCluster};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the webhook at each path answers.
pub async fn decide(path: String, request: Value) -> Value {
    let denied = |status: Value| json!({"allowed": false, "status": status});
    match path.as_str() {
        "label" => patched(json!([{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}])),
        "second" => {
            // Proof that it sees what the first has done.
            let seen = request["object"]["metadata"]["labels"]["hooked"] == "yes";
            patched(
                json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": seen.to_string()}}]),
            )
        }
        "spoil" => patched(json!([{"op": "add", "path": "/metadata/labels", "value": {"not a key": "x"}}])),
        "teapot" => json!({
            "allowed": false, "status": {"code": 418, "message": "no coffee here"},
            "warnings": ["it is a teapot", "say \"please\""],
        }),
        "plain" => json!({"allowed": false}),
        "reason" => denied(json!({"reason": "Forbidden by taste", "code": 403})),
        "warn" => json!({"allowed": true, "warnings": ["mind the gap"]}),
        "budget" => {
            denied(json!({"code": 429, "reason": "TooManyRequests", "message": "an interceptor is at work"}))
        }
        "slow" => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            json!({"allowed": true})
        }
        _ => json!({"allowed": true}),
    }
}

fn patched(patch: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

/// The configuration of one webhook: for configmaps created in the namespace that is named as it is.
pub fn hook(server: &WebhookServer, name: &str, path: &str, changes: Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": server.url(path), "caBundle": server.ca_bundle()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
    });
    for (field, value) in changes.as_object().unwrap() {
        hook[field] = value.clone();
    }
    hook
}

fn configuration(kind: &str, name: &str, hooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": hooks,
    })
}

fn configurations(kind: &str) -> String {
    format!("{CONFIGURATIONS}/{}webhookconfigurations", kind.to_lowercase())
}

pub struct Scene {
    pub cluster: TestCluster,
    pub server: WebhookServer,
}

impl Scene {
    pub async fn new(cluster: TestCluster) -> Self {
        let server =
            WebhookServer::start(Arc::new(|path, request| decide(path, request).boxed())).await.unwrap();
        Self { cluster, server }
    }

    pub async fn namespaces(&self, names: &[&str]) {
        for name in names {
            let namespace = json!({"metadata": {"name": name, "labels": {"team": "hooks"}}});
            self.cluster.created("/api/v1/namespaces", &namespace).await.unwrap();
        }
    }

    pub async fn register(&self, kind: &str, name: &str, hooks: &[Value]) {
        self.cluster.created(&configurations(kind), &configuration(kind, name, hooks)).await.unwrap();
    }

    /// An API server learns of configurations in its own time, but in order: once the last one acts, all do.
    async fn all_act(&self) {
        self.namespaces(&["sentinel"]).await;
        for kind in ["Mutating", "Validating"] {
            let name = format!("zz-{}", kind.to_lowercase());
            let only = json!({"objectSelector": {"matchLabels": {"probe": name}}, "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["UPDATE"],
            }]});
            self.register(kind, &name, &[hook(&self.server, "sentinel", "plain", only)]).await;
            let probe = json!({"metadata": {"name": name, "labels": {"probe": name}}});
            self.cluster.created(&maps("sentinel"), &probe).await.unwrap();
            let path = format!("{}/{name}", maps("sentinel"));
            let mut count = 0;
            while self
                .cluster
                .merge_patch(&path, &json!({"data": {"count": count.to_string()}}))
                .await
                .unwrap()
                .status
                == 200
            {
                count += 1;
                assert!(count < 1000, "{kind} webhooks are not asked");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    pub async fn create(&self, namespace: &str, name: &str, labels: Value) -> Answer {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        self.cluster.post(&maps(namespace), &map).await.unwrap()
    }
}

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// What a person sees of an answer: status, message, warnings.
pub fn seen(answer: &Answer) -> (u16, String, Vec<String>) {
    let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
    (answer.status, message, answer.warnings())
}

fn refusal(status: u16, message: &str) -> (u16, String, Vec<String>) {
    (status, message.to_owned(), Vec::new())
}

/// A port at which nobody listens.
async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

pub async fn webhooks_decide(cluster: TestCluster) {
    let scene = Scene::new(cluster).await;
    let server = &scene.server;
    scene.namespaces(&["mutate", "spoil", "deny", "plain", "reason", "warn", "evict", "delete", "dry"]).await;
    scene
        .namespaces(&[
            "condition",
            "broken",
            "lenient",
            "object",
            "down",
            "ignored",
            "slow",
            "patient",
            "untrusted",
        ])
        .await;
    scene.namespaces(&["stranger"]).await;
    let closed = closed_port().await;
    let rule = |resource: &str, operation: &str| {
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": [operation],
        });
        json!([rule])
    };
    let nobody = json!({"url": format!("https://127.0.0.1:{closed}/down"), "caBundle": server.ca_bundle()});
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let missing = json!([{"name": "missing", "expression": "object.data.missing == 'x'"}]);
    scene
        .register(
            "Mutating",
            "mutating",
            &[
                hook(server, "mutate", "label", json!({})),
                hook(server, "mutate", "second", json!({"name": "mutate-2.example.com"})),
                hook(server, "spoil", "spoil", json!({})),
            ],
        )
        .await;
    scene
        .register(
            "Validating",
            "validating",
            &[
                hook(server, "deny", "teapot", json!({})),
                hook(server, "plain", "plain", json!({})),
                hook(server, "reason", "reason", json!({})),
                hook(
                    server,
                    "warn",
                    "warn",
                    json!({"namespaceSelector": {"matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["warn"]},
                        {"key": "team", "operator": "Exists"},
                        {"key": "stranger", "operator": "DoesNotExist"},
                    ]}}),
                ),
                hook(server, "evict", "budget", json!({"rules": rule("pods/eviction", "CREATE")})),
                hook(server, "delete", "deletion", json!({"rules": rule("configmaps", "DELETE")})),
                hook(server, "dry", "dry", json!({"sideEffects": "NoneOnDryRun"})),
                hook(
                    server,
                    "condition",
                    "plain",
                    json!({"matchConditions": [
                        {"name": "named", "expression": "object.metadata.name.startsWith('x-')"},
                        {"name": "not-root", "expression": "request.userInfo.username != 'root'"},
                    ]}),
                ),
                hook(server, "broken", "plain", json!({"matchConditions": missing})),
                hook(
                    server,
                    "lenient",
                    "plain",
                    json!({"matchConditions": missing, "failurePolicy": "Ignore"}),
                ),
                hook(
                    server,
                    "object",
                    "plain",
                    json!({"objectSelector": {"matchLabels": {"look": "closely"}}}),
                ),
                hook(server, "down", "plain", json!({"clientConfig": nobody})),
                hook(server, "ignored", "plain", json!({"clientConfig": nobody, "failurePolicy": "Ignore"})),
                hook(server, "slow", "slow", json!({"timeoutSeconds": 1})),
                hook(server, "patient", "slow", json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"})),
                hook(
                    server,
                    "untrusted",
                    "plain",
                    json!({
                        "clientConfig": {"url": server.url("plain"), "caBundle": STANDARD.encode(other)},
                    }),
                ),
            ],
        )
        .await;
    scene.all_act().await;

    mutating_webhooks_change_what_is_stored(&scene).await;
    denials_carry_code_message_and_warnings(&scene).await;
    selectors_and_conditions_decide_who_is_asked(&scene).await;
    failures_follow_the_policy(&scene, closed).await;
    evictions_can_be_denied_with_429(&scene).await;
    deletions_show_the_old_object(&scene).await;
    dry_runs_say_so(&scene).await;
}

async fn mutating_webhooks_change_what_is_stored(scene: &Scene) {
    let created = scene.create("mutate", "a", json!({})).await;
    assert_eq!((created.status, &created.body["metadata"]["labels"]), (201, &json!({"hooked": "yes"})));
    assert_eq!(
        created.body["metadata"]["annotations"],
        json!({"seen": "true"}),
        "in order, each sees the last"
    );
    let stored = scene.cluster.get(&format!("{}/a", maps("mutate"))).await.unwrap();
    assert_eq!(stored.body["metadata"]["labels"], json!({"hooked": "yes"}));

    let update = json!({"metadata": {"labels": {"hooked": null}}});
    let updated = scene.cluster.merge_patch(&format!("{}/a", maps("mutate")), &update).await.unwrap();
    assert_eq!(
        (updated.status, &updated.body["metadata"]["labels"]),
        (200, &Value::Null),
        "only CREATE is hooked"
    );

    let spoiled = scene.create("spoil", "a", json!({})).await;
    let (status, message, _) = seen(&spoiled);
    assert_eq!(status, 422, "what a webhook makes is validated");
    let wanted = "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"not a key\": name part must consist of";
    assert!(message.starts_with(wanted), "{message}");
}

async fn denials_carry_code_message_and_warnings(scene: &Scene) {
    let (status, message, warnings) = seen(&scene.create("deny", "a", json!({})).await);
    assert_eq!(status, 418);
    assert_eq!(message, r#"admission webhook "deny.example.com" denied the request: no coffee here"#);
    assert_eq!(warnings, ["it is a teapot", "say \"please\""]);
    let missing = scene.cluster.get(&format!("{}/a", maps("deny"))).await.unwrap();
    assert_eq!(missing.status, 404, "nothing was stored");

    let plain = scene.create("plain", "a", json!({})).await;
    let wanted = r#"admission webhook "plain.example.com" denied the request without explanation"#;
    assert_eq!(seen(&plain), refusal(400, wanted));
    let reason = scene.create("reason", "a", json!({})).await;
    let wanted = r#"admission webhook "reason.example.com" denied the request: Forbidden by taste"#;
    assert_eq!(seen(&reason), refusal(403, wanted));

    let warned = scene.create("warn", "a", json!({})).await;
    assert_eq!(seen(&warned), (201, String::new(), vec!["mind the gap".to_owned()]));
}

async fn selectors_and_conditions_decide_who_is_asked(scene: &Scene) {
    let denied = |name: &str| {
        refusal(
            400,
            &format!(r#"admission webhook "{name}.example.com" denied the request without explanation"#),
        )
    };
    assert_eq!(scene.create("stranger", "a", json!({})).await.status, 201, "no webhook names this namespace");
    assert_eq!(seen(&scene.create("object", "a", json!({"look": "closely"})).await), denied("object"));
    assert_eq!(scene.create("object", "b", json!({"look": "away"})).await.status, 201);
    assert_eq!(seen(&scene.create("condition", "x-1", json!({})).await), denied("condition"));
    assert_eq!(scene.create("condition", "y-1", json!({})).await.status, 201);

    let broken = scene.create("broken", "a", json!({})).await;
    let wanted = "configmaps \"a\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: no such key: data";
    assert_eq!(seen(&broken), refusal(403, wanted));
    assert_eq!(
        scene.create("lenient", "a", json!({})).await.status,
        201,
        "an error under Ignore skips the webhook"
    );
}

async fn failures_follow_the_policy(scene: &Scene, closed: u16) {
    let url = format!("https://127.0.0.1:{closed}/down?timeout=10s");
    let wanted = format!(
        "Internal error occurred: failed calling webhook \"down.example.com\": failed to call webhook: \
         Post \"{url}\": dial tcp 127.0.0.1:{closed}: connect: connection refused"
    );
    assert_eq!(seen(&scene.create("down", "a", json!({})).await), refusal(500, &wanted));
    assert_eq!(seen(&scene.create("ignored", "a", json!({})).await), (201, String::new(), Vec::new()));

    let (slow, patient) =
        tokio::join!(scene.create("slow", "a", json!({})), scene.create("patient", "a", json!({})));
    let url = format!("{}?timeout=1s", scene.server.url("slow"));
    let wanted = format!(
        "Internal error occurred: failed calling webhook \"slow.example.com\": failed to call webhook: \
         Post \"{url}\": context deadline exceeded"
    );
    assert_eq!(seen(&slow), refusal(500, &wanted));
    assert_eq!(patient.status, 201);

    let (status, message, _) = seen(&scene.create("untrusted", "a", json!({})).await);
    assert_eq!(status, 500);
    assert!(
        message.contains("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{message}"
    );
}

async fn evictions_can_be_denied_with_429(scene: &Scene) {
    let pods = "/api/v1/namespaces/evict/pods";
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    scene.cluster.created(pods, &pod).await.unwrap();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "evict"}});
    let answer = scene.cluster.post(&format!("{pods}/a/eviction"), &eviction).await.unwrap();
    let wanted = r#"admission webhook "evict.example.com" denied the request: an interceptor is at work"#;
    assert_eq!(seen(&answer), refusal(429, wanted));
    assert_eq!(answer.body["reason"], "TooManyRequests");
    let review = &scene.server.asked("budget")[0];
    assert_eq!((&review["subResource"], &review["kind"]["kind"]), (&json!("eviction"), &json!("Eviction")));
    assert_eq!((&review["name"], &review["namespace"]), (&json!("a"), &json!("evict")));
    let alive = scene.cluster.get(&format!("{pods}/a")).await.unwrap();
    assert_eq!((alive.status, &alive.body["metadata"]["deletionTimestamp"]), (200, &Value::Null));
}

async fn deletions_show_the_old_object(scene: &Scene) {
    scene.create("delete", "a", json!({"kept": "in-mind"})).await;
    let deleted = scene.cluster.delete(&format!("{}/a", maps("delete"))).await.unwrap();
    assert_eq!(deleted.status, 200);
    let asked = scene.server.asked("deletion");
    let [review] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((&review["operation"], &review["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(review["oldObject"]["metadata"]["labels"], json!({"kept": "in-mind"}));
    assert_eq!(review["userInfo"]["username"], "admin");
    assert_eq!(review["options"]["kind"], "DeleteOptions");
}

async fn dry_runs_say_so(scene: &Scene) {
    let map = json!({"metadata": {"name": "a"}});
    let answer = scene.cluster.post(&format!("{}?dryRun=All", maps("dry")), &map).await.unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(scene.create("dry", "a", json!({})).await.status, 201, "the dry run stored nothing");
    let asked: Vec<Value> = scene.server.asked("dry").iter().map(|review| review["dryRun"].clone()).collect();
    assert_eq!(asked, [json!(true), json!(false)]);

    let effects = json!({"sideEffects": "Some"});
    let refused = configuration("Validating", "effects", &[hook(&scene.server, "dry", "dry", effects)]);
    let answer = scene.cluster.post(&configurations("Validating"), &refused).await.unwrap();
    let wanted = "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"effects\" is invalid: \
        webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"";
    assert_eq!(seen(&answer), refusal(422, wanted));
}
