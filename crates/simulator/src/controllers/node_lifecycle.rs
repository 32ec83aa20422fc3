//! The node lifecycle controller: nodes whose kubelet is silent become unknown, and taints follow what is known of them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::plan::{About, Action, Note, Plan};
use crate::view::{Node, Resource, Taint, View, condition};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

/// How long a kubelet may be silent.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// How long a new one may take until it speaks for the first time.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// The conditions that a kubelet reports.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The reason of a condition that this controller has written.
pub(crate) const UNKNOWN: &str = "NodeStatusUnknown";
/// The reason of a pod that is not ready because nothing is heard of its node. The real controller gives none, for a
/// kubelet knows what it runs; here the kubelet has to know whose word it may take back.
pub(crate) const GIVEN_UP: &str = "NodeNotReady";

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A condition, the status at which it taints, and the taint.
const TAINTING: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Zones up to this size stop driving pods off when most of their nodes are not ready.
const SMALL_ZONE: usize = 50;
/// Not ready nodes of a zone, in hundredths, from which on something larger than a node is thought to be wrong.
const UNHEALTHY_ZONE: usize = 55;
const NOT_COUNTED: &str = "node.kubernetes.io/exclude-disruption";

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(node) = view.nodes.get(key) else { return plan };
    if let Some(since) = view.silent_since(&node.metadata.name)
        && give_up(view, node, since, now, &mut plan)
    {
        // Taints follow when the node is seen to be unknown.
        return plan;
    }
    if let Some(taints) = taints(view, node, now) {
        let cordoned = |taints: &[Taint]| taints.iter().any(|taint| taint.key == UNSCHEDULABLE);
        if cordoned(&taints) != cordoned(&node.spec.taints) {
            let what = if node.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
            plan.note(status_note(node, what));
        }
        let taints: Vec<Value> = taints.iter().map(written).collect();
        plan.act(Action::patch(Resource::Nodes, &node.metadata, json!({"spec": {"taints": taints}})));
    }
    plan
}

pub(crate) fn status_note(node: &Node, what: &'static str) -> Note {
    let message = format!("Node {} status is now: {what}", node.metadata.name);
    Note::normal(About::of(Resource::Nodes, &node.metadata), what, message)
}

/// After the grace, the conditions of a silent node are unknown and its pods are not ready. True if that was decided.
fn give_up(view: &View, node: &Node, since: Timestamp, now: Timestamp, plan: &mut Plan) -> bool {
    let spoke = condition(&node.status.conditions, "Ready");
    let due =
        if spoke.is_some() { since + GRACE } else { node.metadata.created().max(since) + STARTUP_GRACE };
    if spoke.is_some_and(|ready| ready.status == "Unknown") {
        return false;
    }
    if now < due {
        plan.recheck(due);
        return false;
    }
    let unknown = |kind: &&str| {
        let known = condition(&node.status.conditions, kind);
        let (reason, message) = match known {
            Some(known) if known.status == "Unknown" => return None,
            Some(_) => (UNKNOWN, "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let mut condition = json!({
            "type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": rfc3339(now),
        });
        if known.is_none() {
            condition["lastHeartbeatTime"] = rfc3339(node.metadata.created()).into();
        }
        Some(condition)
    };
    let conditions: Vec<Value> = REPORTED.iter().filter_map(unknown).collect();
    plan.act(Action::status(Resource::Nodes, &node.metadata, json!({"conditions": conditions})));
    plan.note(status_note(node, "NodeNotReady"));
    for pod in view.pods_on(&node.metadata.name).filter(|pod| pod.is_ready()) {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": GIVEN_UP, "lastTransitionTime": rfc3339(now),
        });
        plan.act(Action::status(Resource::Pods, &pod.metadata, json!({"conditions": [ready]})));
        let about = About::of(Resource::Pods, &pod.metadata);
        plan.note(Note::warning(about, "NodeNotReady", "Node is not ready"));
    }
    true
}

