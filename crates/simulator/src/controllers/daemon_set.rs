//! DaemonSets: one pod on each node that may have it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::revisions::{LABEL, Named, Templated};
use super::{BURST, adoption, is_available, owned_by, pod_from};
use crate::plan::{About, Action, Note, Plan};
use crate::scheduler::{matches_selectors, tolerates};
use crate::status;
use crate::view::{Amount, DaemonSet, Node, Pod, PodSpec, Resource, Taint, Toleration, View};
use embedded_apiserver::Key;

/// What every daemon pod puts up with, beside its own tolerations: keys and effects.
const PUTS_UP_WITH: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.daemon_sets.get(key) else { return plan };
    let Ok(spec) = PodSpec::deserialize(&set.spec.template["spec"]) else { return plan };
    let placement = Placement { tolerations: tolerations(&spec), spec };
    let template = Templated {
        kind: "DaemonSet",
        meta: &set.metadata,
        template: &set.spec.template,
        collisions: set.status["collisionCount"].as_i64().unwrap_or_default(),
    };
    let revision = template.settle(view, &mut plan);
    let mut state =
        State { view, set, revision, on: BTreeMap::new(), stray: Vec::new(), desired: 0, surge: 0 };
    for (_, node) in view.nodes.iter() {
        let (runs, stays) = placement.on(node);
        state.on.insert(node.metadata.name.clone(), DaemonNode { runs, stays, pods: Vec::new() });
        state.desired += i64::from(runs);
    }
    state.surge = surge(set, state.desired);
    let claimant = adoption::Set::of_apps("DaemonSet", &set.metadata, &set.spec.selector);
    let pods = adoption::claim(view, &claimant, |_| true, &mut plan);
    for pod in &pods {
        match target_of(pod).and_then(|node| state.on.get_mut(node)) {
            Some(place) => place.pods.push(pod),
            None => state.stray.push(pod),
        }
    }
    state.report(now, &mut plan);
    if !set.is_deleting() {
        let before = plan.actions.len();
        state.manage(&placement, now, &mut plan);
        // As the real controller: what was made or deleted is seen before an update goes on.
        if plan.actions.len() == before && set.spec.update_strategy.kind != "OnDelete" {
            state.update(&placement, now, &mut plan);
        }
        let mut used: BTreeSet<&str> = pods.iter().filter_map(|pod| revision_of(pod)).collect();
        used.insert(&state.revision.name);
        template.prune(view, &used, set.spec.revision_history_limit, &mut plan);
    }
    plan
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.get(LABEL).map(String::as_str)
}

/// The node that a pod is on, or is made for.
fn target_of(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let terms = &pod.spec.affinity.node_affinity.required.as_ref()?.node_selector_terms;
    let field = terms.first()?.match_fields.first()?;
    field.values.first().map(String::as_str)
}

fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let network = spec.host_network.then_some(NETWORK);
    let added = PUTS_UP_WITH.into_iter().chain(network).map(|(key, effect)| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        value: String::new(),
        effect: effect.into(),
        seconds: None,
    });
    spec.tolerations.iter().cloned().chain(added).collect()
}

struct Placement {
    spec: PodSpec,
    tolerations: Vec<Toleration>,
}

impl Placement {
    /// Whether a pod should be made for the node, and whether one that is there may stay.
    fn on(&self, node: &Node) -> (bool, bool) {
        let required = self.spec.affinity.node_affinity.required.as_ref();
        let named = self.spec.node_name.is_empty() || self.spec.node_name == node.metadata.name;
        let fits = named && matches_selectors(&self.spec.node_selector, required, node);
        let closed = |effects: &[&str]| {
            let taints =
                node.spec.taints.iter().filter(|taint: &&Taint| effects.contains(&taint.effect.as_str()));
            taints.into_iter().any(|taint| !tolerates(&self.tolerations, taint))
        };
        (fits && !closed(&["NoSchedule", "NoExecute"]), fits && !closed(&["NoExecute"]))
    }
}

