//! Jobs: pods until enough have succeeded, or too many have failed.
//!
//! A pod of a job carries a finalizer until its end is counted: first its uid goes into the status, then the finalizer
//! goes, then the count rises. So no end is counted twice, and none is lost.

mod failure;
mod indexes;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{BURST, adoption, owned_by, pod_from};
use crate::plan::{About, Action, Note, Plan};
use crate::status;
use crate::view::{Job, Pod, Resource, View, condition};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;
use failure::Verdict;
use indexes::Indexes;

/// Which of an indexed job's completions a pod is for.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// After a failure, the next pod waits: twice as long each time, up to the limit.
const FIRST_BACK_OFF: i64 = 10;
const LONGEST_BACK_OFF: i64 = 600;

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(job) = view.jobs.get(key) else { return plan };
    if job.is_deleting() || has_ended(job) {
        // Nobody counts them any more.
        let pods = view.pods_of(&job.metadata.uid);
        pods.iter().filter(|pod| is_tracked(pod)).for_each(|pod| plan.act(untrack(pod)));
        if has_ended(job) && !job.is_deleting() {
            expire(job, now, &mut plan);
        }
        return plan;
    }
    let claimant = adoption::Set {
        api_version: "batch/v1",
        kind: "Job",
        meta: &job.metadata,
        selector: &job.spec.selector,
        finalizer: Some(TRACKING),
    };
    let pods = adoption::claim(view, &claimant, |_| true, &mut plan);
    let state = State::of(job, pods, now);
    let outcome = state.outcome(&mut plan);
    let want = if job.spec.suspend || outcome.is_some() { 0 } else { state.parallel() };
    state.report(outcome.as_ref(), &mut plan);
    state.uncounted().filter(|pod| is_tracked(pod)).for_each(|pod| plan.act(untrack(pod)));
    for pod in state.leaving(want) {
        plan.act(Action::delete(Resource::Pods, &pod.metadata));
    }
    if outcome.is_none() && !job.spec.suspend {
        state.make(want, &mut plan);
    }
    plan
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

fn untrack(pod: &Pod) -> Action {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}});
    // Nothing that others write at the same time makes this wrong.
    match Action::patch(Resource::Pods, &pod.metadata, patch) {
        Action::Patch { target, subresource, patch, .. } => {
            Action::Patch { target, subresource, patch, pinned: None }
        }
        other => other,
    }
}

fn job_condition<'a>(job: &'a Job, kind: &str) -> Option<&'a Value> {
    let list = job.status["conditions"].as_array()?;
    list.iter().find(|c| c["type"] == kind && c["status"] == "True")
}

fn has_ended(job: &Job) -> bool {
    ["Complete", "Failed"].iter().any(|kind| job_condition(job, kind).is_some())
}

/// A job that has ended goes after the time that it gives.
fn expire(job: &Job, now: Timestamp, plan: &mut Plan) {
    let ended = ["Complete", "Failed"].iter().find_map(|kind| job_condition(job, kind));
    let at: Option<Timestamp> = ended.and_then(|c| c["lastTransitionTime"].as_str()?.parse().ok());
    if let (Some(ttl), Some(at)) = (job.spec.ttl, at) {
        let due = at + SignedDuration::from_secs(ttl);
        if due <= now {
            plan.act(Action::delete(Resource::Jobs, &job.metadata));
        } else {
            plan.recheck(due);
        }
    }
}

