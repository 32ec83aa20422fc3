//! Patches of a status alone take a fast path through the server. Both ways must give the same, byte for byte: here each is sent to
//! two clusters with one seed, and only one of them may take the fast path.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::LogEvent;
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::in_process;
use embedded_apiserver::{Cluster, Options, StatusAlone};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const PODS: &str = "/api/v1/namespaces/default/pods";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NODES: &str = "/api/v1/nodes";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

struct Both {
    clusters: [Cluster; 2],
    /// How many patches took the fast path, and how many did not.
    taken: Cell<(usize, usize)>,
}

impl Both {
    fn new() -> Self {
        let cluster = || {
            let clock = TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
            let clock = Arc::new(clock);
            Cluster::new(Options { clock, seed: Some(7), housekeeping: false, ..Options::default() })
        };
        Self { clusters: [cluster(), cluster()], taken: Cell::default() }
    }

    /// What both answer, warnings included.
    async fn ask(&self, method: Method, path: &str, agent: &str, body: &Value) -> (u16, Value) {
        let content = match method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let mut answers = Vec::new();
        for (cluster, is_long) in self.clusters.iter().zip([false, true]) {
            // To ask for what is done anyway is all that keeps these from the fast path.
            let query = if is_long && method == Method::PATCH { "?fieldValidation=Warn" } else { "" };
            let request = Request::builder()
                .method(method.clone())
                .uri(format!("{path}{query}"))
                .header(header::CONTENT_TYPE, content)
                .header(header::USER_AGENT, agent)
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap();
            let answer = cluster.service().oneshot(request).await.unwrap();
            let code = answer.status().as_u16();
            let is_fast = answer.extensions().get::<StatusAlone>().is_some();
            assert!(!(is_fast && is_long), "{body} was to take the other way");
            if method == Method::PATCH && code == 200 && !is_long {
                let (fast, other) = self.taken.get();
                self.taken.set(if is_fast { (fast + 1, other) } else { (fast, other + 1) });
            }
            let warnings = format!("{:?}", answer.headers().get_all(header::WARNING));
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            answers.push((code, warnings, String::from_utf8(text.to_vec()).unwrap()));
        }
        assert_eq!(answers[0], answers[1], "{method} {path} {body}");
        (answers[0].0, serde_json::from_str(&answers[0].2).unwrap())
    }

    /// One of them must show each deletion of these to a webhook, which allows it.
    async fn watch_deletions(&self, resources: &[&str]) {
        let allow = |review: Value| async move {
            Ok(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true},
            }))
        };
        for (cluster, resources) in self.clusters.iter().zip([&["leases"], resources]) {
            cluster.endpoints().register_service("default", "hook", in_process(allow));
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "hook"},
                "webhooks": [{
                    "name": "hook.usher.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"namespace": "default", "name": "hook"}},
                    "rules": [{
                        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": resources,
                    }],
                }],
            });
            let request = Request::post(HOOKS).header(header::CONTENT_TYPE, "application/json");
            let request = request.body(Full::new(Bytes::from(configuration.to_string()))).unwrap();
            assert_eq!(cluster.service().oneshot(request).await.unwrap().status(), 201);
        }
    }

    /// All that both have stored, and what was told of it.
    fn compare_stores(&self, resource: &str) {
        let told = |cluster: &Cluster| {
            let (events, _) = cluster.store().events_after(resource, 0, usize::MAX).unwrap();
            let line = |event: &LogEvent| (event.kind, event.object.text().to_string());
            (events.iter().map(line).collect::<Vec<_>>(), cluster.store().revision())
        };
        let [short, long] = &self.clusters;
        assert_eq!(told(short), told(long));
        assert!(!told(short).0.is_empty());
    }

    async fn patch(&self, path: &str, agent: &str, patch: &Value) -> (u16, Value) {
        // Owners of fields are kept with the second of their last write.
        tokio::time::advance(Duration::from_secs(3)).await;
        let answer = self.ask(Method::PATCH, path, agent, patch).await;
        let [short, long] = &self.clusters;
        assert_eq!(short.store().revision(), long.store().revision(), "{patch}");
        answer
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}, "annotations": {"text": "\"quoted\" {[\n"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]},
    })
}