struct DaemonNode<'a> {
    runs: bool,
    stays: bool,
    pods: Vec<&'a Arc<Pod>>,
}

struct State<'a> {
    view: &'a View,
    set: &'a DaemonSet,
    revision: Named,
    on: BTreeMap<String, DaemonNode<'a>>,
    /// Pods of nodes that are gone.
    stray: Vec<&'a Arc<Pod>>,
    /// How many nodes should have a pod.
    desired: i64,
    /// How many of them may have two during an update.
    surge: i64,
}

fn surge(set: &DaemonSet, desired: i64) -> i64 {
    let strategy = &set.spec.update_strategy;
    let surge = strategy.rolling_update.max_surge.as_ref().filter(|_| strategy.kind != "OnDelete");
    surge.map_or(0, |surge| surge.of(desired, true))
}

impl<'a> State<'a> {
    fn is_current(&self, pod: &Pod) -> bool {
        revision_of(pod) == Some(&self.revision.hash)
    }

    fn is_available(&self, pod: &Pod, now: Timestamp, plan: &mut Plan) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, now, |at| plan.recheck(at))
    }

    /// One pod for each node that should have one, and none elsewhere.
    fn manage(&self, placement: &Placement, now: Timestamp, plan: &mut Plan) {
        for pod in self.stray.iter().filter(|pod| !pod.is_deleting()) {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
        let mut needing = Vec::new();
        for (node, place) in &self.on {
            if place.runs && place.pods.is_empty() {
                needing.push(node);
            } else if place.stays {
                let running = self.end_those_that_ended(node, place, now, plan);
                if running.is_empty() && self.surge > 0 && place.runs {
                    needing.push(node);
                }
                self.end_excess(&running, now, plan);
            } else {
                for pod in place.pods.iter().filter(|pod| !pod.is_deleting()) {
                    plan.act(Action::delete(Resource::Pods, &pod.metadata));
                }
            }
        }
        // Last, so that a refusal holds nothing else back.
        for node in needing.into_iter().take(BURST) {
            plan.act(self.create(node, placement));
        }
    }

    /// The pods of a node that run or will, oldest first; those that have ended go, the failed ones not too fast.
    fn end_those_that_ended(
        &self,
        node: &str,
        place: &DaemonNode<'a>,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Vec<&'a Arc<Pod>> {
        let mut running = Vec::new();
        for pod in place.pods.iter().filter(|pod| !pod.is_deleting()) {
            let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
            let about = About::of(Resource::DaemonSets, &self.set.metadata);
            match pod.status.phase.as_str() {
                "Failed" => {
                    let due = self.view.failure_ends(&self.set.metadata.uid, node).unwrap_or(now);
                    if due > now {
                        plan.recheck(due);
                        continue;
                    }
                    let message =
                        format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    plan.note(Note::warning(about, "FailedDaemonPod", message));
                    plan.act(Action::delete(Resource::Pods, &pod.metadata));
                }
                "Succeeded" => {
                    let message =
                        format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                    plan.note(Note::normal(about, "SucceededDaemonPod", message));
                    plan.act(Action::delete(Resource::Pods, &pod.metadata));
                }
                _ => running.push(*pod),
            }
        }
        running.sort_by_key(|pod| {
            (pod.spec.node_name.is_empty(), pod.metadata.created(), pod.metadata.name.clone())
        });
        running
    }

    /// The oldest stays; with surge, the oldest of the new and the oldest of the old until the new one serves.
    fn end_excess(&self, running: &[&Arc<Pod>], now: Timestamp, plan: &mut Plan) {
        if self.surge == 0 {
            for pod in running.iter().skip(1) {
                plan.act(Action::delete(Resource::Pods, &pod.metadata));
            }
            return;
        }
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            running.iter().partition(|pod| self.is_current(pod));
        for pod in new.iter().skip(1).chain(old.iter().skip(1)) {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.is_ready() || self.is_available(new, now, plan))
        {
            plan.act(Action::delete(Resource::Pods, &old.metadata));
        }
    }

    /// Old pods go, those that are not available first, and never more at once than may be unavailable; or new ones
    /// come beside them, as many as the surge allows.
    fn update(&self, placement: &Placement, now: Timestamp, plan: &mut Plan) {
        let surge = self.surge;
        let most = self.set.spec.update_strategy.rolling_update.max_unavailable.as_ref();
        let unavailable = most.unwrap_or(&Amount::Number(1)).of(self.desired, true);
        let room = if surge > 0 { surge } else { unavailable.max(1) };
        let (mut taken, mut at_once, mut candidates) = (0, Vec::new(), Vec::new());
        for (node, place) in &self.on {
            let there: Vec<&Arc<Pod>> = place.pods.iter().copied().filter(|pod| !pod.is_deleting()).collect();
            let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
                there.into_iter().partition(|pod| self.is_current(pod));
            match (new.first(), old.first()) {
                (None, Some(old)) if place.runs || surge == 0 => {
                    if self.is_available(old, now, plan) {
                        candidates.push((node, *old));
                    } else {
                        at_once.push((node, *old));
                        taken += i64::from(surge == 0);
                    }
                }
                (Some(new), old) => {
                    let waits = !self.is_available(new, now, plan) || (surge == 0 && old.is_some());
                    taken += i64::from(waits && (surge == 0 || old.is_some()));
                }
                // Its pod is on its way.
                (None, None) if place.runs || !place.pods.is_empty() => taken += i64::from(surge == 0),
                _ => {}
            }
        }
        let left = usize::try_from(room - taken).unwrap_or_default();
        for (node, pod) in at_once.into_iter().chain(candidates.into_iter().take(left)) {
            plan.act(if surge > 0 {
                self.create(node, placement)
            } else {
                Action::delete(Resource::Pods, &pod.metadata)
            });
        }
    }

    /// A pod for one node: the scheduler places it, but has no choice.
    fn create(&self, node: &str, placement: &Placement) -> Action {
        let meta = &self.set.metadata;
        let mut pod = pod_from(&self.set.spec.template, meta, owned_by("apps/v1", "DaemonSet", meta));
        pod["metadata"]["labels"][LABEL] = self.revision.hash.clone().into();
        let given = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let added = placement.tolerations[placement.spec.tolerations.len()..]
            .iter()
            .map(|added| json!({"key": added.key, "operator": added.operator, "effect": added.effect}))
            .filter(|added| !given.contains(added));
        pod["spec"]["tolerations"] = given.iter().cloned().chain(added).collect();
        // Its terms were checked here; what is left for the scheduler is the name.
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        Action::create(Resource::Pods, &meta.namespace, pod)
    }

    fn report(&self, now: Timestamp, plan: &mut Plan) {
        let (mut desired, mut current, mut wrong, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0, 0);
        for place in self.on.values() {
            let pods: Vec<&&Arc<Pod>> = place.pods.iter().filter(|pod| pod.is_active()).collect();
            if !place.runs {
                wrong += i64::from(!place.pods.is_empty());
                continue;
            }
            desired += 1;
            let Some(pod) = pods.iter().max_by_key(|pod| pod.is_ready()) else { continue };
            current += 1;
            ready += i64::from(pod.is_ready());
            updated += i64::from(self.is_current(pod));
            let min_ready = self.set.spec.min_ready_seconds;
            available += i64::from(is_available(pod, min_ready, now, |at| plan.recheck(at)));
        }
        let wanted = json!({
            "observedGeneration": self.set.metadata.generation, "desiredNumberScheduled": desired,
            "currentNumberScheduled": current, "numberMisscheduled": wrong, "numberReady": ready,
            "updatedNumberScheduled": updated, "numberAvailable": available,
            "numberUnavailable": desired - available, "collisionCount": self.revision.collisions,
        });
        if let Some(new) = status::difference(&self.set.status, wanted) {
            plan.act(Action::status(Resource::DaemonSets, &self.set.metadata, new));
        }
    }
}

#[cfg(test)]
mod tests;
