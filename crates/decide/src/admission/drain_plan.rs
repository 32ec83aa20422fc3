//! The drain plan of a maintenance: what people may write, and the entries that admission adds.
//!
//! What people wrote once can be written again for ever: the default entries are added to it as on creation, and what comes of
//! it is compared with what is there.

use std::cmp::Ordering;

use kube::core::Selector;
use usher_api::node_maintenance::{MAX_DRAIN_PLAN_ENTRIES, default_drain_plan};
use usher_api::{DrainPlanEntry, NodeMaintenance};

use super::{Changes, Refusal, Rule, Verdict};
use crate::maintenance::plan::{order, with_defaults};

const FIELD: &str = "spec.drainPlan";

/// Completes the plan of a maintenance that is created, or changed.
pub fn complete(old: Option<&NodeMaintenance>, new: &NodeMaintenance) -> Verdict {
    let given = &new.spec.drain_plan;
    let before = old.map(|old| &old.spec.drain_plan);
    if before == Some(given) {
        return Verdict::allow();
    }
    let mut refusals = Vec::new();
    check(given, &mut refusals);
    let whole = with_defaults(given);
    if let Some(before) = before
        && refusals.is_empty()
        && whole != with_defaults(before)
    {
        refusals.push(is_another(before, given));
    }
    if !refusals.is_empty() {
        return Verdict::of(refusals);
    }
    let drain_plan = Some(before.cloned().unwrap_or(whole)).filter(|plan| plan != given);
    Verdict::Allow { changes: Changes { drain_plan, ..Changes::default() }, warnings: Vec::new() }
}

/// What is wrong with a plan as people write it.
pub(super) fn check(plan: &[DrainPlanEntry], refusals: &mut Vec<Refusal>) {
    let defaults = default_drain_plan();
    let own = plan.iter().filter(|entry| !defaults.contains(entry)).count();
    let most = MAX_DRAIN_PLAN_ENTRIES - defaults.len();
    if own > most {
        let message = format!(
            "{FIELD} has {own} entries of your own, and may have {most}: every plan also contains {} default entries, and holds \
             {MAX_DRAIN_PLAN_ENTRIES} in all; leave out {}",
            defaults.len(),
            own - most
        );
        refusals.push(Refusal::new(Rule::DrainPlanLength, FIELD, message));
    }
    for (at, entry) in plan.iter().enumerate() {
        if plan[..at].contains(entry) {
            let message = format!("{FIELD}[{at}] is there twice: leave one out");
            refusals.push(Refusal::new(Rule::DrainPlanUnique, FIELD, message));
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| plan.get(before))
            && order(before, entry) == Ordering::Greater
        {
            let message = format!(
                "{FIELD}[{at}] comes too late: pod types come in the order Default, DaemonSet, Static, priorities ascend within \
                 each, and entries with a podSelector come before the one without"
            );
            refusals.push(Refusal::new(Rule::DrainPlanOrder, FIELD, message));
        }
        if let Some(selector) = &entry.pod_selector
            && let Err(why) = Selector::try_from(selector.clone())
        {
            let message = format!("{FIELD}[{at}].podSelector selects nothing: {why}");
            refusals.push(Refusal::new(Rule::DrainPlanSelectors, FIELD, message));
        }
    }
}

