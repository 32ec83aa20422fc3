//! One node: cordoned while a maintenance holds it, and afterwards as it was before.
//!
//! What the node was before, and who holds it, is written on the node in the same write that cordons it. So whoever
//! comes next knows it, also after a crash, and a node that somebody had cordoned stays cordoned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::decision::{NodeDecision, NodeEffect, Notice};
use super::waiting::NodeWait;
use crate::decision::Decision;
use crate::snapshot::{Node, NodePhase};

/// So many times within [`REMEMBERED`] are an accident; more are a conflict.
const ACCIDENTS: usize = 2;
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// When somebody uncordoned a node that is held.
#[derive(Debug, Clone, Default)]
pub struct CordonConflict {
    times: Vec<Timestamp>,
    /// The last one was answered.
    answered: bool,
}

impl CordonConflict {
    /// The node was seen uncordoned while it is held.
    pub fn uncordoned(&mut self, now: Timestamp) {
        self.times.retain(|at| now.duration_since(*at) < REMEMBERED);
        self.times.push(now);
        self.answered = false;
    }

    pub fn answered(&mut self) {
        self.answered = true;
    }

    fn is_one(&self) -> bool {
        self.times.len() > ACCIDENTS
    }

    /// When the node is cordoned again: at once in the beginning, later and later in a conflict.
    fn answer_at(&self) -> Option<Timestamp> {
        let last = self.times.last()?;
        let too_many = u32::try_from(self.times.len().saturating_sub(ACCIDENTS)).unwrap_or(u32::MAX);
        let pause = match too_many {
            0 => SignedDuration::ZERO,
            more => SignedDuration::from_secs(1_i64 << more.min(6)).min(LONGEST_PAUSE),
        };
        Some(*last + pause)
    }
}

/// What is known of a node.
#[derive(Debug)]
pub struct Case<'a> {
    pub node: &'a Node,
    /// The maintenances that hold it now, with their UIDs.
    pub holders: &'a BTreeMap<Arc<str>, Arc<str>>,
    pub phase: NodePhase,
    pub conflict: Option<&'a CordonConflict>,
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> NodeDecision {
    if case.holders.is_empty() { release(case.node) } else { hold(case, now) }
}

fn hold(case: &Case<'_>, now: Timestamp) -> NodeDecision {
    let node = case.node;
    let holders: BTreeSet<Arc<str>> = case.holders.keys().cloned().collect();
    let mut decision = Decision::default();
    let is_marked =
        node.held_by.as_ref() == Some(&holders) && node.remembers && node.phase == Some(case.phase);
    let is_in_conflict = node.is_touched() && !node.unschedulable;
    if is_in_conflict
        && let Some(at) = case.conflict.and_then(CordonConflict::answer_at)
        && now < at
    {
        decision.waiting_on = Some(NodeWait::CordonConflict { until: Some(at) });
        decision.recheck_at = Some(at);
    } else if !is_marked || !node.unschedulable {
        decision.effects.push(NodeEffect::Hold {
            held_by: holders.clone(),
            // Once it is touched the cordon is ours, whichever marks somebody has taken away.
            was_unschedulable: if node.is_touched() { node.was_unschedulable } else { node.unschedulable },
            phase: case.phase,
        });
    }
    // Right after the write that cordons: if the next one fails, nobody sees any more that this was the first.
    if !node.is_touched() {
        let message = if node.unschedulable {
            format!("cordoned by {}; it was cordoned before and stays so afterwards", names(&holders))
        } else {
            format!("cordoned by {}", names(&holders))
        };
        decision.effects.push(NodeEffect::RecordEvent(Notice::normal("MaintenanceCordoned", message)));
    }
    let (reason, message) = (case.phase.name(), format!("held by {}", names(&holders)));
    if shown(node) != Some(("True", reason, message.as_str())) {
        decision.effects.push(NodeEffect::Show { status: "True", reason, message });
    }
    if is_in_conflict && case.conflict.is_some_and(|conflict| conflict.is_one() && !conflict.answered) {
        let message = format!(
            "somebody keeps uncordoning node {}, and maintenance {} cordons it again: complete the maintenance, or stop \
             whoever uncordons the node",
            node.name,
            names(&holders)
        );
        let notice = Notice::warning("CordonConflict", message);
        let notice = Notice { maintenances: case.holders.clone(), ..notice };
        decision.effects.push(NodeEffect::RecordConflict(notice));
    }
    decision
}

