//! When drains are expected to be done, kept up with every pod that comes or goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::maintenance::eta::Group;
use crate::maintenance::progress::Number;
use crate::maintenance::waves;
use jiff::Timestamp;

use super::groups;
use super::tally::Change;
use super::{Entry, Index};

/// The pods on the nodes of a maintenance, by group.
pub(super) type Left = BTreeMap<groups::Number, u32>;

fn add(left: &mut Left, group: groups::Number, by: i64) {
    let pods = left.entry(group).or_default();
    *pods = u32::try_from((i64::from(*pods) + by).max(0)).unwrap_or(u32::MAX);
    if *pods == 0 {
        left.remove(&group);
    }
}

impl Index {
    /// How long the pods took that have left since is what the next ones are expected to take.
    pub(super) fn observe_departures(&mut self, now: Timestamp) {
        for (workload, asked) in self.tally.departures() {
            self.experience.left(&workload, asked, now);
        }
    }

    /// Keeps up what is left of those maintenances that were looked at.
    pub(super) fn count_left(&mut self, change: &Change) {
        let Some(place) = self.nodes.get(&change.node) else { return };
        for name in &place.selected_by {
            let entry = self.maintenances.get_mut(name);
            if let Some(left) = entry.and_then(|entry| entry.left.as_mut()) {
                add(left, change.group, change.there);
            }
        }
    }

    /// Counts what is left, if that is not known: of those that do not drain it is not.
    pub(super) fn know_left(&mut self, name: &Arc<str>) {
        let Some(entry) = self.maintenances.get_mut(name) else { return };
        if !self.numbers.contains_key(name) {
            entry.left = None;
        } else if entry.left.is_none() {
            let mut left = Left::new();
            for (group, pods) in entry.nodes.iter().flat_map(|node| self.tally.groups_on(node)) {
                add(&mut left, group, pods.into());
            }
            entry.left = Some(left);
        }
    }

