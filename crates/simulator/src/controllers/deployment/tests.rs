use super::*;
use crate::controllers::testing::{at, created, set_status, view};

fn deployment(replicas: i64, surge: i64, unavailable: i64) -> Value {
    json!({
        "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        },
    })
}

fn set(hash: &str, replicas: i64, available: i64) -> Value {
    json!({
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("web-{hash}"), "namespace": "default", "uid": hash, "labels": {HASH: hash},
            "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": true}],
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available},
    })
}

fn new_hash() -> String {
    hash_of(&deployment(1, 1, 0)["spec"]["template"])
}

/// The sizes that sets are given, by uid.
fn scaled(plan: &Plan) -> Vec<(String, i64)> {
    let size = |action: &Action| match action {
        Action::Patch { target, patch, .. } if target.resource == Resource::ReplicaSets => {
            Some((target.uid.clone(), patch["spec"]["replicas"].as_i64()?))
        }
        _ => None,
    };
    plan.actions.iter().filter_map(size).collect()
}

fn plan(objects: &[Value]) -> Plan {
    decide(&view(objects), &Key::new("default", "web"), at(1000))
}

#[test]
fn a_new_template_gets_a_set_of_its_own() {
    let plan = plan(&[deployment(3, 1, 0)]);
    let made = created(&plan);
    assert_eq!(made[0]["spec"]["replicas"], 3);
    assert_eq!(made[0]["spec"]["selector"]["matchLabels"][HASH], new_hash().as_str());
    assert_eq!(made[0]["metadata"]["annotations"][REVISION], "1");
}

#[test]
fn unavailable_old_pods_go_first_in_a_rolling_update() {
    let mut new = set(&new_hash(), 1, 1);
    new["metadata"]["annotations"] = json!({REVISION: "1"});
    let plan = plan(&[deployment(4, 1, 1), set("old", 4, 2), new]);
    assert_eq!((scaled(&plan), created(&plan).len()), (vec![("old".to_string(), 2)], 0));
}

#[test]
fn a_finished_rollout_says_so_and_a_stuck_one_too() {
    let mut new = set(&new_hash(), 3, 3);
    new["metadata"]["annotations"] = json!({REVISION: "1"});
    let reason = |plan: &Plan| {
        let conditions = set_status(plan)["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == "Progressing");
        found.map(|c| c["reason"].as_str().unwrap().to_string())
    };
    let done = plan(&[deployment(3, 1, 0), new.clone()]);
    assert_eq!(reason(&done).as_deref(), Some("NewReplicaSetAvailable"));
    let mut stuck = deployment(3, 1, 0);
    new["status"] = json!({"replicas": 3});
    stuck["status"] = json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "unavailableReplicas": 3,
        "terminatingReplicas": 0,
        "conditions": [{
            "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "",
            "lastUpdateTime": "1970-01-01T00:00:00Z",
        }],
    });
    let mut over = stuck.clone();
    assert_eq!(reason(&plan(&[stuck, new.clone()])).as_deref(), Some("ProgressDeadlineExceeded"));
    over["status"]["conditions"][0]["reason"] = "NewReplicaSetAvailable".into();
    assert_eq!(reason(&plan(&[over, new])), None, "pods that fail later are no rollout");
}

#[test]
fn a_rollout_that_is_scaled_shares_what_comes_and_goes() {
    let cases = [
        ("up, in proportion", (15, 1), (8, 10), (5, 10), vec![("old", 10), ("new", 6)]),
        ("down, in proportion", (5, 1), (8, 10), (5, 10), vec![("old", 4), ("new", 2)]),
        ("to nothing", (0, 1), (8, 10), (5, 10), vec![("old", 0), ("new", 0)]),
    ];
    for (rule, (desired, surge), (old, _), (have, before), want) in cases {
        let new = new_hash();
        let sized = |mut set: Value, revision: &str| {
            set["metadata"]["annotations"] =
                json!({REVISION: revision, DESIRED: before.to_string(), MAXIMUM: (before + 3).to_string()});
            set
        };
        let objects = [
            deployment(desired, surge, 0),
            sized(set("old", old, old), "1"),
            sized(set(&new, have, have), "2"),
        ];
        let mut sizes = scaled(&plan(&objects));
        sizes.sort_by_key(|(uid, _)| uid != "old");
        let want: Vec<(String, i64)> = want
            .into_iter()
            .map(|(uid, size)| (if uid == "new" { new.clone() } else { uid.to_string() }, size))
            .collect();
        assert_eq!(sizes, want, "{rule}");
    }
}

#[test]
fn a_paused_deployment_is_scaled_but_not_updated_and_says_so() {
    let mut paused = deployment(5, 1, 0);
    paused["spec"]["paused"] = true.into();
    let plan = plan(&[paused, set("old", 3, 3)]);
    assert_eq!((scaled(&plan), created(&plan).len()), (vec![("old".to_string(), 5)], 0));
    let conditions = set_status(&plan)["conditions"].clone();
    let says = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Progressing").unwrap();
    assert_eq!((&says["status"], &says["reason"]), (&json!("Unknown"), &json!("DeploymentPaused")));
    assert_eq!(plan.notes[0].message, "Scaled up replica set web-old from 3 to 5");
}

#[test]
fn a_name_that_another_set_has_is_a_collision() {
    let mut other = set(&new_hash(), 1, 1);
    other["metadata"]["ownerReferences"] = json!([]);
    let collides = plan(&[deployment(3, 1, 0), other]);
    let counted = collides.actions.iter().any(
        |action| matches!(action, Action::Patch { patch, .. } if patch["status"]["collisionCount"] == 1),
    );
    assert!(counted && created(&collides).is_empty());
}

#[test]
fn a_template_that_is_back_takes_its_set_and_the_next_revision() {
    let mut back = set(&new_hash(), 0, 0);
    back["metadata"]["annotations"] = json!({REVISION: "1"});
    let mut present = set("present", 3, 3);
    present["metadata"]["annotations"] = json!({REVISION: "2"});
    let plan = plan(&[deployment(3, 1, 0), back, present]);
    let renewed = plan.actions.iter().find_map(|action| match action {
        Action::Patch { target, patch, .. } if target.uid == new_hash() => {
            Some(patch["metadata"]["annotations"][REVISION].clone())
        }
        _ => None,
    });
    assert_eq!((renewed, created(&plan).len()), (Some(json!("3")), 0));
}
