//! A drain, for somebody who follows it: whether it is over and how it ended. What holds up its nodes is in their
//! [states](usher_decide::maintenance::drain_state).
//!
//! It is concluded from the status of the maintenance, and from the pods that are seen where that does not tell enough.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use usher_api::names::DRAINED_CONDITION;
use usher_api::{
    DrainedReason, NodeMaintenance, NodeMaintenanceStage as Stage, NodeMaintenanceStatus, NodeStatus, PodType,
};
use usher_decide::maintenance::drain_state::DrainState;
use usher_decide::maintenance::status::is_drained;
use usher_decide::maintenance::written;
use usher_decide::snapshot::has_begun;

/// A manager that runs has taken a maintenance up by then.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainEnd {
    /// All pods have left that are waited for.
    Drained,
    /// The maintenance was cancelled or completed before, or selects no node any more: the pods stay.
    Withdrawn,
}

/// Pods that are left on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodsLeft {
    pub all: usize,
    /// Those of them that are neither of DaemonSets nor static.
    pub ordinary: usize,
}

impl PodsLeft {
    /// Pods of DaemonSets and static pods, which a drain need not wait for.
    pub fn daemons(self) -> usize {
        self.all.saturating_sub(self.ordinary)
    }

    pub fn are_only_daemons(self) -> bool {
        self.all > 0 && self.ordinary == 0
    }
}

/// What is known of a drain at a look.
#[derive(Debug, Clone, Copy)]
pub struct FollowedDrain<'a> {
    /// `None`: it is gone.
    pub maintenance: Option<&'a NodeMaintenance>,
    /// How many of its nodes were looked at, and what is left on them.
    pub nodes: usize,
    pub left: PodsLeft,
    /// Pods of DaemonSets and static pods need not be gone.
    pub ignores_daemons: bool,
}

impl FollowedDrain<'_> {
    /// How it ended, if it did. What is said of a maintenance that is at work holds only if it is said of the nodes that it selects now
    /// ([`speaks_of`]).
    pub fn end(&self) -> Option<DrainEnd> {
        let Some(maintenance) = self.maintenance else { return Some(DrainEnd::Withdrawn) };
        if !is_active(maintenance) {
            let is_done = maintenance.status.as_ref().is_some_and(is_drained);
            return Some(if is_done { DrainEnd::Drained } else { DrainEnd::Withdrawn });
        }
        if is_drained_by_now(maintenance) || (self.ignores_daemons && self.only_daemons_stay(maintenance)) {
            return Some(DrainEnd::Drained);
        }
        let is_withdrawn = is_without_nodes(maintenance) || lost_nodes(maintenance).is_some();
        is_withdrawn.then_some(DrainEnd::Withdrawn)
    }

    /// All nodes take no new pods, and only pods of DaemonSets and static pods are on them. That the plan has come to these once does
    /// not tell: nodes may have joined since, and other pods may have come.
    fn only_daemons_stay(&self, maintenance: &NodeMaintenance) -> bool {
        let Some(status) = &maintenance.status else { return false };
        let are_all_known = usize::try_from(status.nodes).is_ok_and(|count| count == self.nodes);
        let is_cordoned = drained_by_now(maintenance)
            .is_some_and(|condition| DrainedReason::of(&condition.reason) != Some(DrainedReason::Cordoning));
        has_reached_daemons(maintenance) && are_all_known && is_cordoned && self.left.are_only_daemons()
    }
}

/// It is neither being deleted nor complete.
pub fn is_active(maintenance: &NodeMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_none() && maintenance.spec.stage != Stage::Complete
}

/// Whatever else keeps the object, its nodes are free.
pub fn has_released(maintenance: &NodeMaintenance) -> bool {
    !has_begun(maintenance.metadata.finalizers.as_deref().unwrap_or_default())
}

