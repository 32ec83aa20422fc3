//! Heartbeats of the kubelets: a lease for each node, renewed every ten seconds, and the times in its conditions, every
//! five minutes.
//!
//! A kubelet that is silent makes no beats: its lease and its node stay at the last one before. Both are a choice of whoever starts
//! the cluster ([`Options`]): on a large one, and in an hour of virtual time, they are most of all writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::Options;
use super::api::{self, describe};
use super::plan::{Action, Plan, Target};
use super::tasks::Component;
use super::view::{Node, Resource, View, condition};
use embedded_apiserver::Cluster;
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

const NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i64 = 40;
const RENEWED_EVERY: SignedDuration = SignedDuration::from_secs(10);
const REPORTED_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// The conditions that a kubelet reports.
const REPORTED: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// A new node gets its lease.
pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if let Some(node) = view.nodes.get(key).filter(|node| !node.is_deleting()) {
        let object = lease(&node.metadata.name, &node.metadata.uid, now);
        plan.act(Action::Ensure { resource: Resource::Leases, namespace: NAMESPACE.into(), object });
    }
    plan
}

fn lease(node: &str, uid: &str, renewed: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": node, "namespace": NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {
            "holderIdentity": node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(renewed),
        },
    })
}

/// How `metav1.MicroTime` is written.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// What a kubelet writes now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeartbeatKind {
    Nodes,
    Leases,
}

/// The kubelet of one node.
#[derive(Debug, Clone)]
struct Kubelet {
    uid: String,
    /// It has been there since then, and made its beats from then on.
    since: Timestamp,
    silent: Option<Timestamp>,
    conditions: Vec<&'static str>,
    /// The beats that were written last.
    renewed: Timestamp,
    reported: Timestamp,
}

impl Kubelet {
    /// A node without conditions has none to report.
    fn makes(&self, kind: HeartbeatKind) -> bool {
        kind == HeartbeatKind::Leases || !self.conditions.is_empty()
    }

    /// The last beat that it made by now, if it is not written yet.
    fn due(&self, kind: HeartbeatKind, now: Timestamp) -> Option<Timestamp> {
        if !self.makes(kind) {
            return None;
        }
        let (every, written) = self.beats(kind);
        let passed = self.silent.unwrap_or(now).min(now).duration_since(self.since);
        let beats = passed.as_secs() / every.as_secs();
        let last = self.since + SignedDuration::from_secs(beats * every.as_secs());
        (beats >= 0 && last > written).then_some(last)
    }

    fn beats(&self, kind: HeartbeatKind) -> (SignedDuration, Timestamp) {
        match kind {
            HeartbeatKind::Leases => (RENEWED_EVERY, self.renewed),
            HeartbeatKind::Nodes => (REPORTED_EVERY, self.reported),
        }
    }

    /// When it makes the beat after the last that was written.
    fn next(&self, kind: HeartbeatKind) -> Option<Timestamp> {
        let (every, written) = self.beats(kind);
        // One that is back begins with a beat.
        let next = if self.since > written { self.since } else { written + every };
        (self.makes(kind) && self.silent.is_none_or(|silent| next <= silent)).then_some(next)
    }

    fn write(&mut self, kind: HeartbeatKind, node: &str, at: Timestamp) -> Action {
        let target = |resource: Resource, namespace: &str, uid: &str| Target {
            resource,
            namespace: namespace.into(),
            name: node.into(),
            uid: uid.into(),
        };
        match kind {
            HeartbeatKind::Leases => {
                self.renewed = at;
                // Whoever made the lease, the kubelet of that name renews it.
                let patch = json!({"spec": {"renewTime": micro_time(at), "holderIdentity": node}});
                let target = target(Resource::Leases, NAMESPACE, "");
                Action::Patch { target, subresource: None, patch, pinned: None }
            }
            HeartbeatKind::Nodes => {
                self.reported = at;
                let beat = |kind: &&str| json!({"type": kind, "lastHeartbeatTime": rfc3339(at)});
                let conditions: Vec<Value> = self.conditions.iter().map(beat).collect();
                let patch = json!({"status": {"conditions": conditions}});
                let target = target(Resource::Nodes, "", &self.uid);
                Action::Patch { target, subresource: Some("status"), patch, pinned: None }
            }
        }
    }
}

/// The kubelets of all nodes, as far as their heartbeats go.
pub(crate) struct Heartbeats {
    cluster: Cluster,
    kinds: Vec<HeartbeatKind>,
    kubelets: Mutex<BTreeMap<String, Kubelet>>,
    /// A node is new, or back.
    changed: Notify,
    trace: Option<UnboundedSender<String>>,
}

impl Heartbeats {
    pub(crate) fn new(cluster: &Cluster, options: &Options) -> Arc<Self> {
        let kinds = [
            options.node_heartbeats.then_some(HeartbeatKind::Nodes),
            options.node_leases.then_some(HeartbeatKind::Leases),
        ];
        Arc::new(Self {
            cluster: cluster.clone(),
            kinds: kinds.into_iter().flatten().collect(),
            kubelets: Mutex::default(),
            changed: Notify::new(),
            trace: options.trace.clone(),
        })
    }

    /// A node is there, or differs.
    pub(crate) fn seen(&self, node: &Node, now: Timestamp) {
        let conditions = &node.status.conditions;
        let conditions = REPORTED.into_iter().filter(|kind| condition(conditions, kind).is_some()).collect();
        let mut kubelets = self.kubelets.lock();
        match kubelets.get_mut(&node.metadata.name) {
            Some(known) if known.uid == node.metadata.uid => {
                let is_first = known.conditions.is_empty();
                known.conditions = conditions;
                if is_first {
                    self.changed.notify_one();
                }
            }
            _ => {
                let uid = node.metadata.uid.clone();
                let kubelet =
                    Kubelet { uid, since: now, silent: None, conditions, renewed: now, reported: now };
                kubelets.insert(node.metadata.name.clone(), kubelet);
                self.changed.notify_one();
            }
        }
    }

