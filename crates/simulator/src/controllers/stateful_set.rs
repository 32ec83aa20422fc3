//! StatefulSets: pods with names and an order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::revisions::{LABEL, Templated, template_of};
use super::{adoption, is_available, owned_by, pod_from};
use crate::plan::{Action, Plan};
use crate::status;
use crate::view::{Amount, Pod, Resource, StatefulSet, View};
use embedded_apiserver::Key;

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.stateful_sets.get(key) else { return plan };
    let wanted = set.spec.replicas.unwrap_or(1).max(0);
    let first = set.spec.ordinals.start;
    let template = Templated {
        kind: "StatefulSet",
        meta: &set.metadata,
        template: &set.spec.template,
        collisions: set.status["collisionCount"].as_i64().unwrap_or_default(),
    };
    let update = template.settle(view, &mut plan);
    let known = set.status["currentRevision"].as_str().unwrap_or_default();
    let current =
        template_of(view, &set.metadata.namespace, known).map(|template| (known.to_string(), template));
    let mut state = State {
        view,
        set,
        current: current.unwrap_or_else(|| (update.name.clone(), set.spec.template.clone())),
        update: (update.name.clone(), set.spec.template.clone()),
        collisions: update.collisions,
        slots: (first..first + wanted).map(|ordinal| (ordinal, None)).collect(),
        condemned: BTreeMap::new(),
        healthy: BTreeMap::new(),
        available: 0,
    };
    let claimant = adoption::Set::of_apps("StatefulSet", &set.metadata, &set.spec.selector);
    for pod in adoption::claim(view, &claimant, |pod| ordinal_of(set, pod).is_some(), &mut plan) {
        let Some(ordinal) = ordinal_of(set, pod) else { continue };
        let available = is_available(pod, set.spec.min_ready_seconds, now, |at| plan.recheck(at));
        let available = available && pod.status.phase == "Running";
        state.available += usize::from(available);
        state.healthy.insert(ordinal, available && !pod.is_deleting());
        match state.slots.get_mut(&ordinal) {
            Some(slot) => *slot = Some(pod),
            None => _ = state.condemned.insert(ordinal, pod),
        }
    }
    state.report(&mut plan);
    if !set.is_deleting() {
        state.act(&mut plan);
    }
    let mut used: BTreeSet<&str> = state.there().filter_map(|(_, pod)| revision_of(pod)).collect();
    used.extend([state.current.0.as_str(), state.update.0.as_str()]);
    template.prune(view, &used, set.spec.revision_history_limit, &mut plan);
    plan
}

fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    pod.metadata.name.strip_prefix(&set.metadata.name)?.strip_prefix('-')?.parse().ok()
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.get(LABEL).map(String::as_str)
}

struct State<'a> {
    view: &'a View,
    set: &'a StatefulSet,
    /// The template that the set comes from and the one that it goes to, by name.
    current: (String, Value),
    update: (String, Value),
    collisions: i64,
    /// Who is there and who should be, by ordinal.
    slots: BTreeMap<i64, Option<&'a Arc<Pod>>>,
    /// Who should not be there.
    condemned: BTreeMap<i64, &'a Arc<Pod>>,
    healthy: BTreeMap<i64, bool>,
    /// Pods that serve, those that are on their way out included.
    available: usize,
}

impl<'a> State<'a> {
    fn ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    fn is_healthy(&self, ordinal: i64) -> bool {
        self.healthy.get(&ordinal).copied().unwrap_or_default()
    }

    fn there(&self) -> impl Iterator<Item = (i64, &'a Arc<Pod>)> {
        let slots = self.slots.iter().filter_map(|(ordinal, pod)| Some((*ordinal, (*pod)?)));
        slots.chain(self.condemned.iter().map(|(ordinal, pod)| (*ordinal, *pod)))
    }

    fn is_old(&self, pod: &Pod) -> bool {
        revision_of(pod) != Some(&self.update.0)
    }

    fn act(&self, plan: &mut Plan) {
        if self.fill(plan) && self.shrink(plan) {
            self.update(plan);
        }
    }

    /// From the first to the last; in order, each waits for the one before. True if all may go on.
    fn fill(&self, plan: &mut Plan) -> bool {
        for (ordinal, slot) in &self.slots {
            let waits = match slot {
                None => {
                    self.create(*ordinal, plan);
                    true
                }
                Some(pod) if pod.is_deleting() => true,
                Some(pod) if pod.is_terminal() => {
                    plan.act(Action::delete(Resource::Pods, &pod.metadata));
                    true
                }
                Some(_) => !self.is_healthy(*ordinal),
            };
            if waits && self.ordered() {
                return false;
            }
        }
        true
    }

    /// From the last to the first. In order, a pod goes when all before it are healthy or it is the only one that is not.
    fn shrink(&self, plan: &mut Plan) -> bool {
        let first_unhealthy = self.condemned.keys().find(|ordinal| !self.is_healthy(**ordinal));
        for (ordinal, pod) in self.condemned.iter().rev() {
            if pod.is_deleting() {
                if self.ordered() {
                    return false;
                }
                continue;
            }
            if self.ordered() && !self.is_healthy(*ordinal) && first_unhealthy != Some(ordinal) {
                return false;
            }
            if self.set.spec.claim_retention.when_scaled == "Delete" {
                self.tie_claims(*ordinal, pod, plan);
            }
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
            if self.ordered() {
                return false;
            }
        }
        true
    }

