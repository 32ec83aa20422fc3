//! Deployments: a replica set per template, and the way from the old one to the new one.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{hash_of, owned_by};
use crate::clock::rfc3339;
use crate::life::plan::{Action, Plan};
use crate::life::status;
use crate::life::view::{Amount, Deployment, ReplicaSet, Resource, View};
use crate::store::Key;

pub const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const HASH: &str = "pod-template-hash";

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(deployment) = view.deployments.get(key) else { return plan };
    let rollout = Rollout::of(view, deployment);
    if !deployment.is_deleting() {
        rollout.act(view, &mut plan);
    }
    rollout.report(now, &mut plan);
    plan
}

struct Rollout<'a> {
    deployment: &'a Deployment,
    hash: String,
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

impl<'a> Rollout<'a> {
    fn of(view: &'a View, deployment: &'a Deployment) -> Self {
        let hash = hash_of(&deployment.spec.template);
        let mut sets = view.replica_sets_of(&deployment.metadata.uid);
        sets.retain(|set| !set.is_deleting());
        sets.sort_by_key(|set| (set.metadata.created(), set.metadata.name.clone()));
        let is_new = |set: &&Arc<ReplicaSet>| set.metadata.labels.get(HASH) == Some(&hash);
        let new = sets.iter().copied().find(is_new);
        let old = sets.into_iter().filter(|set| !is_new(set)).collect();
        let desired = deployment.spec.replicas.unwrap_or(1);
        let rolling = &deployment.spec.strategy.rolling_update;
        let quarter = Amount::Share("25%".into());
        let surge = rolling.max_surge.as_ref().unwrap_or(&quarter).of(desired, true);
        let unavailable = rolling.max_unavailable.as_ref().unwrap_or(&quarter).of(desired, false);
        // Both zero would never move.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(desired) };
        Self { deployment, hash, new, old, desired, surge, unavailable }
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
        if self.deployment.spec.paused {
            // A paused deployment can still be scaled, but takes on no new template.
            let mut active = self.all().filter(|set| set.replicas() > 0);
            if let (Some(only), None) = (active.next(), active.next()) {
                self.scale(only, self.desired, plan);
            }
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
            let replicas = if self.recreates() { self.desired } else { self.room_for_new(0) };
            plan.act(self.create(next, replicas));
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
        let most = if self.recreates() { self.desired } else { self.desired + self.surge };
        json!({DESIRED: self.desired.to_string(), MAXIMUM: most.to_string()})
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
                    "name": format!("{}-{}", meta.name, self.hash), "labels": template["metadata"]["labels"],
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

    fn report(&self, now: Timestamp, plan: &mut Plan) {
        let deployment = self.deployment;
        let sum = |field: &str| -> i64 { self.all().map(|set| count(set, field)).sum() };
        let (replicas, available) = (sum("replicas"), self.available());
        let wanted = json!({
            "observedGeneration": deployment.metadata.generation, "replicas": replicas,
            "updatedReplicas": self.updated(), "readyReplicas": sum("readyReplicas"),
            "availableReplicas": available, "unavailableReplicas": (self.total() - available).max(0),
        });
        let mut new = status::difference(&deployment.status, wanted);
        let enough =
            available >= self.desired - if self.recreates() { self.desired } else { self.unavailable };
        let says = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let available = status::condition(&deployment.status, "Available", says, now);
        let progressing = self.progress(new.is_some(), now, plan);
        let mut conditions: Vec<Value> = available.into_iter().chain(progressing).collect();
        for condition in &mut conditions {
            condition["lastUpdateTime"] = rfc3339(now).into();
        }
        if !conditions.is_empty() {
            new.get_or_insert_with(|| json!({}))["conditions"] = conditions.into();
        }
        if let Some(new) = new {
            plan.act(Action::status(Resource::Deployments, &deployment.metadata, new));
        }
    }

    /// The condition `Progressing`; a rollout that has not moved for too long says so.
    fn progress(&self, moved: bool, now: Timestamp, plan: &mut Plan) -> Option<Value> {
        let name = format!("{}-{}", self.deployment.metadata.name, self.hash);
        let current = &self.deployment.status;
        let known = current["conditions"]
            .as_array()
            .and_then(|list| list.iter().find(|c| c["type"] == "Progressing"));
        if self.is_complete() {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            return status::condition(
                current,
                "Progressing",
                ("True", "NewReplicaSetAvailable", &message),
                now,
            );
        }
        if self.deployment.spec.paused {
            return status::condition(
                current,
                "Progressing",
                ("Unknown", "DeploymentPaused", "Deployment is paused"),
                now,
            );
        }
        let limit = SignedDuration::from_secs(self.deployment.spec.progress_deadline_seconds.unwrap_or(600));
        let last: Option<Timestamp> = known.and_then(|c| c["lastUpdateTime"].as_str()?.parse().ok());
        let was_done = known.is_some_and(|c| c["reason"] == "NewReplicaSetAvailable");
        match last {
            Some(last) if !moved && !was_done => {
                let deadline = last + limit;
                if deadline <= now {
                    let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
                    let says = ("False", "ProgressDeadlineExceeded", message.as_str());
                    return status::condition(current, "Progressing", says, now);
                }
                plan.recheck(deadline);
                None
            }
            _ => {
                plan.recheck(now + limit);
                let message = format!("ReplicaSet \"{name}\" is progressing.");
                // Written even if it says the same: the time of the last progress is in it.
                let says = ("True", "ReplicaSetUpdated", message.as_str());
                status::condition(current, "Progressing", says, now).or_else(|| known.cloned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, created, set_status, view};

    fn deployment(replicas: i64, surge: i64, unavailable: i64) -> Value {
        json!({
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            },
        })
    }

    fn set(hash: &str, replicas: i64, available: i64) -> Value {
        json!({
            "kind": "ReplicaSet",
            "metadata": {
                "name": format!("web-{hash}"), "namespace": "default", "uid": hash, "labels": {HASH: hash},
                "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": true}],
            },
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available},
        })
    }

    fn new_hash() -> String {
        hash_of(&deployment(1, 1, 0)["spec"]["template"])
    }

    /// The sizes that sets are given, by uid.
    fn scaled(plan: &Plan) -> Vec<(String, i64)> {
        let size = |action: &Action| match action {
            Action::Patch { target, patch, .. } if target.resource == Resource::ReplicaSets => {
                Some((target.uid.clone(), patch["spec"]["replicas"].as_i64()?))
            }
            _ => None,
        };
        plan.actions.iter().filter_map(size).collect()
    }

    fn plan(objects: &[Value]) -> Plan {
        decide(&view(objects), &Key::new("default", "web"), at(1000))
    }

    #[test]
    fn a_new_template_gets_a_set_of_its_own() {
        let plan = plan(&[deployment(3, 1, 0)]);
        let made = created(&plan);
        assert_eq!(made[0]["spec"]["replicas"], 3);
        assert_eq!(made[0]["spec"]["selector"]["matchLabels"][HASH], new_hash().as_str());
        assert_eq!(made[0]["metadata"]["annotations"][REVISION], "1");
    }

    #[test]
    fn a_rolling_update_grows_by_the_surge_and_shrinks_by_what_is_spare() {
        let new = new_hash();
        let cases = [
            ("surge for the new set", (4, 1, 0), vec![("old", 4, 4)], None, vec![], Some(1)),
            (
                "nothing goes before the new is available",
                (4, 1, 0),
                vec![("old", 4, 4)],
                Some((1, 0)),
                vec![],
                None,
            ),
            (
                "one old goes for one new",
                (4, 1, 0),
                vec![("old", 4, 4)],
                Some((1, 1)),
                vec![("old", 3)],
                None,
            ),
            (
                "unavailable old pods go first",
                (4, 1, 1),
                vec![("old", 4, 2)],
                Some((1, 1)),
                vec![("old", 2)],
                None,
            ),
            (
                "without surge, the old gives way",
                (4, 0, 1),
                vec![("old", 4, 4)],
                Some((0, 0)),
                vec![("old", 3)],
                None,
            ),
        ];
        for (rule, (replicas, surge, unavailable), old, have, sizes, creates) in cases {
            let mut objects = vec![deployment(replicas, surge, unavailable)];
            objects.extend(old.iter().map(|(hash, replicas, available)| set(hash, *replicas, *available)));
            if let Some((replicas, available)) = have {
                let mut set = set(&new, replicas, available);
                set["metadata"]["annotations"] = json!({REVISION: "1"});
                objects.push(set);
            }
            let plan = plan(&objects);
            let want: Vec<(String, i64)> =
                sizes.into_iter().map(|(uid, size)| (uid.to_string(), size)).collect();
            assert_eq!(scaled(&plan), want, "{rule}");
            assert_eq!(
                created(&plan).first().map(|set| set["spec"]["replicas"].as_i64().unwrap()),
                creates,
                "{rule}"
            );
        }
    }

    #[test]
    fn recreate_waits_for_the_last_old_pod() {
        let mut recreate = deployment(2, 0, 0);
        recreate["spec"]["strategy"] = json!({"type": "Recreate"});
        let mut pod = super::super::testing::owned_pod("p", "ReplicaSet", "web-old", "old");
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        let waiting = plan(&[recreate.clone(), set("old", 2, 2), pod]);
        assert_eq!((scaled(&waiting), created(&waiting).len()), (vec![("old".to_string(), 0)], 0));
        let gone = plan(&[recreate, set("old", 0, 0)]);
        assert_eq!(created(&gone)[0]["spec"]["replicas"], 2);
    }

    #[test]
    fn a_finished_rollout_says_so_and_a_stuck_one_too() {
        let mut new = set(&new_hash(), 3, 3);
        new["metadata"]["annotations"] = json!({REVISION: "1"});
        let reason = |plan: &Plan| {
            let conditions = set_status(plan)["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.iter().find(|c| c["type"] == "Progressing");
            found.map(|c| c["reason"].as_str().unwrap().to_string())
        };
        let done = plan(&[deployment(3, 1, 0), new.clone()]);
        assert_eq!(reason(&done).as_deref(), Some("NewReplicaSetAvailable"));
        let mut stuck = deployment(3, 1, 0);
        new["status"] = json!({"replicas": 3});
        stuck["status"] = json!({
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "unavailableReplicas": 3,
            "conditions": [{
                "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "",
                "lastUpdateTime": "1970-01-01T00:00:00Z",
            }],
        });
        assert_eq!(reason(&plan(&[stuck, new])).as_deref(), Some("ProgressDeadlineExceeded"));
    }
}