/// The taints that the node should have, if they are not the ones that it has.
fn taints(view: &View, node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let status = |kind: &str| condition(&node.status.conditions, kind).map(|c| c.status.as_str());
    let mut wanted: Vec<(&str, &str)> = TAINTING
        .iter()
        .filter(|(kind, at, _)| status(kind) == Some(at))
        .map(|(_, _, key)| (*key, "NoSchedule"))
        .collect();
    if node.spec.unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let lost = match status("Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    };
    if let Some(key) = lost {
        let has = |key: &str| node.spec.taints.iter().any(|t| t.key == key && t.effect == "NoExecute");
        let drives = match drives_off(view, node) {
            Drives::Yes => true,
            Drives::NotMore => has(NOT_READY) || has(UNREACHABLE),
            Drives::No => false,
        };
        if drives {
            wanted.push((key, "NoExecute"));
        }
    }
    let managed = |taint: &Taint| match taint.effect.as_str() {
        "NoSchedule" => taint.key == UNSCHEDULABLE || TAINTING.iter().any(|(_, _, key)| *key == taint.key),
        "NoExecute" => taint.key == NOT_READY || taint.key == UNREACHABLE,
        _ => false,
    };
    let is = |taint: &Taint, (key, effect): &(&str, &str)| taint.key == *key && taint.effect == *effect;
    let stays = |taint: &&Taint| !managed(taint) || wanted.iter().any(|wanted| is(taint, wanted));
    let mut taints: Vec<Taint> = node.spec.taints.iter().filter(stays).cloned().collect();
    let kept = taints.len();
    for (key, effect) in &wanted {
        if !node.spec.taints.iter().any(|taint| is(taint, &(*key, *effect))) {
            let time_added = Some(now);
            taints.push(Taint {
                key: (*key).into(),
                effect: (*effect).into(),
                value: String::new(),
                time_added,
            });
        }
    }
    (kept != node.spec.taints.len() || taints.len() != kept).then_some(taints)
}

fn written(taint: &Taint) -> Value {
    let mut value = json!({"key": taint.key, "effect": taint.effect});
    if !taint.value.is_empty() {
        value["value"] = taint.value.clone().into();
    }
    if let Some(at) = taint.time_added {
        value["timeAdded"] = rfc3339(at).into();
    }
    value
}

enum Drives {
    Yes,
    /// What is driven off already stays so.
    NotMore,
    No,
}

/// When most nodes seem lost, it is more likely that the controller cannot see them: pods are then left where they are.
fn drives_off(view: &View, lost: &Node) -> Drives {
    fn zone(node: &Node) -> [Option<&String>; 2] {
        ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"]
            .map(|label| node.metadata.labels.get(label))
    }
    let (mut any_ready, mut ready, mut not_ready) = (false, 0, 0);
    for (_, node) in view.nodes.iter().filter(|(_, node)| !node.metadata.labels.contains_key(NOT_COUNTED)) {
        any_ready |= node.is_ready();
        if zone(node) == zone(lost) {
            if node.is_ready() {
                ready += 1;
            } else {
                not_ready += 1;
            }
        }
    }
    let all = ready + not_ready;
    let mostly = ready > 0 && not_ready > 2 && not_ready * 100 >= all * UNHEALTHY_ZONE;
    match (any_ready, mostly && all <= SMALL_ZONE) {
        (false, _) => Drives::No,
        (true, true) => Drives::NotMore,
        (true, false) => Drives::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, node, pod, set_status, view};

    /// What the only patch gives as taints: keys and effects.
    fn tainted(plan: &Plan) -> Vec<String> {
        let taints = plan.actions.iter().find_map(|action| match action {
            Action::Patch { subresource: None, patch, .. } => patch["spec"]["taints"].as_array().cloned(),
            _ => None,
        });
        let text = |taint: &Value| {
            let key = taint["key"].as_str().unwrap().rsplit('/').next().unwrap().to_string();
            format!("{key}:{}", taint["effect"].as_str().unwrap())
        };
        taints.unwrap_or_default().iter().map(text).collect()
    }

    fn with(name: &str, ready: &str) -> Value {
        let mut node = node(name);
        node["status"]["conditions"][0]["status"] = ready.into();
        node
    }

    fn plan(objects: &[Value]) -> Plan {
        decide(&view(objects), &Key::new("", "a"), at(1000))
    }

    #[test]
    fn a_silent_node_is_unknown_after_its_grace_and_its_pods_are_not_ready() {
        let mut view = view(&[node("a"), node("b"), pod("p", "a"), pod("q", "b")]);
        view.fall_silent("a", at(100));
        let waits = decide(&view, &Key::new("", "a"), at(149));
        assert_eq!((waits.actions.len(), waits.recheck_at), (0, Some(at(150))));
        let given_up = decide(&view, &Key::new("", "a"), at(150));
        let ready = set_status(&given_up)["conditions"][0].clone();
        assert_eq!(
            (&ready["status"], &ready["reason"], &ready["message"]),
            (&json!("Unknown"), &json!(UNKNOWN), &json!("Kubelet stopped posting node status."))
        );
        let pods: Vec<&str> = given_up
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Patch { target, .. } if target.resource == Resource::Pods => {
                    Some(target.name.as_str())
                }
                _ => None,
            })
            .collect();
        assert_eq!(pods, ["p"]);
        let reasons: Vec<&str> = given_up.notes.iter().map(|note| note.reason).collect();
        assert_eq!(reasons, ["NodeNotReady", "NodeNotReady"]);
    }

    #[test]
    fn taints_follow_readiness_pressure_and_cordons() {
        let cordoned = |mut node: Value| {
            node["spec"]["unschedulable"] = true.into();
            node
        };
        let cases: [(&str, Value, &[&str]); 4] = [
            ("unknown", with("a", "Unknown"), &["unreachable:NoSchedule", "unreachable:NoExecute"]),
            ("not ready", with("a", "False"), &["not-ready:NoSchedule", "not-ready:NoExecute"]),
            ("cordoned", cordoned(node("a")), &["unschedulable:NoSchedule"]),
            ("ready", node("a"), &[]),
        ];
        for (rule, node_a, want) in cases {
            assert_eq!(tainted(&plan(&[node_a, node("b")])), want, "{rule}");
        }
    }

    #[test]
    fn taints_go_when_their_cause_does_and_those_of_others_stay() {
        let mut back = node("a");
        back["spec"]["taints"] = json!([
            {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"},
            {"key": "mine", "effect": "NoExecute"}, {"key": UNSCHEDULABLE, "effect": "NoSchedule"},
        ]);
        assert_eq!(tainted(&plan(&[back])), ["mine:NoExecute"]);
        let mut worse = with("a", "Unknown");
        worse["spec"]["taints"] =
            json!([{"key": NOT_READY, "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}]);
        assert_eq!(tainted(&plan(&[worse, node("b")])), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    }

    #[test]
    fn when_most_nodes_seem_lost_nobody_is_driven_off() {
        let lost =
            |names: &[&str]| -> Vec<Value> { names.iter().map(|name| with(name, "Unknown")).collect() };
        assert_eq!(tainted(&plan(&lost(&["a", "b"]))), ["unreachable:NoSchedule"], "none is left");
        let mut most = lost(&["a", "b", "c"]);
        most.extend([node("d"), node("e")]);
        assert_eq!(tainted(&plan(&most)), ["unreachable:NoSchedule"], "three of five");
        let mut some = lost(&["a", "b"]);
        some.push(node("d"));
        assert_eq!(tainted(&plan(&some)).len(), 2, "two of three are few");
    }
}