    /// Claims of a pod that is not to come back go with it.
    fn tie_claims(&self, ordinal: i64, pod: &Pod, plan: &mut Plan) {
        let owner =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}]);
        for template in &self.set.spec.volume_claim_templates {
            let key = Key::new(&self.set.metadata.namespace, &self.claim_name(template, ordinal));
            if let Some(claim) = self.view.claims.get(&key).filter(|claim| !claim.is_deleting()) {
                let patch = json!({"metadata": {"ownerReferences": owner}});
                plan.act(Action::patch(Resource::Claims, &claim.metadata, patch));
            }
        }
    }

    fn claim_name(&self, template: &Value, ordinal: i64) -> String {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default();
        format!("{volume}-{}-{ordinal}", self.set.metadata.name)
    }

    /// From the last to the partition, as many at a time as may be unavailable.
    fn update(&self, plan: &mut Plan) {
        let strategy = &self.set.spec.update_strategy;
        if strategy.kind == "OnDelete" {
            return;
        }
        let most = strategy.rolling_update.max_unavailable.as_ref().unwrap_or(&Amount::Number(1));
        let most = most.of(self.slots.len() as i64, false).max(1);
        let unavailable = self.slots.keys().filter(|ordinal| !self.is_healthy(**ordinal)).count() as i64;
        let mut left = most - unavailable;
        let partition = usize::try_from(strategy.rolling_update.partition).unwrap_or_default();
        let outdated = self.slots.iter().skip(partition).rev().filter_map(|(ordinal, slot)| {
            slot.filter(|pod| self.is_old(pod) && !pod.is_deleting())
                .map(|pod| (self.is_healthy(*ordinal), pod))
        });
        // What does not serve anyway goes at once, where no order is kept.
        let (serving, broken): (Vec<_>, Vec<_>) =
            outdated.partition(|(healthy, _)| *healthy || self.ordered());
        for (_, pod) in broken {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
        for (_, pod) in serving {
            if left <= 0 {
                return;
            }
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
            left -= 1;
        }
    }

    fn create(&self, ordinal: i64, plan: &mut Plan) {
        let meta = &self.set.metadata;
        let name = format!("{}-{ordinal}", meta.name);
        let strategy = &self.set.spec.update_strategy;
        // Below the partition, a pod that has gone comes back as it was.
        let held = strategy.kind != "OnDelete"
            && ordinal < self.set.spec.ordinals.start + strategy.rolling_update.partition;
        let (revision, template) = if held { &self.current } else { &self.update };
        let mut pod = pod_from(template, meta, owned_by("apps/v1", "StatefulSet", meta));
        if let Some(fields) = pod["metadata"].as_object_mut() {
            fields.remove("generateName");
        }
        pod["metadata"]["name"] = name.clone().into();
        pod["metadata"]["labels"][LABEL] = revision.clone().into();
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.clone().into();
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        pod["spec"]["hostname"] = name.into();
        if !self.set.spec.service_name.is_empty() {
            pod["spec"]["subdomain"] = self.set.spec.service_name.clone().into();
        }
        for claim in &self.set.spec.volume_claim_templates {
            let volume = claim["metadata"]["name"].as_str().unwrap_or_default();
            let claimed = self.claim_name(claim, ordinal);
            let mount = json!({"name": volume, "persistentVolumeClaim": {"claimName": claimed}});
            match &mut pod["spec"]["volumes"] {
                Value::Array(volumes) => {
                    volumes.retain(|known| known["name"] != volume);
                    volumes.push(mount);
                }
                other => *other = json!([mount]),
            }
            let mut object = claim.clone();
            object["metadata"]["name"] = claimed.into();
            for (label, value) in self.set.spec.selector["matchLabels"].as_object().into_iter().flatten() {
                object["metadata"]["labels"][label] = value.clone();
            }
            if self.set.spec.claim_retention.when_deleted == "Delete" {
                object["metadata"]["ownerReferences"] = owned_by("apps/v1", "StatefulSet", meta);
            }
            plan.act(Action::Ensure {
                resource: Resource::Claims,
                namespace: meta.namespace.clone(),
                object,
            });
        }
        plan.act(Action::create(Resource::Pods, &meta.namespace, pod));
    }

    fn report(&self, plan: &mut Plan) {
        let there: Vec<(i64, &Arc<Pod>)> = self.there().collect();
        let of = |revision: &str| {
            there.iter().filter(|(_, pod)| revision_of(pod) == Some(revision) && !pod.is_deleting()).count()
        };
        let ready = there.iter().filter(|(_, pod)| pod.is_ready() && pod.status.phase == "Running").count();
        let update = &self.update.0;
        let done = self.set.spec.update_strategy.kind != "OnDelete"
            && of(update) == there.len()
            && ready == there.len()
            && there.len() == self.slots.len();
        let current = if done { update } else { &self.current.0 };
        let wanted = json!({
            "observedGeneration": self.set.metadata.generation, "replicas": there.len(), "readyReplicas": ready,
            "availableReplicas": self.available, "currentReplicas": of(current), "updatedReplicas": of(update),
            "currentRevision": current, "updateRevision": update, "collisionCount": self.collisions,
        });
        if let Some(new) = status::difference(&self.set.status, wanted) {
            plan.act(Action::status(Resource::StatefulSets, &self.set.metadata, new));
        }
    }
}

#[cfg(test)]
mod tests;