/// A plan that is not the one from before, with an entry that differs.
pub(super) fn is_another(before: &[DrainPlanEntry], given: &[DrainPlanEntry]) -> Refusal {
    let (before, given) = (with_defaults(before), with_defaults(given));
    let new = given.iter().find(|entry| !before.contains(entry)).map(|entry| ("is new", entry));
    let missing = before.iter().find(|entry| !given.contains(entry)).map(|entry| ("is missing", entry));
    let moved = || {
        let (entry, _) = given.iter().zip(&before).find(|(entry, before)| entry != before)?;
        Some(("has moved", entry))
    };
    let differences: Vec<String> = match (new, missing) {
        (None, None) => moved().into_iter().collect(),
        (new, missing) => new.into_iter().chain(missing).collect::<Vec<_>>(),
    }
    .into_iter()
    .map(|(what, entry)| format!("{} {what}", serde_json::to_string(entry).unwrap_or_default()))
    .collect();
    let message = format!(
        "{FIELD} cannot change after creation, and {}: write the plan as it was, or create another maintenance with the plan you \
         want; both can cover the same nodes, and the least powerful targets count",
        differences.join(", ")
    );
    Refusal::new(Rule::DrainPlanIsImmutable, FIELD, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn maintenance(plan: &Value) -> NodeMaintenance {
        let object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
            "spec": {"nodeSelector": {"nodeSelectorTerms": []}, "drainPlan": plan},
        });
        serde_json::from_value(object).unwrap()
    }

    fn apply(old: Option<&NodeMaintenance>, plan: &Value) -> Result<NodeMaintenance, String> {
        let mut new = maintenance(plan);
        match complete(old, &new) {
            Verdict::Allow { changes, .. } => {
                if let Some(plan) = changes.drain_plan {
                    new.spec.drain_plan = plan;
                }
                Ok(new)
            }
            Verdict::Deny(denial) => Err(denial.to_string()),
        }
    }

    fn app(priority: i32, app: &str) -> Value {
        json!({"podPriority": priority, "podSelector": {"matchLabels": {"app": app}}})
    }

    #[test]
    fn what_was_written_once_can_be_written_again_for_ever() {
        let plans = [
            json!([]),
            json!([{"podPriority": 5}]),
            json!([{"podPriority": 5}, {"podPriority": 5, "podType": "DaemonSet"}]),
            json!([app(5, "x"), app(5, "y"), {"podPriority": 5}]),
            json!([{"podPriority": 1_000_000_000}]),
            json!([app(i32::MAX, "x"), {"podPriority": i32::MAX}]),
            json!(default_drain_plan()),
        ];
        for plan in plans {
            let first = apply(None, &plan).unwrap();
            let again = apply(Some(&first), &plan).unwrap();
            assert_eq!(again.spec, first.spec, "{plan}");
            assert_eq!(apply(Some(&again), &json!(first.spec.drain_plan)).unwrap().spec, first.spec);
        }
    }

    #[test]
    fn what_came_in_without_the_default_entries_stays_as_it_is() {
        let old = maintenance(&json!([{"podPriority": 5}]));
        for plan in [json!([{"podPriority": 5}]), json!(with_defaults(&old.spec.drain_plan))] {
            assert_eq!(apply(Some(&old), &plan).unwrap().spec, old.spec, "the schema lets nothing else pass");
        }
    }

    #[test]
    fn another_plan_is_refused_with_the_entry_that_differs() {
        let before = json!([app(5, "x"), app(5, "y"), {"podPriority": 7}]);
        let old = apply(None, &before).unwrap();
        let rows = [
            (json!([app(5, "x"), app(5, "y")]), vec![r#"{"podPriority":7,"podType":"Default"} is missing"#]),
            (
                json!([app(5, "x"), app(5, "y"), {"podPriority": 8}]),
                vec![
                    r#"{"podPriority":8,"podType":"Default"} is new"#,
                    r#"{"podPriority":7,"podType":"Default"} is missing"#,
                ],
            ),
            (
                json!([app(5, "y"), app(5, "x"), {"podPriority": 7}]),
                vec![
                    r#"{"podSelector":{"matchLabels":{"app":"y"}},"podPriority":5,"podType":"Default"} has moved"#,
                ],
            ),
            (json!([]), vec!["is missing"]),
            (json!([{"podPriority": 7}, app(5, "x")]), vec!["drainPlan[1] comes too late"]),
        ];
        for (plan, parts) in rows {
            let said = apply(Some(&old), &plan).unwrap_err();
            for part in parts {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }

    #[test]
    fn the_entries_that_people_wrote_are_counted_and_no_others() {
        let own = |count: i32| -> Vec<Value> {
            (0..count).map(|priority| json!({"podPriority": priority})).collect()
        };
        assert_eq!(apply(None, &json!(own(88))).unwrap().spec.drain_plan.len(), MAX_DRAIN_PLAN_ENTRIES);
        let with_default = |count: i32| {
            let mut plan = own(count);
            plan.push(json!({"podPriority": 1_000_000_000}));
            json!(plan)
        };
        assert!(apply(None, &with_default(88)).is_ok(), "a default entry is none of their own");
        for plan in [json!(own(95)), with_default(95)] {
            let said = apply(None, &plan).unwrap_err();
            assert!(said.contains("has 95 entries of your own, and may have 88"), "{said}");
            assert!(said.contains("leave out 7"), "{said}");
        }
    }
}
