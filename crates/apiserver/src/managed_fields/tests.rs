//! What the recorded requests do not show of the owners of fields: times, limits, and objects that were made by hand.

use super::*;
use crate::error::ApiResult;
use crate::schema::{SchemaRef, builtin_kind};
use proptest::prelude::*;
use serde_json::{Value, json};

const T1: &str = "2026-01-01T00:00:01Z";
const T2: &str = "2026-01-01T00:00:02Z";
const T3: &str = "2026-01-01T00:00:03Z";

fn schema() -> SchemaRef<'static> {
    builtin_kind("apps", "v1", "Deployment").expect("a served kind")
}

fn by<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer { manager, subresource: "", api_version: "apps/v1", now, reset: &[&["status"]] }
}

fn status_by<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    let reset: &[&[&str]] = &[&["spec"], &["metadata", "labels"]];
    Writer { manager, subresource: "status", api_version: "apps/v1", now, reset }
}

/// What the user sends.
fn config() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
            }]}},
        },
    })
}

/// The same with defaults, as the server stores it.
fn stored() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "uid": "u", "generation": 1},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"securityContext": {}, "containers": [{
                "name": "c", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}},
            }]}},
        },
        "status": {},
    })
}

fn created(manager: &str) -> Value {
    let mut object = stored();
    update(None, &mut object, schema(), &by(manager, T1));
    object
}

fn changed(before: &Value, writer: &Writer<'_>, change: impl FnOnce(&mut Value)) -> Value {
    let mut after = before.clone();
    change(&mut after);
    update(Some(before), &mut after, schema(), writer);
    after
}

fn applied(live: Option<&Value>, config: &Value, writer: &Writer<'_>) -> ApiResult<Value> {
    apply(live, config, schema(), writer, false)
}

fn entries(object: &Value) -> &Vec<Value> {
    object["metadata"]["managedFields"].as_array().expect("managed fields")
}

fn fields_of<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entry = entries(object).iter().find(|e| e["manager"] == manager);
    &entry.unwrap_or_else(|| panic!("no entry of {manager}"))["fieldsV1"]
}

fn managers(object: &Value) -> Vec<&str> {
    entries(object).iter().filter_map(|e| e["manager"].as_str()).collect()
}

#[test]
fn applying_what_is_already_so_adds_an_owner_without_a_time() {
    let live = created("creator");
    let object = applied(Some(&live), &config(), &by("m1", T2)).expect("applies");
    assert_eq!(managers(&object), ["m1", "creator"]);
    assert_eq!(entries(&object)[0].get("time"), None);
    assert_eq!(object["spec"], live["spec"]);
}