#[tokio::test(start_paused = true)]
async fn statuses_of_pods_become_the_same_both_ways() {
    let both = Both::new();
    let (code, created) = both.ask(Method::POST, PODS, "kubectl/1", &pod("p")).await;
    assert_eq!(code, 201);
    let uid = &created["metadata"]["uid"];
    let status = format!("{PODS}/p/status");
    let ready =
        |ready: &str| json!({"type": "Ready", "status": ready, "lastTransitionTime": "2027-01-15T08:00:00Z"});
    let patches = [
        (200, json!({"metadata": {"uid": uid}, "status": {"phase": "Running", "podIP": "10.0.0.1"}})),
        (200, json!({"status": {"conditions": [ready("False"), {"type": "Mine", "status": "True"}]}})),
        (200, json!({"status": {"conditions": [ready("True")], "podIP": null}})),
        (200, json!({"status": {"conditions": [ready("True")]}})),
        (200, json!({"status": {"conditions": [{"$patch": "delete", "type": "Mine"}]}})),
        (200, json!({"status": {"startTime": "2027-01-15T08:00:00+00:00", "podIPs": [{"ip": "10.0.0.2"}]}})),
        (
            200,
            json!({"status": {"containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "image": "i:1", "imageID": ""}]}}),
        ),
        (200, json!({"status": {"$retainKeys": ["phase", "message"], "message": "m \"quoted\" \u{7}"}})),
        (200, json!({"status": {"unknown": 1, "phase": "Pending"}})),
        (200, json!({"status": {"phase": "Running"}, "metadata": {"labels": {"app": "b"}}})),
        (200, json!({"status": {"phase": "Failed"}, "spec": {"nodeName": "m"}})),
        (200, json!({"status": {}})),
        (200, json!({})),
        (409, json!({"metadata": {"resourceVersion": "1"}, "status": {"phase": "Running"}})),
        (422, json!({"metadata": {"uid": "other"}, "status": {"phase": "Running"}})),
        (422, json!({"status": {"conditions": {"type": "Ready"}}})),
        (422, json!({"status": "Running"})),
    ];
    for (code, patch) in &patches {
        for agent in ["kubelet/1", "kube-scheduler/1", "kubelet/1"] {
            let (answered, body) = both.patch(&status, agent, patch).await;
            assert_eq!(answered, *code, "{patch}: {body}");
        }
    }
    // Those that change nothing, or more than the status, take the other way.
    let (fast, other) = both.taken.get();
    assert!(fast >= 5 && other >= 5, "{fast} patches took the fast path, {other} did not");
    for (field, least) in [("status.phase", 1), ("spec.nodeName", 1)] {
        let value = if field == "status.phase" { "Failed" } else { "n" };
        let (_, list) = both
            .ask(Method::GET, &format!("{PODS}?fieldSelector={field}%3D{value}"), "kubectl/1", &Value::Null)
            .await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(least), "selectors see what was written");
    }
}

#[tokio::test(start_paused = true)]
async fn fields_have_the_same_owners_both_ways_whatever_these_are_called() {
    let both = Both::new();
    assert_eq!(both.ask(Method::POST, PODS, "kubectl/1", &pod("p")).await.0, 201);
    let path = format!("{PODS}/p/status");
    for (agent, phase) in [("some \"body\" \\/1", "Pending"), ("kubelet/1", "Running"), ("a !/1", "Failed")] {
        let (code, body) = both.patch(&path, agent, &json!({"status": {"phase": phase}})).await;
        assert_eq!((code, &body["status"]["phase"]), (200, &json!(phase)), "{agent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_goes_the_same_way() {
    let both = Both::new();
    for (name, grace) in [("waits", 30), ("held", 0)] {
        let mut pod = pod(name);
        if grace == 0 {
            pod["metadata"]["finalizers"] = json!(["example.com/held"]);
        }
        both.ask(Method::POST, PODS, "kubectl/1", &pod).await;
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace});
        assert_eq!(both.ask(Method::DELETE, &format!("{PODS}/{name}"), "kubectl/1", &options).await.0, 200);
        let path = format!("{PODS}/{name}/status");
        assert_eq!(both.patch(&path, "kubelet/1", &json!({"status": {"phase": "Failed"}})).await.0, 200);
        assert_eq!(both.ask(Method::GET, &format!("{PODS}/{name}"), "kubectl/1", &Value::Null).await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn counts_of_workloads_and_states_of_nodes_become_the_same_both_ways() {
    let both = Both::new();
    let template = json!({
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    });
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    let objects = [
        (
            REPLICA_SETS,
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "o"}, "spec": spec}),
        ),
        (
            DEPLOYMENTS,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "o"}, "spec": spec}),
        ),
        (
            BUDGETS,
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "o"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
            }),
        ),
        (NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "o"}})),
    ];
    let condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": ""});
    let patches = [
        json!({"status": {"replicas": 3, "readyReplicas": 2, "observedGeneration": 1}}),
        json!({"status": {"availableReplicas": 2, "conditions": [condition]}}),
        json!({"status": {"replicas": 1, "readyReplicas": 2}}),
        json!({"status": {"replicas": -1}}),
        json!({"status": {"readyReplicas": 0, "availableReplicas": 0}}),
        json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}}),
        json!({"status": {"disruptionsAllowed": -1}}),
        json!({"status": {"disruptedPods": {"p": "2027-01-15T08:00:00Z"}}}),
        json!({"status": {"capacity": {"cpu": "1000m", "memory": "1024Mi"}}}),
        json!({"status": {"replicas": "many"}}),
    ];
    let mut codes = Vec::new();
    for (path, object) in &objects {
        assert_eq!(both.ask(Method::POST, path, "kubectl/1", object).await.0, 201);
        for patch in &patches {
            codes.push(both.patch(&format!("{path}/o/status"), "kube-controller-manager/1", patch).await.0);
        }
    }
    assert!(codes.contains(&200) && codes.contains(&422), "{codes:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_go_the_same_both_ways() {
    let both = Both::new();
    both.watch_deletions(&["pods", "replicasets", "nodes"]).await;
    let with = |name: &str, field: &str, value: Value| {
        let mut pod = pod(name);
        pod["metadata"][field] = value;
        pod
    };
    let mut unbound = pod("unbound");
    unbound["spec"].as_object_mut().unwrap().remove("nodeName");
    let mut short = pod("short");
    short["spec"]["terminationGracePeriodSeconds"] = 5.into();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    });
    for (path, object) in [
        (PODS, unbound),
        (PODS, short),
        (PODS, pod("plain")),
        (PODS, with("held", "finalizers", json!(["example.com/held"]))),
        (PODS, with("owned", "generateName", "o-".into())),
        (REPLICA_SETS, set),
        (NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})),
    ] {
        assert_eq!(both.ask(Method::POST, path, "kubectl/1", &object).await.0, 201);
    }
    let options = |more: Value| {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options
    };
    for (path, more, code) in [
        (format!("{PODS}/unbound"), json!({}), 200),
        (format!("{PODS}/short"), json!({}), 200),
        (format!("{PODS}/short"), json!({"gracePeriodSeconds": 2}), 200),
        (format!("{PODS}/short"), json!({"gracePeriodSeconds": 60}), 200),
        (format!("{PODS}/short"), json!({"gracePeriodSeconds": 0}), 200),
        (format!("{PODS}/short"), json!({}), 404),
        (format!("{PODS}/plain"), json!({"preconditions": {"uid": "other"}}), 409),
        (format!("{PODS}/plain"), json!({"preconditions": {"resourceVersion": "1"}}), 409),
        (format!("{PODS}/plain"), json!({"propagationPolicy": "Foreground"}), 200),
        (format!("{PODS}/held"), json!({"gracePeriodSeconds": 0}), 200),
        (format!("{PODS}/held"), json!({"gracePeriodSeconds": 0}), 200),
        (format!("{PODS}/owned"), json!({"gracePeriodSeconds": -1}), 200),
        (format!("{REPLICA_SETS}/set"), json!({"propagationPolicy": "Orphan"}), 200),
        (format!("{REPLICA_SETS}/set"), json!({"propagationPolicy": "Background"}), 200),
        (format!("{NODES}/n"), json!({}), 200),
    ] {
        tokio::time::advance(Duration::from_secs(1)).await;
        let (answered, body) = both.ask(Method::DELETE, &path, "kubectl/1", &options(more.clone())).await;
        assert_eq!(answered, code, "{path} {more}: {body}");
    }
    for resource in ["pods", "apps/replicasets", "nodes"] {
        both.compare_stores(resource);
    }
}
