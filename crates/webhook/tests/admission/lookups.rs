//! What admission asks the API server for, and when it does not need to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher_webhook::{Admission, Endpoint};

const UID: &str = "5d9c";
/// As whom admission itself asks.
const MANAGER: &str = "system:serviceaccount:usher-system:usher-manager";

/// An API server that allows what it is told to and has one pod, and remembers what it was asked.
#[derive(Clone)]
struct Server {
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether all pods may be deleted, whether the one may be, whether there is an answer at all.
    all: bool,
    one: bool,
    works: bool,
}

impl Server {
    fn new(all: bool, one: bool) -> Self {
        Self { asked: Arc::default(), all, one, works: true }
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
        let body = request.into_body().collect_bytes().await.unwrap();
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let pod = sent["spec"]["resourceAttributes"]["name"].as_str();
        if path.ends_with("/selfsubjectreviews") {
            let me = json!({"status": {"userInfo": {"username": MANAGER}}});
            return Response::new(Body::from(me.to_string().into_bytes()));
        }
        let (asked, answer) = if path.ends_with("/subjectaccessreviews") {
            let user = sent["spec"]["user"].as_str().unwrap();
            let allowed = if pod.is_none() { self.all } else { self.one };
            (
                format!("may {user} delete {}", pod.unwrap_or("all")),
                json!({"spec": {}, "status": {"allowed": allowed}}),
            )
        } else {
            (path, json!({"metadata": {"name": "web", "uid": UID}, "status": {"phase": "Running"}}))
        };
        self.asked.lock().push(asked);
        if !self.works {
            return Response::builder().status(500).body(Body::from(b"{}".to_vec())).unwrap();
        }
        Response::new(Body::from(answer.to_string().into_bytes()))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }
}

fn review(operation: &str, policy: &str) -> Value {
    let object = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": UID, "creationTimestamp": "2030-01-01T00:00:00Z",
            "annotations": {"evictionrequest.coordination.k8s.io/interceptors-resolved": "true"},
        },
        "spec": {"podRef": {"name": "web", "uid": UID}, "progressDeadlineSeconds": 1800},
        "status": {"evictionRequestCancellationPolicy": policy, "failedAPIEvictionCounter": 0, "message": ""},
    });
    let new = if operation == "DELETE" { Value::Null } else { object.clone() };
    let old = if operation == "CREATE" { Value::Null } else { object };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7", "operation": operation, "namespace": "shop", "userInfo": {"username": "eve", "groups": ["g"]},
        "object": new, "oldObject": old,
    }})
}

async fn ask(admission: &Admission, operation: &str, policy: &str) -> Value {
    let body = review(operation, policy).to_string();
    admission.answer(Endpoint::CheckRequests, body.as_bytes()).await.unwrap()["response"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_pod_is_read_only_where_it_matters() {
    let pod = "/api/v1/namespaces/shop/pods/web".to_owned();
    let rights = "may eve delete all".to_owned();
    for (operation, policy, allowed, wanted) in [
        ("CREATE", "Allow", true, vec![rights.clone(), pod.clone()]),
        ("UPDATE", "Forbid", true, vec![rights.clone()]),
        ("DELETE", "Allow", true, vec![rights.clone()]),
        ("DELETE", "Forbid", false, vec![rights, pod]),
    ] {
        let server = Server::new(true, true);
        let answer = ask(&server.admission(), operation, policy).await;
        assert_eq!(
            (&answer["allowed"], &answer["uid"]),
            (&json!(allowed), &json!("7")),
            "{operation}: {answer}"
        );
        assert_eq!(server.asked(), wanted, "{operation} under {policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn consent_is_asked_for_once_in_a_while_and_refusal_every_time() {
    let server = Server::new(true, true);
    let admission = server.admission();
    for _ in 0..3 {
        ask(&admission, "UPDATE", "Allow").await;
    }
    assert_eq!(server.asked(), ["may eve delete all"]);
    tokio::time::advance(usher_webhook::rights::REMEMBERED + Duration::from_millis(1)).await;
    ask(&admission, "UPDATE", "Allow").await;
    assert_eq!(server.asked(), ["may eve delete all"]);

    let server = Server::new(false, false);
    let admission = server.admission();
    for _ in 0..2 {
        let answer = ask(&admission, "UPDATE", "Allow").await;
        assert_eq!(answer["status"]["code"], 403, "{answer}");
        assert_eq!(server.asked(), ["may eve delete all", "may eve delete web"]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_found_out_is_refused_as_a_failure() {
    let server = Server { works: false, ..Server::new(true, true) };
    let answer = ask(&server.admission(), "CREATE", "Allow").await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(500)), "{answer}");
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("whether you may delete pod web cannot be found out"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_manager_needs_no_right_to_delete_the_pods_whose_requests_it_writes() {
    let server = Server::new(false, false);
    let admission = server.admission();
    let mut written = review("UPDATE", "Allow");
    for (user, allowed) in [(MANAGER, true), ("system:serviceaccount:default:usher-manager", false)] {
        written["request"]["userInfo"]["username"] = user.into();
        let body = written.to_string();
        let answer = admission.answer(Endpoint::CheckRequests, body.as_bytes()).await.unwrap();
        assert_eq!(answer["response"]["allowed"], allowed, "{user}: {answer}");
    }
}
