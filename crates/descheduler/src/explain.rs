//! Why one pod is proposed, or is not.

use std::fmt;

use jiff::Timestamp;

use crate::cluster::node::Node;
use crate::cluster::pod::UNBOUND;
use crate::cycle::PluginStep;
use crate::evictor::kept::Kept;
use crate::nodes::NodeList;
use crate::plan::{Problem, Reason, Stop};
use crate::policy::PluginName;
use crate::{Cluster, InProgress, Planner, Policy};

/// What a policy has to say of one pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Explanation {
    NoSuchPod,
    /// Nothing is descheduled at all.
    Stopped(Stop),
    /// Its node is not ready, and on such nodes nothing is descheduled.
    NodeNotReady {
        node: String,
    },
    /// It is on no node, or on one that the policy does not look at.
    NotLookedAt {
        node: Option<String>,
    },
    Pod {
        /// Who asked it to leave before, if anybody did.
        leaving: Vec<String>,
        plugins: Vec<PluginView>,
        problems: Vec<Problem>,
    },
}

/// How a plugin of a profile sees the pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginView {
    pub profile: String,
    pub plugin: PluginName,
    /// Why the plugin wants the pod to leave, if it does.
    pub wants: Option<Reason>,
    /// The filter that keeps it. Plugins that balance count only pods that pass, so it may come before any want.
    pub kept: Option<Kept>,
    /// The limit that it would exceed.
    pub stopped: Option<Stop>,
    /// It is in the plan, and fits there.
    pub proposed: bool,
    pub fits_on: Option<String>,
}

impl fmt::Display for PluginView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of profile {:?} ", self.plugin, self.profile)?;
        match (&self.wants, &self.kept, &self.stopped) {
            (Some(reason), Some(kept), _) => {
                write!(f, "wants it to leave ({reason}), and it is kept: {kept}")
            }
            (Some(reason), None, Some(stop)) => write!(f, "wants it to leave ({reason}), and {stop}"),
            (Some(reason), None, None) => write!(f, "wants it to leave: {reason}"),
            (None, Some(kept), _) => write!(f, "does not look at it: {kept}"),
            (None, None, _) => write!(f, "does not want it to leave"),
        }
    }
}

