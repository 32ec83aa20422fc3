//! Objects with values that the API server takes and our types do not: admission reads past them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher_api::node_maintenance::default_drain_plan;
use usher_webhook::{Admission, Endpoint};

const UID: &str = "5d9c";
/// The API server takes the first two; jiff, which is ours, does not take the first.
const TIMES: [&str; 3] = ["9999-12-31T23:59:59Z", "0000-01-01T00:00:00+23:59", "not a time at all"];
const HELD_BY: &str = "nodemaintenance.k8s.io/held-by";
const INTERCEPTOR: &str = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";

/// Values of any shape, for fields that no verdict needs.
fn shapes() -> Vec<Value> {
    let times = TIMES.map(Value::from);
    let numbers = [json!(i64::MIN), json!(u64::MAX), json!(1e300), json!(-0.0)];
    let others = [
        json!(null),
        json!(""),
        json!([]),
        json!({}),
        json!([[{}]]),
        json!("\u{202e}\u{0}\u{7}"),
        json!(true),
    ];
    times.into_iter().chain(numbers).chain(others).collect()
}

/// An API server that lets everybody do everything, or nothing. Its only pod, and its nodes, are as they are given.
#[derive(Clone)]
struct Server {
    allows: bool,
    pod: Value,
    nodes: Value,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    fn new(allows: bool) -> Self {
        let pod = json!({"metadata": {"name": "web", "uid": UID}, "status": {"phase": "Running"}});
        Self { allows, pod, nodes: json!({"items": []}), asked: Arc::default() }
    }

    fn admission(&self) -> Admission {
        let server = self.clone();
        crate::common::admission(move |request| {
            let server = server.clone();
            async move { server.answer(request).await }
        })
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let sent = request.into_body().collect_bytes().await.unwrap();
        let answer = if path.ends_with("/subjectaccessreviews") {
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            self.asked.lock().push(sent["spec"]["resourceAttributes"].clone());
            json!({"spec": {}, "status": {"allowed": self.allows}})
        } else if path.ends_with("/selfsubjectreviews") {
            json!({"status": {"userInfo": {"username": "system:serviceaccount:usher-system:usher-manager"}}})
        } else if path == "/api/v1/nodes" {
            self.nodes.clone()
        } else {
            assert_eq!(path, "/api/v1/namespaces/shop/pods/web");
            self.pod.clone()
        };
        Response::new(Body::from(answer.to_string().into_bytes()))
    }
}

async fn ask(server: &Server, endpoint: Endpoint, request: Value) -> Value {
    let mut review = json!({"uid": "7", "namespace": "shop", "userInfo": {"username": "eve"}});
    for (name, value) in request.as_object().unwrap() {
        review[name] = value.clone();
    }
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review});
    let answer = server.admission().answer(endpoint, body.to_string().as_bytes()).await;
    answer.unwrap()["response"].clone()
}

/// Metadata with this value for every time in it, and where nobody looks.
fn metadata(name: &str, hostile: &Value) -> Value {
    json!({
        "name": name, "uid": UID, "creationTimestamp": hostile, "deletionTimestamp": hostile, "selfLink": hostile,
        "deletionGracePeriodSeconds": hostile, "generation": hostile, "resourceVersion": hostile,
        "managedFields": [{"manager": hostile, "operation": hostile, "time": hostile, "fieldsV1": hostile}],
    })
}

fn request(hostile: &Value) -> Value {
    let mut metadata = metadata(UID, hostile);
    metadata["annotations"] =
        json!({"evictionrequest.coordination.k8s.io/interceptors-resolved": "true", "other": "x"});
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": metadata,
        "spec": {"podRef": {"name": "web", "uid": UID}, "progressDeadlineSeconds": 1800},
        "status": {
            "conditions": [{"type": hostile, "lastTransitionTime": hostile}], "message": hostile,
            "expectedInterceptorFinishTime": hostile, "unknown": hostile,
        },
    })
}

fn maintenance(hostile: &Value) -> Value {
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": metadata("m", hostile),
        "spec": {
            "stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [term]}, "drainPlan": default_drain_plan(),
        },
        "status": {
            "conditions": [{"lastTransitionTime": hostile}], "stageStatuses": hostile, "drainStatus": hostile,
        },
    })
}