fn release(node: &Node) -> NodeDecision {
    if !node.is_touched() {
        return Decision::default();
    }
    let message = "no maintenance holds the node".to_string();
    let show = NodeEffect::Show { status: "False", reason: "Completed", message };
    let show = node.shows_maintenance().then_some(show);
    let has_marks = node.held_by.is_some() || node.remembers;
    let mut let_go = Vec::new();
    if has_marks || node.unschedulable {
        let by = node.held_by.as_ref().map_or_else(|| "the maintenance".to_string(), names);
        let message = if node.was_unschedulable {
            format!("released by {by}; it stays cordoned, as it was before")
        } else {
            format!("uncordoned: {by} has ended, or does not select it any more")
        };
        let_go.push(NodeEffect::Release { unschedulable: node.was_unschedulable });
        let_go.push(NodeEffect::RecordEvent(Notice::normal("MaintenanceReleased", message)));
    }
    // What shows that there is something to do goes last: the marks, or the condition where somebody took them away.
    let effects = if has_marks {
        show.into_iter().chain(let_go).collect()
    } else {
        let_go.into_iter().chain(show).collect()
    };
    Decision { effects, ..Decision::default() }
}

fn shown(node: &Node) -> Option<(&str, &str, &str)> {
    node.condition
        .as_ref()
        .map(|(status, reason, message)| (status.as_str(), reason.as_str(), message.as_str()))
}

