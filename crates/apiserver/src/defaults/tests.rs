use super::*;
use crate::encoding::as_go;
use crate::managed_fields::{Writer, update};
use crate::schema::schema_of;
use serde_json::{Value, json};

const CASES: &str = include_str!("../../data/defaulting-cases.json");

fn defaulted(mut object: Value) -> Value {
    let schema = schema_of(&object);
    apply_defaults(&mut object, schema);
    object
}

fn cases() -> Vec<Value> {
    serde_json::from_str(CASES).expect("readable cases")
}

/// The first difference, by its path, so that a failure can be read.
fn difference(got: &Value, want: &Value, path: &str) -> Option<String> {
    if let (Some(g), Some(w)) = (got.as_object(), want.as_object()) {
        let names = g.keys().chain(w.keys());
        return names.into_iter().find_map(|n| difference(&got[n], &want[n], &format!("{path}.{n}")));
    }
    if let (Some(g), Some(w)) = (got.as_array(), want.as_array())
        && g.len() == w.len()
    {
        return (0..g.len()).find_map(|i| difference(&g[i], &w[i], &format!("{path}[{i}]")));
    }
    (got != want).then(|| format!("{path}: got {got}, want {want}"))
}

/// Defaults, ownership, strategy and admission, in the server's order: what the last two add, nobody owns.
#[test]
fn new_objects_come_out_as_from_the_real_server() {
    let mut differences = Vec::new();
    for case in cases() {
        let mut object = case["input"].clone();
        let schema = schema_of(&object);
        assert_eq!(drop_unknown(&mut object, schema), Vec::<String>::new());
        check_types(&object, schema).expect("fits");
        as_go(&mut object, schema);
        apply_defaults(&mut object, schema);
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_string();
        let reset: &[&[&str]] = &[&["status"]];
        let writer = Writer {
            manager: "t",
            subresource: "",
            api_version: &api_version,
            now: "2026-01-01T00:00:00Z",
            reset,
        };
        update(None, &mut object, schema, &writer);
        let managed = object["metadata"].as_object_mut().and_then(|m| m.remove("managedFields"));
        prepare_create(&mut object, schema);
        if object["kind"] == "Pod" {
            admit_pod(&mut object, PodPriority::default());
        }
        let name = format!("{}/{}", case["input"]["kind"], case["input"]["metadata"]["name"]);
        differences.extend(difference(&object, &case["output"], &name));
        let fields = managed.map(|m| m[0]["fieldsV1"].clone()).unwrap_or_default();
        differences.extend(difference(&fields, &case["managedFields"], &format!("{name} owned")));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn defaulting_twice_changes_nothing() {
    for case in cases() {
        let once = defaulted(case["output"].clone());
        assert_eq!(defaulted(once.clone()), once);
    }
}

#[test]
fn what_is_set_stays() {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": {"spec": {"dnsPolicy": "None",
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "imagePullPolicy": "Never"}]}}}});
    let spec = &defaulted(object)["spec"];
    assert_eq!(spec["replicas"], 0);
    assert_eq!(spec["strategy"], json!({"type": "Recreate"}));
    let pod = &spec["template"]["spec"];
    assert_eq!((&pod["dnsPolicy"], &pod["terminationGracePeriodSeconds"]), (&json!("None"), &json!(0)));
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "Never");
}

#[test]
fn custom_resource_definitions_get_their_names_and_conversion() {
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.b"}, "spec": {"group": "b", "scope": "Namespaced",
            "names": {"plural": "as", "kind": "Abc"},
            "versions": [{"name": "v2", "served": true, "storage": false}, {"name": "v1", "served": true, "storage": true}]}});
    let crd = defaulted(object);
    assert_eq!(
        crd["spec"]["names"],
        json!({"plural": "as", "kind": "Abc", "singular": "abc", "listKind": "AbcList"})
    );
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
}

#[test]
fn a_namespace_keeps_its_finalizer_removed_after_creation() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {}});
    assert_eq!(defaulted(namespace)["spec"], json!({}));
}

#[test]
fn quality_of_service_follows_requests_and_limits() {
    let class = |resources: &[Value]| {
        let containers: Vec<Value> = resources.iter().map(|r| json!({"resources": r})).collect();
        qos_class(&json!({"spec": {"containers": containers}}))
    };
    let full =
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}});
    assert_eq!(class(&[json!({})]), "BestEffort");
    assert_eq!(class(&[json!({"requests": {"example.com/gpu": "1"}})]), "BestEffort");
    assert_eq!(class(std::slice::from_ref(&full)), "Guaranteed");
    assert_eq!(class(&[full.clone(), json!({})]), "Burstable");
    assert_eq!(class(&[json!({"requests": {"cpu": "1"}})]), "Burstable");
    let less = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(class(&[less]), "Burstable");
    let whole = json!({"spec": {"resources": full, "containers": [{"resources": {}}]}});
    assert_eq!(qos_class(&whole), "Guaranteed");
}