#[tokio::test]
async fn eviction_requests_are_judged_whatever_their_times_and_status_are() {
    let server = Server::new(true);
    for hostile in shapes() {
        let object = request(&hostile);
        let rows = [
            (Endpoint::FillRequests, json!({"operation": "CREATE", "object": object})),
            (Endpoint::CheckRequests, json!({"operation": "CREATE", "object": object})),
            (Endpoint::CheckRequests, json!({"operation": "UPDATE", "object": object, "oldObject": object})),
            (
                Endpoint::CheckRequests,
                json!({"operation": "UPDATE", "subResource": "status", "object": object, "oldObject": object}),
            ),
            (Endpoint::CheckRequests, json!({"operation": "DELETE", "oldObject": object})),
        ];
        for (endpoint, review) in rows {
            let answer = ask(&server, endpoint, review.clone()).await;
            assert_eq!(answer["allowed"], true, "{hostile} in {}: {answer}", review["operation"]);
        }
    }
}

#[tokio::test]
async fn a_progress_that_cannot_be_read_is_one_in_the_future_until_it_is_there() {
    let server = Server::new(true);
    for hostile in [TIMES[0], TIMES[2]] {
        assert!(hostile.parse::<jiff::Timestamp>().is_err(), "our type does not take {hostile}");
        let with = |time: &str| {
            let mut object = request(&json!(null));
            object["status"]["progressTimestamp"] = time.into();
            object
        };
        let update = |old: Value, new: Value| json!({"operation": "UPDATE", "subResource": "status", "oldObject": old, "object": new});
        let written = update(request(&json!(null)), with(hostile));
        let answer = ask(&server, Endpoint::CheckRequests, written).await;
        assert_eq!(answer["status"]["details"]["causes"][0]["reason"], "progress-not-in-future", "{answer}");
        let kept = update(with(hostile), with(hostile));
        assert_eq!(ask(&server, Endpoint::CheckRequests, kept).await["allowed"], true);
        let corrected = update(with(hostile), with("2026-01-01T00:00:00Z"));
        assert_eq!(ask(&server, Endpoint::CheckRequests, corrected).await["allowed"], true);
    }
}

#[tokio::test]
async fn node_maintenances_are_judged_whatever_their_times_and_status_are() {
    let server = Server::new(true);
    for hostile in shapes() {
        let (object, mut complete) = (maintenance(&hostile), maintenance(&hostile));
        complete["spec"]["stage"] = "Complete".into();
        let rows = [
            (Endpoint::FillMaintenances, json!({"operation": "CREATE", "object": object})),
            (Endpoint::CheckMaintenances, json!({"operation": "CREATE", "object": object})),
            (
                Endpoint::CheckMaintenances,
                json!({"operation": "UPDATE", "object": complete, "oldObject": object}),
            ),
            (
                Endpoint::CheckMaintenances,
                json!({"operation": "UPDATE", "subResource": "status", "object": object, "oldObject": object}),
            ),
            (Endpoint::CheckMaintenances, json!({"operation": "DELETE", "oldObject": object})),
        ];
        for (endpoint, review) in rows {
            let answer = ask(&server, endpoint, review.clone()).await;
            assert_eq!(answer["allowed"], true, "{hostile} in {}: {answer}", review["operation"]);
        }
    }
}

