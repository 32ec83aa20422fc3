//! The scheduler: a node for each pod, or the reason why there is none.
//!
//! It knows cordons, taints, node selectors and affinity, requests for CPU, memory and pod slots, topology spread, and
//! affinity and anti-affinity between pods; what is only preferred counts in the score, beside how little of the node is
//! taken. Volumes, host ports and preemption are not modelled.
//!
//! Like the real one it does not look at all nodes of a large cluster: enough that will do, beginning at a place that
//! depends on the pod alone. Pods that it refused are asked again when something changed that could help them
//! ([`hints`]), after a while that doubles, and pods that are alike get one answer ([`Refusals`]).

mod fit;
mod hints;
mod neighbours;
mod refusals;
mod score;
mod spread;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

pub(crate) use fit::{matches_selectors, tolerates};
pub(crate) use hints::{QueueingHint, help_by_pod, helped_by_node, is_helped, is_worth_a_look};
pub(crate) use refusals::Refusals;

use super::plan::{Action, Plan, Target};
use super::view::{NodeInfo, Pod, Resource, View, condition};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;
use fit::{Guest, Reason};
use neighbours::Neighbours;
use spread::Spreading;

/// Whether the pod waits for this scheduler.
pub(crate) fn is_waiting(pod: &Pod) -> bool {
    let ours = matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler");
    pod.is_unscheduled() && ours && pod.spec.scheduling_gates.is_empty()
}

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key).filter(|pod| is_waiting(pod)) else { return plan };
    match view.refusals().ask(pod, || choose(view, pod)) {
        Ok(node) => {
            plan.act(Action::Bind { pod: Target::of(Resource::Pods, &pod.metadata), node });
        }
        Err(why) => {
            let known = condition(&pod.status.conditions, "PodScheduled");
            if known.is_none_or(|known| known.status != "False" || known.message != *why) {
                let since = known
                    .filter(|known| known.status == "False")
                    .and_then(|known| known.last_transition_time)
                    .unwrap_or(now);
                plan.act(Action::status(
                    Resource::Pods,
                    &pod.metadata,
                    json!({"conditions": [{
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": *why,
                        "lastTransitionTime": rfc3339(since),
                    }]}),
                ));
            }
        }
    }
    plan
}

/// So many nodes that will do are enough to choose from: all of a small cluster, a part of a large one.
fn enough(nodes: usize) -> usize {
    if nodes < 100 {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(100)
}

/// Where to begin in a cluster of which only a part is looked at: somewhere else for each pod.
fn start(pod: &Pod, nodes: usize) -> usize {
    if nodes < 100 {
        return 0;
    }
    let hash = pod.metadata.uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The upper half is the better mixed one.
    (hash >> 32) as usize % nodes
}

/// The best node for the pod, or a line that counts the reasons against all of them.
fn choose(view: &View, pod: &Pod) -> Result<String, String> {
    let node_snapshot = view.node_snapshot();
    if node_snapshot.is_empty() {
        return Err("no nodes available to schedule pods".to_string());
    }
    let guest = Guest::of(pod);
    let neighbours = Neighbours::of(view, pod);
    let spreading = Spreading::of(view, &guest);
    let mut against: BTreeMap<Reason, usize> = BTreeMap::new();
    let mut about_others = 0;
    let mut good: Vec<&NodeInfo> = Vec::new();
    let mut look = |node_info: &'_ NodeInfo| {
        let reason = guest
            .against(node_info, |lacking| *against.entry(lacking).or_default() += 1)
            .or_else(|| spreading.against(&node_info.node))
            .or_else(|| neighbours.against(&node_info.node));
        if let Some(reason) = reason {
            *against.entry(reason).or_default() += 1;
            about_others += usize::from(guest.is_about_others(reason, node_info));
        }
        reason.is_none()
    };
    if let Some(names) = guest.named_nodes() {
        let named: Vec<&NodeInfo> = names.iter().filter_map(|name| node_snapshot.get(name)).collect();
        let others = node_snapshot.len() - named.len();
        good.extend(named.into_iter().filter(|node_info| look(node_info)));
        if others > 0 {
            against.insert(Reason::NotNamed, others);
        }
    } else {
        let enough = enough(node_snapshot.len());
        good.extend(
            node_snapshot
                .from(start(pod, node_snapshot.len()))
                .filter(|node_info| look(node_info))
                .take(enough),
        );
    }
    let best = score::best(&guest, &neighbours, &spreading, &good);
    best.map(|node_info| node_info.node.metadata.name.clone())
        .ok_or_else(|| refusal(node_snapshot.len(), &against, about_others))
}

/// As the real scheduler writes it. Preemption, too, has something to say about each node; here it finds no victims.
fn refusal(nodes: usize, against: &BTreeMap<Reason, usize>, about_others: usize) -> String {
    let listed = |counted: Vec<(usize, &str)>| {
        let some = counted.iter().filter(|(count, _)| *count > 0);
        let mut texts: Vec<String> = some.map(|(count, text)| format!("{count} {text}")).collect();
        // Sorted as texts, number included.
        texts.sort();
        texts.join(", ")
    };
    let reasons = listed(against.iter().map(|(reason, count)| (*count, reason.text())).collect());
    let preemption = listed(vec![
        (about_others, "No preemption victims found for incoming pod"),
        (nodes - about_others, "Preemption is not helpful for scheduling"),
    ]);
    format!(
        "0/{nodes} nodes are available: {reasons}. preemption: 0/{nodes} nodes are available: {preemption}."
    )
}

#[cfg(test)]
mod tests;