    pub(crate) fn gone(&self, node: &str) {
        self.kubelets.lock().remove(node);
    }

    /// The kubelet of a node makes no beats any more.
    pub(crate) fn silence(&self, node: &str, now: Timestamp) {
        if let Some(kubelet) = self.kubelets.lock().get_mut(node) {
            kubelet.silent.get_or_insert(now);
        }
    }

    /// It is back, and begins with a beat.
    pub(crate) fn resume(&self, node: &str, now: Timestamp) {
        if let Some(kubelet) = self.kubelets.lock().get_mut(node)
            && kubelet.silent.take().is_some()
        {
            kubelet.since = now;
            self.changed.notify_one();
        }
    }

    /// Writes beats as they are made.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.kinds.iter().filter_map(|kind| self.next(*kind)).min();
            let Some(next) = next else {
                self.changed.notified().await;
                continue;
            };
            let left = self.cluster.time_until(next);
            if !left.is_zero() {
                // Timers of tokio count in milliseconds, rounded up so that it is not too early.
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left.saturating_add(Duration::from_millis(1))) => {}
                    () = self.changed.notified() => continue,
                }
            }
            for kind in &self.kinds {
                self.write(*kind).await;
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    fn next(&self, kind: HeartbeatKind) -> Option<Timestamp> {
        self.kubelets.lock().values().filter_map(|kubelet| kubelet.next(kind)).min()
    }

    /// Writes the beats that are due.
    async fn write(&self, kind: HeartbeatKind) {
        let now = self.now();
        let mut due = Vec::new();
        for (node, kubelet) in self.kubelets.lock().iter_mut() {
            if let Some(at) = kubelet.due(kind, now) {
                due.push((node.clone(), kubelet.uid.clone(), at, kubelet.write(kind, node, at)));
            }
        }
        for (node, uid, at, action) in due {
            // More may be due than can be written, with a fast clock: others have their turn all the same, and it can be ended.
            tokio::task::yield_now().await;
            if self.carry_out(&action).await == 404 && kind == HeartbeatKind::Leases {
                let object = lease(&node, &uid, at);
                let namespace = NAMESPACE.to_string();
                self.carry_out(&Action::Ensure { resource: Resource::Leases, namespace, object }).await;
            }
        }
    }

    async fn carry_out(&self, action: &Action) -> u16 {
        let outcome = api::carry_out(&self.cluster, Component::Heartbeat, action).await;
        if let Some(trace) = &self.trace {
            let line =
                format!("{} {:?} {} -> {}", self.now(), Component::Heartbeat, describe(action), outcome.code);
            if trace.send(line).is_err() {
                tracing::debug!("nobody reads the trace any more");
            }
        }
        outcome.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::at;

    fn kubelet() -> Kubelet {
        Kubelet {
            uid: "u".into(),
            since: at(3),
            silent: None,
            conditions: vec!["Ready"],
            renewed: at(3),
            reported: at(3),
        }
    }

    #[test]
    fn beats_are_due_when_they_were_made() {
        let mut kubelet = kubelet();
        assert_eq!(
            (kubelet.due(HeartbeatKind::Leases, at(12)), kubelet.next(HeartbeatKind::Leases)),
            (None, Some(at(13)))
        );
        assert_eq!(kubelet.due(HeartbeatKind::Leases, at(3600)), Some(at(3593)));
        assert_eq!(kubelet.due(HeartbeatKind::Nodes, at(302)), None);
        assert_eq!(kubelet.due(HeartbeatKind::Nodes, at(3600)), Some(at(3303)));
        kubelet.write(HeartbeatKind::Leases, "n", at(3593));
        assert_eq!(
            (kubelet.due(HeartbeatKind::Leases, at(3600)), kubelet.next(HeartbeatKind::Leases)),
            (None, Some(at(3603)))
        );
    }

    #[test]
    fn a_silent_kubelet_stops_at_its_last_beat() {
        let mut kubelet = kubelet();
        kubelet.silent = Some(at(40));
        assert_eq!(kubelet.due(HeartbeatKind::Leases, at(3600)), Some(at(33)));
        kubelet.write(HeartbeatKind::Leases, "n", at(33));
        assert_eq!(
            (kubelet.due(HeartbeatKind::Leases, at(3600)), kubelet.next(HeartbeatKind::Leases)),
            (None, None)
        );
        (kubelet.silent, kubelet.since) = (None, at(100));
        assert_eq!(kubelet.next(HeartbeatKind::Leases), Some(at(100)), "it is back");
        assert_eq!(kubelet.due(HeartbeatKind::Leases, at(105)), Some(at(100)));
    }

    #[test]
    fn a_node_without_conditions_has_nothing_due() {
        let bare = Kubelet { conditions: Vec::new(), ..kubelet() };
        let nodes = (bare.due(HeartbeatKind::Nodes, at(3600)), bare.next(HeartbeatKind::Nodes));
        assert_eq!(nodes, (None, None), "whoever writes beats would never be done with it");
        assert!(bare.next(HeartbeatKind::Leases).is_some());
    }

    #[test]
    fn a_lease_is_as_a_kubelet_makes_it() {
        let lease = lease("n", "u", at(1));
        assert_eq!(
            lease["spec"],
            json!({"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "1970-01-01T00:00:01.000000Z"})
        );
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}