#[test]
fn a_conflict_with_an_update_through_a_subresource_names_both() {
    let mut wanted = config();
    wanted["spec"]["replicas"] = 1.into();
    let live = applied(None, &wanted, &by("m1", T1)).expect("applies");
    wanted["spec"]["replicas"] = 2.into();
    let scaled = Writer { subresource: "scale", reset: &[], ..by("hpa", T2) };
    let live = changed(&live, &scaled, |o| o["spec"]["replicas"] = 5.into());
    let error = applied(Some(&live), &wanted, &by("m2", T2)).expect_err("conflicts");
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn an_item_that_an_applier_drops_goes_but_others_keep_theirs() {
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let mut wanted = config();
    let list = |o: &mut Value, items: Vec<Value>| o["spec"]["template"]["spec"]["containers"] = items.into();
    list(&mut wanted, vec![container("a", "1"), container("b", "1")]);
    let live = applied(None, &wanted, &by("m1", T1)).expect("applies");
    let live = changed(&live, &by("injector", T2), |o| {
        list(o, vec![container("a", "1"), container("side", "1"), container("b", "1")]);
    });
    list(&mut wanted, vec![container("b", "1")]);
    let object = applied(Some(&live), &wanted, &by("m1", T3)).expect("applies");
    let names: Vec<_> = object["spec"]["template"]["spec"]["containers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    assert_eq!(names, ["side", "b"]);
}

#[test]
fn a_write_that_changes_nothing_leaves_managed_fields_as_they_were() {
    let live = created("creator");
    let object = changed(&live, &by("editor", T2), |o| o["metadata"]["resourceVersion"] = "9".into());
    assert_eq!(object["metadata"]["managedFields"], live["metadata"]["managedFields"]);
    let emptied = changed(&live, &by("editor", T2), |o| {
        o.as_object_mut().map(|o| o.remove("status"));
    });
    assert_eq!(emptied["metadata"]["managedFields"], live["metadata"]["managedFields"]);
}

#[test]
fn an_owner_of_nothing_is_no_longer_listed() {
    let live = created("creator");
    let live = changed(&live, &by("editor", T2), |o| o["spec"]["replicas"] = 2.into());
    let object = changed(&live, &by("other", T3), |o| o["spec"]["replicas"] = 3.into());
    assert_eq!(managers(&object), ["creator", "other"]);
    let removed = changed(&object, &by("third", T3), |o| {
        o["spec"].as_object_mut().map(|s| s.remove("replicas"));
    });
    assert_eq!(managers(&removed), ["creator"]);
}

#[test]
fn a_reset_field_is_not_claimed_by_apply() {
    let mut wanted = config();
    wanted["status"] = json!({"replicas": 4});
    let object = applied(None, &wanted, &by("m1", T1)).expect("applies");
    assert!(fields_of(&object, "m1").get("f:status").is_none());
}

#[test]
fn users_may_clear_managed_fields() {
    let live = created("creator");
    for cleared in [json!([]), json!([{}])] {
        let object = changed(&live, &by("editor", T2), |o| {
            o["metadata"]["managedFields"] = cleared;
            o["spec"]["replicas"] = 2.into();
        });
        assert_eq!(object["metadata"].get("managedFields"), None);
        let untracked = changed(&object, &by("editor", T3), |o| o["spec"]["replicas"] = 3.into());
        assert_eq!(untracked["metadata"].get("managedFields"), None);
        let applied = applied(Some(&untracked), &config(), &by("m1", T3)).expect("applies");
        assert_eq!(managers(&applied), ["m1", "before-first-apply"]);
    }
    assert!(is_reset(&json!({"metadata": {"managedFields": [{}]}})));
    assert!(!is_reset(&json!({"metadata": {}})));
}

#[test]
fn unreadable_managed_fields_are_ignored_and_readable_ones_taken() {
    let live = created("creator");
    let good = json!({"manager": "me", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                      "fieldsV1": {"f:spec": {"f:selector": {}}}});
    for (field, value) in [
        ("operation", json!("Eat")),
        ("apiVersion", json!("")),
        ("fieldsType", json!("V2")),
        ("fieldsV1", json!({"nonsense": {}})),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let object = changed(&live, &by("e", T2), |o| o["metadata"]["managedFields"] = json!([bad]));
        assert_eq!(managers(&object), ["creator"], "{field}");
    }
    let object = changed(&live, &by("e", T2), |o| o["metadata"]["managedFields"] = json!([good]));
    assert_eq!(managers(&object), ["me"]);
    let sub = changed(&live, &status_by("e", T2), |o| o["metadata"]["managedFields"] = json!([good]));
    assert_eq!(managers(&sub), ["creator"]);
}

#[test]
fn at_most_ten_updaters_are_told_apart() {
    let mut object = created("m00");
    for i in 1..=12 {
        let (manager, now) = (format!("m{i:02}"), format!("2026-01-01T00:01:{i:02}Z"));
        let label = format!("l{i}");
        object = changed(&object, &by(&manager, &now), |o| o["metadata"]["labels"][label] = "x".into());
    }
    let names = managers(&object);
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
    assert_eq!(names[9], "m12");
    let ancient = fields_of(&object, "ancient-changes");
    assert!(ancient["f:spec"].get("f:replicas").is_some());
    assert!(ancient["f:metadata"]["f:labels"].get("f:l2").is_some());
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_in_the_servers_words() {
    let apply_changed = |change: &dyn Fn(&mut Value)| {
        let mut config = config();
        change(&mut config);
        applied(None, &config, &by("m1", T1)).expect_err("refused")
    };
    let typed = "failed to create typed patch object (/d; apps/v1, Kind=Deployment): ";
    let error = apply_changed(&|c| c["spec"]["foo"] = 1.into());
    assert_eq!((error.code, error.reason), (500, ""));
    assert_eq!(error.message, format!("{typed}.spec.foo: field not declared in schema"));
    let error = apply_changed(&|c| c["spec"]["replicas"] = "x".into());
    assert_eq!(error.message, format!("{typed}.spec.replicas: expected numeric (int or float), got string"));
    let error = apply_changed(&|c| {
        let containers = &mut c["spec"]["template"]["spec"]["containers"];
        *containers = json!([{"name": "c"}, {"name": "c"}]);
    });
    let duplicate = ".spec.template.spec.containers: duplicate entries for key [name=\"c\"]";
    assert_eq!(error.message, format!("{typed}{duplicate}"));
    let error = apply_changed(&|c| c["metadata"]["managedFields"] = json!([]));
    assert_eq!((error.code, error.message.as_str()), (400, "metadata.managedFields must be nil"));
}

#[test]
fn kubectl_may_take_over_what_it_applied_from_the_client_side() {
    let mut live = stored();
    let mut wanted = config();
    wanted["spec"]["replicas"] = 1.into();
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": wanted.to_string()});
    update(None, &mut live, schema(), &by("kubectl-client-side-apply", T1));
    wanted["spec"]["replicas"] = 2.into();
    let refused = applied(Some(&live), &wanted, &by("somebody", T2)).expect_err("conflicts");
    assert_eq!(refused.code, 409);
    let object = applied(Some(&live), &wanted, &by("kubectl", T2)).expect("applies");
    assert_eq!(object["spec"]["replicas"], 2);
    let last = object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str();
    assert_eq!(last, Some(format!("{wanted}\n").as_str()));
}

#[test]
fn without_a_schema_objects_are_taken_apart_and_lists_are_not() {
    let mut set = crate::schema::SchemaSet::default();
    let free =
        crate::schema::Node { preserve_unknown: true, ty: crate::schema::Type::Object, ..Default::default() };
    let root = set.add(free);
    let object = json!({"spec": {"a": {"b": 1}, "l": [{"x": 1}]}});
    let fields = json!(set_of(&object, set.at(root)));
    assert_eq!(fields, json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}}}));
}