/// All pods have left, and that was said after the last change of what is wanted.
pub fn is_drained_by_now(maintenance: &NodeMaintenance) -> bool {
    drained_by_now(maintenance).is_some_and(|condition| condition.status == "True")
}

/// It is at work, and no node is selected any more.
pub fn is_without_nodes(maintenance: &NodeMaintenance) -> bool {
    is_active(maintenance)
        && drained_by_now(maintenance)
            .is_some_and(|condition| DrainedReason::of(&condition.reason) == Some(DrainedReason::NoNodes))
}

/// The drain is over, but for nodes that lost the labels by which they were selected: what is said of them.
pub fn lost_nodes(maintenance: &NodeMaintenance) -> Option<&str> {
    let is_at_work = is_active(maintenance);
    let condition = drained_by_now(maintenance)
        .filter(|it| is_at_work && DrainedReason::of(&it.reason) == Some(DrainedReason::NodesLeft))?;
    Some(&condition.message)
}

fn drained_by_now(maintenance: &NodeMaintenance) -> Option<&Condition> {
    let mut conditions = maintenance.status.as_ref()?.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == DRAINED_CONDITION)?;
    let (seen, wanted) = (condition.observed_generation, maintenance.metadata.generation);
    (seen.unwrap_or_default() >= wanted.unwrap_or_default()).then_some(condition)
}

/// The status speaks of these nodes, of all of them and of no other.
pub fn speaks_of(status: &NodeMaintenanceStatus, nodes: &[String]) -> bool {
    let listed: BTreeSet<&str> =
        status.node_statuses.iter().map(|status| status.node_ref.name.as_str()).collect();
    // Where there are too many for an object, not all are listed.
    let is_listed = listed.len() == nodes.len();
    usize::try_from(status.nodes).is_ok_and(|count| count == nodes.len())
        && (!is_listed || nodes.iter().all(|node| listed.contains(node.as_str())))
}

/// Tells of each node in the status of a maintenance whether it is drained: the drain has come to it, and no pod is counted on it that is
/// waited for. An empty node of a wave that has not begun is none of these.
pub fn drained_nodes(maintenance: &NodeMaintenance) -> impl Fn(&NodeStatus) -> bool {
    let status = maintenance.status.as_ref();
    let has_begun = status.is_some_and(|status| status.drain_status.is_some());
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let is_cordoning = conditions.any(|it| {
        it.type_ == DRAINED_CONDITION && DrainedReason::of(&it.reason) == Some(DrainedReason::Cordoning)
    });
    // One that joined without pods has no targets before some come; where waves limit a drain, only what is said of it tells it from those
    // that wait for theirs.
    let are_all_taken = status.is_some_and(is_drained)
        || (has_begun && maintenance.spec.drain_limit.is_none() && !is_cordoning);
    move |node| {
        let has_targets = !node.drain_targets.is_empty() || node.drain_target_set.is_some();
        let is_empty = node.pods_pending_eviction == 0 && node.pods_evicting == 0;
        let is_taken =
            || has_targets || DrainState::of_message(&node.drain_message) == Some(DrainState::Drained);
        is_empty && (are_all_taken || (has_begun && is_taken()))
    }
}

/// The plan has come to pods of DaemonSets or to static pods, which come last.
pub fn has_reached_daemons(maintenance: &NodeMaintenance) -> bool {
    let reached = maintenance.status.as_ref().map(written::reached);
    let kinds = [PodType::DaemonSet, PodType::Static];
    reached.is_some_and(|reached| kinds.into_iter().any(|kind| reached.reach(kind)))
}

