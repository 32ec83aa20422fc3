//! New pods of workloads that have a bundled interceptor: it is written on them, and those of DaemonSets that are made for a node under
//! maintenance wait behind a gate.
//!
//! API servers that have MutatingAdmissionPolicies do it by themselves (`deploy/workloads/*-policies.yaml`); for older ones the webhook
//! stands in, by these functions.

use std::collections::BTreeMap;

use usher_api::annotation_of;
use usher_api::interceptor_rules::CONTROLLER_ROLE;
use usher_api::names::{INTERCEPTOR_ANNOTATION_PREFIX, MAINTENANCE_SCHEDULING_GATE};
use usher_api::workloads::BundledInterceptor;

use super::{Changes, Verdict};
use crate::interceptors::daemon_set::{STAYS_PREFIX, holds};
use crate::snapshot::PodOnWire;

/// What is known of a new pod.
#[derive(Debug, Clone)]
pub struct NewPod {
    bundled: Option<BundledInterceptor>,
    owner_uid: String,
    node: String,
    priority: i32,
    gates: Vec<String>,
    labels: BTreeMap<String, String>,
}

impl NewPod {
    pub fn read(pod: &PodOnWire) -> Self {
        let owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        Self {
            bundled: owner.and_then(|owner| BundledInterceptor::of_owner(&owner.api_version, &owner.kind)),
            owner_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            node: pod.spec.only_node().to_owned(),
            priority: pod.spec.priority,
            gates: pod.spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
        }
    }

    /// The nodes that are held matter only to pods of DaemonSets.
    pub fn may_be_held(&self) -> bool {
        self.bundled == Some(BundledInterceptor::DaemonSet) && !self.node.is_empty()
    }
}

/// `annotations` are all that the pod has, and `held` is what the ConfigMap says.
pub fn on_create(
    pod: &NewPod,
    annotations: &BTreeMap<String, String>,
    on: &[BundledInterceptor],
    held: &BTreeMap<String, String>,
) -> Verdict {
    let Some(bundled) = pod.bundled.filter(|it| on.contains(it)) else { return Verdict::allow() };
    let annotations = with_interceptors(bundled, &pod.labels, annotations);
    let mut changes = Changes { annotations, ..Changes::default() };
    let stays = || held.contains_key(&format!("{STAYS_PREFIX}{}", pod.owner_uid));
    let is_gated = || pod.gates.iter().any(|gate| gate == MAINTENANCE_SCHEDULING_GATE);
    if pod.may_be_held() && holds(held, &pod.node, pod.priority) && !stays() && !is_gated() {
        let ours = MAINTENANCE_SCHEDULING_GATE.to_owned();
        changes.scheduling_gates = Some(pod.gates.iter().cloned().chain([ours]).collect());
    }
    Verdict::Allow { changes, warnings: Vec::new() }
}