#[test]
fn the_manager_is_what_stands_before_the_slash() {
    for (agent, manager) in
        [("kubectl/v1.37 (linux)", "kubectl"), ("curl", "curl"), ("", "unknown"), ("/x", "unknown")]
    {
        assert_eq!(manager_from_user_agent(agent), manager);
    }
    assert_eq!(manager_from_user_agent(&"x".repeat(200)).len(), 128);
}

fn configs() -> impl Strategy<Value = Value> {
    let labels = proptest::collection::btree_map("[a-c]", "[xy]", 0..3);
    let containers = proptest::collection::btree_map("[a-c]", "[xy]", 1..3);
    (labels, containers, proptest::option::of(0..3u8)).prop_map(|(labels, containers, replicas)| {
        let mut config = config();
        if !labels.is_empty() {
            config["metadata"]["labels"] = json!(labels);
        }
        if let Some(replicas) = replicas {
            config["spec"]["replicas"] = replicas.into();
        }
        let containers: Vec<Value> = containers.iter().map(|(n, i)| json!({"name": n, "image": i})).collect();
        config["spec"]["template"]["spec"]["containers"] = containers.into();
        config
    })
}

proptest! {
    #[test]
    fn apply_is_idempotent(first in configs(), second in configs()) {
        let live = applied(None, &first, &by("m1", T1)).expect("applies");
        let once = applied(Some(&live), &second, &by("m1", T2)).expect("applies");
        let twice = applied(Some(&once), &second, &by("m1", T3)).expect("applies");
        prop_assert_eq!(&twice, &once);
    }

    #[test]
    fn the_only_applier_gets_exactly_its_configuration(first in configs(), second in configs()) {
        let live = applied(None, &first, &by("m1", T1)).expect("applies");
        let object = applied(Some(&live), &second, &by("m1", T2)).expect("applies");
        prop_assert_eq!(&object["spec"], &second["spec"]);
        prop_assert_eq!(object["metadata"].get("labels"), second["metadata"].get("labels"));
    }

    #[test]
    fn what_somebody_else_changed_conflicts_when_it_is_applied_again(wanted in configs(), replicas in 3..9u8) {
        let mut wanted = wanted;
        wanted["spec"]["replicas"] = 1.into();
        let live = applied(None, &wanted, &by("m1", T1)).expect("applies");
        let live = changed(&live, &by("editor", T2), |o| o["spec"]["replicas"] = replicas.into());
        let error = applied(Some(&live), &wanted, &by("m1", T3)).expect_err("conflicts");
        prop_assert_eq!(error.message,
            "Apply failed with 1 conflict: conflict with \"editor\" using apps/v1: .spec.replicas");
        let forced = apply(Some(&live), &wanted, schema(), &by("m1", T3), true).expect("applies");
        prop_assert_eq!(managers(&forced), ["m1"]);
    }

    #[test]
    fn a_comparison_with_itself_is_empty(object in configs()) {
        prop_assert!(compare(&object, &object, schema()).is_empty());
    }
}
