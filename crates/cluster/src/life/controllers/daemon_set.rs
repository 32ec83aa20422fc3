//! DaemonSets: one pod on each node that may have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{BURST, hash_of, is_available, owned_by, pod_from};
use crate::life::plan::{Action, Plan};
use crate::life::scheduler::{matches_selectors, tolerates};
use crate::life::status;
use crate::life::view::{Amount, DaemonSet, Node, Pod, PodSpec, Resource, Taint, Toleration, View};
use crate::store::Key;

const REVISION: &str = "controller-revision-hash";

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

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.daemon_sets.get(key) else { return plan };
    let Ok(spec) = PodSpec::deserialize(&set.spec.template["spec"]) else { return plan };
    let placement = Placement { tolerations: tolerations(&spec), spec };
    let mut state =
        State { set, revision: hash_of(&set.spec.template), on: BTreeMap::new(), stray: Vec::new() };
    for (_, node) in view.nodes.iter() {
        let (runs, stays) = placement.on(node);
        state.on.insert(node.metadata.name.clone(), Place { runs, stays, pods: Vec::new() });
    }
    for pod in view.pods_of(&set.metadata.uid) {
        match target_of(pod).and_then(|node| state.on.get_mut(node)) {
            Some(place) => place.pods.push(pod),
            None => state.stray.push(pod),
        }
    }
    if !set.is_deleting() {
        state.act(&placement, now, &mut plan);
    }
    state.report(now, &mut plan);
    plan
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

struct Place<'a> {
    runs: bool,
    stays: bool,
    pods: Vec<&'a Arc<Pod>>,
}

struct State<'a> {
    set: &'a DaemonSet,
    revision: String,
    on: BTreeMap<String, Place<'a>>,
    /// Pods of nodes that are gone.
    stray: Vec<&'a Arc<Pod>>,
}