/// Which plugin wants the pod to leave, or which filter keeps it and why.
pub fn explain(
    cluster: &Cluster,
    policy: &Policy,
    in_progress: &InProgress,
    now: Timestamp,
    namespace: &str,
    name: &str,
) -> Explanation {
    let found = cluster.find(namespace, name).and_then(|slot| Some((slot, cluster.pod(slot)?)));
    let Some((slot, pod)) = found else {
        return Explanation::NoSuchPod;
    };
    let (plan, seen) = Planner::default().run(cluster, policy, in_progress, now, Some(slot));
    if let Some(stopped) = plan.stops.iter().find(|stopped| stopped.plugin.is_none()) {
        return Explanation::Stopped(stopped.by.clone());
    }
    let mut nodes = NodeList::default();
    nodes.refresh(cluster, policy.node_selector.as_ref());
    if pod.node == UNBOUND || !nodes.has(pod.node) {
        let node = cluster.node(pod.node).filter(|_| pod.node != UNBOUND);
        let name = node.map(|node| node.name.to_string());
        return match (name, node.is_some_and(Node::is_ready)) {
            (Some(node), false) => Explanation::NodeNotReady { node },
            (node, _) => Explanation::NotLookedAt { node },
        };
    }
    let uid = pod.uid.to_string();
    let asked =
        in_progress.pods().find(|(one, other, of, _)| *one == namespace && *other == name && *of == uid);
    let views = plan.counts.iter().map(|count| {
        let of_plugin = |one: &&PluginStep| one.profile == count.profile && one.plugin == count.plugin;
        // What a plugin came to in the end says more than a filter on the way.
        let last = seen
            .iter()
            .filter(of_plugin)
            .max_by_key(|one| (one.proposed, one.wants.is_some(), one.stopped.is_some()));
        PluginView {
            profile: count.profile.clone(),
            plugin: count.plugin,
            wants: last.and_then(|one| one.wants.clone()),
            kept: last.and_then(|one| one.kept.clone()),
            stopped: last.and_then(|one| one.stopped.clone()),
            proposed: last.is_some_and(|one| one.proposed),
            fits_on: last.and_then(|one| one.fits_on.clone()),
        }
    });
    Explanation::Pod {
        leaving: asked.map(|(_, _, _, asked)| asked.by.clone()).unwrap_or_default(),
        plugins: views.collect(),
        problems: plan.problems,
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::plan::{OwnerRef, PodRef, Proposal};
    use crate::requester::{AskOutcome, Options, PodId, Requester};
    use crate::testing::{cluster, node, now, pod, policy};

    /// What has become of the pod that was asked.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Old {
        Stays,
        Terminates,
        Gone,
    }

    /// What is said of a pod on a node with a taint, by a requester that was prepared for this moment.
    fn told(name: &str, old: Old, at: Timestamp, prepared: impl Fn(&mut Requester, Timestamp)) -> String {
        let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "PreferNoSchedule"}]}});
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
        let made = |name: &str, created: &str| {
            pod(name, "a", json!({"metadata": {"creationTimestamp": created, "ownerReferences": owner}}))
        };
        let mut pods = vec![made("new", "2026-01-01T00:00:01Z"), made("old", "2025-12-31T00:00:00Z")];
        match old {
            Old::Stays => {}
            Old::Terminates => {
                pods[1].metadata.deletion_timestamp = pods[0].metadata.creation_timestamp.clone()
            }
            Old::Gone => drop(pods.pop()),
        }
        let known = cluster(vec![node("a", taints), node("b", json!({}))], pods);
        let args = json!({"includePreferNoSchedule": true});
        let policy = policy(json!({}), "RemovePodsViolatingNodeTaints", args);
        let mut requester = Requester::new(Options::default());
        prepared(&mut requester, at);
        let found = explain(&known, &policy, &requester.in_progress(at), at, "default", name);
        let Explanation::Pod { plugins, .. } = found else { panic!("{found:?}") };
        plugins[0].to_string()
    }

    fn old() -> PodId {
        PodId::new("default", "old", "uid-old")
    }

    fn proposal() -> Proposal {
        let (name, uid) = ("old".to_owned(), "uid-old".to_owned());
        Proposal {
            pod: PodRef { namespace: "default".into(), name, uid, node: "a".into() },
            profile: "p".into(),
            plugin: PluginName::RemovePodsViolatingNodeTaints,
            reason: Reason::Taint { taint: "broken:PreferNoSchedule".into() },
            fits_on: None,
            owner: Some(OwnerRef {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "rs".into(),
                uid: "rs".into(),
            }),
        }
    }

    /// What a descheduler remembers that has asked the old pod.
    fn remembered() -> crate::requester::Memory {
        let mut first = Requester::new(Options::default());
        let plan = crate::Plan { proposals: vec![proposal()], ..crate::Plan::default() };
        first.in_progress(now());
        first.decide(&plan, now());
        first.asked(&proposal(), &AskOutcome::Requested, now());
        first.unsaved().unwrap()
    }

    /// Whoever asks later must not hear of another end.
    #[test]
    fn the_end_of_a_cool_down_does_not_move_with_the_time() {
        let withdrawn_unseen = |requester: &mut Requester, at: Timestamp| {
            requester.remembered(remembered());
            requester.synced(|_| true, at);
        };
        let is_known = |requester: &mut Requester, _: Timestamp| requester.remembered(remembered());
        let cools = |requester: &mut Requester, _: Timestamp| {
            let mut memory = crate::requester::Memory::default();
            memory.cooling.insert(old(), now() + SignedDuration::from_hours(1));
            requester.remembered(memory);
        };
        type Prepared<'a> = &'a dyn Fn(&mut Requester, Timestamp);
        let replacement = "before that one is gone and a cool-down after that is over";
        let unseen = "a cool-down that begins with the descheduler's next cycle is over";
        let cases: [(&str, Old, Prepared<'_>, &str); 4] = [
            ("old", Old::Stays, &withdrawn_unseen, unseen),
            ("old", Old::Stays, &cools, "is not asked again before 2026-01-01T01:00:00Z"),
            ("new", Old::Terminates, &is_known, replacement),
            ("new", Old::Gone, &is_known, "is not asked by it before 2026-01-01T01:00:00Z"),
        ];
        for (name, old, prepared, part) in cases {
            let first = told(name, old, now() + SignedDuration::from_secs(10), prepared);
            assert!(first.ends_with(part), "{old:?}: {first}");
            assert_eq!(told(name, old, now() + SignedDuration::from_mins(7), prepared), first);
        }
    }
}
