//! The plan of a maintenance as people keep it in files: what was applied once can be applied again for ever.

use super::maintenances::{MAINTENANCES, of_names};
use super::scene::{ADMIN, Scene, expect};
use crate::{Answer, Request};
use http::Method;
use serde_json::{Value, json};

/// Plans as people write them.
pub fn plans() -> Vec<(&'static str, Value)> {
    let app = |app: &str| json!({"podPriority": 5, "podSelector": {"matchLabels": {"app": app}}});
    vec![
        ("none", Value::Null),
        ("own", json!([{"podPriority": 5}, {"podPriority": 7, "podType": "DaemonSet"}])),
        ("selectors", json!([app("x"), app("y"), {"podPriority": 5, "podType": "Default"}])),
        ("default", json!([{"podPriority": 1_000_000_000, "podType": "Default"}])),
        ("highest", json!([{"podPriority": i32::MAX, "podType": "Static"}])),
    ]
}

pub fn manifest(plan: &Value, stage: &str) -> Value {
    let mut object = of_names("file", &["m1"]);
    object["spec"]["stage"] = stage.into();
    if !plan.is_null() {
        object["spec"]["drainPlan"] = plan.clone();
    }
    object
}

/// A server-side apply.
async fn apply(scene: &Scene, object: &Value) -> Answer {
    let path = format!("{MAINTENANCES}/file?fieldManager=files");
    let mut request = Request::with_json(Method::PATCH, &path, object);
    request.headers = vec![("content-type".to_owned(), "application/apply-patch+yaml".to_owned())];
    scene.cluster.send(ADMIN, request).await.unwrap()
}

pub async fn delete(scene: &Scene, name: &str) {
    let path = format!("{MAINTENANCES}/{name}");
    expect("deleted", &scene.send(ADMIN, Method::DELETE, &path, &Value::Null).await, 200, "");
}

pub const STAGES: [&str; 8] = ["Idle", "Idle", "Cordon", "Cordon", "Drain", "Drain", "Complete", "Complete"];

pub async fn what_was_applied_once_can_be_applied_for_ever(scene: &Scene) {
    let path = format!("{MAINTENANCES}/file");
    for (what, plan) in plans() {
        let first = apply(scene, &manifest(&plan, "Idle")).await;
        expect(what, &first, 201, "");
        for stage in STAGES {
            let again = apply(scene, &manifest(&plan, stage)).await;
            expect(what, &again, 200, "");
            assert_eq!(again.body["spec"]["drainPlan"], first.body["spec"]["drainPlan"], "{what} {stage}");
        }
        let last = scene.cluster.get(&path).await.unwrap().body;
        assert_eq!(
            (&last["spec"]["stage"], &last["metadata"]["generation"]),
            (&json!("Complete"), &json!(4))
        );
        delete(scene, "file").await;

        let created = scene.send(ADMIN, Method::POST, MAINTENANCES, &manifest(&plan, "Idle")).await;
        expect(what, &created, 201, "");
        for stage in STAGES {
            // As kubectl apply does on the client.
            let merge = json!({"spec": manifest(&plan, stage)["spec"]});
            let merged = scene.send(ADMIN, Method::PATCH, &path, &merge).await;
            expect(what, &merged, 200, "");
            // As kubectl replace does.
            let mut whole = manifest(&plan, stage);
            whole["metadata"]["resourceVersion"] = merged.body["metadata"]["resourceVersion"].clone();
            let put = scene.send(ADMIN, Method::PUT, &path, &whole).await;
            expect(what, &put, 200, "");
            assert_eq!(put.body["spec"]["drainPlan"], first.body["spec"]["drainPlan"], "{what} {stage}");
        }
        let other = json!({"spec": {"drainPlan": [{"podPriority": 6}]}});
        let answer = scene.send(ADMIN, Method::PATCH, &path, &other).await;
        expect(what, &answer, 422, r#"{"podPriority":6,"podType":"Default"} is new"#);
        delete(scene, "file").await;
    }
}
