//! Reviews of plain evictions, hostile ones and those that cannot be answered well: what is asked and written, and what is told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher_api::gateway::{CallerClass, GatewayMode};
use usher_webhook::gateway::EvictionOutcome;
use usher_webhook::{Admission, Endpoint, GatewayOptions};

/// An API server with one pod that names an interceptor, and no request yet. It remembers what it was asked.
#[derive(Clone, Default)]
struct Server {
    calls: Arc<Mutex<Vec<(Method, String)>>>,
    /// What it answers to the creation of a request.
    created: u16,
    /// And with these words.
    message: Option<&'static str>,
    /// What it answers to everything else, if not what is there.
    broken: Option<u16>,
    /// What it answers to changes of the request.
    patched: Option<u16>,
    /// The request of the pod.
    request: Option<Value>,
    /// Whether callers may answer requests.
    allows: bool,
}

impl Server {
    fn admission(&self) -> Admission {
        let server = self.clone();
        crate::common::admission(move |request| {
            let server = server.clone();
            async move { server.answer(&request) }
        })
        .with_gateway(GatewayOptions::in_mode(GatewayMode::Request))
    }

    fn answer(&self, request: &Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        self.calls.lock().push((request.method().clone(), path.clone()));
        let failure = |code: u16| {
            (
                code,
                json!({"kind": "Status", "code": code, "reason": if code == 404 { "NotFound" } else { "R" }, "message": self.message.unwrap_or("PRIVATE")}),
            )
        };
        let key = "interceptor.evictionrequest.coordination.k8s.io/priority_a.io";
        let (code, answer) = match (self.broken, request.method(), path.as_str()) {
            (Some(code), ..) => failure(code),
            (_, _, "/api/v1/namespaces") => (200, json!({"metadata": {}, "items": []})),
            (_, _, path) if path.contains("/pods/") => {
                (200, json!({"metadata": {"name": "web", "uid": "u", "annotations": {key: "1"}}}))
            }
            (_, &Method::POST, path) if path.ends_with("/evictionrequests") && self.created < 300 => {
                let spec = json!({"podRef": {"name": "web", "uid": "u"}});
                (
                    201,
                    json!({"apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": {"name": "u"}, "spec": spec}),
                )
            }
            (_, &Method::POST, path) if path.ends_with("/evictionrequests") => failure(self.created),
            (_, &Method::POST, _) => (201, json!({"spec": {}, "status": {"allowed": self.allows}})),
            (_, &Method::GET, path) if path.contains("/evictionrequests/") && self.request.is_some() => {
                (200, self.request.clone().unwrap())
            }
            (_, &Method::PATCH, _) => failure(self.patched.unwrap_or(404)),
            _ => failure(404),
        };
        Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap()
    }

    fn writes(&self) -> usize {
        let calls = self.calls.lock();
        calls
            .iter()
            .filter(|(method, path)| *method != Method::GET && path.contains("evictionrequests"))
            .count()
    }
}

fn review(namespace: &str, name: &str) -> Value {
    json!({
        "uid": "1", "operation": "CREATE", "subResource": "eviction", "namespace": namespace, "name": name,
        "userInfo": {"username": "alice"}, "object": {"metadata": {"name": name}},
    })
}

async fn ask(admission: &Admission, review: Value) -> Value {
    let review = json!({"request": review}).to_string();
    admission.answer(Endpoint::Gateway, review.as_bytes()).await.unwrap()["response"].clone()
}

#[tokio::test]
async fn hostile_reviews_of_evictions_ask_and_write_nothing() {
    let long = "a".repeat(300);
    let odd = ["", ".", "..", "../x", "a/b", "a%2fb", "a?b", "a#b", "A", "a b", "a\n", "ä", &long];
    let (mut connect, mut pods) = (review("shop", "web"), review("shop", "web"));
    connect["operation"] = "DELETE".into();
    pods["subResource"] = "".into();
    let names = odd.into_iter().flat_map(|odd| [review(odd, "web"), review("shop", odd)]);
    for hostile in names.chain([connect, pods]) {
        let server = Server { created: 201, ..Server::default() };
        let answer = ask(&server.admission(), hostile.clone()).await;
        assert_eq!(
            (&answer["allowed"], &answer["status"]["code"]),
            (&json!(false), &json!(400)),
            "{hostile}"
        );
        assert!(server.calls.lock().is_empty(), "{hostile}");
    }
    let odd_objects = [
        json!(null),
        json!(7),
        json!([]),
        json!({"deleteOptions": 7}),
        json!({"deleteOptions": {"preconditions": [], "gracePeriodSeconds": "x", "dryRun": 7}}),
        json!({"deleteOptions": {"gracePeriodSeconds": 1e300}}),
    ];
    for object in odd_objects {
        let server = Server { created: 201, ..Server::default() };
        let mut review = review("shop", "web");
        review["object"] = object.clone();
        let answer = ask(&server.admission(), review).await;
        assert_eq!((&answer["status"]["code"], server.writes()), (&json!(429), 1), "{object}: {answer}");
    }
}