/// The annotations of a pod with these labels, with those of its interceptors; none if they are as they should be. A pod that names
/// another controller keeps what it says.
pub fn with_interceptors(
    bundled: BundledInterceptor,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Option<BTreeMap<String, String>> {
    let ours: BTreeMap<String, String> = bundled.interceptors(labels).iter().map(annotation_of).collect();
    let is_other_controller = |(key, value): (&String, &String)| {
        key.starts_with(INTERCEPTOR_ANNOTATION_PREFIX)
            && value.ends_with(&format!("/{CONTROLLER_ROLE}"))
            && !ours.contains_key(key)
    };
    if annotations.iter().any(is_other_controller) {
        return None;
    }
    let mut filled = annotations.clone();
    for (key, value) in ours {
        filled.entry(key).or_insert(value);
    }
    Some(filled).filter(|filled| filled != annotations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use usher_api::workloads::POD_TEMPLATE_HASH_LABEL;

    fn new_pod(kind: &str, node: &str, priority: i32) -> NewPod {
        let pod = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "set", "controller": true},
            ]},
            "spec": {"priority": priority, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
            }}}},
        });
        NewPod::read(&serde_json::from_value(pod).unwrap())
    }

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn changes(
        pod: &NewPod,
        annotations: &BTreeMap<String, String>,
        held: &BTreeMap<String, String>,
    ) -> Changes {
        match on_create(pod, annotations, &BundledInterceptor::ALL, held) {
            Verdict::Allow { changes, .. } => changes,
            Verdict::Deny(denial) => panic!("{denial}"),
        }
    }

    #[test]
    fn a_new_pod_gets_the_annotation_of_its_owners_interceptor() {
        for (kind, class) in [("DaemonSet", "daemonset"), ("StatefulSet", "statefulset")] {
            let key = format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}.apps.k8s.io");
            let given = map(&[("team", "blue")]);
            let set = changes(&new_pod(kind, "n1", 0), &given, &map(&[])).annotations.unwrap();
            assert_eq!(set, map(&[("team", "blue"), (&key, "10000/controller")]));
            // What the pod says itself stays.
            let own = map(&[(&key, "x")]);
            assert_eq!(changes(&new_pod(kind, "n1", 0), &own, &map(&[])), Changes::default());
        }
        let other = map(&[(&format!("{INTERCEPTOR_ANNOTATION_PREFIX}a.example.com"), "10000/controller")]);
        assert_eq!(changes(&new_pod("StatefulSet", "", 0), &other, &map(&[])), Changes::default());
        assert_eq!(changes(&new_pod("Job", "", 0), &map(&[]), &map(&[])), Changes::default());
        let of_deployment =
            NewPod { labels: map(&[(POD_TEMPLATE_HASH_LABEL, "5f7c")]), ..new_pod("ReplicaSet", "", 0) };
        let key = |class: &str| format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}.apps.k8s.io");
        let (set, deployment) = (key("replicaset"), key("deployment"));
        let both = map(&[(&set, "10000/controller"), (&deployment, "10001/deployment-controller")]);
        assert_eq!(changes(&of_deployment, &map(&[]), &map(&[])).annotations.unwrap(), both);
        let one = map(&[(&set, "10000/controller")]);
        assert_eq!(changes(&of_deployment, &one, &map(&[])).annotations.unwrap(), both);
        let off = on_create(&new_pod("DaemonSet", "n1", 0), &map(&[]), &[], &map(&[("n1", "5")]));
        assert_eq!(off, Verdict::allow());
    }

    #[test]
    fn a_daemon_set_pod_for_a_held_node_waits_behind_the_gate() {
        let held = map(&[("n1", "5000"), ("n2", "x")]);
        let gates = |pod: &NewPod, held| changes(pod, &map(&[]), held).scheduling_gates;
        let ours = Some(vec![MAINTENANCE_SCHEDULING_GATE.to_owned()]);
        for (kind, node, priority, wanted) in [
            ("DaemonSet", "n1", 5000, &ours),
            ("DaemonSet", "n1", -7, &ours),
            ("DaemonSet", "n1", 5001, &None),
            ("DaemonSet", "n2", 0, &None),
            ("DaemonSet", "n3", 0, &None),
            ("DaemonSet", "", 0, &None),
            ("StatefulSet", "n1", 0, &None),
        ] {
            assert_eq!(&gates(&new_pod(kind, node, priority), &held), wanted, "{kind} {node} {priority}");
        }
        let stays = map(&[("n1", "5000"), ("stays_set", "ns/d")]);
        assert_eq!(gates(&new_pod("DaemonSet", "n1", 0), &stays), None, "its DaemonSet opted out");
        let gated = NewPod { gates: vec!["other".into()], ..new_pod("DaemonSet", "n1", 0) };
        assert_eq!(gates(&gated, &held).unwrap(), ["other", MAINTENANCE_SCHEDULING_GATE]);
        let ours = NewPod { gates: vec![MAINTENANCE_SCHEDULING_GATE.into()], ..gated };
        assert_eq!(gates(&ours, &held), None);
    }
}
