//! The disruption controller: how many pods of a budget may go right now. Rules have the numbers of `docs/eviction-rules.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::plan::{About, Action, Note, Plan};
use crate::view::{Amount, Budget, BudgetStatus, Condition, Owner, Pod, Resource, View, condition};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

/// How long an evicted pod may take until its deletion is seen.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(budget) = view.budgets.get(key) else { return plan };
    if budget.is_deleting() {
        return plan;
    }
    let pods: Vec<&Arc<Pod>> = view.members(key).collect();
    let about = || About::of(Resource::Budgets, &budget.metadata);
    let wanted = match required(view, budget, &pods, now) {
        Ok(Required::Ask(owner)) => {
            // Others may be missing too; they are asked for in turn.
            plan.act(Action::AskScale { namespace: budget.metadata.namespace.clone(), owner });
            return plan;
        }
        Ok(Required::Known { expected, desired, unmanaged }) => {
            if pods.is_empty() {
                plan.note(Note::normal(about(), "NoPods", "No matching pods found"));
            }
            if unmanaged {
                plan.note(Note::warning(about(), "UnmanagedPods", unmanaged_pods(budget)));
            }
            let disrupted = still_leaving(budget, &pods, now, &mut plan);
            let healthy = pods.iter().filter(|pod| is_healthy(pod, &disrupted)).count() as i64;
            // Rule 15.
            let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
            let (status, reason) =
                if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            BudgetStatus {
                observed_generation: budget.metadata.generation,
                disruptions_allowed: allowed,
                current_healthy: healthy,
                desired_healthy: desired,
                expected_pods: expected,
                disrupted_pods: disrupted,
                conditions: allowance(status, reason, ""),
            }
        }
        // Rule 17: what cannot be counted allows nothing. The rest stays as it was, and so does the generation.
        Err(Uncounted { why, no_controller }) => {
            if no_controller {
                plan.note(Note::warning(about(), "NoControllers", why.clone()));
            }
            let message = format!("Failed to calculate the number of expected pods: {why}");
            plan.note(Note::warning(about(), "CalculateExpectedPodCountFailed", message));
            BudgetStatus {
                disruptions_allowed: 0,
                conditions: allowance("False", "SyncFailed", &why),
                ..budget.status.clone()
            }
        }
    };
    if wanted != budget.status {
        plan.act(Action::pinned_status(Resource::Budgets, &budget.metadata, written(budget, &wanted, now)));
    }
    plan
}

fn unmanaged_pods(budget: &Budget) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status \
         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
         please set \".spec.minAvailable\" field of the PDB to an integer value.",
        go_selector(&budget.spec.selector)
    )
}

/// A selector as it is printed in that message.
fn go_selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let terms = selector["matchExpressions"].as_array().into_iter().flatten();
    let term = |term: &Value| {
        let text = |field: &str| term[field].as_str().unwrap_or_default().to_string();
        let values: Vec<&str> =
            term["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text("key"),
            text("operator"),
            values.join(" ")
        )
    };
    let terms: String = terms.map(term).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}",
        labels.join("")
    )
}

fn allowance(status: &str, reason: &str, message: &str) -> Vec<Condition> {
    vec![Condition {
        kind: "DisruptionAllowed".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: None,
    }]
}

fn written(budget: &Budget, wanted: &BudgetStatus, now: Timestamp) -> Value {
    let mut disrupted: Map<String, Value> =
        budget.status.disrupted_pods.keys().map(|name| (name.clone(), Value::Null)).collect();
    disrupted.extend(wanted.disrupted_pods.iter().map(|(name, at)| (name.clone(), rfc3339(*at).into())));
    let known = condition(&budget.status.conditions, "DisruptionAllowed");
    let conditions: Vec<Value> = wanted
        .conditions
        .iter()
        .map(|condition| {
            let same = known.filter(|known| known.status == condition.status);
            let since = same.and_then(|known| known.last_transition_time).unwrap_or(now);
            json!({
                "type": condition.kind, "status": condition.status, "reason": condition.reason,
                "message": condition.message, "observedGeneration": wanted.observed_generation,
                "lastTransitionTime": rfc3339(since),
            })
        })
        .collect();
    json!({
        "observedGeneration": wanted.observed_generation, "disruptionsAllowed": wanted.disruptions_allowed,
        "currentHealthy": wanted.current_healthy, "desiredHealthy": wanted.desired_healthy,
        "expectedPods": wanted.expected_pods, "disruptedPods": disrupted, "conditions": conditions,
    })
}

/// What a budget requires, or whose scale has to be asked for before that is known.
enum Required {
    Known { expected: i64, desired: i64, unmanaged: bool },
    Ask(Owner),
}

/// Rules 11 and 12: how many pods there should be, and how many of them must be healthy.
fn required(view: &View, budget: &Budget, pods: &[&Arc<Pod>], now: Timestamp) -> Result<Required, Uncounted> {
    let desired: &dyn Fn(i64) -> i64 = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(most), _) => &|expected| (expected - most.of(expected, true)).max(0),
        (None, Some(Amount::Number(least))) => {
            return Ok(Required::Known { expected: pods.len() as i64, desired: *least, unmanaged: false });
        }
        (None, Some(share)) => &|expected| share.of(expected, true),
        (None, None) => return Ok(Required::Known { expected: 0, desired: 0, unmanaged: false }),
    };
    Ok(match expected_scale(view, pods, now)? {
        ExpectedPods::Ask(owner) => Required::Ask(owner),
        ExpectedPods::Scale { expected, unmanaged } => {
            Required::Known { expected, desired: desired(expected), unmanaged }
        }
    })
}

