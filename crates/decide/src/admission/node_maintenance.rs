//! Node maintenances: CREATE, UPDATE and DELETE.
//!
//! Stages, order and immutability are in the schema too. Here they are told better, together with what needs the nodes
//! and the caller's rights.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use usher_api::{DrainPlanEntry, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStage};

use super::{Changes, Refusal, Rule, Verdict};
use crate::maintenance::plan::{order, with_defaults};
use crate::maintenance::selector;

/// So many nodes are named in an answer.
const NAMED: usize = 5;

/// What the selector of a maintenance meets in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// How many nodes it selects, and how many there are.
    pub nodes: usize,
    pub of: usize,
    /// Who asked, and the selected nodes that it may not delete.
    pub user: String,
    pub forbidden: Vec<String>,
    /// Not all were looked at: there are more than are asked for one by one.
    pub is_cut: bool,
}

/// A new maintenance.
pub fn on_create(maintenance: &NodeMaintenance, selected: &Selected) -> Verdict {
    let mut refusals = Vec::new();
    check_rights(selected, &mut refusals);
    check_selector(maintenance, &mut refusals);
    check_plan(&maintenance.spec.drain_plan, &mut refusals);
    check_limit(maintenance, &mut refusals);
    if !refusals.is_empty() {
        return Verdict::of(refusals);
    }
    let plan = with_defaults(&maintenance.spec.drain_plan);
    let drain_plan = (plan != maintenance.spec.drain_plan).then_some(plan);
    let changes = Changes { drain_plan, ..Changes::default() };
    Verdict::Allow { changes, warnings: warnings(selected) }
}

/// The same once all changes are made: nothing may be left to change.
pub fn on_created(maintenance: &NodeMaintenance, selected: &Selected) -> Verdict {
    match on_create(maintenance, selected) {
        Verdict::Allow { changes, .. } if changes.is_empty() => Verdict::allow(),
        Verdict::Allow { .. } => {
            let message = "spec.drainPlan lacks entries that every plan contains: another webhook removes them, or the \
                           mutating webhook of Usher is not installed";
            Refusal::new(Rule::DrainPlanDefaults, "spec.drainPlan", message).into()
        }
        denied @ Verdict::Deny(_) => denied,
    }
}

/// A maintenance that changes. `selected` is what the new selector meets.
pub fn on_update(old: &NodeMaintenance, new: &NodeMaintenance, selected: &Selected) -> Verdict {
    let mut refusals = Vec::new();
    check_rights(selected, &mut refusals);
    let is_other_selector = old.spec.node_selector != new.spec.node_selector;
    if is_other_selector {
        check_selector(new, &mut refusals);
    }
    if old.spec.drain_plan != new.spec.drain_plan {
        let message = "spec.drainPlan cannot change after creation: create another maintenance with the plan you want; \
                       both can cover the same nodes, and the least powerful targets count";
        refusals.push(Refusal::new(Rule::DrainPlanIsImmutable, "spec.drainPlan", message));
    }
    if !old.spec.stage.may_become(new.spec.stage) {
        let message = format!(
            "spec.stage cannot go from {:?} back to {:?}: the order is Idle, Cordon, Drain, Complete; to drain again, create \
             another maintenance",
            old.spec.stage, new.spec.stage
        );
        refusals.push(Refusal::new(Rule::StageMovesForward, "spec.stage", message));
    }
    if old.spec.drain_limit != new.spec.drain_limit {
        check_limit(new, &mut refusals);
    }
    if !refusals.is_empty() {
        return Verdict::of(refusals);
    }
    let warnings = if is_other_selector { warnings(selected) } else { Vec::new() };
    Verdict::Allow { changes: Changes::default(), warnings }
}

/// A maintenance that is to be deleted.
pub fn on_delete(selected: &Selected) -> Verdict {
    let mut refusals = Vec::new();
    check_rights(selected, &mut refusals);
    Verdict::of(refusals)
}

/// Whether an update says something new about nodes, so that the caller's rights matter: that of the spec does, except the end
/// of a maintenance whose deletion was allowed already.
pub fn concerns_nodes(old: &NodeMaintenance, new: &NodeMaintenance) -> bool {
    let is_its_end = old.metadata.deletion_timestamp.is_some()
        && new.spec == NodeMaintenanceSpec { stage: NodeMaintenanceStage::Complete, ..old.spec.clone() };
    old.spec != new.spec && !is_its_end
}

fn check_rights(selected: &Selected, refusals: &mut Vec<Refusal>) {
    let user = &selected.user;
    let message = if selected.is_cut {
        format!(
            "{user:?} may not delete all nodes, and the selector means too many to ask for each one: have a role bound that \
             allows the verb delete on nodes, or select fewer nodes"
        )
    } else if selected.forbidden.is_empty() {
        return;
    } else {
        let named = selected.forbidden.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = selected.forbidden.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{user:?} may not delete {named}{more}, and so may not ask for their maintenance: have a role bound that allows \
             the verb delete on these nodes"
        )
    };
    refusals.push(Refusal::new(Rule::CallerMayDeleteNodes, "spec.nodeSelector", message));
}

