//! The rules of pods/eviction, by their numbers in the facts about it, where no recorded request shows them: deletions that
//! must meet an unchanged pod, budgets that the API refuses to store, and the order of refusals.

use super::*;

fn pod(phase: &str, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": status}]},
    })
}

/// A budget over `app=web` that is up to date.
fn budget(allowed: i64, healthy: i64, desired: i64) -> Value {
    json!({
        "metadata": {"name": "web", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy,
            "desiredHealthy": desired, "expectedPods": healthy,
        },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn refusal(verdict: Verdict) -> ApiError {
    match verdict {
        Verdict::Refuse(error) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn rule_2_what_does_not_run_or_is_leaving_goes_without_any_budget() {
    let blocked = [budget(0, 1, 1)];
    for (phase, pin) in [("Succeeded", false), ("Failed", false), ("Pending", true)] {
        assert_eq!(judge(&pod(phase, false), &blocked), Verdict::Delete { pin }, "{phase}");
    }
    let leaving = with(pod("Running", true), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(judge(&leaving, &blocked), Verdict::Delete { pin: false });
}

#[test]
fn rule_3_selectors_choose_budgets_and_two_are_never_resolved() {
    let running = pod("Running", true);
    let all = with(budget(1, 2, 1), "/spec/selector", json!({}));
    let none = with(budget(0, 1, 1), "/spec/selector", Value::Null);
    let broken = with(
        budget(0, 1, 1),
        "/spec/selector",
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
    );
    assert_eq!(
        judge(&running, std::slice::from_ref(&all)),
        Verdict::Spend { budget: 0 },
        "empty matches every pod"
    );
    assert_eq!(judge(&running, &[none, broken, all.clone()]), Verdict::Spend { budget: 2 });
    let error = refusal(judge(&running, &[budget(1, 2, 1), all]));
    assert_eq!((error.code, error.retry_after), (500, None));
}

#[test]
fn rule_5_unready_pods_by_policy() {
    let unready = pod("Running", false);
    let policy =
        |budget: Value, policy: &str| with(budget, "/spec/unhealthyPodEvictionPolicy", json!(policy));
    let free = Verdict::Delete { pin: true };
    let cases = [
        ("AlwaysAllow, disrupted", policy(budget(0, 0, 1), "AlwaysAllow"), true),
        ("unset, healthy", budget(0, 1, 1), true),
        ("unset, disrupted", budget(0, 0, 1), false),
        ("unset, nothing desired", budget(0, 0, 0), false),
        ("IfHealthyBudget, healthy", policy(budget(0, 1, 1), "IfHealthyBudget"), true),
        ("IfHealthyBudget, disrupted", policy(budget(0, 0, 1), "IfHealthyBudget"), false),
        ("unknown policy, healthy", policy(budget(0, 1, 1), "Sometimes"), false),
    ];
    for (case, budget, goes) in cases {
        let verdict = judge(&unready, &[budget]);
        if goes {
            assert_eq!(verdict, free, "{case}");
        } else {
            assert_eq!(refusal(verdict).code, 429, "{case}");
        }
    }
}

#[test]
fn rule_6_refusals_come_in_their_order() {
    let running = pod("Running", true);
    let many: serde_json::Map<String, Value> =
        (0..=MAX_DISRUPTED_PODS).map(|i| (format!("p{i}"), json!("2026-01-01T00:00:00Z"))).collect();
    let behind = with(budget(-1, 1, 1), "/metadata/generation", json!(2));
    let crowded = |allowed| with(budget(allowed, 2, 1), "/status/disruptedPods", json!(many));
    let cases = [
        ("not observed yet, before all else", behind, 429, Some(10)),
        ("negative, before too many", with(crowded(-1), "/metadata/generation", json!(1)), 403, None),
        ("too many on their way", crowded(1), 403, None),
        ("none allowed", budget(0, 1, 1), 429, None),
    ];
    for (case, budget, code, retry_after) in cases {
        let error = refusal(judge(&running, &[budget]));
        assert_eq!((error.code, error.retry_after), (code, retry_after), "{case}");
    }
}

#[test]
fn rule_7_the_refusal_quotes_the_condition_where_enough_pods_are_healthy() {
    let condition =
        json!([{"type": "DisruptionAllowed", "status": "False", "reason": "Other", "message": "why"}]);
    let budget = with(budget(0, 3, 1), "/status/conditions", condition);
    let error = refusal(judge(&pod("Running", true), &[budget]));
    let cause = &error.details["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    assert!(cause["message"].as_str().unwrap().ends_with("currently (Other): why"), "{cause}");
}
