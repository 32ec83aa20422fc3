use super::*;
use crate::controllers::revisions;
use crate::controllers::testing::{at, created, deleted, owned_pod, set_status, view};

fn set(replicas: i64, policy: &str) -> Value {
    json!({
        "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas, "podManagementPolicy": policy, "serviceName": "db",
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}},
        },
    })
}

/// The revision of the present template, as an object, and its name.
fn revision() -> (Value, String) {
    let (object, named) = revisions::testing::revision_of("StatefulSet", &set(1, ""), 2);
    (object, named.name)
}

/// A healthy pod of the present template.
fn pod(ordinal: i64) -> Value {
    let mut pod = owned_pod(&format!("db-{ordinal}"), "StatefulSet", "db", "set");
    pod["metadata"]["labels"][LABEL] = revision().1.into();
    pod
}

fn old(ordinal: i64) -> Value {
    let mut pod = pod(ordinal);
    pod["metadata"]["labels"][LABEL] = "db-old".into();
    pod
}

fn plan(objects: &[Value]) -> Plan {
    let all: Vec<Value> = [revision().0].into_iter().chain(objects.iter().cloned()).collect();
    decide(&view(&all), &Key::new("default", "db"), at(100))
}

fn unready(mut pod: Value) -> Value {
    pod["status"]["conditions"][0]["status"] = "False".into();
    pod
}

#[test]
fn a_parallel_set_shrinks_at_once_from_the_top() {
    let plan = plan(&[set(1, "Parallel"), pod(0), pod(1), pod(2)]);
    assert_eq!((created(&plan).len(), deleted(&plan)), (0, vec!["db-2", "db-1"]));
}

#[test]
fn the_partition_and_on_delete_hold_an_update_back() {
    let pods = [old(0), old(1), old(2)];
    let with = |strategy: Value| {
        let mut set = set(3, "");
        set["spec"]["updateStrategy"] = strategy;
        let objects: Vec<Value> = std::iter::once(set).chain(pods.clone()).collect();
        deleted(&plan(&objects)).join(" ")
    };
    assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}})), "");
    assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})), "db-2");
    assert_eq!(with(json!({"type": "OnDelete"})), "");
}

#[test]
fn a_new_template_is_recorded_before_any_pod_has_it() {
    let plan = decide(&view(&[set(1, "")]), &Key::new("default", "db"), at(100));
    let kinds: Vec<&str> = created(&plan).iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ControllerRevision", "Pod"]);
    let status = set_status(&plan);
    assert_eq!(
        (&status["updateRevision"], &status["currentRevision"]),
        (&json!(revision().1), &json!(revision().1))
    );
    assert_eq!(created(&plan)[1]["metadata"]["labels"][LABEL], revision().1.as_str());
}

#[test]
fn an_update_takes_as_many_as_may_be_unavailable() {
    let mut two = set(4, "Parallel");
    two["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
    let gone = |pods: [Value; 4]| {
        let objects: Vec<Value> = std::iter::once(two.clone()).chain(pods).collect();
        deleted(&plan(&objects)).join(" ")
    };
    assert_eq!(gone([old(0), old(1), old(2), old(3)]), "db-3 db-2");
    assert_eq!(gone([old(0), old(1), old(2), unready(pod(3))]), "db-2");
    assert_eq!(
        gone([unready(old(0)), old(1), old(2), old(3)]),
        "db-0 db-3",
        "what does not serve goes anyway"
    );
}

#[test]
fn an_update_that_is_through_makes_the_new_template_the_current_one() {
    let mut updating = set(2, "");
    updating["status"] = json!({"currentRevision": "db-old"});
    let current = |pods: [Value; 2]| {
        let objects: Vec<Value> = std::iter::once(updating.clone()).chain(pods).collect();
        set_status(&plan(&objects))["currentRevision"].clone()
    };
    assert_eq!(current([pod(0), pod(1)]), json!(revision().1));
}

#[test]
fn claims_follow_their_retention_policy() {
    let mut with_claims = set(1, "");
    with_claims["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    with_claims["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let made = plan(&[with_claims.clone()]);
    let claim = made.actions.iter().find_map(|action| match action {
        Action::Ensure { object, .. } => Some(object.clone()),
        _ => None,
    });
    let claim = claim.unwrap();
    assert_eq!(claim["metadata"]["name"], "data-db-0");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    let there = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-1", "namespace": "default", "uid": "c"}});
    let shrinks = plan(&[with_claims, pod(0), pod(1), there]);
    let tied = shrinks.actions.iter().any(|action| {
        matches!(action, Action::Patch { target, patch, .. }
                if target.name == "data-db-1" && patch["metadata"]["ownerReferences"][0]["name"] == "db-1")
    });
    assert!(tied && deleted(&shrinks) == ["db-1"]);
}
