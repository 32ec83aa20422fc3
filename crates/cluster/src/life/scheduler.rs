//! The scheduler: a node for each pod, or the reason why there is none.
//!
//! It knows cordons, taints, node selectors and required node affinity, requests for CPU, memory and pod slots, and
//! required affinity and anti-affinity between pods. Of the nodes that remain, the least used one wins. Preferences,
//! topology spread, volumes, host ports and preemption are not modelled.

mod fit;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

pub use fit::{matches_selectors, tolerates};

use super::plan::{Action, Plan, Target};
use super::view::{Node, Pod, Requests, Resource, View, condition};
use crate::clock::rfc3339;
use crate::store::Key;
use fit::Neighbours;

/// What a pod that asks for nothing counts as when nodes are compared.
const USUAL: Requests = Requests { cpu: 100, memory: 200 << 20 };

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key) else { return plan };
    let ours = matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler");
    if !pod.is_unscheduled() || !ours || !pod.spec.scheduling_gates.is_empty() {
        return plan;
    }
    match choose(view, pod) {
        Ok(node) => {
            let node = node.metadata.name.clone();
            plan.act(Action::Bind { pod: Target::of(Resource::Pods, &pod.metadata), node });
        }
        Err(why) => {
            let known = condition(&pod.status.conditions, "PodScheduled");
            if known.is_none_or(|known| known.status != "False" || known.message != why) {
                let since = known
                    .filter(|known| known.status == "False")
                    .and_then(|known| known.last_transition_time)
                    .unwrap_or(now);
                plan.act(Action::status(
                    Resource::Pods,
                    &pod.metadata,
                    json!({"conditions": [{
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                        "lastTransitionTime": rfc3339(since),
                    }]}),
                ));
            }
        }
    }
    plan
}

/// The best node for the pod, or a line that counts the reasons against all of them.
fn choose<'a>(view: &'a View, pod: &Pod) -> Result<&'a Node, String> {
    if view.nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_string());
    }
    let neighbours = Neighbours::of(view, pod);
    let wants = pod.requests();
    let mut best: Option<((i64, i64), &Node)> = None;
    let mut against: BTreeMap<String, usize> = BTreeMap::new();
    for (_, node) in view.nodes.iter() {
        let reasons = fit::against(view, pod, wants, &neighbours, node);
        if reasons.is_empty() {
            let score = (score(view, node, wants), -view.used_on(&node.metadata.name).pods);
            if best.as_ref().is_none_or(|(most, _)| score > *most) {
                best = Some((score, node));
            }
        }
        for reason in reasons {
            *against.entry(reason.text().to_string()).or_default() += 1;
        }
    }
    best.map(|(_, node)| node).ok_or_else(|| {
        let counted = against.iter().map(|(reason, count)| format!("{count} {reason}"));
        // Sorted as texts, number included: so the real message is.
        let mut counted: Vec<String> = counted.collect();
        counted.sort();
        format!("0/{} nodes are available: {}.", view.nodes.len(), counted.join(", "))
    })
}

/// How much of the node would be left, in hundredths, the mean of CPU and memory.
fn score(view: &View, node: &Node, wants: Requests) -> i64 {
    let (has, used) = (node.allocatable(), view.used_on(&node.metadata.name));
    let or_usual = |given: i64, usual: i64| if given == 0 { usual } else { given };
    let free = |has: i64, used: i64, wants: i64| {
        if has <= 0 { 0 } else { (has - used - wants).max(0).saturating_mul(100) / has }
    };
    let cpu = free(has.cpu, used.requests.cpu, or_usual(wants.cpu, USUAL.cpu));
    let memory = free(has.memory, used.requests.memory, or_usual(wants.memory, USUAL.memory));
    (cpu + memory) / 2
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
