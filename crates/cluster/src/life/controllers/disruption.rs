//! The disruption controller: how many pods of a budget may go right now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::clock::rfc3339;
use crate::life::plan::{Action, Plan};
use crate::life::view::{Amount, Budget, BudgetStatus, Condition, Owner, Pod, Resource, View, condition};
use crate::store::Key;

/// How long an evicted pod may take until its deletion is seen.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(budget) = view.budgets.get(key) else { return plan };
    if budget.is_deleting() {
        return plan;
    }
    let pods: Vec<&Arc<Pod>> = view.members(key).collect();
    let wanted = match required(view, budget, &pods) {
        Ok((expected, desired)) => {
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
        // Rule 17: what cannot be counted allows nothing.
        Err(why) => BudgetStatus {
            observed_generation: budget.metadata.generation,
            disruptions_allowed: 0,
            conditions: allowance("False", "SyncFailed", &why),
            ..budget.status.clone()
        },
    };
    if wanted != budget.status {
        plan.act(Action::pinned_status(Resource::Budgets, &budget.metadata, written(budget, &wanted, now)));
    }
    plan
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

/// Rules 11 and 12: how many pods there should be, and how many of them must be healthy.
fn required(view: &View, budget: &Budget, pods: &[&Arc<Pod>]) -> Result<(i64, i64), String> {
    if let Some(most) = &budget.spec.max_unavailable {
        let expected = expected_scale(view, pods)?;
        return Ok((expected, (expected - most.of(expected, true)).max(0)));
    }
    match &budget.spec.min_available {
        Some(Amount::Number(least)) => Ok((pods.len() as i64, *least)),
        Some(share) => {
            let expected = expected_scale(view, pods)?;
            Ok((expected, share.of(expected, true)))
        }
        None => Ok((0, 0)),
    }
}

/// Rule 13: the scales of all controllers of the pods, each counted once. Pods without a controller do not count.
fn expected_scale(view: &View, pods: &[&Arc<Pod>]) -> Result<i64, String> {
    let mut scales: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = pod.metadata.controller() else { continue };
        if scales.contains_key(owner.uid.as_str()) {
            continue;
        }
        let found = scale_of(view, &pod.metadata.namespace, owner);
        let (uid, scale) =
            found.ok_or_else(|| format!("found no controllers for pod \"{}\"", pod.metadata.name))?;
        scales.insert(uid, scale);
    }
    Ok(scales.values().sum())
}

