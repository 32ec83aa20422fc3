use jiff::SignedDuration;
use serde_json::{Value, json};
use usher_api::names::STATEFUL_SET_CLASS;

use super::super::samples::{at, merge, request};
use super::*;

/// In its turn for 30 minutes, with a sign of life every 3; it has said "waits" at the beginning.
fn waits(status: Value) -> Arc<Request> {
    let mut with = json!({"message": "waits", "progressTimestamp": at(0).to_string()});
    merge(&mut with, status);
    request("web-0", STATEFUL_SET_CLASS, json!({"status": with}))
}

fn said(
    request: &Arc<Request>,
    message: &str,
    [moved, second]: [i64; 2],
    is_urgent: bool,
) -> Option<(bool, String)> {
    let waiting = Waiting {
        message: || message.to_owned(),
        finish: Some(at(second) + SignedDuration::from_secs(60)),
        moved: at(moved),
        is_urgent,
    };
    match waiting_report(request, waiting, at(second))? {
        Effect::Report { report, .. } => {
            assert_eq!(report.finish.is_some(), report.progress, "an estimate comes with progress");
            Some((report.progress, report.message.unwrap_or_default()))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_report_of_a_turn_is_progress() {
    let given = waits(json!({"message": format!("{STATEFUL_SET_CLASS} goes first (1 interceptor)")}));
    assert_eq!(said(&given, "waits", [-50, 1], false), Some((true, "waits".to_owned())));
    assert_eq!(said(&given, "waits", [-50, 1900], false), Some((false, "waits".to_owned())), "it was silent");
}

#[test]
fn a_change_waits_for_the_next_sign_of_life_unless_it_is_urgent() {
    let request = waits(json!({}));
    for (message, moved, second, is_urgent, wanted) in [
        ("waits", -50, 10, false, None),
        ("waits", -50, 200, false, None),
        ("waits", 5, 10, false, None),
        ("waits", 5, 200, false, Some(true)),
        ("waits for b", -50, 10, false, None),
        ("waits for b", -50, 200, false, Some(false)),
        ("waits for b", -50, 10, true, Some(false)),
        ("waits for b", 5, 10, true, Some(true)),
    ] {
        let found = said(&request, message, [moved, second], is_urgent);
        let wanted = wanted.map(|progress| (progress, message.to_owned()));
        assert_eq!(found, wanted, "{message} at {second}, moved at {moved}, urgent: {is_urgent}");
    }
}

#[test]
fn what_blocks_is_not_talked_over_unless_something_moves() {
    let blocked = waits(json!({"message": "a budget has no room", "conditions": [{
        "type": "EvictionBlocked", "status": "True", "reason": "DisruptionBudget", "message": "a budget has no room",
        "lastTransitionTime": at(0).to_string(),
    }]}));
    assert!(is_of_condition(&blocked));
    assert_eq!(said(&blocked, "waits", [-50, 200], false), None);
    assert_eq!(said(&blocked, "waits", [-50, 200], true), None);
    assert_eq!(said(&blocked, "waits", [5, 200], false), Some((true, "waits".to_owned())));
}

#[test]
fn an_estimate_that_nobody_can_make_any_more_is_taken_back_with_the_next_sign_of_life() {
    let request = waits(json!({"expectedInterceptorFinishTime": at(500).to_string()}));
    let silent = |second| {
        let waiting =
            Waiting { message: || "waits".to_owned(), finish: None, moved: at(-50), is_urgent: false };
        waiting_report(&request, waiting, at(second))
    };
    assert_eq!(silent(10), None);
    let Some(Effect::Report { report, .. }) = silent(200) else { panic!("it stays") };
    assert!(report.has_no_estimate && !report.progress);
}