/// How a job ends: the condition that says so beforehand, the last one, why, and in words.
struct JobEnd {
    kinds: [&'static str; 2],
    reason: String,
    message: String,
}

struct State<'a> {
    job: &'a Job,
    now: Timestamp,
    active: Vec<&'a Arc<Pod>>,
    /// On their way out, but not ended.
    terminating: usize,
    /// Ends that are not counted yet: how, and whose.
    ends: Vec<(Verdict, &'a Arc<Pod>)>,
    succeeded: i64,
    failed: i64,
    /// Uids in the status whose pods have been let go, so that they can be counted.
    settled: BTreeSet<String>,
    indexes: Option<Indexes>,
}

impl<'a> State<'a> {
    fn of(job: &'a Job, pods: Vec<&'a Arc<Pod>>, now: Timestamp) -> Self {
        let listed = |field: &str| -> Vec<&str> {
            let list = job.status["uncountedTerminatedPods"][field].as_array();
            list.into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let held: BTreeSet<&str> =
            pods.iter().filter(|pod| is_tracked(pod)).map(|pod| pod.metadata.uid.as_str()).collect();
        let let_go = |field: &str| listed(field).into_iter().filter(|uid| !held.contains(uid)).count() as i64;
        let count = |field: &str| job.status[field].as_i64().unwrap_or_default() + let_go(field);
        let settled = ["succeeded", "failed"]
            .iter()
            .flat_map(|field| listed(field))
            .filter(|uid| !held.contains(uid))
            .map(String::from)
            .collect();
        let mut indexes = (job.spec.completion_mode == "Indexed").then(|| Indexes::of(job));
        let (mut active, mut ends, mut terminating) = (Vec::new(), Vec::new(), 0);
        for pod in pods {
            match failure::verdict(job, pod) {
                Some(verdict) if is_tracked(pod) => {
                    if let (Verdict::Succeeded, Some(indexes)) = (&verdict, &mut indexes) {
                        indexes.complete(pod);
                    }
                    ends.push((verdict, pod));
                }
                None if !pod.is_deleting() => active.push(pod),
                _ => {}
            }
            terminating += usize::from(pod.is_deleting() && !pod.is_terminal());
        }
        let (succeeded, failed) = (count("succeeded"), count("failed"));
        Self { job, now, active, terminating, ends, succeeded, failed, settled, indexes }
    }

    fn uncounted(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.ends.iter().map(|(_, pod)| *pod)
    }

    fn ends_as(&self, verdict: &Verdict) -> i64 {
        self.ends.iter().filter(|(is, _)| is == verdict).count() as i64
    }

    fn all_succeeded(&self) -> i64 {
        self.succeeded + self.ends_as(&Verdict::Succeeded)
    }

    fn all_failed(&self) -> i64 {
        self.failed + self.ends_as(&Verdict::Failed)
    }

    /// How the job ends, if it does.
    fn outcome(&self, plan: &mut Plan) -> Option<JobEnd> {
        let job = self.job;
        let failed = |reason: &str, message: String| JobEnd {
            kinds: ["FailureTarget", "Failed"],
            reason: reason.to_string(),
            message,
        };
        let succeeded = || JobEnd {
            kinds: ["SuccessCriteriaMet", "Complete"],
            reason: "CompletionsReached".to_string(),
            message: "Reached expected number of succeeded pods".to_string(),
        };
        // What was said once holds.
        if let Some(said) = job_condition(job, "FailureTarget") {
            let text = |field: &str| said[field].as_str().unwrap_or_default();
            return Some(failed(text("reason"), text("message").to_string()));
        }
        if job_condition(job, "SuccessCriteriaMet").is_some() {
            return Some(succeeded());
        }
        let by_policy = self.ends.iter().find_map(|(verdict, _)| match verdict {
            Verdict::FailsJob(message) => Some(message.clone()),
            _ => None,
        });
        if let Some(message) = by_policy {
            return Some(failed("PodFailurePolicy", message));
        }
        if self.all_failed() > job.spec.backoff_limit.unwrap_or(6) {
            return Some(failed(
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit".to_string(),
            ));
        }
        let started: Option<Timestamp> = job.status["startTime"].as_str().and_then(|text| text.parse().ok());
        if let (Some(limit), Some(started), false) =
            (job.spec.active_deadline_seconds, started, job.spec.suspend)
        {
            let deadline = started + SignedDuration::from_secs(limit);
            if deadline <= self.now {
                return Some(failed(
                    "DeadlineExceeded",
                    "Job was active longer than specified deadline".to_string(),
                ));
            }
            plan.recheck(deadline);
        } else if let (Some(limit), None, false) =
            (job.spec.active_deadline_seconds, started, job.spec.suspend)
        {
            plan.recheck(self.now + SignedDuration::from_secs(limit));
        }
        let complete = match (&self.indexes, job.spec.completions) {
            (Some(indexes), _) => indexes.all_complete(),
            (None, Some(completions)) => self.all_succeeded() >= completions,
            // A work queue is done when one pod has succeeded and none is left.
            (None, None) => self.all_succeeded() > 0 && self.active.is_empty(),
        };
        complete.then(succeeded)
    }

    /// How many pods should be at work.
    fn parallel(&self) -> usize {
        let most = self.job.spec.parallelism.unwrap_or(1);
        let wanted = match self.job.spec.completions {
            Some(completions) => most.min(completions - self.all_succeeded()),
            // A work queue gets no more pods once one has succeeded.
            None if self.all_succeeded() > 0 => self.active.len() as i64,
            None => most,
        };
        usize::try_from(wanted).unwrap_or_default()
    }

    /// Pods that are too many: those that do not run first, then the newest.
    fn leaving(&self, want: usize) -> Vec<&'a Arc<Pod>> {
        let mut pods = self.active.clone();
        pods.sort_by_key(|pod| {
            (pod.is_ready(), std::cmp::Reverse(pod.metadata.created()), pod.metadata.name.clone())
        });
        pods.truncate(self.active.len().saturating_sub(want));
        pods
    }