#[test]
fn a_pod_of_a_priority_class_takes_its_value() {
    let mut pod = json!({"spec": {"preemptionPolicy": "Never"}});
    admit_pod(&mut pod, PodPriority { class: "high", value: 7, preemption_policy: "PreemptLowerPriority" });
    assert_eq!(pod["spec"]["priority"], 7);
    assert_eq!(pod["spec"]["priorityClassName"], "high");
    assert_eq!(pod["spec"]["preemptionPolicy"], "Never");
}

/// The messages were read off kube-apiserver v1.37.1.
#[test]
fn values_of_the_wrong_type_are_refused_in_the_servers_words() {
    let base = || {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
    };
    for (pointer, value, problem) in [
        (
            "/spec/template/spec",
            json!({"containers": {}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            "/spec/template/spec/containers/0",
            json!({"image": 3}),
            "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.image of type string",
        ),
        (
            "/spec/template/spec",
            json!("x"),
            "json: cannot unmarshal string into Go struct field PodTemplateSpec.spec.template.spec of type v1.PodSpec",
        ),
        (
            "/metadata",
            json!({"labels": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
    ] {
        let mut object = base();
        *object.pointer_mut(pointer).expect("a place") = value;
        let error = check_types(&object, schema_of(&object)).expect_err("refused");
        assert_eq!((error.code, error.reason), (400, "BadRequest"));
        let prefix = "Deployment in version \"v1\" cannot be handled as a Deployment: ";
        assert_eq!(error.message, format!("{prefix}{problem}"));
    }
    let mut good = base();
    good["metadata"]["creationTimestamp"] = Value::Null;
    good["spec"]["replicas"] = Value::Null;
    check_types(&good, schema_of(&good)).expect("nulls are unset");
}

#[test]
fn micro_times_have_six_digits() {
    let lease = |time: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": time}});
    let problem = |time: &str| type_problem(&lease(time), schema_of(&lease(time)));
    assert_eq!(problem("2026-01-02T03:04:05.000006Z"), None);
    assert_eq!(
        problem("2026-01-02T03:04:05Z").as_deref(),
        Some(
            "parsing time \"2026-01-02T03:04:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\""
        )
    );
}

#[test]
fn quantities_are_numbers_with_a_known_suffix() {
    let pod = |cpu: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"cpu": cpu}}}]}});
    for good in [
        json!("1"),
        json!("100m"),
        json!("1.5"),
        json!("1Gi"),
        json!("1e3"),
        json!("-1"),
        json!(2),
        json!(0.5),
    ] {
        check_types(&pod(good.clone()), schema_of(&pod(good))).expect("a quantity");
    }
    for bad in [json!(""), json!("Gi"), json!("1X"), json!("1 Gi"), json!("1.2.3")] {
        assert!(check_types(&pod(bad.clone()), schema_of(&pod(bad))).is_err());
    }
}

#[test]
fn unknown_fields_and_nulls_fall_away_and_are_told() {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": null},
        "spec": {"foo": 1, "replicas": null, "template": {"spec": {"containers": [{"name": "c", "bar": 1}]}}}});
    let schema = schema_of(&object);
    let unknown = drop_unknown(&mut object, schema);
    assert_eq!(unknown.len(), 2);
    assert!(unknown.contains(&"unknown field \"spec.foo\"".to_string()));
    assert!(unknown.contains(&"unknown field \"spec.template.spec.containers[0].bar\"".to_string()));
    assert_eq!(
        object,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
    );
    let error = strict_error(&object, &unknown[..1]);
    assert_eq!(
        error.message,
        format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}",
            unknown[0]
        )
    );
}

#[test]
fn empty_lists_and_maps_are_not_kept_but_empty_structs_are() {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}, "finalizers": [], "managedFields": []},
        "spec": {"containers": [], "securityContext": {}, "nodeSelector": {}, "volumes": [{"name": "v", "emptyDir": {}}]}});
    let schema = schema_of(&object);
    as_go(&mut object, schema);
    object.as_object_mut().unwrap().remove("status");
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": []},
        "spec": {"containers": null, "securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}})
    );
}

#[test]
fn free_form_values_are_kept_whole() {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"},
        "revision": 1, "data": {"spec": {"x": null}}});
    let before = object.clone();
    let schema = schema_of(&object);
    assert_eq!(drop_unknown(&mut object, schema), Vec::<String>::new());
    assert_eq!(object, before);
}
