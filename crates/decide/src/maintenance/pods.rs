//! One pod: its eviction is requested while a maintenance targets it, and the request withdrawn when none does.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::EvictionRequestCancellationPolicy;
use usher_api::names::NODE_MAINTENANCE_REQUESTER;

use super::decision::{Notice, PodEffect};
use crate::snapshot::{Pod, Request};
use crate::waiting_on::Unevictable;

/// Whether node maintenance stands behind the request. All maintenances share its finalizer: it stays until none targets the pod any more.
pub fn is_requested(request: &Request) -> bool {
    request.requesters().any(|requester| requester == NODE_MAINTENANCE_REQUESTER)
}

/// Whether nobody ends the pod of the request: it cannot be evicted, and no interceptor is left to end it.
pub fn nothing_ends(request: &Request) -> bool {
    request.is_blocked_as(&[Unevictable::DaemonSetPod, Unevictable::MirrorPod])
}

/// Whether the pod stays because its workload says so: no drain waits for it.
pub fn stays_by_choice(request: &Request) -> bool {
    request.is_blocked_as(&[Unevictable::DaemonSetStays])
}

pub fn decide(pod: &Pod, request: Option<&Request>, is_targeted: bool) -> Option<PodEffect> {
    if pod.phase.is_terminal() {
        return None;
    }
    match request.filter(|request| request.pod_uid == pod.uid) {
        None => is_targeted.then_some(PodEffect::Request),
        // Made past admission, and somebody deletes it so that it is asked for anew.
        Some(request)
            if request.is_deleting && pod.names_interceptors && !request.interceptors_are_resolved =>
        {
            must_withdraw(request).then_some(PodEffect::Withdraw)
        }
        // Nobody may join a request that is being removed; when it is gone, there is a new one.
        Some(request) if is_targeted => {
            (!is_requested(request) && !request.is_deleting).then_some(PodEffect::Join)
        }
        // Also one that somebody deletes: it goes on for as long as anybody asks.
        Some(request) => must_withdraw(request).then_some(PodEffect::Withdraw),
    }
}

/// The workload brings pods to a node which others like them were asked to leave: that is told to it, and to the maintenances that hold
/// the node.
pub fn come_back(pod: &Pod, holders: BTreeMap<Arc<str>, Arc<str>>) -> Option<PodEffect> {
    let owner = pod.owner.as_ref()?;
    let message = format!(
        "pods of {} {}/{} come back to node {}, which is under maintenance, and are asked to leave later each time: see whether their \
         template names the node or tolerates node.kubernetes.io/unschedulable",
        owner.kind, pod.key.namespace, owner.name, pod.node
    );
    let notice = Notice { maintenances: holders, ..Notice::warning("PodsComeBack", message) };
    Some(PodEffect::RecordOnWorkload(owner.clone(), notice))
}

/// An eviction that cannot be stopped any more is left alone.
fn must_withdraw(request: &Request) -> bool {
    let policy = request.status.eviction_request_cancellation_policy;
    is_requested(request) && policy != EvictionRequestCancellationPolicy::Forbid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{PodOnWire, RequestOnWire};
    use crate::waiting_on::WaitingOn;
    use serde_json::json;
    use usher_api::names::NODE_MAINTENANCE_FINALIZER;

    fn pod(phase: &str) -> Pod {
        let pod: PodOnWire = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"}, "status": {"phase": phase},
        }))
        .unwrap();
        Pod::from(pod)
    }

    fn request(finalizers: &[&str], deleted: bool, policy: &str) -> Request {
        let mut request = json!({
            "metadata": {"name": "u", "namespace": "d", "uid": "r", "finalizers": finalizers},
            "spec": {"podRef": {"name": "p", "uid": "u"}},
            "status": {"evictionRequestCancellationPolicy": policy},
        });
        if deleted {
            request["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
    }

    #[test]
    fn only_a_condition_that_is_true_says_why_nobody_ends_the_pod() {
        let blocked = |status: &str, reason: &str| {
            let mut request = request(&[NODE_MAINTENANCE_FINALIZER], false, "Allow");
            let condition = json!({
                "type": "EvictionBlocked", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            request.status.conditions = vec![serde_json::from_value(condition).unwrap()];
            request
        };
        let reason = |pod| WaitingOn::NotEvictable { pod }.reason();
        let [daemon, stays, mirror] =
            [Unevictable::DaemonSetPod, Unevictable::DaemonSetStays, Unevictable::MirrorPod].map(reason);
        for (status, reason, ends, by_choice) in [
            ("True", daemon, true, false),
            ("True", mirror, true, false),
            ("True", stays, false, true),
            ("False", daemon, false, false),
            ("False", stays, false, false),
            ("True", "DisruptionBudget", false, false),
        ] {
            let request = blocked(status, reason);
            assert_eq!(
                (nothing_ends(&request), stays_by_choice(&request)),
                (ends, by_choice),
                "{status} {reason}"
            );
        }
    }

    #[test]
    fn that_pods_come_back_is_told_to_their_workload_and_to_who_holds_the_node() {
        let holders: BTreeMap<Arc<str>, Arc<str>> = [("m".into(), "um".into())].into();
        assert_eq!(come_back(&pod("Running"), holders.clone()), None, "nobody made it");
        let made: PodOnWire = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true},
            ]},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
        }))
        .unwrap();
        let Some(PodEffect::RecordOnWorkload(owner, notice)) = come_back(&Pod::from(made), holders.clone())
        else {
            panic!("it is told");
        };
        assert_eq!((&*owner.kind, &*owner.name, &*owner.uid), ("ReplicaSet", "web", "rs"));
        assert!(notice.is_warning && notice.reason == "PodsComeBack" && notice.maintenances == holders);
        assert!(
            notice.message.starts_with("pods of ReplicaSet shop/web come back to node n1"),
            "{}",
            notice.message
        );
    }

    #[test]
    fn a_targeted_pod_is_requested_and_any_other_is_not() {
        let ours = NODE_MAINTENANCE_FINALIZER;
        let other = "requester.evictionrequest.coordination.k8s.io/name_other.example.com";
        let both = [ours, other];
        let rows: [(&str, Option<Request>, bool, Option<PodEffect>); 14] = [
            ("Running", None, true, Some(PodEffect::Request)),
            ("Pending", None, true, Some(PodEffect::Request)),
            ("Succeeded", None, true, None),
            ("Running", None, false, None),
            ("Running", Some(request(&[ours], false, "Allow")), true, None),
            ("Running", Some(request(&[other], false, "Allow")), true, Some(PodEffect::Join)),
            ("Running", Some(request(&[other], true, "Allow")), true, None),
            ("Running", Some(request(&both, false, "Allow")), false, Some(PodEffect::Withdraw)),
            ("Running", Some(request(&[ours], true, "Allow")), true, None),
            ("Running", Some(request(&both, true, "Allow")), false, Some(PodEffect::Withdraw)),
            ("Running", Some(request(&[ours], false, "Forbid")), false, None),
            ("Running", Some(request(&[ours], true, "Forbid")), false, None),
            ("Running", Some(request(&[other], false, "Allow")), false, None),
            ("Failed", Some(request(&[ours], false, "Allow")), false, None),
        ];
        for (number, (phase, request, targeted, wanted)) in rows.into_iter().enumerate() {
            assert_eq!(decide(&pod(phase), request.as_ref(), targeted), wanted, "row {number}");
        }
    }
}
