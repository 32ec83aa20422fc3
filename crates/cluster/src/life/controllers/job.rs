//! Jobs: pods until enough have succeeded, or too many have failed. Indexed jobs are left alone.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{BURST, owned_by, pod_from};
use crate::clock::rfc3339;
use crate::life::plan::{Action, Plan};
use crate::life::status;
use crate::life::view::{Job, Pod, Resource, View};
use crate::store::Key;

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(job) = view.jobs.get(key) else { return plan };
    if job.is_deleting() || job.spec.completion_mode == "Indexed" || is_over(job) {
        return plan;
    }
    let pods = view.pods_of(&job.metadata.uid);
    let active: Vec<&Arc<Pod>> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let (succeeded, failed) =
        (ended(job, &pods, "succeeded", "Succeeded"), ended(job, &pods, "failed", "Failed"));
    let conditions = if failed > job.spec.backoff_limit.unwrap_or(6) {
        let message = "Job has reached the specified backoff limit";
        verdict(["FailureTarget", "Failed"], "BackoffLimitExceeded", message, now)
    } else if is_complete(job, succeeded, active.len()) {
        verdict(
            ["SuccessCriteriaMet", "Complete"],
            "CompletionsReached",
            "Reached expected number of succeeded pods",
            now,
        )
    } else {
        Vec::new()
    };
    let want = if job.spec.suspend || !conditions.is_empty() { 0 } else { parallel(job, succeeded) };
    let make = want.saturating_sub(active.len()).min(BURST);
    let owners = owned_by("batch/v1", "Job", &job.metadata);
    let pod = pod_from(&job.spec.template, &job.metadata, owners);
    for _ in 0..make {
        plan.act(Action::create(Resource::Pods, &job.metadata.namespace, pod.clone()));
    }
    for pod in active.iter().skip(want) {
        plan.act(Action::delete(Resource::Pods, &pod.metadata));
    }
    report(job, active.len().min(want), (succeeded, failed), conditions, &active, now, &mut plan);
    plan
}

fn is_over(job: &Job) -> bool {
    let conditions = job.status["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed"))
}

/// Pods that ended so; those that are gone stay counted.
fn ended(job: &Job, pods: &[&Arc<Pod>], field: &str, phase: &str) -> i64 {
    let there = pods.iter().filter(|pod| pod.status.phase == phase).count() as i64;
    there.max(job.status[field].as_i64().unwrap_or_default())
}

/// A job without a number of completions is done when one pod has succeeded and none is left.
fn is_complete(job: &Job, succeeded: i64, active: usize) -> bool {
    match job.spec.completions {
        Some(completions) => succeeded >= completions,
        None => succeeded > 0 && active == 0,
    }
}

/// How many pods should be at work.
fn parallel(job: &Job, succeeded: i64) -> usize {
    let most = job.spec.parallelism.unwrap_or(1);
    let wanted = match job.spec.completions {
        Some(completions) => most.min(completions - succeeded),
        None if succeeded > 0 => 0,
        None => most,
    };
    usize::try_from(wanted).unwrap_or_default()
}

fn verdict(kinds: [&str; 2], reason: &str, message: &str, now: Timestamp) -> Vec<Value> {
    let at = rfc3339(now);
    let condition = |kind| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": at,
            "lastTransitionTime": at,
        })
    };
    kinds.map(condition).into_iter().collect()
}

fn report(
    job: &Job,
    active: usize,
    (succeeded, failed): (i64, i64),
    conditions: Vec<Value>,
    pods: &[&Arc<Pod>],
    now: Timestamp,
    plan: &mut Plan,
) {
    let ready = pods.iter().filter(|pod| pod.is_ready()).count().min(active);
    let mut wanted = json!({"active": active, "ready": ready, "succeeded": succeeded, "failed": failed});
    if job.status["startTime"].is_null() && !job.spec.suspend {
        wanted["startTime"] = rfc3339(now).into();
    }
    if conditions.iter().any(|condition| condition["type"] == "Complete") {
        wanted["completionTime"] = rfc3339(now).into();
    }
    if !conditions.is_empty() {
        wanted["conditions"] = conditions.into();
    }
    if let Some(new) = status::difference(&job.status, wanted) {
        plan.act(Action::status(Resource::Jobs, &job.metadata, new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, created, deleted, owned_pod, set_status, view};

    fn job(spec: Value) -> Value {
        let mut spec = spec;
        spec["template"] = json!({"spec": {"restartPolicy": "Never", "containers": []}});
        json!({"kind": "Job", "metadata": {"name": "j", "namespace": "default", "uid": "j"}, "spec": spec})
    }

    fn pod(name: &str, phase: &str) -> Value {
        let mut pod = owned_pod(name, "Job", "j", "j");
        pod["status"]["phase"] = phase.into();
        pod
    }

    /// A rule, what there is, how many pods are made and deleted, and the verdict.
    type Case = (&'static str, Vec<Value>, usize, usize, Option<&'static str>);

    #[test]
    fn pods_are_made_until_enough_have_succeeded() {
        let many = || job(json!({"completions": 3, "parallelism": 2}));
        let cases: [Case; 7] = [
            ("as many as may run", vec![many()], 2, 0, None),
            (
                "not more than are missing",
                vec![many(), pod("a", "Succeeded"), pod("b", "Succeeded")],
                1,
                0,
                None,
            ),
            ("a failed pod is replaced", vec![many(), pod("a", "Failed"), pod("b", "Running")], 1, 0, None),
            (
                "enough is enough",
                vec![job(json!({"completions": 1})), pod("a", "Succeeded"), pod("b", "Running")],
                0,
                1,
                Some("SuccessCriteriaMet"),
            ),
            (
                "too many failures",
                vec![job(json!({"completions": 1, "backoffLimit": 0})), pod("a", "Failed")],
                0,
                0,
                Some("FailureTarget"),
            ),
            (
                "suspended",
                vec![job(json!({"completions": 1, "suspend": true})), pod("a", "Running")],
                0,
                1,
                None,
            ),
            (
                "a work queue is done with its last pod",
                vec![job(json!({"parallelism": 2})), pod("a", "Succeeded")],
                0,
                0,
                Some("SuccessCriteriaMet"),
            ),
        ];
        for (rule, objects, creates, deletes, verdict) in cases {
            let plan = decide(&view(&objects), &Key::new("default", "j"), at(100));
            assert_eq!((created(&plan).len(), deleted(&plan).len()), (creates, deletes), "{rule}");
            assert_eq!(set_status(&plan)["conditions"][0]["type"].as_str(), verdict, "{rule}");
        }
    }
}