fn names(of: &BTreeSet<Arc<str>>) -> String {
    of.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node {
            name: "n".into(),
            uid: "u".into(),
            resource_version: "1".into(),
            created: Timestamp::UNIX_EPOCH,
            labels: Arc::default(),
            unschedulable: false,
            held_by: None,
            was_unschedulable: false,
            remembers: false,
            phase: None,
            condition: None,
        }
    }

    fn held(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn shows(reason: &str, message: &str) -> Option<(String, String, String)> {
        Some(("True".into(), reason.into(), message.into()))
    }

    fn marked(names: &[&str]) -> Node {
        Node {
            unschedulable: true,
            held_by: Some(held(names)),
            remembers: true,
            phase: Some(NodePhase::Cordoned),
            condition: shows("Cordoned", &format!("held by {}", names.join(", "))),
            ..node()
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn decided(node: &Node, holders: &[&str], conflict: Option<&CordonConflict>, now: i64) -> NodeDecision {
        let holders = holders.iter().map(|name| (Arc::from(*name), Arc::from("u"))).collect();
        decide(&Case { node, holders: &holders, phase: NodePhase::Cordoned, conflict }, at(now))
    }

    fn writes(decision: &NodeDecision) -> Vec<&NodeEffect> {
        let is_write =
            |effect: &&NodeEffect| matches!(effect, NodeEffect::Hold { .. } | NodeEffect::Release { .. });
        decision.effects.iter().filter(is_write).collect()
    }

    #[test]
    fn a_node_is_cordoned_once_and_remembers_what_it_was() {
        for was in [false, true] {
            let decision = decided(&Node { unschedulable: was, ..node() }, &["a"], None, 0);
            let hold = NodeEffect::Hold {
                held_by: held(&["a"]),
                was_unschedulable: was,
                phase: NodePhase::Cordoned,
            };
            assert_eq!(writes(&decision), [&hold]);
        }
        assert_eq!(decided(&marked(&["a"]), &["a"], None, 0), Decision::default());
        // A second maintenance joins: what the node was before the first one still counts.
        let decision = decided(&marked(&["a"]), &["a", "b"], None, 0);
        let hold = NodeEffect::Hold {
            held_by: held(&["a", "b"]),
            was_unschedulable: false,
            phase: NodePhase::Cordoned,
        };
        assert_eq!(writes(&decision), [&hold]);
    }

    /// Whichever marks are gone, the cordon is the maintenance's as long as one is left.
    #[test]
    fn a_mark_that_is_taken_away_does_not_make_the_cordon_somebody_elses() {
        for was in [false, true] {
            let whole = Node { was_unschedulable: was, ..marked(&["a"]) };
            let bare = Node { held_by: None, ..whole.clone() };
            let decision = decided(&bare, &["a"], None, 0);
            let hold = NodeEffect::Hold {
                held_by: held(&["a"]),
                was_unschedulable: was,
                phase: NodePhase::Cordoned,
            };
            assert_eq!(decision.effects, [hold], "nothing is told: it was cordoned before");
            assert_eq!(writes(&decided(&bare, &[], None, 0)), [&NodeEffect::Release { unschedulable: was }]);
        }
        let stripped = Node { held_by: None, remembers: false, phase: None, ..marked(&["a"]) };
        let decision = decided(&stripped, &["a"], None, 0);
        let hold =
            NodeEffect::Hold { held_by: held(&["a"]), was_unschedulable: false, phase: NodePhase::Cordoned };
        assert_eq!(decision.effects, [hold]);
        // The condition is all that is left, so it goes last.
        let effects = decided(&stripped, &[], None, 0).effects;
        assert_eq!(effects.first(), Some(&NodeEffect::Release { unschedulable: false }));
        assert!(matches!(effects.last(), Some(NodeEffect::Show { status: "False", .. })));
        let uncordoned = decided(&Node { unschedulable: false, ..stripped }, &[], None, 0);
        assert!(matches!(uncordoned.effects[..], [NodeEffect::Show { status: "False", .. }]));
    }

    #[test]
    fn the_first_hold_is_told_before_anything_else_can_fail() {
        for (was, said) in [
            (false, "cordoned by a"),
            (true, "cordoned by a; it was cordoned before and stays so afterwards"),
        ] {
            let decision = decided(&Node { unschedulable: was, ..node() }, &["a"], None, 0);
            let told = NodeEffect::RecordEvent(Notice::normal("MaintenanceCordoned", said.to_string()));
            assert!(matches!(decision.effects[0], NodeEffect::Hold { .. }));
            assert_eq!(decision.effects[1], told);
            assert!(matches!(decision.effects[2], NodeEffect::Show { .. }));
        }
    }

    #[test]
    fn a_node_is_released_by_the_last_and_left_as_it_was() {
        let decision = decided(&marked(&["a", "b"]), &["b"], None, 0);
        assert!(matches!(writes(&decision)[..], [NodeEffect::Hold { .. }]), "b still holds it");
        for was in [false, true] {
            let decision = decided(&Node { was_unschedulable: was, ..marked(&["b"]) }, &[], None, 0);
            assert_eq!(writes(&decision), [&NodeEffect::Release { unschedulable: was }]);
        }
        assert_eq!(decided(&Node { unschedulable: true, ..node() }, &[], None, 0), Decision::default());
    }

    #[test]
    fn a_conflict_is_told_and_answered_later_and_later() {
        let uncordoned = Node { unschedulable: false, ..marked(&["a"]) };
        let mut conflict = CordonConflict::default();
        for time in [0, 1] {
            conflict.uncordoned(at(time));
            let decision = decided(&uncordoned, &["a"], Some(&conflict), time);
            assert_eq!(
                (writes(&decision).len(), decision.effects.len()),
                (1, 1),
                "at once, and nothing is told"
            );
        }
        conflict.uncordoned(at(2));
        let decision = decided(&uncordoned, &["a"], Some(&conflict), 2);
        assert_eq!((writes(&decision).len(), decision.recheck_at), (0, Some(at(4))));
        assert_eq!(decision.waiting_on, Some(NodeWait::CordonConflict { until: Some(at(4)) }));
        let told = |effect: &NodeEffect| matches!(effect, NodeEffect::RecordConflict(notice) if notice.reason == "CordonConflict");
        assert!(decision.effects.iter().any(told));
        assert_eq!(writes(&decided(&uncordoned, &["a"], Some(&conflict), 4)).len(), 1);
        // Long after, it is an accident again.
        conflict.uncordoned(at(4000));
        assert_eq!(writes(&decided(&uncordoned, &["a"], Some(&conflict), 4000)).len(), 1);
    }
}
