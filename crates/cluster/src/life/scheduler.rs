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

pub use fit::{matches_selectors, tolerates};
pub use hints::{Help, help_by_pod, helped_by_node, is_helped, is_worth_a_look};
pub use refusals::Refusals;

use super::plan::{Action, Plan, Target};
use super::view::{Berth, Pod, Resource, View, condition};
use crate::clock::rfc3339;
use crate::store::Key;
use fit::{Guest, Reason};
use neighbours::Neighbours;
use spread::Spreading;

/// Whether the pod waits for this scheduler.
pub fn is_waiting(pod: &Pod) -> bool {
    let ours = matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler");
    pod.is_unscheduled() && ours && pod.spec.scheduling_gates.is_empty()
}

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
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
    let roster = view.roster();
    if roster.is_empty() {
        return Err("no nodes available to schedule pods".to_string());
    }
    let guest = Guest::of(pod);
    let neighbours = Neighbours::of(view, pod);
    let spreading = Spreading::of(view, &guest);
    let mut against: BTreeMap<Reason, usize> = BTreeMap::new();
    let mut good: Vec<&Berth> = Vec::new();
    let mut look = |berth: &'_ Berth| {
        let reason = guest
            .against(berth, |lacking| *against.entry(lacking).or_default() += 1)
            .or_else(|| spreading.against(&berth.node))
            .or_else(|| neighbours.against(&berth.node));
        if let Some(reason) = reason {
            *against.entry(reason).or_default() += 1;
        }
        reason.is_none()
    };
    if let Some(names) = guest.named_nodes() {
        let named: Vec<&Berth> = names.iter().filter_map(|name| roster.get(name)).collect();
        let others = roster.len() - named.len();
        good.extend(named.into_iter().filter(|berth| look(berth)));
        if others > 0 {
            against.insert(Reason::NotNamed, others);
        }
    } else {
        let enough = enough(roster.len());
        good.extend(roster.from(start(pod, roster.len())).filter(|berth| look(berth)).take(enough));
    }
    let best = score::best(&guest, &neighbours, &spreading, &good);
    best.map(|berth| berth.node.metadata.name.clone()).ok_or_else(|| refusal(roster.len(), &against))
}

/// What the real scheduler writes, preemption included: that never finds anybody here.
fn refusal(nodes: usize, against: &BTreeMap<Reason, usize>) -> String {
    let listed = |counted: Vec<(usize, &str)>| {
        let mut texts: Vec<String> = counted.iter().map(|(count, text)| format!("{count} {text}")).collect();
        // Sorted as texts, number included.
        texts.sort();
        texts.join(", ")
    };
    let reasons = listed(against.iter().map(|(reason, count)| (*count, reason.text())).collect());
    format!("0/{nodes} nodes are available: {reasons}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, node, pod, view};
    use serde_json::{Value, json};

    fn waiting(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = pod("p", "");
        pod["status"] = json!({"phase": "Pending"});
        change(&mut pod);
        pod
    }

    /// The node that is chosen, or the reason for none.
    fn outcome(objects: &[Value]) -> String {
        let plan = decide(&view(objects), &Key::new("default", "p"), at(0));
        match &plan.actions[..] {
            [Action::Bind { node, .. }] => node.clone(),
            [Action::Patch { patch, .. }] => {
                patch["status"]["conditions"][0]["message"].as_str().unwrap().to_string()
            }
            other => panic!("{other:?}"),
        }
    }

    fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut node = node(name);
        change(&mut node);
        node
    }

    #[test]
    fn the_least_used_node_wins() {
        let mut busy = pod("q", "a");
        busy["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
        assert_eq!(outcome(&[node("a"), node("b"), busy, waiting(|_| {})]), "b");
    }

    #[test]
    fn each_rule_against_a_node_is_counted_in_the_reason() {
        let cordoned = changed("a", |node| node["spec"]["unschedulable"] = true.into());
        let tainted = changed("b", |node| {
            node["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}])
        });
        let small = changed("c", |node| node["status"]["allocatable"]["cpu"] = "100m".into());
        let full = changed("d", |node| node["status"]["allocatable"]["pods"] = "0".into());
        let big =
            waiting(|pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}));
        assert_eq!(
            outcome(&[cordoned, tainted, small, full, big]),
            "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint(s), \
             1 node(s) were unschedulable."
        );
    }

    #[test]
    fn selectors_and_required_affinity_must_match() {
        let blue = changed("b", |node| node["metadata"]["labels"]["color"] = "blue".into());
        let nodes = [node("a"), blue];
        let with = |spec: Value| {
            let pod = waiting(|pod| {
                for (field, value) in spec.as_object().unwrap() {
                    pod["spec"][field] = value.clone();
                }
            });
            outcome(&[nodes[0].clone(), nodes[1].clone(), pod])
        };
        let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        assert_eq!(with(json!({"nodeSelector": {"color": "blue"}})), "b");
        assert_eq!(
            with(required(json!([{"matchExpressions": [{"key": "color", "operator": "Exists"}]}]))),
            "b"
        );
        assert_eq!(
            with(required(
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}])
            )),
            "b"
        );
        assert_eq!(
            with(json!({"nodeSelector": {"color": "red"}})),
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
        );
    }

    #[test]
    fn tolerations_open_tainted_and_cordoned_nodes() {
        let closed = changed("a", |node| {
            node["spec"] = json!({"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ]});
        });
        let tolerant = waiting(|pod| {
            pod["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]);
        });
        assert_eq!(outcome(&[closed, tolerant]), "a");
    }

    #[test]
    fn anti_affinity_holds_in_both_directions() {
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
        }]}});
        let alone = waiting(|pod| pod["spec"]["affinity"] = apart.clone());
        assert_eq!(outcome(&[node("a"), node("b"), pod("q", "a"), alone.clone()]), "b");
        assert_eq!(
            outcome(&[node("a"), pod("q", "a"), alone]),
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
        );
        let mut shy = pod("q", "a");
        shy["spec"]["affinity"] = apart;
        assert_eq!(
            outcome(&[node("a"), shy, waiting(|_| {})]),
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
        );
    }

    #[test]
    fn affinity_needs_company_except_for_the_first_of_its_kind() {
        let together = |app: &str| {
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
            }]}})
        };
        let near = waiting(|pod| pod["spec"]["affinity"] = together("web"));
        assert_eq!(outcome(&[node("a"), node("b"), pod("q", "b"), near.clone()]), "b");
        assert_eq!(outcome(&[node("a"), near]), "a", "it matches its own rule");
        assert_eq!(
            outcome(&[node("a"), waiting(|pod| pod["spec"]["affinity"] = together("db"))]),
            "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."
        );
    }

    #[test]
    fn gated_pods_and_those_of_other_schedulers_are_left_alone() {
        for change in [json!({"schedulingGates": [{"name": "g"}]}), json!({"schedulerName": "mine"})] {
            let pod = waiting(|pod| {
                for (field, value) in change.as_object().unwrap() {
                    pod["spec"][field] = value.clone();
                }
            });
            assert_eq!(decide(&view(&[node("a"), pod]), &Key::new("default", "p"), at(0)), Plan::nothing());
        }
    }
}