/// No manager has written anything of it, although it has been followed since then.
pub fn is_not_taken_up(maintenance: &NodeMaintenance, since: Timestamp, now: Timestamp) -> bool {
    maintenance.status.is_none() && now.duration_since(since) >= PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn maintenance(stage: &str, status: Option<Value>) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": "m", "uid": "u", "generation": 3},
            "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": []}},
            "status": status,
        }))
        .unwrap()
    }

    fn status(drained: &str, reason: &str, observed: i64) -> Value {
        json!({"nodes": 1, "conditions": [{
            "type": "Drained", "status": drained, "reason": reason, "message": "n1 left", "observedGeneration": observed,
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        }]})
    }

    fn followed(maintenance: Option<&NodeMaintenance>, left: PodsLeft) -> FollowedDrain<'_> {
        FollowedDrain { maintenance, nodes: 1, left, ignores_daemons: false }
    }

    fn ignoring_daemons(maintenance: &NodeMaintenance, left: PodsLeft) -> FollowedDrain<'_> {
        FollowedDrain { ignores_daemons: true, ..followed(Some(maintenance), left) }
    }

    fn end(maintenance: &NodeMaintenance) -> Option<DrainEnd> {
        followed(Some(maintenance), PodsLeft { all: 2, ordinary: 1 }).end()
    }

    #[test]
    fn a_drain_ends_with_what_was_said_after_the_last_change() {
        use DrainEnd::{Drained, Withdrawn};
        for (drained, reason, wanted) in [
            ("True", "Drained", Some(Drained)),
            ("False", "NoNodes", Some(Withdrawn)),
            ("False", "NodesLeft", Some(Withdrawn)),
            ("False", "Draining", None),
        ] {
            let of = |observed| maintenance("Drain", Some(status(drained, reason, observed)));
            assert_eq!(end(&of(3)), wanted, "{reason}");
            assert_eq!(end(&of(2)), None, "{reason} of before");
            assert_eq!(is_without_nodes(&of(3)), reason == "NoNodes");
            assert_eq!(lost_nodes(&of(3)), (reason == "NodesLeft").then_some("n1 left"));
        }
        assert_eq!(end(&maintenance("Drain", None)), None);
    }

    #[test]
    fn one_that_is_not_at_work_any_more_ended_as_its_last_word_says() {
        let complete = |drained| maintenance("Complete", Some(status(drained, "R", 2)));
        assert_eq!(end(&complete("True")), Some(DrainEnd::Drained));
        assert_eq!(end(&complete("False")), Some(DrainEnd::Withdrawn));
        let mut deleted = maintenance("Drain", None);
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
        assert!(!is_active(&deleted));
        assert_eq!(end(&deleted), Some(DrainEnd::Withdrawn));
        assert_eq!(followed(None, PodsLeft::default()).end(), Some(DrainEnd::Withdrawn));
    }

    #[test]
    fn nodes_are_free_once_its_own_finalizer_is_off_whatever_others_keep() {
        let mut ended = maintenance("Complete", None);
        assert!(has_released(&ended));
        for (finalizer, is_free) in
            [("nodemaintenance.k8s.io/maintenance-completion", false), ("example.com/audit", true)]
        {
            ended.metadata.finalizers = Some(vec![finalizer.to_owned()]);
            assert_eq!(has_released(&ended), is_free, "{finalizer}");
        }
    }

    #[test]
    fn daemons_are_not_waited_for_once_the_plan_has_come_to_them_and_nothing_else_is_left() {
        let of = |kind: &str, reason: &str| {
            let mut status = status("False", reason, 3);
            status["drainStatus"] = json!({"reachedDrainTargets": [{"podPriority": 1, "podType": kind}]});
            maintenance("Drain", Some(status))
        };
        let only_daemons = PodsLeft { all: 2, ordinary: 0 };
        let reached = of("DaemonSet", "Draining");
        let (of_static, cordoning, before) =
            (of("Static", "Draining"), of("DaemonSet", "Cordoning"), of("Default", "Draining"));
        let drain = ignoring_daemons;
        assert_eq!(drain(&reached, only_daemons).end(), Some(DrainEnd::Drained));
        assert_eq!(drain(&of_static, only_daemons).end(), Some(DrainEnd::Drained));
        assert_eq!(followed(Some(&reached), only_daemons).end(), None, "they are waited for");
        for (what, drain) in [
            ("another pod has come", drain(&reached, PodsLeft { all: 2, ordinary: 1 })),
            ("pods are not seen yet", drain(&reached, PodsLeft::default())),
            ("a node is not seen yet", FollowedDrain { nodes: 0, ..drain(&reached, only_daemons) }),
            ("the node takes pods", drain(&cordoning, only_daemons)),
            ("the plan is not as far", drain(&before, only_daemons)),
        ] {
            assert_eq!(drain.end(), None, "{what}");
        }
    }

    #[test]
    fn a_status_counts_only_for_the_nodes_that_are_selected() {
        let nodes = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let listed =
            json!({"nodes": 2, "nodeStatuses": [{"nodeRef": {"name": "a"}}, {"nodeRef": {"name": "b"}}]});
        let status: NodeMaintenanceStatus = serde_json::from_value(listed).unwrap();
        assert!(speaks_of(&status, &nodes(&["b", "a"])));
        for others in [&["a"][..], &["a", "c"], &["a", "b", "c"], &[]] {
            assert!(!speaks_of(&status, &nodes(others)), "{others:?}");
        }
        let not_listed = NodeMaintenanceStatus { nodes: 3, ..status };
        assert!(speaks_of(&not_listed, &nodes(&["a", "b", "c"])), "there was no room for all names");
    }

    #[test]
    fn a_maintenance_that_nobody_writes_of_is_not_taken_up() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (begun, later) = (at("2026-01-01T12:00:00Z"), at("2026-01-01T12:00:05Z"));
        let new = maintenance("Drain", None);
        assert!(!is_not_taken_up(&new, begun, at("2026-01-01T12:00:04Z")));
        assert!(is_not_taken_up(&new, begun, later));
        assert!(!is_not_taken_up(&maintenance("Drain", Some(json!({}))), begun, later));
    }

    #[test]
    fn a_node_is_drained_when_its_turn_has_come_and_no_pod_is_counted_on_it() {
        let target = json!({"drainTargets": [{"podPriority": 1000, "podType": "Default"}]});
        let (of_set, none) = (json!({"drainTargetSet": 0}), json!({}));
        let pods =
            |field: &str| json!({"drainTargets": [{"podPriority": 1000, "podType": "Default"}], field: 1});
        for (reason, has_begun, is_limited, node, wanted) in [
            ("Draining", true, true, &target, true),
            ("Draining", true, true, &of_set, true),
            ("Draining", true, false, &none, true),
            ("Draining", true, true, &none, false),
            ("Draining", true, true, &json!({"drainMessage": "Cordoned"}), false),
            ("Draining", true, true, &json!({"drainMessage": "Drained"}), true),
            ("Draining", true, true, &json!({"drainMessage": "Drained", "podsEvicting": 1}), false),
            ("Draining", true, false, &pods("podsEvicting"), false),
            ("Draining", true, false, &pods("podsPendingEviction"), false),
            ("Draining", false, false, &target, false),
            ("Cordoning", true, false, &target, true),
            ("Cordoning", true, false, &none, false),
            ("Drained", true, true, &none, true),
            ("Drained", true, true, &pods("podsEvicting"), false),
        ] {
            let mut status = status(if reason == "Drained" { "True" } else { "False" }, reason, 3);
            if has_begun {
                status["drainStatus"] = json!({});
            }
            let mut drain = maintenance("Drain", Some(status));
            if is_limited {
                drain.spec.drain_limit = serde_json::from_value(json!({"maxNodes": 1})).unwrap();
            }
            let mut node = node.clone();
            node["nodeRef"] = json!({"name": "n1"});
            let node: NodeStatus = serde_json::from_value(node).unwrap();
            assert_eq!(drained_nodes(&drain)(&node), wanted, "{reason} {has_begun} {is_limited} {node:?}");
        }
    }
}
