//! What a delete means for an object: grace, finalizers, propagation.

use super::*;
use crate::kinds::Registry;

fn kind(group: &str, plural: &str) -> Arc<Kind> {
    Registry::builtin().find(group, "v1", plural).unwrap().clone()
}

fn pod(node: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": "web", "generation": 1}, "status": {"phase": phase},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
    })
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn options(grace_seconds: Option<i64>) -> DeleteOptions {
    DeleteOptions { grace_seconds, ..DeleteOptions::default() }
}

/// What became of the object's deletion marks: `Some(grace)` if it stays for now.
fn stays(plan: &Plan) -> Option<i64> {
    match plan {
        Plan::Mark(marked) => marked["metadata"]["deletionGracePeriodSeconds"].as_i64(),
        _ => None,
    }
}

#[test]
fn pods_get_their_grace_only_while_something_runs() {
    let pods = kind("", "pods");
    let cases = [
        ("its own", pod("n1", "Running"), None, Some(30)),
        ("as asked", pod("n1", "Running"), Some(5), Some(5)),
        ("negative is one second", pod("n1", "Running"), Some(-1), Some(1)),
        ("none asked", pod("n1", "Running"), Some(0), None),
        ("not on a node", pod("", "Pending"), None, None),
        ("ended", pod("n1", "Succeeded"), None, None),
    ];
    for (case, pod, asked, grace) in cases {
        assert_eq!(stays(&plan(&pods, &pod, &options(asked), now())), grace, "{case}");
    }
}

#[test]
fn a_second_delete_only_shortens() {
    let pods = kind("", "pods");
    let Plan::Mark(leaving) = plan(&pods, &pod("n1", "Running"), &options(None), now()) else { panic!() };
    assert_eq!(leaving["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(plan(&pods, &leaving, &options(Some(60)), now()), Plan::Nothing);
    let shorter = plan(&pods, &leaving, &options(Some(10)), now());
    let Plan::Mark(shorter) = shorter else { panic!() };
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z", "from when it began");
    assert!(matches!(plan(&pods, &leaving, &options(Some(0)), now()), Plan::MarkAndRemove(_)));
}

#[test]
fn finalizers_hold_and_propagation_adds_them() {
    let maps = kind("", "configmaps");
    let bare = json!({"metadata": {"name": "a"}});
    assert_eq!(plan(&maps, &bare, &options(None), now()), Plan::Remove);
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    assert_eq!(stays(&plan(&maps, &held, &options(None), now())), Some(0));
    for (propagation, finalizer) in
        [(Propagation::Foreground, "foregroundDeletion"), (Propagation::Orphan, "orphan")]
    {
        let asked = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let Plan::Mark(marked) = plan(&maps, &bare, &asked, now()) else { panic!("{finalizer}") };
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
    }
    let controllers = kind("", "replicationcontrollers");
    let Plan::Mark(marked) = plan(&controllers, &bare, &options(None), now()) else { panic!() };
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]), "the default of that kind");
}
