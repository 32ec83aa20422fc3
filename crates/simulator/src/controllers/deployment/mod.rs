//! Deployments: a replica set per template, and the way from the old one to the new one.

mod progress;
mod scaling;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{hash_of, owned_by};
use crate::plan::{About, Action, Note, Plan};
use crate::view::{Amount, Deployment, ReplicaSet, Resource, View};
use embedded_apiserver::Key;

pub(crate) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(crate) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(deployment) = view.deployments.get(key) else { return plan };
    let rollout = Rollout::of(view, deployment);
    // What is decided builds on this version of the deployment; the status, written first, would make it another one.
    if !deployment.is_deleting() {
        rollout.act(view, &mut plan);
    }
    rollout.report(now, &mut plan);
    plan
}

struct Rollout<'a> {
    deployment: &'a Deployment,
    hash: String,
    /// How often the name of a new set was taken by another one.
    collisions: i64,
    new: Option<&'a Arc<ReplicaSet>>,
    /// Oldest first.
    old: Vec<&'a Arc<ReplicaSet>>,
    desired: i64,
    surge: i64,
    unavailable: i64,
}

fn count(set: &ReplicaSet, field: &str) -> i64 {
    set.status[field].as_i64().unwrap_or_default()
}

fn revision(set: &ReplicaSet) -> i64 {
    set.metadata.annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Whether the template of a set is that of the deployment, but for the label that the set was given.
fn is_of(set: &Value, deployment: &Value) -> bool {
    let mut set = set.clone();
    if let Some(labels) = set["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    set == *deployment
}

impl<'a> Rollout<'a> {
    fn of(view: &'a View, deployment: &'a Deployment) -> Self {
        let collisions = deployment.status["collisionCount"].as_i64().unwrap_or_default();
        let hash = match collisions {
            0 => hash_of(&deployment.spec.template),
            _ => hash_of(&json!([deployment.spec.template, collisions])),
        };
        let mut sets = view.replica_sets_of(&deployment.metadata.uid);
        sets.retain(|set| !set.is_deleting());
        sets.sort_by_key(|set| (set.metadata.created(), set.metadata.name.clone()));
        let is_new = |set: &&Arc<ReplicaSet>| {
            set.metadata.labels.get(HASH) == Some(&hash)
                || is_of(&set.spec.template, &deployment.spec.template)
        };
        // The oldest, if there are several: all controllers agree on that one.
        let new = sets.iter().copied().find(is_new);
        let uid = new.map(|new| &new.metadata.uid);
        let old = sets.into_iter().filter(|set| Some(&set.metadata.uid) != uid).collect();
        let desired = deployment.spec.replicas.unwrap_or(1);
        let rolling = &deployment.spec.strategy.rolling_update;
        let quarter = Amount::Share("25%".into());
        let surge = rolling.max_surge.as_ref().unwrap_or(&quarter).of(desired, true);
        let unavailable = rolling.max_unavailable.as_ref().unwrap_or(&quarter).of(desired, false);
        let (surge, unavailable) = match deployment.spec.strategy.kind.as_str() {
            "Recreate" => (0, 0),
            // Both zero would never move.
            _ if surge == 0 && unavailable == 0 => (0, 1),
            _ => (surge, unavailable.min(desired)),
        };
        Self { deployment, hash, collisions, new, old, desired, surge, unavailable }
    }

    fn recreates(&self) -> bool {
        self.deployment.spec.strategy.kind == "Recreate"
    }

    fn all(&self) -> impl Iterator<Item = &'a Arc<ReplicaSet>> {
        self.old.iter().copied().chain(self.new)
    }

    fn total(&self) -> i64 {
        self.all().map(|set| set.replicas()).sum()
    }

    fn available(&self) -> i64 {
        self.all().map(|set| count(set, "availableReplicas")).sum()
    }

    fn act(&self, view: &View, plan: &mut Plan) {
        // A paused deployment can still be scaled, but takes on no new template.
        if self.deployment.spec.paused || self.is_being_scaled() {
            self.rescale(plan);
            self.forget_history(plan);
            return;
        }
        let next = 1 + self.old.iter().map(|set| revision(set)).max().unwrap_or_default();
        if self.recreates() {
            for set in &self.old {
                self.scale(set, 0, plan);
            }
            if self.old_pods_are_there(view) {
                return;
            }
        }
        let Some(new) = self.new else {
            if self.name_is_taken(view) {
                let status = json!({"collisionCount": self.collisions + 1});
                plan.act(Action::status(Resource::Deployments, &self.deployment.metadata, status));
                return;
            }
            let replicas = if self.recreates() { self.desired } else { self.room_for_new(0) };
            plan.act(self.create(next, replicas));
            self.note_scaling(&self.new_name(), 0, replicas, plan);
            self.note_revision(next, plan);
            return;
        };
        let revision = revision(new).max(next);
        self.note_revision(revision, plan);
        let replicas = match new.replicas() {
            have if have >= self.desired => self.desired,
            _ if self.recreates() => self.desired,
            have => have + self.room_for_new(have),
        };
        let before = plan.actions.len();
        self.adjust(new, replicas, revision, plan);
        // As the real controller, one step at a time: what grew is counted before anything shrinks.
        if plan.actions.len() == before && !self.recreates() {
            self.shrink_old(new, plan);
        }
        self.forget_history(plan);
    }

    fn new_name(&self) -> String {
        format!("{}-{}", self.deployment.metadata.name, self.hash)
    }

    fn name_is_taken(&self, view: &View) -> bool {
        view.replica_sets.get(&Key::new(&self.deployment.metadata.namespace, &self.new_name())).is_some()
    }

    fn note_scaling(&self, set: &str, from: i64, to: i64, plan: &mut Plan) {
        if from != to {
            let way = if from < to { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {set} from {from} to {to}");
            let about = About::of(Resource::Deployments, &self.deployment.metadata);
            plan.note(Note::normal(about, "ScalingReplicaSet", message));
        }
    }

    /// How many pods the new set may grow by.
    fn room_for_new(&self, have: i64) -> i64 {
        let most = self.desired + self.surge;
        (most - self.total()).clamp(0, (self.desired - have).max(0))
    }

    fn old_pods_are_there(&self, view: &View) -> bool {
        self.old.iter().any(|set| view.pods_of(&set.metadata.uid).iter().any(|pod| !pod.is_terminal()))
    }

    /// Old sets give up what is not available first, then as much as availability allows.
    fn shrink_old(&self, new: &ReplicaSet, plan: &mut Plan) {
        let least = self.desired - self.unavailable;
        let new_missing = new.replicas() - count(new, "availableReplicas");
        let mut may_go = self.total() - least - new_missing;
        let mut left: Vec<i64> = self.old.iter().map(|set| set.replicas()).collect();
        for (set, left) in self.old.iter().zip(&mut left) {
            let broken = (set.replicas() - count(set, "availableReplicas")).clamp(0, may_go.max(0));
            *left -= broken;
            may_go -= broken;
        }
        let mut spare = (self.available() - least).min(may_go).max(0);
        for left in &mut left {
            let going = spare.min(*left);
            *left -= going;
            spare -= going;
        }
        for (set, left) in self.old.iter().zip(left) {
            self.scale(set, left, plan);
        }
    }

    fn scale(&self, set: &ReplicaSet, replicas: i64, plan: &mut Plan) {
        if set.replicas() != replicas {
            self.note_scaling(&set.metadata.name, set.replicas(), replicas, plan);
            plan.act(Action::patch(
                Resource::ReplicaSets,
                &set.metadata,
                json!({
                    "metadata": {"annotations": self.size_annotations()}, "spec": {"replicas": replicas},
                }),
            ));
        }
    }

    /// The new set: its size, its revision after a rollback, and what else follows the deployment.
    fn adjust(&self, new: &ReplicaSet, replicas: i64, number: i64, plan: &mut Plan) {
        let min_ready = self.deployment.spec.min_ready_seconds;
        if new.replicas() == replicas && revision(new) == number && new.spec.min_ready_seconds == min_ready {
            return;
        }
        self.note_scaling(&new.metadata.name, new.replicas(), replicas, plan);
        let mut annotations = self.size_annotations();
        annotations[REVISION] = number.to_string().into();
        plan.act(Action::patch(
            Resource::ReplicaSets,
            &new.metadata,
            json!({
                "metadata": {"annotations": annotations},
                "spec": {"replicas": replicas, "minReadySeconds": min_ready},
            }),
        ));
    }

    fn size_annotations(&self) -> Value {
        json!({DESIRED: self.desired.to_string(), MAXIMUM: (self.desired + self.surge).to_string()})
    }

    fn note_revision(&self, number: i64, plan: &mut Plan) {
        let number = number.to_string();
        if self.deployment.metadata.annotations.get(REVISION) != Some(&number) {
            let patch = json!({"metadata": {"annotations": {REVISION: number}}});
            plan.act(Action::patch(Resource::Deployments, &self.deployment.metadata, patch));
        }
    }

    fn create(&self, number: i64, replicas: i64) -> Action {
        let (meta, spec) = (&self.deployment.metadata, &self.deployment.spec);
        let mut template = spec.template.clone();
        template["metadata"]["labels"][HASH] = self.hash.clone().into();
        let mut selector = spec.selector.clone();
        selector["matchLabels"][HASH] = self.hash.clone().into();
        let mut annotations = self.size_annotations();
        annotations[REVISION] = number.to_string().into();
        Action::create(
            Resource::ReplicaSets,
            &meta.namespace,
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {
                    "name": self.new_name(), "labels": template["metadata"]["labels"],
                    "annotations": annotations, "ownerReferences": owned_by("apps/v1", "Deployment", meta),
                },
                "spec": {
                    "replicas": replicas, "minReadySeconds": spec.min_ready_seconds, "selector": selector,
                    "template": template,
                },
            }),
        )
    }

    /// Old sets without pods are kept for rollbacks, but only so many.
    fn forget_history(&self, plan: &mut Plan) {
        if !self.is_complete() {
            return;
        }
        let keep =
            usize::try_from(self.deployment.spec.revision_history_limit.unwrap_or(10)).unwrap_or_default();
        let mut empty: Vec<&&Arc<ReplicaSet>> =
            self.old.iter().filter(|set| set.replicas() == 0 && count(set, "replicas") == 0).collect();
        empty.sort_by_key(|set| revision(set));
        let excess = empty.len().saturating_sub(keep);
        for set in empty.into_iter().take(excess) {
            plan.act(Action::delete(Resource::ReplicaSets, &set.metadata));
        }
    }

    fn updated(&self) -> i64 {
        self.new.map_or(0, |new| count(new, "replicas"))
    }

    fn is_complete(&self) -> bool {
        let all: i64 = self.all().map(|set| count(set, "replicas")).sum();
        self.updated() == self.desired && all == self.desired && self.available() >= self.desired
    }
}

#[cfg(test)]
mod tests;