    fn make(&self, want: usize, plan: &mut Plan) {
        let missing = want.saturating_sub(self.active.len()).min(BURST);
        if missing == 0 {
            return;
        }
        if let Some(due) = self.back_off_ends().filter(|due| *due > self.now) {
            plan.recheck(due);
            return;
        }
        let meta = &self.job.metadata;
        let mut pod = pod_from(&self.job.spec.template, meta, owned_by("batch/v1", "Job", meta));
        match &mut pod["metadata"]["finalizers"] {
            Value::Array(finalizers) => finalizers.push(TRACKING.into()),
            other => *other = json!([TRACKING]),
        }
        match &self.indexes {
            None => {
                for _ in 0..missing {
                    plan.act(Action::create(Resource::Pods, &meta.namespace, pod.clone()));
                }
            }
            Some(indexes) => {
                for index in indexes.missing(&self.active).into_iter().take(missing) {
                    let pod = indexes::pod_for(pod.clone(), &meta.name, index);
                    plan.act(Action::create(Resource::Pods, &meta.namespace, pod));
                }
            }
        }
    }

    /// When the next pod may come, after the failures since the last success.
    fn back_off_ends(&self) -> Option<Timestamp> {
        let ended = |pod: &Pod| {
            condition(&pod.status.conditions, "Ready").and_then(|ready| ready.last_transition_time)
        };
        let last = |verdict: &Verdict| {
            self.ends.iter().filter(|(is, _)| is == verdict).filter_map(|(_, pod)| ended(pod)).max()
        };
        let failed = last(&Verdict::Failed)?;
        if last(&Verdict::Succeeded).is_some_and(|succeeded| succeeded > failed) {
            return None;
        }
        let doublings = u32::try_from(self.all_failed() - 1).unwrap_or_default().min(10);
        Some(failed + SignedDuration::from_secs((FIRST_BACK_OFF << doublings).min(LONGEST_BACK_OFF)))
    }

    fn report(&self, outcome: Option<&JobEnd>, plan: &mut Plan) {
        let uids = |verdict: &Verdict| -> Vec<&str> {
            let of = self.ends.iter().filter(|(is, _)| is == verdict);
            of.map(|(_, pod)| pod.metadata.uid.as_str()).collect()
        };
        // Ends that the policy ignores are let go without being counted.
        let failed = [uids(&Verdict::Failed), self.policy_failures()].concat();
        let left = if outcome.is_some() || self.job.spec.suspend { 0 } else { self.active.len() };
        let ready = self.active.iter().filter(|pod| pod.is_ready()).count().min(left);
        let mut wanted = json!({
            "active": left, "ready": ready, "succeeded": self.succeeded, "failed": self.failed,
            "terminating": self.terminating,
        });
        let uncounted = json!({"succeeded": uids(&Verdict::Succeeded), "failed": failed});
        let was = &self.job.status["uncountedTerminatedPods"];
        let list = |of: &Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
        if ["succeeded", "failed"].iter().any(|field| list(was, field) != list(&uncounted, field))
            || !self.settled.is_empty()
        {
            wanted["uncountedTerminatedPods"] = uncounted;
        }
        if let Some(indexes) = &self.indexes {
            wanted["completedIndexes"] = indexes.text().into();
        }
        let mut conditions = self.suspension(plan);
        if self.job.status["startTime"].is_null() && !self.job.spec.suspend {
            wanted["startTime"] = rfc3339(self.now).into();
        }
        if let Some(outcome) = outcome {
            let says = ("True", outcome.reason.as_str(), outcome.message.as_str());
            let [before, last] = outcome.kinds;
            conditions.extend(status::condition(&self.job.status, before, says, self.now));
            // The last word is spoken when all is counted and nothing runs any more.
            if self.active.is_empty() && self.ends.is_empty() && self.terminating == 0 {
                conditions.extend(status::condition(&self.job.status, last, says, self.now));
                let about = About::of(Resource::Jobs, &self.job.metadata);
                plan.note(if last == "Complete" {
                    wanted["completionTime"] = rfc3339(self.now).into();
                    Note::normal(about, "Completed", "Job completed")
                } else {
                    Note::warning(about, failure::reason(&outcome.reason), outcome.message.clone())
                });
            }
        }
        for condition in &mut conditions {
            condition["lastProbeTime"] = rfc3339(self.now).into();
        }
        if !conditions.is_empty() {
            wanted["conditions"] = conditions.into();
        }
        if let Some(new) = status::difference(&self.job.status, wanted) {
            plan.act(Action::status(Resource::Jobs, &self.job.metadata, new));
        }
    }

    fn policy_failures(&self) -> Vec<&str> {
        let of = self.ends.iter().filter(|(is, _)| matches!(is, Verdict::FailsJob(_)));
        of.map(|(_, pod)| pod.metadata.uid.as_str()).collect()
    }

    fn suspension(&self, plan: &mut Plan) -> Vec<Value> {
        let known =
            self.job.status["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Suspended");
        let says = match (self.job.spec.suspend, known) {
            (true, _) => ("True", "JobSuspended", "Job suspended"),
            (false, true) => ("False", "JobResumed", "Job resumed"),
            (false, false) => return Vec::new(),
        };
        let new = status::condition(&self.job.status, "Suspended", says, self.now);
        if new.is_some() {
            let reason = if self.job.spec.suspend { "Suspended" } else { "Resumed" };
            plan.note(Note::normal(About::of(Resource::Jobs, &self.job.metadata), reason, says.2));
        }
        new.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
