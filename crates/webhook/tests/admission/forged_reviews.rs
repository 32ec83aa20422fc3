//! Reviews that no API server sent: what they can have asked, and what they are told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher_webhook::{Admission, Endpoint};

/// What nobody must be told.
const SECRET: &str = "PRIVATE-KEY";
const UID: &str = "0b5c6a6e-uid-of-the-pod";

/// An API server where one user may delete pods and nodes, and which remembers what it was asked. Everything but its answers
/// about rights has the secret in it.
#[derive(Clone)]
struct Server {
    paths: Arc<Mutex<Vec<String>>>,
    subjects: Arc<Mutex<Vec<Value>>>,
    pod: (u16, Value),
}

impl Server {
    fn new() -> Self {
        let pod = json!({
            "metadata": {"name": "web", "uid": UID, "labels": {"secret": SECRET}},
            "spec": {"containers": [{"env": [{"name": "KEY", "value": SECRET}]}]}, "status": {"phase": "Running"},
        });
        Self { paths: Arc::default(), subjects: Arc::default(), pod: (200, pod) }
    }

    fn admission(&self) -> Admission {
        let server = self.clone();
        crate::common::admission(move |request| {
            let server = server.clone();
            async move { server.answer(request).await }
        })
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().to_string();
        let sent = request.into_body().collect_bytes().await.unwrap();
        let (code, answer) = if path.contains("/subjectaccessreviews") {
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            let spec = &sent["spec"];
            self.subjects.lock().push(json!({
                "username": spec["user"], "groups": spec["groups"], "uid": spec["uid"], "extra": spec["extra"],
            }));
            let allowed = spec["user"] == "admin";
            (200, json!({"spec": {}, "status": {"allowed": allowed, "reason": format!("role {SECRET}")}}))
        } else if path.starts_with("/api/v1/nodes") {
            (200, json!({"items": [{"metadata": {"name": SECRET, "labels": {SECRET: SECRET}}}]}))
        } else {
            self.pod.clone()
        };
        self.paths.lock().push(path);
        let body = Body::from(answer.to_string().into_bytes());
        Response::builder().status(code).body(body).unwrap()
    }
}

async fn ask(server: &Server, endpoint: Endpoint, review: Value) -> Value {
    let review = json!({"request": review}).to_string();
    server.admission().answer(endpoint, review.as_bytes()).await.unwrap()["response"].clone()
}

fn review(operation: &str, namespace: &str, pod: &str, user: &Value) -> Value {
    let object = json!({
        "metadata": {"name": UID}, "spec": {"podRef": {"name": pod, "uid": UID}},
        "status": {"evictionRequestCancellationPolicy": "Forbid"},
    });
    json!({
        "uid": "1", "operation": operation, "namespace": namespace, "userInfo": user, "object": object, "oldObject": object,
    })
}

/// Names from a review would become a path: `x/secrets/y?z=` would read a Secret.
#[tokio::test]
async fn names_become_part_of_a_path_only_if_they_are_names() {
    let admin = json!({"username": "admin"});
    let odd = [
        "x/secrets/y?z=",
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a%2fb",
        "a?b",
        "a#b",
        "A",
        "a b",
        "a\n",
        "ä",
        "a.b/",
    ];
    for endpoint in [Endpoint::FillRequests, Endpoint::CheckRequests] {
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            for name in odd.into_iter().map(str::to_owned).chain(["a".repeat(300)]) {
                let server = Server::new();
                let answer = ask(&server, endpoint, review(operation, &name, "web", &admin)).await;
                assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(400)));
                assert!(server.paths.lock().is_empty(), "nothing is asked about namespace {name:?}");

                ask(&server, endpoint, review(operation, "shop", &name, &admin)).await;
                let asked = server.paths.lock().clone();
                let is_about_rights = |path: &String| path.starts_with("/apis/auth");
                assert!(asked.iter().all(is_about_rights), "{operation} with pod {name:?}: {asked:?}");
            }
        }
    }
    let server = Server::new();
    ask(&server, Endpoint::FillRequests, review("CREATE", "shop", "web-1.a", &admin)).await;
    assert!(server.paths.lock().iter().any(|path| path.starts_with("/api/v1/namespaces/shop/pods/web-1.a")));
}

