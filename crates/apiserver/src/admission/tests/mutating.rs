//! Mutating webhooks: patches, order, and the second round.

use super::*;

#[tokio::test]
async fn a_patch_changes_the_object() {
    let endpoint = answering(patching(json!([{"op": "add", "path": "/data/z", "value": "1"}])));
    let mut case = Case::create();
    case.mutate(&one_mutating(json!({}), endpoint)).await.unwrap();
    assert_eq!(case.object["data"], json!({"k": "v", "z": "1"}));
}

/// Faults of the answer obey the failure policy; a patch that does not fit the object never does.
#[tokio::test]
async fn patches_that_fail() {
    let cases = [
        (
            "no type",
            json!({"allowed": true, "patch": "W10="}),
            r#"failed calling webhook "h.example.com": received invalid webhook response: webhook returned response.patch but not response.patchType"#,
            true,
        ),
        (
            "no patch",
            json!({"allowed": true, "patchType": "JSONPatch"}),
            r#"failed calling webhook "h.example.com": received invalid webhook response: webhook returned response.patchType but not response.patch"#,
            true,
        ),
        (
            "another type",
            json!({"allowed": true, "patchType": "Merge", "patch": BASE64_STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#)}),
            r#"failed calling webhook "h.example.com": unsupported patch type "Merge""#,
            true,
        ),
        (
            "does not fit",
            patching(json!([{"op": "test", "path": "/data/k", "value": "other"}])),
            "testing value /data/k failed: test failed",
            false,
        ),
    ];
    for (rule, response, words, obeys_policy) in cases {
        let mut case = Case::create();
        let closed = one_mutating(json!({}), answering(response.clone()));
        let error = case.mutate(&closed).await.unwrap_err();
        assert_eq!(error.message, format!("Internal error occurred: {words}"), "{rule}");
        let open = one_mutating(json!({"failurePolicy": "Ignore"}), answering(response));
        assert_eq!(case.mutate(&open).await.is_ok(), obeys_policy, "{rule}");
        assert_eq!(case.object, Case::create().object, "{rule}: nothing changes");
    }
}

#[tokio::test]
async fn a_deletion_cannot_be_patched() {
    let endpoint = answering(patching(json!([{"op": "add", "path": "/data/z", "value": "1"}])));
    let webhooks = one_mutating(json!({"failurePolicy": "Ignore"}), endpoint);
    assert_eq!(
        Case::delete().mutate(&webhooks).await.unwrap_err().message,
        r#"Internal error occurred: admission webhook "h.example.com" attempted to modify the object, which is not supported for this operation"#
    );
}

/// Mutating webhooks, each at its own URL; every one logs its name and patches what it is told to.
fn several(log: &Log, hooks: &[(&str, &str, Value, Value)]) -> Webhooks {
    let caller = Caller::default();
    let mut configurations = Vec::new();
    for (configuration_name, name, changes, operations) in hooks {
        let url = format!("https://127.0.0.1:1/{name}");
        let (log, entry, operations) = (log.clone(), name.to_string(), operations.clone());
        caller.register_url(
            &url,
            in_process(move |review| {
                log.add(entry.clone());
                std::future::ready(Ok(respond(&review, patching(operations.clone()))))
            }),
        );
        let mut hook = webhook(&format!("{name}.example.com"), changes.clone());
        hook["clientConfig"]["url"] = url.into();
        configurations.push(configuration(configuration_name, &[hook]));
    }
    Webhooks::compile(&configurations, [], Arc::new(caller))
}

#[tokio::test]
async fn configurations_go_by_name() {
    let log = Log::default();
    let nothing = json!([]);
    let webhooks = several(
        &log,
        &[
            ("zebra", "z", json!({}), nothing.clone()),
            ("ant", "a", json!({}), nothing.clone()),
            ("mule", "m", json!({}), nothing),
        ],
    );
    Case::create().mutate(&webhooks).await.unwrap();
    assert_eq!(log.entries(), ["a", "m", "z"]);
}

#[tokio::test]
async fn a_later_change_calls_earlier_webhooks_again_if_they_ask_for_it() {
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let change = json!([{"op": "add", "path": "/data/z", "value": "1"}]);
    let nothing = json!([]);
    let cases = [
        (
            "the earlier one that asks is called twice",
            vec![("a", "a", again.clone(), nothing.clone()), ("b", "b", json!({}), change.clone())],
            vec!["a", "b", "a"],
        ),
        (
            "one that does not ask is called once",
            vec![("a", "a", json!({}), nothing.clone()), ("b", "b", json!({}), change.clone())],
            vec!["a", "b"],
        ),
        (
            "its own change does not count",
            vec![("a", "a", again.clone(), change.clone()), ("b", "b", json!({}), nothing.clone())],
            vec!["a", "b"],
        ),
        (
            "a patch that changes nothing does not count",
            vec![
                ("a", "a", again.clone(), nothing.clone()),
                ("b", "b", json!({}), json!([{"op": "add", "path": "/data/k", "value": "v"}])),
            ],
            vec!["a", "b"],
        ),
        (
            "there is one more round, not two",
            vec![
                ("a", "a", again.clone(), json!([{"op": "add", "path": "/data/a", "value": "1"}])),
                ("b", "b", again.clone(), json!([{"op": "add", "path": "/data/b", "value": "1"}])),
                ("c", "c", again, json!([{"op": "add", "path": "/data/c", "value": "1"}])),
            ],
            vec!["a", "b", "c", "a", "b"],
        ),
    ];
    for (rule, hooks, expected) in cases {
        let log = Log::default();
        Case::create().mutate(&several(&log, &hooks)).await.unwrap();
        assert_eq!(log.entries(), expected, "{rule}");
    }
}

#[tokio::test]
async fn later_webhooks_see_what_earlier_ones_made() {
    let log = Log::default();
    let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"touched": "yes"}}]);
    let only_touched = json!({"objectSelector": {"matchLabels": {"touched": "yes"}}});
    let webhooks = several(&log, &[("a", "a", json!({}), label), ("b", "b", only_touched, json!([]))]);
    Case::create().mutate(&webhooks).await.unwrap();
    assert_eq!(log.entries(), ["a", "b"]);
}