fn check_selector(maintenance: &NodeMaintenance, refusals: &mut Vec<Refusal>) {
    for wrong in selector::check(&maintenance.spec.node_selector) {
        let message = format!("spec.nodeSelector: {wrong}");
        refusals.push(Refusal::new(Rule::NodeSelectorIsValid, "spec.nodeSelector", message));
    }
}

fn check_plan(plan: &[DrainPlanEntry], refusals: &mut Vec<Refusal>) {
    let field = "spec.drainPlan";
    for (at, entry) in plan.iter().enumerate() {
        if plan[..at].contains(entry) {
            let message = format!("{field}[{at}] is there twice: leave one out");
            refusals.push(Refusal::new(Rule::DrainPlanUnique, field, message));
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| plan.get(before))
            && order(before, entry) == Ordering::Greater
        {
            let message = format!(
                "{field}[{at}] comes too late: pod types come in the order Default, DaemonSet, Static, priorities ascend within \
                 each, and entries with a podSelector come before the one without"
            );
            refusals.push(Refusal::new(Rule::DrainPlanOrder, field, message));
        }
        if let Some(selector) = &entry.pod_selector
            && let Err(why) = Selector::try_from(selector.clone())
        {
            let message = format!("{field}[{at}].podSelector selects nothing: {why}");
            refusals.push(Refusal::new(Rule::DrainPlanSelectors, field, message));
        }
    }
}

fn check_limit(maintenance: &NodeMaintenance, refusals: &mut Vec<Refusal>) {
    let Some(limit) = &maintenance.spec.drain_limit else { return };
    let is_valid = match &limit.max_nodes {
        IntOrString::Int(count) => *count >= 1,
        IntOrString::String(text) => {
            let (number, most) =
                text.strip_suffix('%').map_or((text.as_str(), u32::MAX), |number| (number, 100));
            number.parse::<u32>().is_ok_and(|number| (1..=most).contains(&number))
        }
    };
    if !is_valid {
        let field = "spec.drainLimit.maxNodes";
        let message =
            format!("{field} must be a number of nodes, 1 or more, or a percentage from 1% to 100%");
        refusals.push(Refusal::new(Rule::DrainLimitIsValid, field, message));
    }
}

