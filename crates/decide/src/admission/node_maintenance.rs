//! Node maintenances: CREATE, UPDATE and DELETE.
//!
//! Stages, order and immutability are in the schema too. Here they are told better, together with what needs the nodes
//! and the caller's rights.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use usher_api::{NodeMaintenance, NodeMaintenanceStage};

use super::drain_plan;
use super::node_rights::{self, Needed, NodeAccess};
use super::{Changes, Refusal, Rule, Verdict};
use crate::maintenance::plan::with_defaults;
use crate::maintenance::selector;

/// The caller's rights to the nodes that a write is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    pub needed: Needed,
    pub access: NodeAccess,
}

impl Rights {
    fn check(&self, refusals: &mut Vec<Refusal>) {
        refusals.extend(node_rights::check(&self.needed, &self.access));
    }
}

/// How many nodes a selector selects at present, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    pub nodes: usize,
    pub of: usize,
}

/// A new maintenance, once its plan is completed: nothing may be left to change. `selected` is for warnings alone.
pub fn on_create(maintenance: &NodeMaintenance, rights: &Rights, selected: Option<Selected>) -> Verdict {
    let mut refusals = Vec::new();
    rights.check(&mut refusals);
    check_selector(maintenance, &mut refusals);
    let plan = &maintenance.spec.drain_plan;
    drain_plan::check(plan, &mut refusals);
    if refusals.is_empty() && with_defaults(plan) != *plan {
        let message = "spec.drainPlan lacks entries that every plan contains: another webhook removes them, or the mutating \
                       webhook of Usher is not installed";
        refusals.push(Refusal::new(Rule::DrainPlanDefaults, "spec.drainPlan", message));
    }
    check_limit(maintenance, &mut refusals);
    if !refusals.is_empty() {
        return Verdict::of(refusals);
    }
    warned(maintenance, selected)
}

/// What will be said of a new maintenance, as far as it can be known without the caller's rights.
pub fn before_create(draft: &NodeMaintenance, selected: Selected) -> Verdict {
    let changes = match drain_plan::complete(None, draft) {
        Verdict::Allow { changes, .. } => changes,
        denied @ Verdict::Deny(_) => return denied,
    };
    let mut whole = draft.clone();
    whole.spec.drain_plan = changes.drain_plan.unwrap_or(whole.spec.drain_plan);
    let rights = Rights { needed: Needed::Named(BTreeSet::new()), access: NodeAccess::Allowed };
    on_create(&whole, &rights, Some(selected))
}