/// Why the pods of a budget cannot be counted.
struct Uncounted {
    why: String,
    /// A pod names a controller that is not there.
    no_controller: bool,
}

enum ExpectedPods {
    Scale { expected: i64, unmanaged: bool },
    Ask(Owner),
}

/// Rule 13: the scales of all controllers of the pods, each counted once. Pods without a controller do not count.
fn expected_scale(view: &View, pods: &[&Arc<Pod>], now: Timestamp) -> Result<ExpectedPods, Uncounted> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(owner) = pod.metadata.controller() else {
            unmanaged = true;
            continue;
        };
        if !seen.insert(&owner.uid) {
            continue;
        }
        let namespace = &pod.metadata.namespace;
        let found = match followed_scale(view, namespace, owner) {
            Some(found) => Some(found),
            None => match view.scale_of(namespace, owner, now) {
                None => return Ok(ExpectedPods::Ask(owner.clone())),
                Some(scale) => scale
                    .clone()
                    .map_err(|why| Uncounted { why, no_controller: false })?
                    .filter(|(uid, _)| *uid == owner.uid),
            },
        };
        let (uid, scale) = found.ok_or_else(|| Uncounted {
            why: format!("found no controllers for pod \"{}\"", pod.metadata.name),
            no_controller: true,
        })?;
        scales.insert(uid, scale);
    }
    Ok(ExpectedPods::Scale { expected: scales.values().sum(), unmanaged })
}

/// The controller that has the last word on how many there are, among those that are followed: a deployment for the
/// pods of its replica sets. Others are found through the API.
fn followed_scale(view: &View, namespace: &str, owner: &Owner) -> Option<(String, i64)> {
    let key = Key::new(namespace, &owner.name);
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("", "ReplicationController") => {
            let one = view.replication_controllers.get(&key).filter(|one| one.metadata.uid == owner.uid)?;
            Some((one.metadata.uid.clone(), one.spec.replicas.unwrap_or(1)))
        }
        ("apps", "ReplicaSet") => {
            let set = view.replica_sets.get(&key).filter(|set| set.metadata.uid == owner.uid)?;
            match set.metadata.controller().filter(|owner| owner.kind == "Deployment") {
                None => Some((set.metadata.uid.clone(), set.replicas())),
                Some(owner) => {
                    let deployment = view.deployments.get(&Key::new(namespace, &owner.name))?;
                    (deployment.metadata.uid == owner.uid)
                        .then(|| (deployment.metadata.uid.clone(), deployment.spec.replicas.unwrap_or(1)))
                }
            }
        }
        ("apps", "StatefulSet") => {
            let set = view.stateful_sets.get(&key).filter(|set| set.metadata.uid == owner.uid)?;
            Some((set.metadata.uid.clone(), set.spec.replicas.unwrap_or(1)))
        }
        _ => None,
    }
}

/// Rule 16: evicted pods that are neither deleting nor gone, for two minutes.
fn still_leaving(
    budget: &Budget,
    pods: &[&Arc<Pod>],
    now: Timestamp,
    plan: &mut Plan,
) -> BTreeMap<String, Timestamp> {
    let mut left = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_deleting()) {
        if let Some(at) = budget.status.disrupted_pods.get(&pod.metadata.name) {
            let until = *at + DELETION_TIMEOUT;
            if until > now {
                left.insert(pod.metadata.name.clone(), *at);
                plan.recheck(until);
            } else {
                let name = &budget.metadata.namespace;
                let message = format!("Pod was expected by PDB {name}/{name} to be deleted but it wasn't");
                let about = About::of(Resource::Pods, &pod.metadata);
                plan.note(Note::warning(about, "NotDeleted", message));
            }
        }
    }
    left
}

/// Rule 14.
fn is_healthy(pod: &Pod, disrupted: &BTreeMap<String, Timestamp>) -> bool {
    pod.is_ready() && !pod.is_deleting() && !disrupted.contains_key(&pod.metadata.name)
}

/// Rule 18: a pod that was to be evicted, but was not deleted within two minutes, is no target any more.
pub(crate) fn decide_stale(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key).filter(|pod| pod.is_active()) else { return plan };
    // What a kubelet has announced may take its time.
    let target = condition(&pod.status.conditions, "DisruptionTarget")
        .filter(|target| target.status == "True" && target.reason != "TerminationByKubelet");
    if let Some(target) = target {
        let until = target.last_transition_time.unwrap_or(now) + DELETION_TIMEOUT;
        if until > now {
            plan.recheck(until);
        } else {
            plan.act(Action::status(
                Resource::Pods,
                &pod.metadata,
                json!({"conditions": [{
                    "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
                    "lastTransitionTime": rfc3339(now),
                }]}),
            ));
        }
    }
    plan
}

#[cfg(test)]
mod tests;