/// The controller that has the last word on how many there are: a deployment for the pods of its replica sets.
fn scale_of<'a>(view: &'a View, namespace: &str, owner: &Owner) -> Option<(&'a str, i64)> {
    let key = Key::new(namespace, &owner.name);
    match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = view.replica_sets.get(&key).filter(|set| set.metadata.uid == owner.uid)?;
            match set.metadata.controller().filter(|owner| owner.kind == "Deployment") {
                None => Some((&set.metadata.uid, set.replicas())),
                Some(owner) => {
                    let deployment = view.deployments.get(&Key::new(namespace, &owner.name))?;
                    (deployment.metadata.uid == owner.uid)
                        .then(|| (deployment.metadata.uid.as_str(), deployment.spec.replicas.unwrap_or(1)))
                }
            }
        }
        "StatefulSet" => {
            let set = view.stateful_sets.get(&key).filter(|set| set.metadata.uid == owner.uid)?;
            Some((&set.metadata.uid, set.spec.replicas.unwrap_or(1)))
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
pub fn decide_stale(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(pod) = view.pods.get(key).filter(|pod| pod.is_active()) else { return plan };
    let target =
        condition(&pod.status.conditions, "DisruptionTarget").filter(|target| target.status == "True");
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
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, owned_pod, pod, set_status, view};

    fn budget(spec: Value) -> Value {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        json!({
            "kind": "PodDisruptionBudget", "spec": spec,
            "metadata": {"name": "b", "namespace": "default", "uid": "b", "generation": 1},
        })
    }

    fn set(replicas: i64) -> Value {
        json!({
            "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "uid": "set"},
            "spec": {"replicas": replicas},
        })
    }

    fn members(count: usize) -> Vec<Value> {
        (0..count).map(|index| owned_pod(&format!("p{index}"), "ReplicaSet", "web", "set")).collect()
    }

    fn plan(objects: &[Value]) -> Plan {
        decide(&view(objects), &Key::new("default", "b"), at(60))
    }

    /// Expected, desired, healthy, allowed.
    fn counts(objects: &[Value]) -> [i64; 4] {
        let status = set_status(&plan(objects));
        ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
            .map(|field| status[field].as_i64().unwrap_or_default())
    }

    #[test]
    fn budgets_count_as_rules_11_12_and_15_say() {
        let cases = [
            ("11: an absolute maximum", json!({"maxUnavailable": 1}), 4, 4, [4, 3, 4, 1]),
            ("11: a share is rounded up", json!({"maxUnavailable": "30%"}), 4, 4, [4, 2, 4, 2]),
            ("11: never below zero", json!({"maxUnavailable": 9}), 4, 4, [4, 0, 4, 4]),
            ("11: expected is the scale, not the pods", json!({"maxUnavailable": 1}), 4, 2, [4, 3, 2, 0]),
            ("12: an absolute minimum counts pods", json!({"minAvailable": 2}), 9, 3, [3, 2, 3, 1]),
            ("12: a share of the scale, rounded up", json!({"minAvailable": "50%"}), 5, 5, [5, 3, 5, 2]),
        ];
        for (rule, spec, replicas, pods, want) in cases {
            let mut objects = vec![budget(spec), set(replicas)];
            objects.extend(members(pods));
            assert_eq!(counts(&objects), want, "{rule}");
        }
        let created = BudgetStatus { observed_generation: 1, ..BudgetStatus::default() };
        assert_eq!(created.disruptions_allowed, 0);
        assert_eq!(
            counts(&[budget(json!({"minAvailable": 0}))]),
            [0, 0, 0, 0],
            "15: nothing expected, nothing allowed"
        );
    }

    #[test]
    fn rule_14_only_ready_pods_that_stay_are_healthy() {
        let mut objects = vec![budget(json!({"minAvailable": 1})), set(4)];
        objects.extend(members(4));
        objects[2]["status"]["conditions"][0]["status"] = "False".into();
        objects[3]["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
        objects[0]["status"] = json!({"disruptedPods": {"p2": "1970-01-01T00:00:30Z"}});
        assert_eq!(counts(&objects)[2], 1);
    }

    #[test]
    fn rule_16_evicted_pods_are_remembered_for_two_minutes_or_until_they_go() {
        let mut objects = vec![budget(json!({"minAvailable": 1})), set(3)];
        objects.extend(members(3));
        objects[4]["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
        objects[0]["status"] = json!({"disruptedPods": {
            "p0": "1970-01-01T00:00:30Z", "p1": "1969-12-31T23:58:00Z", "p2": "1970-01-01T00:00:30Z", "gone": "1970-01-01T00:00:30Z",
        }});
        let plan = plan(&objects);
        let kept = set_status(&plan)["disruptedPods"].clone();
        assert_eq!(kept, json!({"p0": "1970-01-01T00:00:30Z", "p1": null, "p2": null, "gone": null}));
        assert_eq!(plan.recheck_at, Some(at(150)));
    }

    #[test]
    fn rules_13_and_17_pods_of_unknown_controllers_fail_the_sync_and_those_of_none_do_not_count() {
        let unknown = owned_pod("p", "DaemonSet", "d", "d");
        let status = set_status(&plan(&[budget(json!({"maxUnavailable": 1})), unknown]));
        assert_eq!(status["conditions"][0]["reason"], "SyncFailed");
        assert_eq!(status["conditions"][0]["message"], "found no controllers for pod \"p\"");
        assert_eq!(counts(&[budget(json!({"maxUnavailable": 1})), pod("p", "n")]), [0, 0, 1, 0]);
    }

    #[test]
    fn rule_18_a_target_that_nobody_deleted_is_none() {
        let mut target = pod("p", "n");
        target["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
        let at_second =
            |second| decide_stale(&view(&[target.clone()]), &Key::new("default", "p"), at(second));
        assert_eq!(at_second(60), Plan { actions: vec![], recheck_at: Some(at(120)) });
        assert_eq!(set_status(&at_second(120))["conditions"][0]["status"], "False");
    }

    #[test]
    fn a_status_that_says_it_already_is_not_written() {
        let mut objects = vec![budget(json!({"minAvailable": 1})), set(2)];
        objects.extend(members(2));
        objects[0]["status"] = set_status(&plan(&objects));
        assert_eq!(plan(&objects), Plan::nothing());
    }
}