/// A maintenance that changes, once its plan is completed. `selected` is what the new selector meets.
pub fn on_update(
    old: &NodeMaintenance,
    new: &NodeMaintenance,
    rights: &Rights,
    selected: Option<Selected>,
) -> Verdict {
    let mut refusals = Vec::new();
    rights.check(&mut refusals);
    if old.spec.node_selector != new.spec.node_selector {
        check_selector(new, &mut refusals);
    }
    if old.spec.drain_plan != new.spec.drain_plan {
        refusals.push(drain_plan::is_another(&old.spec.drain_plan, &new.spec.drain_plan));
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
    warned(new, selected)
}

/// A maintenance whose status somebody writes, or that is to be deleted: the rights are all that matters.
pub fn on_status_or_delete(rights: &Rights) -> Verdict {
    let mut refusals = Vec::new();
    rights.check(&mut refusals);
    Verdict::of(refusals)
}

/// Whether a write is a moment to look at what the selector meets: a new one, or a stage that takes nodes away.
pub fn is_worth_a_look(old: Option<&NodeMaintenance>, new: &NodeMaintenance) -> bool {
    let has_changed = old.is_none_or(|old| {
        old.spec.node_selector != new.spec.node_selector || old.spec.stage != new.spec.stage
    });
    has_changed && new.spec.stage != NodeMaintenanceStage::Complete
}

fn check_selector(maintenance: &NodeMaintenance, refusals: &mut Vec<Refusal>) {
    for wrong in selector::check(&maintenance.spec.node_selector) {
        let message = format!("spec.nodeSelector: {wrong}");
        refusals.push(Refusal::new(Rule::NodeSelectorIsValid, "spec.nodeSelector", message));
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

/// Allowed, with what the caller should know of the nodes.
fn warned(maintenance: &NodeMaintenance, selected: Option<Selected>) -> Verdict {
    let warning = match selected {
        Some(Selected { nodes: 0, .. }) => Some(
            "spec.nodeSelector selects no node at present: nodes that match later are included".to_owned(),
        ),
        Some(Selected { nodes, of }) if nodes == of => {
            let outcome = match maintenance.spec.stage {
                NodeMaintenanceStage::Cordon => "no node is left for new pods",
                _ => "a drain leaves no place for any pod",
            };
            Some(format!(
                "spec.nodeSelector selects all {nodes} nodes of the cluster: {outcome}, and the cluster may not recover by itself"
            ))
        }
        _ => None,
    };
    Verdict::Allow { changes: Changes::default(), warnings: warning.into_iter().collect() }
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

    const SOME: Option<Selected> = Some(Selected { nodes: 1, of: 3 });

    fn all() -> Rights {
        Rights { needed: Needed::All { term: 0, is_old: false }, access: NodeAccess::Allowed }
    }

    /// As admission leaves it.
    fn completed(spec: Value) -> NodeMaintenance {
        let mut maintenance = maintenance(spec);
        maintenance.spec.drain_plan = with_defaults(&maintenance.spec.drain_plan);
        maintenance
    }

    fn broken(verdict: &Verdict) -> Vec<Rule> {
        match verdict {
            Verdict::Allow { .. } => Vec::new(),
            Verdict::Deny(denial) => denial.refusals().map(|refusal| refusal.rule).collect(),
        }
    }

    #[test]
    fn a_new_maintenance_gets_the_twelve_entries() {
        let Verdict::Allow { changes, .. } = drain_plan::complete(None, &maintenance(json!({}))) else {
            panic!("refused")
        };
        assert_eq!(changes.drain_plan, Some(default_drain_plan()));
        let whole = maintenance(json!({"drainPlan": default_drain_plan()}));
        assert_eq!(on_create(&whole, &all(), SOME), Verdict::allow());
        assert_eq!(broken(&on_create(&maintenance(json!({})), &all(), SOME)), [Rule::DrainPlanDefaults]);
        let own = maintenance(json!({"drainPlan": [{"podPriority": 5, "podType": "DaemonSet"}]}));
        let Verdict::Allow { changes, .. } = drain_plan::complete(None, &own) else { panic!("refused") };
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
            let verdict = before_create(&maintenance(spec), Selected { nodes: 1, of: 3 });
            assert_eq!(broken(&verdict), rules, "{what}");
        }
    }

    #[test]
    fn who_may_not_delete_the_nodes_may_do_nothing() {
        let denied = |nodes: &[&str]| NodeAccess::Denied {
            user: "jo".to_owned(),
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            are_more: false,
        };
        let named = Rights { needed: Needed::Named(["n1".to_owned()].into()), access: denied(&["n1"]) };
        let open = Rights { needed: Needed::All { term: 0, is_old: false }, access: denied(&[]) };
        let old = Rights { needed: Needed::All { term: 0, is_old: true }, access: denied(&[]) };
        let this = completed(json!({}));
        for rights in [named, open, old] {
            let verdicts = [
                on_create(&this, &rights, SOME),
                on_update(&this, &this, &rights, SOME),
                on_status_or_delete(&rights),
            ];
            for verdict in verdicts {
                assert_eq!(broken(&verdict), [Rule::CallerMayDeleteNodes]);
                let Verdict::Deny(denial) = verdict else { panic!("allowed") };
                assert_eq!(denial.code(), 403);
                assert!(denial.to_string().contains("\"jo\""), "{denial}");
            }
        }
    }

    #[test]
    fn rules_of_changes() {
        let stage = |stage: &str| completed(json!({"stage": stage}));
        let change =
            |old: &NodeMaintenance, new: &NodeMaintenance| broken(&on_update(old, new, &all(), SOME));
        let stages = ["Idle", "Cordon", "Drain", "Complete"];
        for (from, old) in stages.iter().enumerate() {
            for (to, new) in stages.iter().enumerate() {
                let wanted = if to < from { vec![Rule::StageMovesForward] } else { vec![] };
                assert_eq!(change(&stage(old), &stage(new)), wanted, "{old} -> {new}");
            }
        }
        let plain = completed(json!({}));
        let plan = completed(json!({"drainPlan": [{"podPriority": 1}]}));
        assert_eq!(change(&plan, &plain), [Rule::DrainPlanIsImmutable]);
        let nothing = completed(json!({"nodeSelector": {"nodeSelectorTerms": []}}));
        assert_eq!(change(&plain, &nothing), [Rule::NodeSelectorIsValid]);
        assert_eq!(change(&nothing, &nothing), [], "what was there before may stay");
        let limit = completed(json!({"drainLimit": {"maxNodes": "0%"}}));
        assert_eq!(change(&plain, &limit), [Rule::DrainLimitIsValid]);
    }

    #[test]
    fn all_nodes_or_none_get_a_warning() {
        let said = |stage: &str, nodes: usize, of: usize| {
            let (old, new) = (completed(json!({})), completed(json!({"stage": stage})));
            let selected = Some(Selected { nodes, of });
            for verdict in [on_create(&new, &all(), selected), on_update(&old, &new, &all(), selected)] {
                let Verdict::Allow { warnings, .. } = verdict else { panic!("refused") };
                let mut warnings = warnings.into_iter();
                if let Some(first) = warnings.next() {
                    return first;
                }
            }
            String::new()
        };
        let rows = [
            ("Idle", 3, 3, "all 3 nodes of the cluster: a drain leaves no place"),
            ("Cordon", 3, 3, "all 3 nodes of the cluster: no node is left for new pods"),
            ("Drain", 3, 3, "all 3 nodes of the cluster: a drain leaves no place"),
            ("Drain", 0, 3, "no node at present"),
            ("Drain", 0, 0, "no node at present"),
        ];
        for (stage, nodes, of, part) in rows {
            let said = said(stage, nodes, of);
            assert!(said.contains(part), "{stage} {nodes} of {of}: {said}");
        }
        assert_eq!(said("Drain", 2, 3), "");
    }

    #[test]
    fn every_stage_that_takes_nodes_away_is_a_moment_to_warn() {
        let of = |stage: &str, pool: &str| {
            completed(json!({"stage": stage, "nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]},
            ]}}))
        };
        let rows = [
            (None, of("Idle", "a"), true),
            (None, of("Drain", "a"), true),
            (Some(of("Idle", "a")), of("Cordon", "a"), true),
            (Some(of("Cordon", "a")), of("Drain", "a"), true),
            (Some(of("Drain", "a")), of("Drain", "b"), true),
            (Some(of("Drain", "a")), of("Drain", "a"), false),
            (Some(of("Drain", "a")), of("Complete", "a"), false),
        ];
        for (old, new, wanted) in rows {
            assert_eq!(is_worth_a_look(old.as_ref(), &new), wanted, "{:?}", new.spec.stage);
        }
    }
}