impl State<'_> {
    fn is_current(&self, pod: &Pod) -> bool {
        pod.metadata.labels.get(REVISION) == Some(&self.revision)
    }

    fn act(&self, placement: &Placement, now: Timestamp, plan: &mut Plan) {
        for pod in self.stray.iter().filter(|pod| !pod.is_deleting()) {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
        for (node, place) in &self.on {
            if plan.actions.len() >= BURST {
                return;
            }
            let mut pods: Vec<&&Arc<Pod>> = place.pods.iter().filter(|pod| !pod.is_deleting()).collect();
            // The oldest stays, one that runs before one that waits.
            pods.sort_by_key(|pod| {
                (pod.spec.node_name.is_empty(), pod.metadata.created(), pod.metadata.name.clone())
            });
            let keep = usize::from(place.stays);
            let ended = pods.iter().filter(|pod| place.stays && pod.is_terminal());
            let excess = pods.iter().filter(|pod| !place.stays || !pod.is_terminal()).skip(keep);
            for pod in ended.chain(excess) {
                plan.act(Action::delete(Resource::Pods, &pod.metadata));
            }
            if place.runs && place.pods.is_empty() {
                plan.act(self.create(node, placement));
            }
        }
        if self.set.spec.update_strategy.kind != "OnDelete" {
            self.update(now, plan);
        }
    }

    /// Old pods go, those that are not available first, and never more at once than may be unavailable.
    fn update(&self, now: Timestamp, plan: &mut Plan) {
        let desired = self.on.values().filter(|place| place.runs).count() as i64;
        let most = self.set.spec.update_strategy.rolling_update.max_unavailable.as_ref();
        let most = most.unwrap_or(&Amount::Number(1)).of(desired, true).max(1);
        let mut unavailable = 0;
        let mut candidates = Vec::new();
        for place in self.on.values().filter(|place| place.runs) {
            let mut recheck = None;
            let serving = place.pods.iter().find(|pod| {
                pod.is_active()
                    && is_available(pod, self.set.spec.min_ready_seconds, now, |at| recheck = Some(at))
            });
            recheck.into_iter().for_each(|at| plan.recheck(at));
            unavailable += i64::from(serving.is_none());
            for pod in place.pods.iter().filter(|pod| pod.is_active() && !self.is_current(pod)) {
                match serving {
                    Some(_) => candidates.push(pod),
                    None => plan.act(Action::delete(Resource::Pods, &pod.metadata)),
                }
            }
        }
        let room = usize::try_from(most - unavailable).unwrap_or_default();
        for pod in candidates.into_iter().take(room) {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
    }

    /// A pod for one node: the scheduler places it, but has no choice.
    fn create(&self, node: &str, placement: &Placement) -> Action {
        let meta = &self.set.metadata;
        let mut pod = pod_from(&self.set.spec.template, meta, owned_by("apps/v1", "DaemonSet", meta));
        pod["metadata"]["labels"][REVISION] = self.revision.clone().into();
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
                wrong += i64::from(!pods.is_empty() && !place.stays);
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
            "numberUnavailable": desired - available,
        });
        if let Some(new) = status::difference(&self.set.status, wanted) {
            plan.act(Action::status(Resource::DaemonSets, &self.set.metadata, new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, created, deleted, node, owned_pod, view};
    use serde_json::Value;

    fn set() -> Value {
        json!({
            "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default", "uid": "set", "generation": 1},
            "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": []}}},
        })
    }

    fn pod(name: &str, node: &str) -> Value {
        let mut pod = owned_pod(name, "DaemonSet", "agent", "set");
        pod["spec"]["nodeName"] = node.into();
        pod["metadata"]["labels"][REVISION] = hash_of(&set()["spec"]["template"]).into();
        pod
    }

    fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut node = node(name);
        change(&mut node);
        node
    }

    fn plan(objects: &[Value]) -> Plan {
        decide(&view(objects), &Key::new("default", "agent"), at(100))
    }

    /// The nodes that pods are made for.
    fn made_for(plan: &Plan) -> Vec<&str> {
        let terms =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let name = |pod: &&Value| -> &'static str {
            let value = pod.pointer(&format!("{terms}/0/matchFields/0/values/0")).unwrap();
            Box::leak(value.as_str().unwrap().to_string().into_boxed_str())
        };
        created(plan).iter().map(name).collect()
    }

    #[test]
    fn every_node_that_may_have_one_gets_one_cordoned_or_not() {
        let cordoned = changed("b", |node| {
            node["spec"] = json!({"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ]});
        });
        let closed =
            changed("c", |node| node["spec"]["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]));
        assert_eq!(made_for(&plan(&[set(), node("a"), cordoned.clone(), closed.clone()])), ["a", "b"]);
        let mut tolerant = set();
        tolerant["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        assert_eq!(made_for(&plan(&[tolerant, node("a"), cordoned, closed])), ["a", "b", "c"]);
    }

    #[test]
    fn a_taint_drives_pods_off_only_if_it_says_no_execute() {
        let with = |effect: &str| {
            changed("a", |node| node["spec"]["taints"] = json!([{"key": "mine", "effect": effect}]))
        };
        assert_eq!(deleted(&plan(&[set(), with("NoSchedule"), pod("p", "a")])).len(), 0);
        assert_eq!(deleted(&plan(&[set(), with("NoExecute"), pod("p", "a")])), ["p"]);
    }

    #[test]
    fn failed_doubled_and_stray_pods_go() {
        let mut failed = pod("failed", "a");
        failed["status"]["phase"] = "Failed".into();
        assert_eq!(deleted(&plan(&[set(), node("a"), failed])), ["failed"]);
        let mut second = pod("second", "a");
        second["metadata"]["creationTimestamp"] = "1970-01-01T00:00:05Z".into();
        assert_eq!(deleted(&plan(&[set(), node("a"), pod("first", "a"), second])), ["second"]);
        assert_eq!(deleted(&plan(&[set(), pod("p", "gone")])), ["p"]);
    }

    #[test]
    fn an_update_takes_as_many_as_may_be_unavailable() {
        let old = |name: &str, node: &str| {
            let mut pod = pod(name, node);
            pod["metadata"]["labels"][REVISION] = "old".into();
            pod
        };
        let nodes = [node("a"), node("b"), node("c")];
        let with = |pods: [Value; 3]| {
            let objects: Vec<Value> = std::iter::once(set()).chain(nodes.clone()).chain(pods).collect();
            deleted(&plan(&objects)).join(" ")
        };
        assert_eq!(with([old("a", "a"), old("b", "b"), old("c", "c")]), "a");
        let mut starting = pod("a", "a");
        starting["status"]["conditions"][0]["status"] = "False".into();
        assert_eq!(with([starting, old("b", "b"), old("c", "c")]), "", "the new one is not available yet");
        let mut broken = old("b", "b");
        broken["status"]["conditions"][0]["status"] = "False".into();
        assert_eq!(with([old("a", "a"), broken, old("c", "c")]), "b", "what does not serve goes first");
    }
}
