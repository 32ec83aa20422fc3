//! What the end of a pod means for its job.

use serde_json::Value;

use crate::view::{Job, Pod, condition};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Succeeded,
    Failed,
    /// The job's policy does not hold it against the job.
    Ignored,
    /// The job's policy ends the job for it, and says why.
    FailsJob(String),
}

/// Nothing for a pod that has not ended. A pod that is on its way out counts as failed already, unless a policy has to
/// see first how it ends.
pub(super) fn verdict(job: &Job, pod: &Pod) -> Option<Verdict> {
    match pod.status.phase.as_str() {
        "Succeeded" => Some(Verdict::Succeeded),
        "Failed" => Some(by_policy(job, pod)),
        _ if pod.is_deleting() && job.spec.pod_failure_policy.is_null() => Some(Verdict::Failed),
        _ => None,
    }
}

fn by_policy(job: &Job, pod: &Pod) -> Verdict {
    let rules = job.spec.pod_failure_policy["rules"].as_array().into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        return match rule["action"].as_str().unwrap_or_default() {
            "Ignore" => Verdict::Ignored,
            "FailJob" => Verdict::FailsJob(format!("{why} matching FailJob rule at index {index}")),
            _ => Verdict::Failed,
        };
    }
    Verdict::Failed
}

/// What in the pod a rule matches.
fn matches(rule: &Value, pod: &Pod) -> Option<String> {
    let place = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
    for pattern in rule["onPodConditions"].as_array().into_iter().flatten() {
        let kind = pattern["type"].as_str().unwrap_or_default();
        let status = pattern["status"].as_str().unwrap_or("True");
        if condition(&pod.status.conditions, kind).is_some_and(|condition| condition.status == status) {
            return Some(format!("Pod {place} has condition {kind}"));
        }
    }
    let codes = &rule["onExitCodes"];
    let values: Vec<i64> = codes["values"].as_array()?.iter().filter_map(Value::as_i64).collect();
    let inside = codes["operator"] == "In";
    let code = pod.exit_codes().find(|code| *code != 0 && values.contains(code) == inside)?;
    let container = pod.spec.containers.first().map_or("", |container| &container.name);
    Some(format!("Container {container} for pod {place} failed with exit code {code}"))
}

/// The reason of a failed job, as events give it.
pub(super) fn reason(said: &str) -> &'static str {
    match said {
        "DeadlineExceeded" => "DeadlineExceeded",
        "PodFailurePolicy" => "PodFailurePolicy",
        _ => "BackoffLimitExceeded",
    }
}