/// Whoever a review claims to come from: the authorizers are asked about exactly that, and nothing else decides.
#[tokio::test]
async fn claims_of_a_review_count_for_nothing_but_what_the_authorizers_say_of_them() {
    let claims = [
        json!({"username": "mallory", "groups": ["system:masters"]}),
        json!({"username": "system:admin", "groups": ["system:masters", "system:nodes"], "uid": "admin"}),
        json!({"username": "system:node:n1", "groups": ["system:nodes"]}),
        json!({"username": "mallory", "extra": {"scopes": ["admin"]}}),
        json!({"username": "", "groups": []}),
        json!({}),
    ];
    let node = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
    let maintenance =
        json!({"metadata": {"name": "m"}, "spec": {"nodeSelector": {"nodeSelectorTerms": [node]}}});
    for claim in claims {
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            let server = Server::new();
            let about = review(operation, "shop", "web", &claim);
            let answer = ask(&server, Endpoint::CheckRequests, about).await;
            assert_eq!(
                (&answer["allowed"], &answer["status"]["code"]),
                (&json!(false), &json!(403)),
                "{claim}"
            );
            let mut changed = maintenance.clone();
            changed["spec"]["stage"] = "Drain".into();
            let about = json!({
                "uid": "1", "operation": operation, "userInfo": claim, "object": changed, "oldObject": maintenance,
            });
            let answer = ask(&server, Endpoint::CheckMaintenances, about).await;
            assert_eq!(
                (&answer["allowed"], &answer["status"]["code"]),
                (&json!(false), &json!(403)),
                "{claim}"
            );
            for asked in server.subjects.lock().iter() {
                assert_eq!(
                    asked["username"].as_str().unwrap(),
                    claim["username"].as_str().unwrap_or_default()
                );
                assert_eq!(asked["groups"], claim.get("groups").cloned().unwrap_or(json!([])));
                assert_eq!(asked["extra"], claim.get("extra").cloned().unwrap_or(json!({})));
            }
            assert!(!server.subjects.lock().is_empty());
        }
    }
}

/// Whoever claims to be an admin learns yes or no. Labels of a pod are for who knows its UID, and nothing else of it is told.
#[tokio::test]
async fn answers_tell_nothing_of_what_the_cluster_holds() {
    let admin = json!({"username": "admin"});
    let mut server = Server::new();
    let mut wrong = review("CREATE", "shop", "web", &admin);
    for field in ["object", "oldObject"] {
        wrong[field]["metadata"]["name"] = "guessed".into();
        wrong[field]["spec"]["podRef"]["uid"] = "guessed".into();
    }
    for (code, body) in [
        server.pod.clone(),
        (404, json!({"code": 404, "message": SECRET, "reason": "NotFound"})),
        (403, json!({"code": 403, "message": SECRET, "reason": SECRET})),
        (500, json!({"code": 500, "message": SECRET, "reason": format!("{SECRET} \u{1b}[31m")})),
        (500, json!(SECRET)),
        (200, json!({"metadata": {"uid": [SECRET], "labels": {"a": SECRET, "b": {"c": SECRET}}}})),
        (200, json!(SECRET)),
        (200, json!({"metadata": SECRET, "status": SECRET})),
    ] {
        server.pod = (code, body);
        let mallory = json!({"username": "mallory"});
        for about in [
            wrong.clone(),
            review("DELETE", "shop", "web", &admin),
            review("CREATE", "shop", "web", &mallory),
        ] {
            for endpoint in [Endpoint::FillRequests, Endpoint::CheckRequests] {
                let answer = ask(&server, endpoint, about.clone()).await.to_string();
                assert!(!answer.contains(SECRET) && !answer.contains(UID), "{code}: {answer}");
            }
        }
    }
    let term = json!({"matchExpressions": [{"key": SECRET.to_lowercase(), "operator": "DoesNotExist"}]});
    let maintenance = json!({"metadata": {"name": "m"}, "spec": {
        "nodeSelector": {"nodeSelectorTerms": [term]}, "drainPlan": usher_api::node_maintenance::default_drain_plan(),
    }});
    let about = json!({"uid": "1", "operation": "CREATE", "userInfo": admin, "object": maintenance});
    let answer = ask(&server, Endpoint::CheckMaintenances, about).await.to_string();
    assert!(answer.contains("\"allowed\":true") && !answer.contains(SECRET), "{answer}");
}
