//! Who holds a node, and how far those who drain it have come: what `explain` tells of a node and of its pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::{NodeMaintenanceStage as Stage, PodType};
use usher_decide::maintenance::plan::PodClass;
use usher_decide::maintenance::targets::Targets;
use usher_decide::maintenance::waiting::PodWait;
use usher_decide::maintenance::words::FirstNames;
use usher_decide::snapshot::{Maintenance, Node, Pod};

/// The maintenances that hold the node or select it; those that do the most come first. A complete one has let go what it selects, and
/// concerns only nodes that it still holds.
pub fn concerned<'a>(node: &Node, maintenances: &'a [Maintenance]) -> Vec<&'a Maintenance> {
    let concerns = |one: &&Maintenance| {
        let selects = one.stage() != Stage::Complete && one.selector.matches(&node.name, &node.labels);
        node.is_held_by(&one.name) || selects
    };
    let mut concerned: Vec<&Maintenance> = maintenances.iter().filter(concerns).collect();
    let order = |one: &&Maintenance| (rank(one.stage()), stage_started(one), one.name.clone());
    concerned.sort_by_key(order);
    concerned
}

fn rank(stage: Stage) -> u8 {
    match stage {
        Stage::Drain => 0,
        Stage::Complete => 1,
        Stage::Cordon => 2,
        Stage::Idle => 3,
    }
}

/// When the maintenance came to the stage that it is in.
pub fn stage_started(maintenance: &Maintenance) -> Option<Timestamp> {
    let stage = maintenance.stage();
    let started = maintenance.status.stage_statuses.iter().find(|started| started.name == stage);
    started.and_then(|started| started.start_timestamp.as_ref()).map(|time| time.0)
}

/// What those who drain a node have come to.
#[derive(Debug)]
pub struct NodeDrain {
    /// The pods of the node that are asked to leave.
    targets: Vec<Arc<Targets>>,
    /// Since when the node takes no pods but those that nothing keeps from it.
    since: Option<Timestamp>,
    /// They take only some of their nodes at once, and not this one yet.
    is_later: bool,
    /// Other nodes, on which pods are asked to leave before.
    before: Option<FirstNames>,
}

impl NodeDrain {
    /// `None`: nobody drains it. `concerned` are the maintenances that concern it.
    pub fn of(node: &Node, concerned: &[&Maintenance]) -> Option<Self> {
        let draining: Vec<&&Maintenance> =
            concerned.iter().filter(|one| one.stage() == Stage::Drain).collect();
        let targets: Vec<Arc<Targets>> =
            concerned.iter().filter_map(|one| one.targets.get(&node.name).cloned()).collect();
        let others = draining.iter().flat_map(|one| &one.status.node_statuses);
        let before: BTreeSet<&str> = others
            .filter(|other| other.pods_evicting > 0 && other.node_ref.name != *node.name)
            .map(|other| other.node_ref.name.as_str())
            .collect();
        (!draining.is_empty()).then(|| Self {
            is_later: targets.is_empty() && draining.iter().all(|one| one.limit.is_some()),
            since: draining.iter().filter_map(|one| stage_started(one)).min(),
            targets,
            before: FirstNames::of(before),
        })
    }

    /// What a pod without a request waits for.
    pub fn wait_of(&self, pod: &Pod) -> PodWait {
        let class = PodClass { kind: pod.kind(), priority: pod.priority, labels: pod.labels.clone() };
        let came_later = self.since.is_some_and(|since| pod.created > since);
        match self.targets.iter().any(|targets| targets.selects(&class)) {
            true if came_later && pod.owner.is_some() && pod.kind() == PodType::Default => {
                PodWait::CameBack { until: None }
            }
            true => PodWait::Request,
            false => self.later(),
        }
    }

    /// What pods wait for that are not targeted.
    pub fn later(&self) -> PodWait {
        let before = self.before.clone();
        if self.is_later { PodWait::LaterWave { before } } else { PodWait::LaterInPlan { before } }
    }
}

/// How bad it is that a pod is still there; the order is that in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Urgency {
    /// Asked to leave, and nothing moves until somebody does something.
    Blocked,
    /// Asked to leave, and later than it should be.
    Late,
    /// Asked to leave, and on its way.
    Moving,
    /// The drain has not come to it yet.
    NotYet,
    /// Nobody asks it to leave, and something would be in its way.
    WouldBeBlocked,
    /// Nobody asks it to leave, and it could.
    Free,
}

impl Urgency {
    /// `is_leaving`: it is asked to leave, or terminates. `is_late`: it should have left, or the manager should have acted.
    pub fn of(is_leaving: bool, is_drained: bool, is_blocked: bool, is_late: bool) -> Self {
        match (is_leaving, is_blocked) {
            (false, _) if is_drained => Self::NotYet,
            (true, true) => Self::Blocked,
            (true, false) if is_late => Self::Late,
            (true, false) => Self::Moving,
            (false, true) => Self::WouldBeBlocked,
            (false, false) => Self::Free,
        }
    }