fn warnings(selected: &Selected) -> Vec<String> {
    match (selected.nodes, selected.of) {
        (0, _) => vec![
            "spec.nodeSelector selects no node at present: nodes that match later are included".to_owned(),
        ],
        (nodes, of) if nodes == of => vec![format!(
            "spec.nodeSelector selects all {nodes} nodes of the cluster: a drain leaves no place for any pod, and the cluster may \
             not recover by itself"
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use usher_api::node_maintenance::default_drain_plan;

    fn maintenance(spec: Value) -> NodeMaintenance {
        let mut all = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}});
        for (name, value) in spec.as_object().unwrap() {
            all[name] = value.clone();
        }
        let object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
            "spec": all,
        });
        serde_json::from_value(object).unwrap()
    }

    fn some() -> Selected {
        Selected { nodes: 1, of: 3, user: "jo".to_owned(), ..Selected::default() }
    }

    fn broken(verdict: &Verdict) -> Vec<Rule> {
        match verdict {
            Verdict::Allow { .. } => Vec::new(),
            Verdict::Deny(denial) => denial.refusals().map(|refusal| refusal.rule).collect(),
        }
    }

    #[test]
    fn a_new_maintenance_gets_the_twelve_entries() {
        let Verdict::Allow { changes, warnings } = on_create(&maintenance(json!({})), &some()) else {
            panic!("refused")
        };
        assert_eq!((changes.drain_plan, warnings.len()), (Some(default_drain_plan()), 0));
        let whole = maintenance(json!({"drainPlan": default_drain_plan()}));
        assert_eq!(on_created(&whole, &some()), Verdict::allow());
        assert_eq!(broken(&on_created(&maintenance(json!({})), &some())), [Rule::DrainPlanDefaults]);
        let own = maintenance(json!({"drainPlan": [{"podPriority": 5, "podType": "DaemonSet"}]}));
        let Verdict::Allow { changes, .. } = on_create(&own, &some()) else { panic!("refused") };
        assert_eq!(changes.drain_plan.unwrap().len(), 13);
    }

    #[test]
    fn rules_of_creation() {
        let app = json!({"matchLabels": {"app": "x"}});
        let entry = |priority: i32, kind: &str| json!({"podPriority": priority, "podType": kind});
        let rows: Vec<(&str, Value, Vec<Rule>)> = vec![
            ("no terms", json!({"nodeSelector": {"nodeSelectorTerms": []}}), vec![Rule::NodeSelectorIsValid]),
            (
                "an empty term",
                json!({"nodeSelector": {"nodeSelectorTerms": [{}]}}),
                vec![Rule::NodeSelectorIsValid],
            ),
            (
                "types out of order",
                json!({"drainPlan": [entry(1, "Static"), entry(1, "Default")]}),
                vec![Rule::DrainPlanOrder],
            ),
            (
                "priorities out of order",
                json!({"drainPlan": [entry(2, "Default"), entry(1, "Default")]}),
                vec![Rule::DrainPlanOrder],
            ),
            (
                "priorities begin anew with each type",
                json!({"drainPlan": [entry(2, "Default"), entry(1, "Static")]}),
                vec![],
            ),
            (
                "a selector after the entry without",
                json!({"drainPlan": [entry(1, "Default"), {"podPriority": 1, "podType": "Default", "podSelector": app}]}),
                vec![Rule::DrainPlanOrder],
            ),
            (
                "an entry twice",
                json!({"drainPlan": [entry(1, "Default"), entry(1, "Default")]}),
                vec![Rule::DrainPlanUnique],
            ),
            (
                "a selector that cannot be read",
                json!({"drainPlan": [{"podPriority": 1, "podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]}),
                vec![Rule::DrainPlanSelectors],
            ),
            ("a limit of nothing", json!({"drainLimit": {"maxNodes": 0}}), vec![Rule::DrainLimitIsValid]),
            ("a limit above all", json!({"drainLimit": {"maxNodes": "101%"}}), vec![Rule::DrainLimitIsValid]),
            ("a limit", json!({"drainLimit": {"maxNodes": "30%"}}), vec![]),
        ];
        for (what, spec, rules) in rows {
            assert_eq!(broken(&on_create(&maintenance(spec), &some())), rules, "{what}");
        }
    }

    #[test]
    fn who_may_not_delete_the_nodes_may_do_nothing() {
        let not = Selected { forbidden: vec!["n1".to_owned()], ..some() };
        let cut = Selected { is_cut: true, ..some() };
        let this = maintenance(json!({}));
        for selected in [not, cut] {
            let all = [on_create(&this, &selected), on_update(&this, &this, &selected), on_delete(&selected)];
            for verdict in all {
                assert_eq!(broken(&verdict), [Rule::CallerMayDeleteNodes]);
                let Verdict::Deny(denial) = verdict else { panic!("allowed") };
                assert_eq!(denial.code(), 403);
                assert!(denial.to_string().contains("\"jo\""), "{denial}");
            }
        }
    }

    #[test]
    fn rules_of_changes() {
        let of = |spec: Value| maintenance(spec);
        let stage = |stage: &str| of(json!({"stage": stage}));
        let stages = ["Idle", "Cordon", "Drain", "Complete"];
        for (from, old) in stages.iter().enumerate() {
            for (to, new) in stages.iter().enumerate() {
                let wanted = if to < from { vec![Rule::StageMovesForward] } else { vec![] };
                assert_eq!(broken(&on_update(&stage(old), &stage(new), &some())), wanted, "{old} -> {new}");
            }
        }
        let plan = of(json!({"drainPlan": [{"podPriority": 1}]}));
        assert_eq!(broken(&on_update(&plan, &of(json!({})), &some())), [Rule::DrainPlanIsImmutable]);
        let nothing = of(json!({"nodeSelector": {"nodeSelectorTerms": []}}));
        assert_eq!(broken(&on_update(&of(json!({})), &nothing, &some())), [Rule::NodeSelectorIsValid]);
        assert_eq!(broken(&on_update(&nothing, &nothing, &some())), [], "what was there before may stay");
        let limit = of(json!({"drainLimit": {"maxNodes": "0%"}}));
        assert_eq!(broken(&on_update(&of(json!({})), &limit, &some())), [Rule::DrainLimitIsValid]);
    }

    #[test]
    fn rights_matter_where_the_spec_changes_and_not_for_the_end_of_a_deleted_one() {
        let of = |stage: &str, reason: &str| maintenance(json!({"stage": stage, "reason": reason}));
        let mut deleted = of("Drain", "");
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!concerns_nodes(&of("Drain", ""), &of("Drain", "")));
        assert!(concerns_nodes(&of("Drain", ""), &of("Complete", "")));
        assert!(!concerns_nodes(&deleted, &of("Complete", "")));
        assert!(concerns_nodes(&deleted, &of("Complete", "other")));
    }

    #[test]
    fn all_nodes_or_none_get_a_warning() {
        let this = maintenance(json!({}));
        for (nodes, of, part) in
            [(3, 3, Some("all 3 nodes")), (0, 3, Some("no node")), (0, 0, Some("no node")), (2, 3, None)]
        {
            let Verdict::Allow { warnings, .. } = on_create(&this, &Selected { nodes, of, ..some() }) else {
                panic!("refused")
            };
            assert_eq!(warnings.len(), usize::from(part.is_some()), "{nodes} of {of}");
            assert!(warnings.iter().all(|warning| warning.contains(part.unwrap_or_default())));
        }
    }
}
