use super::*;
use crate::schema::builtin_kind;
use proptest::prelude::*;
use serde_json::json;

fn schema(group: &str, kind: &str) -> SchemaRef<'static> {
    builtin_kind(group, "v1", kind).expect("a served kind")
}

fn pod(original: Value, patch: Value) -> ApiResult<Value> {
    strategic(&original, &patch, schema("", "Pod"))
}

fn check(original: Value, patch: Value, want: Value) {
    assert_eq!(pod(original.clone(), patch.clone()).expect("applies"), want, "{original} + {patch}");
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|i| i["name"].as_str()).collect()
}

#[test]
fn objects_merge_and_null_deletes() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"a": null, "c": "3", "d": null}}}),
        json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
    );
    check(json!({}), json!({"spec": {"nodeName": null, "x": {"y": null}}}), json!({"spec": {"x": {}}}));
}

#[test]
fn lists_of_scalars_merge_as_sets() {
    check(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"finalizers": ["b", "c"]}}),
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
    );
}

#[test]
fn scalars_are_deleted_by_the_parallel_list() {
    check(
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c", "a"]}}),
        json!({"metadata": {"finalizers": ["c", "a"]}}),
    );
    check(
        json!({"metadata": {}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}),
        json!({"metadata": {}}),
    );
}

#[test]
fn a_delete_directive_empties_an_object() {
    check(
        json!({"spec": {"securityContext": {"runAsUser": 1}}}),
        json!({"spec": {"securityContext": {"$patch": "delete"}}}),
        json!({"spec": {"securityContext": {}}}),
    );
}

#[test]
fn directives_for_what_is_not_there_leave_no_trace() {
    check(
        json!({"spec": {}}),
        json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}],
                        "securityContext": {"$patch": "delete"}}}),
        json!({"spec": {"containers": [{"name": "b"}]}}),
    );
}

#[test]
fn retain_keys_is_a_list() {
    let original = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": "type"}}});
    let error = strategic(&original, &patch, schema("apps", "Deployment")).expect_err("refused");
    assert_eq!((error.code, error.message.as_str()), (400, "invalid patch format of retainKeys"));
}

#[test]
fn set_element_order_orders_and_keeps_the_servers_own_items_in_place() {
    let order = |live: &[&str], patch: &[&str], order: &[&str]| {
        let items = |list: &[&str]| -> Vec<Value> { list.iter().map(|n| json!({"name": n})).collect() };
        let mut wanted = json!({"$setElementOrder/containers": items(order)});
        if !patch.is_empty() {
            wanted["containers"] = items(patch).into();
        }
        let merged = pod(json!({"spec": {"containers": items(live)}}), json!({"spec": wanted}));
        names(&merged.expect("applies")["spec"]["containers"]).join("")
    };
    assert_eq!(order(&["a", "b", "c"], &[], &["c", "b", "a"]), "cba");
    assert_eq!(order(&["a", "b"], &["c"], &["c", "a", "b"]), "cab");
    assert_eq!(order(&["a", "b"], &["c"], &["a", "c", "b"]), "acb");
    // x and y are the server's own: before what they stood before, else after.
    assert_eq!(order(&["x", "a", "b"], &[], &["b", "a"]), "xba");
    assert_eq!(order(&["a", "x", "b"], &[], &["a", "b"]), "axb");
    assert_eq!(order(&["a", "b", "x"], &["c"], &["a", "b", "c"]), "abcx");
    assert_eq!(order(&["a", "x", "b", "y"], &["n"], &["n", "b", "a"]), "nxbay");
}