#[tokio::test]
async fn what_cannot_be_found_out_or_written_lets_the_eviction_pass_and_what_is_busy_is_tried_again() {
    let gone = r#"admission webhook "fill.evictionrequest.coordination.k8s.io" denied the request: PRIVATE"#;
    let denied = r#"admission webhook "w.example.com" denied the request: PRIVATE"#;
    for (what, broken, (created, message), allowed) in [
        ("all is well", None, (201, None), false),
        ("somebody was faster", None, (409, None), false),
        ("the pod has gone", None, (404, Some(gone)), false),
        ("another pod has its name", None, (409, Some(gone)), false),
        ("somebody's webhook denies it", None, (409, Some(denied)), true),
        ("the server is busy", None, (429, None), false),
        ("the server fails", None, (500, None), false),
        ("it may not be made", None, (403, None), true),
        ("it is refused", None, (422, None), true),
        ("nothing can be read", Some(500), (201, None), true),
        ("nothing may be read", Some(403), (201, None), true),
    ] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observer = {
            let seen = seen.clone();
            Arc::new(move |answer: EvictionOutcome, class: CallerClass| seen.lock().push((answer, class)))
        };
        let options =
            GatewayOptions { observer: Some(observer), ..GatewayOptions::in_mode(GatewayMode::Request) };
        let server = Server { broken, created, message, ..Server::default() };
        let answer = ask(&server.admission().with_gateway(options), review("shop", "web")).await;
        assert_eq!(answer["allowed"], allowed, "{what}: {answer}");
        assert!(!answer.to_string().contains("PRIVATE"), "{what}: {answer}");
        let [(counted, class)] = seen.lock()[..] else { panic!("{what}: counted once") };
        assert_eq!(class, CallerClass::User);
        let wanted = match (allowed, created) {
            (true, _) => EvictionOutcome::Failed,
            (false, 201) => EvictionOutcome::Asked,
            (false, _) => EvictionOutcome::Refused,
        };
        assert_eq!(counted, wanted, "{what}");
        if allowed {
            let warning = answer["warnings"][0].as_str().unwrap();
            assert!(warning.starts_with("Usher lets this eviction pass: "), "{what}: {warning}");
        }
    }
}

#[tokio::test]
async fn a_request_that_takes_nothing_more_lets_no_eviction_past_the_interceptor_whose_turn_it_is() {
    for code in [403, 413, 422] {
        let (request, patched) = (Some(in_turn()), Some(code));
        let server = Server { created: 201, request, patched, ..Server::default() };
        let answer = ask(&server.admission(), review("shop", "web")).await;
        assert_eq!(
            (&answer["allowed"], &answer["status"]["code"]),
            (&json!(false), &json!(429)),
            "{code}: {answer}"
        );
        assert_eq!(server.writes(), 1, "it was tried");
    }
}

/// A request in which a.io has its turn.
fn in_turn() -> Value {
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": "u", "uid": "r", "creationTimestamp": jiff::Timestamp::now().to_string()},
        "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": [{"interceptorClass": "a.io", "priority": 1}]},
        "status": {"activeInterceptorClass": "a.io"},
    })
}

#[tokio::test]
async fn who_claims_the_turn_has_to_be_one_who_may_answer() {
    let request = in_turn();
    for (allows, class, allowed) in
        [(true, "a.io", true), (false, "a.io", false), (true, "b.io", false), (true, "", false)]
    {
        let server = Server { created: 201, request: Some(request.clone()), allows, ..Server::default() };
        let mut review = review("shop", "web");
        let annotations = json!({"evictionrequest.coordination.k8s.io/interceptor": class});
        review["object"]["metadata"]["annotations"] = annotations;
        let answer = ask(&server.admission(), review).await;
        assert_eq!(answer["allowed"], allowed, "{class:?}, {allows}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_holds_up_no_eviction() {
    let admission = crate::common::admission(|_| std::future::pending())
        .with_gateway(GatewayOptions::in_mode(GatewayMode::Request));
    let start = tokio::time::Instant::now();
    let answer = ask(&admission, review("shop", "web")).await;
    assert_eq!((&answer["allowed"], start.elapsed()), (&json!(true), Duration::from_secs(3)), "{answer}");
    // With more than there are places some find none, and are told to come back rather than let pass.
    let many = futures::future::join_all((0..40).map(|_| ask(&admission, review("shop", "web")))).await;
    let refused = many.iter().filter(|answer| answer["allowed"] == false).count();
    assert!(refused >= 8, "{refused}");
    assert!(start.elapsed() < Duration::from_secs(7));
}
