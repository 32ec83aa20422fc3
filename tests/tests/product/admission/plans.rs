//! The plan of a maintenance as people keep it in files: what was applied once can be applied again for ever.

use super::maintenances::{MAINTENANCES, of_names};
use super::scene::{ADMIN, Scene, expect};
use http::Method;
use serde_json::{Value, json};
use usher_tests::kubectl::Kubectl;
use usher_tests::{Answer, Request};

/// Plans as people write them.
fn plans() -> Vec<(&'static str, Value)> {
    let app = |app: &str| json!({"podPriority": 5, "podSelector": {"matchLabels": {"app": app}}});
    vec![
        ("none", Value::Null),
        ("own", json!([{"podPriority": 5}, {"podPriority": 7, "podType": "DaemonSet"}])),
        ("selectors", json!([app("x"), app("y"), {"podPriority": 5, "podType": "Default"}])),
        ("default", json!([{"podPriority": 1_000_000_000, "podType": "Default"}])),
        ("highest", json!([{"podPriority": i32::MAX, "podType": "Static"}])),
    ]
}

fn manifest(plan: &Value, stage: &str) -> Value {
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

async fn delete(scene: &Scene, name: &str) {
    let path = format!("{MAINTENANCES}/{name}");
    expect("deleted", &scene.send(ADMIN, Method::DELETE, &path, &Value::Null).await, 200, "");
}

const STAGES: [&str; 8] = ["Idle", "Idle", "Cordon", "Cordon", "Drain", "Drain", "Complete", "Complete"];

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

/// The same by kubectl, which computes the patches, with all plans in one file.
pub async fn kubectl_applies_the_same_file_again_and_again(scene: &Scene) {
    let kubectl = Kubectl::new(&scene.cluster).await.unwrap();
    let objects = |stage: &str| -> Vec<Value> {
        let named = |(what, plan): &(&str, Value)| {
            let mut object = manifest(plan, stage);
            object["metadata"]["name"] = (*what).into();
            object
        };
        plans().iter().map(named).collect()
    };
    // What is in a list is checked by kubectl itself, by the schema alone: what has a default need not be there.
    let mut bare = objects("Idle");
    for object in &mut bare {
        object["spec"].as_object_mut().unwrap().remove("stage");
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": bare}).to_string();
    let created = kubectl.run_with("create -f -", &list).await.unwrap();
    assert_eq!((created.code, created.err.as_str()), (0, ""), "{}", created.out);
    for (name, _) in plans() {
        delete(scene, name).await;
    }
    let file = |stage: &str| objects(stage).iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    for way in ["", " --server-side"] {
        let run = async |verb: &str, stage: &str| {
            kubectl.run_with(&format!("{verb} -f -{way}"), &file(stage)).await.unwrap()
        };
        let what = format!("plans{way} on the {} cluster", scene.cluster.name());
        for stage in STAGES {
            let applied = run("apply", stage).await;
            assert_eq!((applied.code, applied.err.as_str()), (0, ""), "{what} {stage}: {}", applied.out);
            assert_eq!(applied.out.lines().count(), plans().len(), "{what} {stage}: {}", applied.out);
            let diff = run("diff", stage).await;
            assert_eq!((diff.code, diff.out.as_str()), (0, ""), "{what} {stage}: {}", diff.err);
        }
        for (name, _) in plans() {
            delete(scene, name).await;
        }
    }
}
