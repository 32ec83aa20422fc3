use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

const ZERO_VALUES: &str = include_str!("../../data/zero-values.json");

/// An empty object of each kind, in JSON and in protobuf, as client-go v0.37.1 writes it.
#[test]
fn empty_objects_come_out_as_go_writes_them() {
    let cases: Vec<Value> = serde_json::from_str(ZERO_VALUES).expect("readable cases");
    assert!(cases.len() > 50);
    for case in cases {
        let name = case["kind"].as_str().expect("a kind");
        let [group, version, kind] = *name.split('/').collect::<Vec<_>>() else { panic!("{name}") };
        assert_eq!(written(group, version, kind, json!({})), case["json"], "{name}");
        let raw = STANDARD.decode(case["protobuf"].as_str().expect("bytes")).expect("base64");
        let api_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
        let body = crate::protobuf::envelope(&api_version, kind, &raw);
        let mut object = crate::protobuf::decode(&body).expect("well-formed").expect("a known kind");
        let fields = object.as_object_mut().expect("an object");
        assert_eq!(fields.remove("kind"), Some(kind.into()));
        assert_eq!(fields.remove("apiVersion"), Some(api_version.into()));
        assert_eq!(object, case["json"], "{name} in protobuf");
    }
}