/// Who may delete all nodes may delete what nobody can read, change what else is in it, or set it right. Nobody else may.
#[tokio::test]
async fn a_maintenance_whose_selector_cannot_be_read_is_for_who_may_delete_all_nodes() {
    let good = maintenance(&json!(null));
    for spec in
        [json!(null), json!([]), json!({"stage": 7}), json!({"nodeSelector": {"nodeSelectorTerms": 5}})]
    {
        let mut object = good.clone();
        object["spec"] = spec;
        let rows = [
            json!({"operation": "DELETE", "oldObject": object}),
            json!({"operation": "UPDATE", "object": object, "oldObject": object}),
            json!({"operation": "UPDATE", "object": good, "oldObject": object}),
            json!({"operation": "UPDATE", "subResource": "status", "object": object, "oldObject": object}),
        ];
        for review in rows {
            for allows in [true, false] {
                let server = Server::new(allows);
                let answer = ask(&server, Endpoint::CheckMaintenances, review.clone()).await;
                assert_eq!(answer["allowed"], allows, "{review}: {answer}");
                let asked = server.asked.lock().clone();
                assert_eq!((&asked[0]["resource"], &asked[0]["name"]), (&json!("nodes"), &json!(null)));
            }
        }
        let broken = json!({"operation": "UPDATE", "object": object, "oldObject": good});
        let answer = ask(&Server::new(true), Endpoint::CheckMaintenances, broken).await;
        assert_eq!(answer["status"]["code"], 422, "nobody may break it: {answer}");
    }
}

#[tokio::test]
async fn a_request_of_any_shape_can_be_deleted_and_released_by_who_may_delete_its_pod() {
    for object in [json!(null), json!([]), json!({"spec": 5}), json!({"spec": {"podRef": {"name": 5}}})] {
        for allows in [true, false] {
            let deleted = json!({"operation": "DELETE", "oldObject": object});
            let released = json!({"operation": "UPDATE", "object": object, "oldObject": object});
            for review in [deleted, released] {
                let answer = ask(&Server::new(allows), Endpoint::CheckRequests, review).await;
                assert_eq!(answer["allowed"], allows, "{object}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn pods_are_judged_by_their_annotations_alone() {
    let server = Server::new(true);
    for hostile in shapes() {
        let pod = |value: &str| {
            let mut metadata = metadata("web", &hostile);
            metadata["annotations"] = json!({INTERCEPTOR: value});
            json!({"metadata": metadata, "spec": hostile, "status": hostile})
        };
        for (value, allowed) in [("100", true), ("high", false)] {
            for review in [
                json!({"operation": "CREATE", "object": pod(value)}),
                json!({"operation": "UPDATE", "object": pod(value), "oldObject": pod("5")}),
            ] {
                let answer = ask(&server, Endpoint::CheckPods, review).await;
                assert_eq!(answer["allowed"], allowed, "{hostile}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn nodes_are_warned_of_whatever_else_is_in_them() {
    for hostile in shapes() {
        let mut metadata = metadata("n1", &hostile);
        metadata["annotations"] = json!({HELD_BY: "kernel"});
        let node = json!({
            "metadata": metadata, "spec": {"unschedulable": true, "taints": hostile, "podCIDR": hostile}, "status": hostile,
        });
        let answer = ask(
            &Server::new(true),
            Endpoint::WarnOfNodes,
            json!({"operation": "UPDATE", "object": node, "oldObject": node}),
        )
        .await;
        assert_eq!(answer["allowed"], true);
        assert!(
            answer["warnings"][0].as_str().unwrap().contains("n1 is under maintenance kernel"),
            "{answer}"
        );
    }
}

/// The tenant's pod is read when its eviction is requested, and all nodes when a maintenance is written.
#[tokio::test]
async fn pods_and_nodes_in_the_cluster_are_read_whatever_is_in_them() {
    for hostile in shapes() {
        let pod = json!({
            "metadata": metadata("web", &hostile), "spec": hostile,
            "status": {"phase": "Running", "startTime": hostile, "conditions": hostile},
        });
        let server = Server { pod, ..Server::new(true) };
        let review = json!({"operation": "CREATE", "object": request(&json!(null))});
        let answer = ask(&server, Endpoint::FillRequests, review).await;
        assert_eq!(answer["allowed"], true, "{hostile}: {answer}");

        let node = json!({"metadata": metadata("n1", &hostile), "spec": hostile, "status": hostile});
        let server = Server { nodes: json!({"metadata": hostile, "items": [node]}), ..Server::new(true) };
        let review = json!({"operation": "CREATE", "object": maintenance(&json!(null))});
        let answer = ask(&server, Endpoint::CheckMaintenances, review).await;
        let warning = answer["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.contains("selects all 1 nodes"), "the node was read: {hostile}: {answer}");
    }
}
