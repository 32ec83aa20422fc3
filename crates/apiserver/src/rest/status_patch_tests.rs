//! Patches of a status alone take a fast path through the server. Both ways must give the same, byte for byte: here each is sent to
//! two clusters with one seed, and only one of them may take the fast path.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::clock::TokioClock;
use crate::response::StatusAlone;
use crate::{Cluster, Options};

const PODS: &str = "/api/v1/namespaces/default/pods";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const NODES: &str = "/api/v1/nodes";

struct Both {
    clusters: [Cluster; 2],
    /// How many of the patches that were answered with 200 took the fast path, and how many did not.
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
        for (cluster, is_kept_from_it) in self.clusters.iter().zip([false, true]) {
            // To ask for what is done anyway is all that keeps these from the fast path.
            let query = if is_kept_from_it && method == Method::PATCH { "?fieldValidation=Warn" } else { "" };
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
            assert!(!(is_fast && is_kept_from_it), "{body} was to be kept from the fast path");
            if method == Method::PATCH && code == 200 && !is_kept_from_it {
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

    async fn patch(&self, path: &str, agent: &str, patch: &Value) -> (u16, Value) {
        // Owners of fields are kept with the second of their last write.
        tokio::time::advance(Duration::from_secs(3)).await;
        let answer = self.ask(Method::PATCH, path, agent, patch).await;
        let [fast, other] = &self.clusters;
        assert_eq!(fast.store().revision(), other.store().revision(), "{patch}");
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
    let mut fast = Vec::new();
    for (number, (code, patch)) in patches.iter().enumerate() {
        for agent in ["kubelet/1", "kube-scheduler/1", "kubelet/1"] {
            let (answered, body) = both.patch(&status, agent, patch).await;
            assert_eq!(answered, *code, "{patch}: {body}");
            let (taken, other) = both.taken.take();
            assert_eq!(taken + other, usize::from(*code == 200), "{patch}");
            fast.extend((taken == 1).then_some((number, agent)));
        }
    }
    // Those that change nothing, or more than the status, take the other way. So does who writes the same again.
    assert_eq!(fast, [0, 1, 2, 4, 5, 6, 7].map(|number| (number, "kubelet/1")));
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
    for (agent, phase) in [("some \"body\" \\/1", "Running"), ("kubelet/1", "Failed"), ("a !/1", "Succeeded")]
    {
        let (code, body) = both.patch(&path, agent, &json!({"status": {"phase": phase}})).await;
        assert_eq!((code, &body["status"]["phase"]), (200, &json!(phase)), "{agent}");
    }
    // An owner whose name has to be escaped is written by this path, and read by the other.
    assert_eq!(both.taken.take(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_goes_the_same_way() {
    let both = Both::new();
    // With the last grace gone any write may end the pod: that is left to the other way.
    for (name, grace, taken) in [("waits", 30, (1, 0)), ("held", 0, (0, 1))] {
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
        assert_eq!(both.taken.take(), taken, "{name}");
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
        (
            NODES,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "o", "labels": {"app": "a"}}}),
        ),
    ];
    let condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": ""});
    let patches = [
        json!({"status": {"replicas": 3, "readyReplicas": 2, "observedGeneration": 1}}),
        json!({"status": {"availableReplicas": 2, "conditions": [condition]}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": ""}]}}),
        json!({"status": {"replicas": 1, "readyReplicas": 2}}),
        json!({"status": {"replicas": -1}}),
        json!({"status": {"readyReplicas": 0, "availableReplicas": 0}}),
        json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}}),
        json!({"status": {"disruptionsAllowed": -1}}),
        json!({"status": {"disruptedPods": {"p": "2027-01-15T08:00:00Z"}}}),
        json!({"status": {"capacity": {"cpu": "1000m", "memory": "1024Mi"}}}),
        json!({"status": {"replicas": "many"}}),
    ];
    // How many take the fast path, the other way, or are refused.
    let mut ways = Vec::new();
    for (path, object) in &objects {
        let mut refused = 0;
        assert_eq!(both.ask(Method::POST, path, "kubectl/1", object).await.0, 201);
        for patch in &patches {
            let (code, body) =
                both.patch(&format!("{path}/o/status"), "kube-controller-manager/1", patch).await;
            assert!([200, 422].contains(&code), "{path} {patch}: {body}");
            refused += usize::from(code == 422);
        }
        let (fast, other) = both.taken.take();
        ways.push((fast, other, refused));
    }
    assert_eq!(ways, [(4, 4, 3), (4, 4, 3), (3, 7, 1), (2, 9, 0)]);
}
