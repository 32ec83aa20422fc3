//! The times of a second delete, which the recorded answers leave out.

use super::*;
use crate::kinds::Registry;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn options(grace_seconds: Option<i64>) -> DeleteOptions {
    DeleteOptions { grace_seconds, ..DeleteOptions::default() }
}

#[test]
fn a_second_delete_only_shortens() {
    let pods = Registry::builtin().find("", "v1", "pods").unwrap().clone();
    let pod = json!({
        "metadata": {"name": "web", "generation": 1}, "status": {"phase": "Running"},
        "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30},
    });
    let Plan::Mark(leaving) = plan(&pods, &pod, &options(None), now()) else { panic!() };
    assert_eq!(leaving["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(plan(&pods, &leaving, &options(Some(60)), now()), Plan::Nothing);
    let shorter = plan(&pods, &leaving, &options(Some(10)), now());
    let Plan::Mark(shorter) = shorter else { panic!() };
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z", "from when it began");
    assert!(matches!(plan(&pods, &leaving, &options(Some(0)), now()), Plan::MarkAndRemove(_)));
}