    pub fn is_asked(self) -> bool {
        matches!(self, Self::Blocked | Self::Late | Self::Moving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use usher_api::names::NODE_HELD_BY_ANNOTATION;
    use usher_decide::snapshot::{NodeOnWire, PodOnWire};

    fn node(held_by: Option<&str>) -> Node {
        let annotations = held_by.map(|names| json!({NODE_HELD_BY_ANNOTATION: names}));
        let node =
            json!({"metadata": {"name": "n1", "labels": {"pool": "blue"}, "annotations": annotations}});
        Node::from(serde_json::from_value::<NodeOnWire>(node).unwrap())
    }

    fn maintenance(name: &str, stage: &str, pool: &str, more: Value, status: Value) -> Maintenance {
        let requirement = json!({"key": "pool", "operator": "In", "values": [pool]});
        let mut object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T11:00:00Z"},
            "spec": {
                "stage": stage, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]},
            },
            "status": status,
        });
        for (field, value) in more.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        let object: usher_api::NodeMaintenance = serde_json::from_value(object).unwrap();
        Maintenance::from(object)
    }

    fn started(stage: &str, at: &str) -> Value {
        json!({"stageStatuses": [{"name": stage, "startTimestamp": at}]})
    }

    #[test]
    fn who_concerns_a_node_holds_it_or_selects_it_and_those_that_do_the_most_come_first() {
        let of = |name: &str, stage: &str, pool: &str| maintenance(name, stage, pool, json!({}), json!({}));
        let late = maintenance("a", "Drain", "blue", json!({}), started("Drain", "2026-01-01T11:30:00Z"));
        let early = maintenance("z", "Drain", "blue", json!({}), started("Drain", "2026-01-01T11:10:00Z"));
        let others =
            [of("idle", "Idle", "blue"), of("over", "Complete", "blue"), of("green", "Cordon", "green")];
        let all: Vec<Maintenance> = [late, early].into_iter().chain(others).collect();
        for (held_by, wanted) in [
            (None, vec!["z", "a", "idle"]),
            (Some("over"), vec!["z", "a", "over", "idle"]),
            (Some("green"), vec!["z", "a", "green", "idle"]),
        ] {
            let concerned = concerned(&node(held_by), &all);
            assert_eq!(concerned.iter().map(|one| &*one.name).collect::<Vec<_>>(), wanted, "{held_by:?}");
        }
    }

    #[test]
    fn a_pod_that_is_not_asked_waits_for_its_wave_its_place_in_the_plan_or_the_manager() {
        let pod = |kind: &str| {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x", "controller": true});
            let pod =
                json!({"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"nodeName": "n1"}});
            Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap())
        };
        let reached = json!([{"podPriority": 2_147_483_647, "podType": "Default"}]);
        let first = json!({"nodeStatuses": [
            {"nodeRef": {"name": "n1"}, "drainTargets": reached},
            {"nodeRef": {"name": "n2"}, "podsEvicting": 2}, {"nodeRef": {"name": "n3"}, "podsEvicting": 0},
        ]});
        let daemons = json!({"nodeStatuses": [
            {"nodeRef": {"name": "n1"}, "drainTargets": [{"podPriority": 2_147_483_647, "podType": "DaemonSet"}]},
        ]});
        let later = json!({"nodeStatuses": [{"nodeRef": {"name": "n1"}}, {"nodeRef": {"name": "n2"}, "podsEvicting": 2}]});
        let limit = || json!({"drainLimit": {"maxNodes": 1}});
        let in_plan = || PodWait::LaterInPlan { before: FirstNames::of(["n2"]) };
        for (spec, status, kind, wanted) in [
            (json!({}), &first, "ReplicaSet", PodWait::Request),
            (json!({}), &first, "DaemonSet", in_plan()),
            (json!({}), &daemons, "DaemonSet", PodWait::Request),
            (limit(), &first, "DaemonSet", in_plan()),
            (limit(), &later, "ReplicaSet", PodWait::LaterWave { before: FirstNames::of(["n2"]) }),
            (json!({}), &later, "ReplicaSet", in_plan()),
        ] {
            let drains = maintenance("m", "Drain", "blue", spec.clone(), status.clone());
            let drain = NodeDrain::of(&node(None), &[&drains]).unwrap();
            assert_eq!(drain.wait_of(&pod(kind)), wanted, "{spec} {kind}");
            let began = started("Drain", "1970-01-01T00:00:01Z")["stageStatuses"].clone();
            let mut status_since = status.clone();
            status_since["stageStatuses"] = began;
            let drains = maintenance("m", "Drain", "blue", spec.clone(), status_since);
            let drain = NodeDrain::of(&node(None), &[&drains]).unwrap();
            assert_eq!(drain.wait_of(&pod(kind)), wanted, "{spec} {kind}: it was there before");
            let came_later = Pod { created: Timestamp::from_second(2).unwrap(), ..pod(kind) };
            let came_back = PodWait::CameBack { until: None };
            let is_replaced = wanted == PodWait::Request && kind == "ReplicaSet";
            let wanted = if is_replaced { came_back } else { wanted };
            assert_eq!(drain.wait_of(&came_later), wanted, "{spec} {kind}: it came later");
            let holds = maintenance("m", "Cordon", "blue", spec, status.clone());
            assert!(NodeDrain::of(&node(None), &[&holds]).is_none());
        }
    }

    #[test]
    fn what_nobody_moves_is_told_first() {
        for (is_leaving, is_drained, is_blocked, is_late, wanted) in [
            (true, true, true, true, Urgency::Blocked),
            (true, false, true, false, Urgency::Blocked),
            (true, true, false, true, Urgency::Late),
            (true, true, false, false, Urgency::Moving),
            (false, true, true, true, Urgency::NotYet),
            (false, true, false, false, Urgency::NotYet),
            (false, false, true, false, Urgency::WouldBeBlocked),
            (false, false, false, true, Urgency::Free),
        ] {
            assert_eq!(Urgency::of(is_leaving, is_drained, is_blocked, is_late), wanted);
            assert_eq!(wanted.is_asked(), is_leaving, "{wanted:?}");
        }
        assert!(Urgency::Blocked < Urgency::Late && Urgency::NotYet < Urgency::Free);
    }
}
