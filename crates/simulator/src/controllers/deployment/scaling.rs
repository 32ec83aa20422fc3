//! A deployment that is scaled while it rolls out: the sets share what comes and goes.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::json;

use super::{DESIRED, MAXIMUM, Rollout, count};
use crate::plan::{Action, Plan};
use crate::view::{ReplicaSet, Resource};

fn noted(set: &ReplicaSet, annotation: &str) -> Option<i64> {
    set.metadata.annotations.get(annotation)?.parse().ok()
}

impl<'a> Rollout<'a> {
    fn active(&self) -> Vec<&'a Arc<ReplicaSet>> {
        self.all().filter(|set| set.replicas() > 0).collect()
    }

    /// Whether the size asked for has changed since the sets were sized.
    pub(super) fn is_being_scaled(&self) -> bool {
        self.active().iter().any(|set| noted(set, DESIRED).is_some_and(|noted| noted != self.desired))
    }

    /// One set takes all of it; if the new one is complete, the old ones give up theirs; otherwise each takes its share.
    pub(super) fn rescale(&self, plan: &mut Plan) {
        let active = self.active();
        let only = match active[..] {
            [] => self.new.or_else(|| self.old.last().copied()),
            [only] => Some(only),
            _ => None,
        };
        if let Some(only) = only {
            self.resize(only, self.desired, plan);
            return;
        }
        let complete = |new: &&Arc<ReplicaSet>| {
            new.replicas() == self.desired
                && noted(new, DESIRED) == Some(self.desired)
                && count(new, "availableReplicas") == self.desired
        };
        if self.new.filter(complete).is_some() {
            for set in &self.old {
                self.scale(set, 0, plan);
            }
        } else if !self.recreates() {
            self.share(active, plan);
        }
    }

    fn share(&self, mut sets: Vec<&'a Arc<ReplicaSet>>, plan: &mut Plan) {
        let most = if self.desired > 0 { self.desired + self.surge } else { 0 };
        let to_add = most - sets.iter().map(|set| set.replicas()).sum::<i64>();
        // The largest first; of equals, what grows is the newest and what shrinks is the oldest.
        if to_add > 0 {
            sets.sort_by_key(|set| (Reverse(set.replicas()), Reverse(set.metadata.created())));
        } else {
            sets.sort_by_key(|set| (Reverse(set.replicas()), set.metadata.created()));
        }
        let mut added = 0;
        let mut sizes: Vec<i64> = Vec::with_capacity(sets.len());
        for set in &sets {
            let left = to_add - added;
            let share = self.fraction(set);
            let share = if to_add > 0 { share.clamp(0, left.max(0)) } else { share.clamp(left.min(0), 0) };
            sizes.push(set.replicas() + share);
            added += share;
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in sets.into_iter().zip(sizes) {
            self.resize(set, size, plan);
        }
    }

    /// What a set would gain if all grew alike, rounded to the nearest.
    fn fraction(&self, set: &ReplicaSet) -> i64 {
        if self.desired == 0 {
            return -set.replicas();
        }
        let status = self.deployment.status["replicas"].as_i64().unwrap_or_default();
        let before = noted(set, MAXIMUM).filter(|most| *most > 0).unwrap_or(status);
        if before == 0 {
            return 0;
        }
        let size = (2 * set.replicas() * (self.desired + self.surge) + before) / (2 * before);
        size - set.replicas()
    }

    /// Its size, and that it was made for the present one of the deployment.
    fn resize(&self, set: &ReplicaSet, replicas: i64, plan: &mut Plan) {
        let sized = noted(set, DESIRED) == Some(self.desired)
            && noted(set, MAXIMUM) == Some(self.desired + self.surge);
        if set.replicas() == replicas && sized {
            return;
        }
        self.note_scaling(&set.metadata.name, set.replicas(), replicas, plan);
        let patch =
            json!({"metadata": {"annotations": self.size_annotations()}, "spec": {"replicas": replicas}});
        plan.act(Action::patch(Resource::ReplicaSets, &set.metadata, patch));
    }
}
