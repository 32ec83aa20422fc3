//! What a deployment says of itself: counts, whether enough is available, and whether the rollout moves.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Rollout, count};
use crate::plan::{Action, Plan};
use crate::status;
use crate::view::Resource;
use embedded_apiserver::clock::rfc3339;

impl Rollout<'_> {
    pub(super) fn report(&self, now: Timestamp, plan: &mut Plan) {
        let deployment = self.deployment;
        let sum = |field: &str| -> i64 { self.all().map(|set| count(set, field)).sum() };
        let (replicas, available) = (sum("replicas"), self.available());
        let wanted = json!({
            "observedGeneration": deployment.metadata.generation, "replicas": replicas,
            "updatedReplicas": self.updated(), "readyReplicas": sum("readyReplicas"),
            "availableReplicas": available, "unavailableReplicas": (self.total() - available).max(0),
            "terminatingReplicas": sum("terminatingReplicas"),
        });
        let mut new = status::difference(&deployment.status, wanted);
        let enough = available >= self.desired - self.unavailable;
        let says = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let available = status::condition(&deployment.status, "Available", says, now);
        let progressing = self.progress(new.is_some(), replicas, now, plan);
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
    fn progress(&self, moved: bool, replicas: i64, now: Timestamp, plan: &mut Plan) -> Option<Value> {
        let name = self.new.map_or_else(|| self.new_name(), |new| new.metadata.name.clone());
        let current = &self.deployment.status;
        let known = current["conditions"]
            .as_array()
            .and_then(|list| list.iter().find(|c| c["type"] == "Progressing"));
        let was = known.map_or("", |known| known["reason"].as_str().unwrap_or_default());
        if self.deployment.spec.paused || was == "DeploymentPaused" {
            if was == "ProgressDeadlineExceeded" {
                return None;
            }
            let says = if self.deployment.spec.paused {
                ("Unknown", "DeploymentPaused", "Deployment is paused")
            } else {
                ("Unknown", "DeploymentResumed", "Deployment is resumed")
            };
            return status::condition(current, "Progressing", says, now);
        }
        // A rollout that is over stays so, whatever becomes of its pods, until there is another.
        let was_done = was == "NewReplicaSetAvailable";
        if was_done && replicas == self.updated() {
            return None;
        }
        if self.is_complete() {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            return status::condition(
                current,
                "Progressing",
                ("True", "NewReplicaSetAvailable", &message),
                now,
            );
        }
        let limit = SignedDuration::from_secs(self.deployment.spec.progress_deadline_seconds.unwrap_or(600));
        let last: Option<Timestamp> = known.and_then(|c| c["lastUpdateTime"].as_str()?.parse().ok());
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