#[test]
fn an_order_that_contradicts_the_patch_is_refused() {
    let error = pod(
        json!({"spec": {"containers": [{"name": "a"}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                        "containers": [{"name": "b"}, {"name": "a"}]}}),
    );
    let error = error.expect_err("refused");
    assert_eq!((error.code, error.reason), (500, ""));
    assert_eq!(
        error.message,
        "The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n\
         [map[name:a] map[name:b]]\n"
    );
}

#[test]
fn errors_have_the_servers_code_and_words() {
    let original =
        json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"labels": {}, "finalizers": ["a"]}});
    for (patch, code, message) in [
        (
            json!({"spec": {"containers": [{"$patch": "delete"}]}}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "explode"}]}}),
            500,
            "unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"metadata": {"labels": {"$patch": "merge"}}}),
            500,
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (json!({"metadata": {"finalizers": [1]}}), 500, "list element types are not identical: [[a] [1]]"),
        (
            json!({"metadata": {"finalizers": [["x"]], "$patch": "replace"}, "spec": {"containers": [{"name": "b"}, "x"]}}),
            500,
            "list element types are not identical: [[map[name:a]] [map[name:b] x]]",
        ),
        (json!({"metadata": {"$setElementOrder": []}}), 400, "invalid patch format of setElementOrder list"),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": []}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "a"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
    ] {
        let error = pod(original.clone(), patch.clone()).expect_err("refused");
        assert_eq!((error.code, error.message.as_str()), (code, message), "{patch}");
    }
}

/// Containers with unique names and a few fields, in any order.
fn containers() -> impl Strategy<Value = Vec<Value>> {
    let fields = (0..3u8, proptest::collection::btree_map("[a-c]", "[xy]", 0..3));
    proptest::collection::btree_map("[a-f]", fields, 1..5)
        .prop_map(|all| {
            let items = all.into_iter().map(|(name, (image, env))| {
                let env: Vec<Value> =
                    env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
                json!({"name": name, "image": image.to_string(), "env": env})
            });
            items.collect::<Vec<Value>>()
        })
        .prop_shuffle()
}

/// The patch that `kubectl` would send to get from one keyed list to another.
fn diff(field: &str, from: &[Value], to: &[Value]) -> Map<String, Value> {
    let mut patch = Map::new();
    let mut items = Vec::new();
    for item in to {
        let mut item = item.clone();
        if let Some(old) = from.iter().find(|f| f["name"] == item["name"])
            && let (Some(old), Some(new)) = (old["env"].as_array(), item["env"].as_array())
        {
            let env = diff("env", old, new);
            if let Some(fields) = item.as_object_mut() {
                fields.remove("env");
                fields.extend(env);
            }
        }
        items.push(item);
    }
    let gone = from.iter().filter(|f| to.iter().all(|t| t["name"] != f["name"]));
    items.extend(gone.map(|f| json!({"name": f["name"], "$patch": "delete"})));
    let order: Vec<Value> = to.iter().map(|t| json!({"name": t["name"]})).collect();
    if !from.is_empty() || !to.is_empty() {
        patch.insert(format!("$setElementOrder/{field}"), order.into());
        patch.insert(field.to_string(), items.into());
    }
    patch
}

proptest! {
    #[test]
    fn the_patch_from_a_diff_gives_the_wanted_list(from in containers(), to in containers()) {
        let patch = json!({"spec": diff("containers", &from, &to)});
        let patched = pod(json!({"spec": {"containers": from}}), patch).expect("applies");
        let got = patched["spec"]["containers"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(got, to);
    }

    #[test]
    fn an_empty_patch_changes_nothing(from in containers()) {
        let original = json!({"spec": {"containers": from}});
        prop_assert_eq!(pod(original.clone(), json!({})).expect("applies"), original.clone());
        prop_assert_eq!(pod(original.clone(), json!({"spec": {}})).expect("applies"), original);
    }

    #[test]
    fn patching_twice_is_patching_once(from in containers(), to in containers()) {
        let patch = json!({"spec": {"containers": to}});
        let once = pod(json!({"spec": {"containers": from}}), patch.clone()).expect("applies");
        prop_assert_eq!(pod(once.clone(), patch).expect("applies"), once);
    }
}
