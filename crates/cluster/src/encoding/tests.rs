use serde_json::json;

use super::*;
use crate::schema::builtin_kind;

fn written(group: &str, version: &str, kind: &str, mut object: Value) -> Value {
    let schema = builtin_kind(group, version, kind).expect("a served kind");
    as_go(&mut object, schema);
    let once = object.clone();
    as_go(&mut object, schema);
    assert_eq!(object, once, "a second time changes nothing");
    object
}

#[test]
fn optional_values_that_are_zero_fall_away_but_pointers_and_structs_stay() {
    let object = json!({"metadata": {"name": "d", "labels": {}, "generateName": "", "creationTimestamp": null},
        "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0, "selector": {}, "template": {"spec": {
            "containers": [{"name": "c", "args": [], "stdin": false}], "volumes": [{"name": "v", "emptyDir": {}}],
            "automountServiceAccountToken": false}}}});
    assert_eq!(
        written("apps", "v1", "Deployment", object),
        json!({"metadata": {"name": "d"}, "status": {}, "spec": {"replicas": 0, "selector": {}, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}],
                "volumes": [{"name": "v", "emptyDir": {}}], "automountServiceAccountToken": false}}}})
    );
}

#[test]
fn required_values_that_nobody_set_are_written_with_their_zero_value() {
    let event = written("", "v1", "Event", json!({"metadata": {"name": "e"}}));
    assert_eq!(
        event,
        json!({"metadata": {"name": "e"}, "involvedObject": {}, "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""})
    );
    let pod =
        written("", "v1", "Pod", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    assert_eq!(
        pod["status"]["conditions"][0],
        json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null})
    );
}

#[test]
fn empty_lists_that_must_be_written_are_null() {
    let role = written("rbac.authorization.k8s.io", "v1", "Role", json!({"metadata": {}, "rules": []}));
    assert_eq!(role, json!({"metadata": {}, "rules": null}));
}

#[test]
fn quantities_and_times_are_canonical() {
    let object = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]},
        "metadata": {"deletionTimestamp": "2026-01-02T03:04:05.678+02:00"}});
    let pod = written("", "v1", "Pod", object);
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-02T01:04:05Z");
    let lease = json!({"spec": {"renewTime": "2026-01-02T03:04:05.5Z"}});
    assert_eq!(
        written("coordination.k8s.io", "v1", "Lease", lease)["spec"]["renewTime"],
        "2026-01-02T03:04:05.500000Z"
    );
}
