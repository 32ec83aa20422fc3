//! Since when things are so that no object tells: silent kubelets, driven-off nodes, nodes that are gone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{Change, Node, Pod, View, condition};
use embedded_apiserver::Key;

#[derive(Debug, Default)]
pub(super) struct Since {
    /// Kubelets that say nothing any more.
    silent: BTreeMap<String, Timestamp>,
    /// All of them.
    all_silent: Option<Timestamp>,
    /// Nodes with a taint that drives pods off.
    driving: BTreeMap<String, Timestamp>,
    /// Nodes that pods are bound to, but that are not there.
    gone: BTreeMap<String, Timestamp>,
    /// Nodes whose kubelet or controller says that they are not ready.
    unready: BTreeSet<String>,
    /// How often the pods of a daemon set have failed on a node in a row, and until when the last one is left there.
    failures: BTreeMap<(String, String), (u32, Timestamp)>,
}

/// The longest time that a failed daemon pod is left; after twice that without a failure, all is forgiven.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);

/// Whether a node says of itself, or is said to be, not ready. A node that nobody spoke for is neither.
fn is_unready(node: &Node) -> bool {
    condition(&node.status.conditions, "Ready").is_some_and(|ready| ready.status != "True")
}

impl View {
    /// Since when the kubelet of a node has been silent.
    pub(crate) fn silent_since(&self, node: &str) -> Option<Timestamp> {
        self.since.silent.get(node).copied().into_iter().chain(self.since.all_silent).min()
    }

    /// The kubelet of a node stops: nothing is started, ended or reported there.
    pub(crate) fn fall_silent(&mut self, node: &str, now: Timestamp) {
        self.since.silent.entry(node.to_string()).or_insert(now);
    }

    /// The kubelet of a node is back.
    pub(crate) fn speak_again(&mut self, node: &str) {
        self.since.silent.remove(node);
    }

    /// The kubelets of all nodes stop.
    pub(crate) fn all_fall_silent(&mut self, now: Timestamp) {
        self.since.all_silent.get_or_insert(now);
    }

    /// All are back, but for those that were silent by themselves.
    pub(crate) fn all_speak_again(&mut self) {
        self.since.all_silent = None;
    }

    /// Since when a node has had a `NoExecute` taint.
    pub(crate) fn driving_since(&self, node: &str) -> Option<Timestamp> {
        self.since.driving.get(node).copied()
    }

    /// Since when a node that pods are bound to has been missing.
    pub(crate) fn gone_since(&self, node: &str) -> Option<Timestamp> {
        self.since.gone.get(node).copied()
    }

    /// Nodes that are said to be not ready.
    pub(crate) fn unready_nodes(&self) -> impl Iterator<Item = &String> {
        self.since.unready.iter()
    }

    /// Until when the failed pod of a daemon set is left on a node.
    pub(crate) fn failure_ends(&self, set: &str, node: &str) -> Option<Timestamp> {
        self.since.failures.get(&(set.to_string(), node.to_string())).map(|(_, until)| *until)
    }

    fn remember_failure(&mut self, set: &str, node: &str, now: Timestamp) {
        let entry = self.since.failures.entry((set.to_string(), node.to_string())).or_insert((0, now));
        let (count, until) = *entry;
        *entry = if count == 0 || now > until + LONGEST * 2 {
            (1, now)
        } else {
            let wait = SignedDuration::from_secs(1_i64 << (count - 1).min(10)).min(LONGEST);
            (count + 1, now.max(until + wait))
        };
    }

    /// Notes when a change was seen, where somebody counts from there.
    pub(crate) fn remember(&mut self, change: &Change, now: Timestamp) {
        match change {
            Change::Node { after: Some(node), .. } => {
                let name = &node.metadata.name;
                self.since.gone.remove(name);
                if node.spec.taints.iter().any(|taint| taint.effect == "NoExecute") {
                    self.since.driving.entry(name.clone()).or_insert(now);
                } else {
                    self.since.driving.remove(name);
                }
                if is_unready(node) {
                    self.since.unready.insert(name.clone());
                } else {
                    self.since.unready.remove(name);
                }
            }
            Change::Node { before: Some(node), after: None } => {
                let name = &node.metadata.name;
                self.since.driving.remove(name);
                self.since.unready.remove(name);
                self.since.silent.remove(name);
                self.since.gone.insert(name.clone(), now);
            }
            Change::Pod { before, after: Some(pod) } => {
                let node = &pod.spec.node_name;
                let owner = pod.metadata.controller().filter(|owner| owner.kind == "DaemonSet");
                let same =
                    |before: &Pod| before.metadata.uid == pod.metadata.uid && before.status.phase == "Failed";
                if let Some(owner) = owner.filter(|_| pod.status.phase == "Failed")
                    && !before.as_deref().is_some_and(same)
                {
                    self.remember_failure(&owner.uid, node, now);
                }
                if !node.is_empty() && self.nodes.get(&Key::new("", node)).is_none() {
                    self.since.gone.entry(node.clone()).or_insert(now);
                }
            }
            _ => {}
        }
    }
}