    pub(super) fn expected_finish(&self, entry: &Entry, number: Number, now: Timestamp) -> Option<Timestamp> {
        let draining = &self.board.draining()[number];
        let limit = entry.maintenance.limit.as_ref();
        let waves = limit.map_or(1, |limit| waves::left(limit, &self.candidates(entry)));
        // Until the last wave, all steps come again.
        let present = if waves > 1 { 0 } else { draining.position };
        let mut steps: BTreeMap<usize, usize> = BTreeMap::new();
        let groups = entry.left.iter().flatten().map(|(group, pods)| {
            let group = self.tally.group(*group);
            let class = &self.tally.classes()[group.class];
            let step = *steps.entry(group.class).or_insert_with(|| draining.plan.step_of(class));
            Group {
                workload: &group.workload,
                step: step.max(present),
                pods: *pods,
                asked: group.asked().filter(|_| step <= draining.position),
                kind: class.kind,
            }
        });
        let learned = self.experience.remaining(groups, waves, now);
        let learned = learned.and_then(|left| now.checked_add(left).ok());
        // Interceptors know better, if they say that they take longer.
        let announced = self.tally.announced_after(learned.unwrap_or(now), &entry.nodes);
        announced.or(learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::decision::Effect;
    use crate::snapshot::{Key, Maintenance, Node, NodeOnWire, Pod, PodOnWire, Request, RequestOnWire};
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// One maintenance that drains two nodes.
    fn index() -> Index {
        let mut index = Index::default();
        let object = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {
                "name": "m", "uid": "m", "resourceVersion": "1",
                "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"],
            },
            "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
            ]}},
        });
        index.maintenance_seen(Maintenance::from(
            serde_json::from_value::<usher_api::NodeMaintenance>(object).unwrap(),
        ));
        for name in ["n1", "n2"] {
            index.node_seen(node(name, json!({"pool": "a"}), 1), at(0));
        }
        index
    }

    fn node(name: &str, labels: Value, version: u32) -> Node {
        let object = json!({
            "metadata": {
                "name": name, "uid": name, "resourceVersion": version.to_string(), "labels": labels,
                "annotations": {"nodemaintenance.k8s.io/held-by": "m"},
            },
            "spec": {"unschedulable": true},
        });
        Node::from(serde_json::from_value::<NodeOnWire>(object).unwrap())
    }

    fn pod(name: &str, node: &str, owner: &str, priority: i32) -> Pod {
        let object = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": owner, "controller": true},
            ]},
            "spec": {"nodeName": node, "priority": priority}, "status": {"phase": "Running"},
        });
        Pod::from(serde_json::from_value::<PodOnWire>(object).unwrap())
    }

    fn request(pod: &str, created: i64, announced: Option<i64>, version: u32) -> Request {
        let object = json!({
            "metadata": {
                "name": pod, "namespace": "ns", "uid": format!("r-{pod}"), "resourceVersion": version.to_string(),
                "creationTimestamp": at(created).to_string(),
                "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
            },
            "spec": {"podRef": {"name": pod, "uid": pod}},
            "status": {"expectedInterceptorFinishTime": announced.map(|second| at(second).to_string())},
        });
        Request::from(serde_json::from_value::<RequestOnWire>(object).unwrap())
    }

    /// What would be written.
    fn expected(index: &mut Index, now: i64) -> Option<i64> {
        index.resolve(at(now));
        let (_, decision) = index.decide_maintenance(&"m".into(), at(now)).unwrap();
        decision.effects.into_iter().find_map(|effect| match effect {
            Effect::WriteStatus(status) => Some(status.drain_status?.expected_finish_time?.0.as_second()),
            _ => None,
        })
    }

    #[test]
    fn pods_that_left_tell_of_those_that_are_left() {
        let mut index = index();
        for (number, host) in ["n1", "n2", "n1", "n2", "n1"].into_iter().enumerate() {
            index.pod_seen(pod(&format!("db-{number}"), host, "db", 0));
            index.request_seen(request(&format!("db-{number}"), 1000, None, 1));
        }
        assert_eq!(expected(&mut index, 1050), None, "nobody has left");
        index.pod_gone(&Key::new("ns", "db-0"));
        index.resolve(at(1100));
        index.pod_gone(&Key::new("ns", "db-1"));
        assert_eq!(expected(&mut index, 1160), Some(1160 + 3 * 60), "the next ones are a minute apart");
        // A pod that ended has left, and one of a later entry of the plan comes after all others.
        let mut ended = pod("db-2", "n1", "db", 0);
        ended.phase = crate::snapshot::Phase::Succeeded;
        index.resolve(at(1219));
        index.pod_seen(ended);
        index.pod_seen(pod("late", "n2", "db", 2_000_000_000));
        assert_eq!(expected(&mut index, 1220), Some(1220 + 2 * 60 + 100));
        // Nodes that leave take their pods with them.
        index.node_seen(node("n2", json!({}), 2), at(1220));
        assert_eq!(expected(&mut index, 1220), Some(1220 + 60));
        index.request_gone(&Key::new("ns", "db-4"));
        index.pod_gone(&Key::new("ns", "db-4"));
        assert_eq!(expected(&mut index, 1221), None, "all have left");
    }

    #[test]
    fn an_interceptor_that_says_it_takes_longer_is_believed() {
        let mut index = index();
        for number in 0..3 {
            index.pod_seen(pod(&format!("db-{number}"), "n1", "db", 0));
            index.request_seen(request(&format!("db-{number}"), 1000, None, 1));
        }
        index.pod_seen(pod("elsewhere", "n9", "db", 0));
        index.request_seen(request("elsewhere", 1000, Some(90_000), 1));
        index.request_seen(request("db-2", 1000, Some(7200), 2));
        assert_eq!(expected(&mut index, 1010), Some(7200));
        index.pod_gone(&Key::new("ns", "db-0"));
        assert_eq!(expected(&mut index, 1030), Some(7200));
        index.request_seen(request("db-2", 1000, Some(1031), 3));
        assert_eq!(
            expected(&mut index, 1030),
            Some(1030 + 2 * 30),
            "they are expected to take longer than that"
        );
        index.request_seen(request("db-2", 1000, Some(5000), 4));
        index.request_gone(&Key::new("ns", "db-2"));
        assert_eq!(
            expected(&mut index, 1030),
            Some(1030 + 2 * 30),
            "what was announced goes with its request"
        );
    }

    #[test]
    fn what_is_left_is_the_same_counted_or_kept_up() {
        let mut index = index();
        let name: Arc<str> = "m".into();
        index.resolve(at(0));
        index.know_left(&name);
        for step in 0..400_u32 {
            let (number, owner) = (step * 7 % 23, step * 5 % 11);
            let key = format!("p{number}");
            match step % 5 {
                0 => index.pod_gone(&Key::new("ns", key.as_str())),
                1 => index.request_seen(request(&key, step.into(), None, step)),
                _ => {
                    let host = if number % 2 == 0 { "n1" } else { "n2" };
                    let mut pod = pod(&key, host, &format!("o{owner}"), 0);
                    pod.uid = format!("{key}-{owner}").into();
                    index.pod_seen(pod);
                }
            }
            let kept = index.maintenances[&name].left.clone();
            index.maintenances.get_mut(&name).unwrap().left = None;
            index.know_left(&name);
            assert_eq!(kept, index.maintenances[&name].left, "after step {step}");
        }
        assert!(index.maintenances[&name].left.as_ref().is_some_and(|left| left.len() > 5));
    }
}
