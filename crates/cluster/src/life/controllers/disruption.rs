//! The disruption controller: how many pods of a budget may go right now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::clock::rfc3339;
use crate::life::plan::{About, Action, Note, Plan};
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
        Err(why) => {
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
fn required(view: &View, budget: &Budget, pods: &[&Arc<Pod>], now: Timestamp) -> Result<Required, String> {
    let desired: &dyn Fn(i64) -> i64 = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(most), _) => &|expected| (expected - most.of(expected, true)).max(0),
        (None, Some(Amount::Number(least))) => {
            return Ok(Required::Known { expected: pods.len() as i64, desired: *least, unmanaged: false });
        }
        (None, Some(share)) => &|expected| share.of(expected, true),
        (None, None) => return Ok(Required::Known { expected: 0, desired: 0, unmanaged: false }),
    };
    Ok(match expected_scale(view, pods, now)? {
        Counted::Ask(owner) => Required::Ask(owner),
        Counted::Scale { expected, unmanaged } => {
            Required::Known { expected, desired: desired(expected), unmanaged }
        }
    })
}

enum Counted {
    Scale { expected: i64, unmanaged: bool },
    Ask(Owner),
}

/// Rule 13: the scales of all controllers of the pods, each counted once. Pods without a controller do not count.
fn expected_scale(view: &View, pods: &[&Arc<Pod>], now: Timestamp) -> Result<Counted, String> {
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
                None => return Ok(Counted::Ask(owner.clone())),
                Some(scale) => scale.clone()?.filter(|(uid, _)| *uid == owner.uid),
            },
        };
        let (uid, scale) =
            found.ok_or_else(|| format!("found no controllers for pod \"{}\"", pod.metadata.name))?;
        scales.insert(uid, scale);
    }
    Ok(Counted::Scale { expected: scales.values().sum(), unmanaged })
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
pub fn decide_stale(view: &View, key: &Key, now: Timestamp) -> Plan {
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
        let noted: Vec<(&str, &str)> =
            plan.notes.iter().map(|note| (note.about.name.as_str(), note.reason)).collect();
        assert_eq!(noted, [("p1", "NotDeleted")]);
    }

    fn replicas(kind: &str, name: &str, count: i64) -> Value {
        json!({"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"replicas": count}})
    }

    fn owned(kind: &str, api_version: &str, uid: &str) -> Value {
        let mut pod = owned_pod("p", kind, "o", uid);
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = api_version.into();
        pod
    }

    #[test]
    fn rule_13_scales_are_those_of_the_controllers_that_are_followed() {
        let half = || budget(json!({"maxUnavailable": "50%"}));
        let expected = |controllers: &[Value], pod: Value| {
            let objects: Vec<Value> =
                [half()].into_iter().chain(controllers.iter().cloned()).chain([pod]).collect();
            counts(&objects)[0]
        };
        assert_eq!(
            expected(&[replicas("ReplicationController", "o", 3)], owned("ReplicationController", "v1", "o")),
            3
        );
        assert_eq!(expected(&[replicas("StatefulSet", "o", 4)], owned("StatefulSet", "apps/v1", "o")), 4);
        assert_eq!(expected(&[replicas("ReplicaSet", "o", 5)], owned("ReplicaSet", "apps/v1", "o")), 5);
        let mut of_deployment = replicas("ReplicaSet", "o", 5);
        of_deployment["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]);
        assert_eq!(
            expected(&[of_deployment, replicas("Deployment", "d", 6)], owned("ReplicaSet", "apps/v1", "o")),
            6
        );
    }

    /// The plan once the owner's scale was asked for.
    fn told(objects: &[Value], scale: crate::life::view::Scale) -> Plan {
        let mut view = view(objects);
        let key = Key::new("default", "b");
        let asked = decide(&view, &key, at(60));
        let [Action::AskScale { namespace, owner }] = &asked.actions[..] else { panic!("{asked:?}") };
        view.learn_scale(namespace, owner, scale, at(60));
        decide(&view, &key, at(60))
    }

    #[test]
    fn rule_13_scales_of_others_are_asked_for_and_their_uid_must_match() {
        let objects = [budget(json!({"maxUnavailable": 1})), owned("Thing", "example.com/v1", "o")];
        let known = told(&objects, Ok(Some(("o".into(), 7))));
        assert_eq!(set_status(&known)["expectedPods"], 7);
        for none in [Ok(Some(("another".into(), 7))), Ok(None)] {
            let condition = set_status(&told(&objects, none))["conditions"][0].clone();
            assert_eq!(condition["message"], "found no controllers for pod \"p\"");
        }
        let mut later = view(&objects);
        let Some(owner) = later.pods.iter().next().and_then(|(_, pod)| pod.metadata.controller().cloned())
        else {
            panic!("it has an owner");
        };
        later.learn_scale("default", &owner, Ok(None), at(10));
        assert!(matches!(
            decide(&later, &Key::new("default", "b"), at(60)).actions[..],
            [Action::AskScale { .. }]
        ));
    }

    #[test]
    fn rule_13_pods_without_a_controller_do_not_count_but_are_noted() {
        let objects = [budget(json!({"maxUnavailable": 1})), pod("p", "n")];
        assert_eq!(counts(&objects), [0, 0, 1, 0]);
        let notes = plan(&objects).notes;
        assert_eq!(notes[0].reason, "UnmanagedPods");
        let selector = "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}";
        assert!(notes[0].message.contains(selector), "{}", notes[0].message);
    }

    #[test]
    fn rule_17_what_cannot_be_counted_allows_nothing_and_keeps_the_rest() {
        let mut failing = budget(json!({"maxUnavailable": 1}));
        failing["metadata"]["generation"] = json!(5);
        failing["status"] =
            json!({"observedGeneration": 4, "disruptionsAllowed": 2, "currentHealthy": 3, "expectedPods": 3});
        let why = "daemonsets.apps does not implement the scale subresource";
        let plan = told(&[failing, owned("DaemonSet", "apps/v1", "o")], Err(why.into()));
        let status = set_status(&plan);
        assert_eq!(
            [&status["disruptionsAllowed"], &status["currentHealthy"], &status["observedGeneration"]],
            [&json!(0), &json!(3), &json!(4)]
        );
        let condition = &status["conditions"][0];
        assert_eq!(
            [
                &condition["status"],
                &condition["reason"],
                &condition["message"],
                &condition["observedGeneration"]
            ],
            [&json!("False"), &json!("SyncFailed"), &json!(why), &json!(4)]
        );
        assert_eq!(plan.notes[0].reason, "CalculateExpectedPodCountFailed");
    }

    #[test]
    fn rule_18_a_target_that_nobody_deleted_is_none() {
        let mut target = pod("p", "n");
        target["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
        let at_second = |second| {
            decide_stale(&view(std::slice::from_ref(&target)), &Key::new("default", "p"), at(second))
        };
        assert_eq!((at_second(60).actions, at_second(60).recheck_at), (vec![], Some(at(120))));
        assert_eq!(set_status(&at_second(120))["conditions"][0]["status"], "False");
        target["status"]["conditions"][0]["reason"] = "TerminationByKubelet".into();
        let announced = decide_stale(&view(&[target]), &Key::new("default", "p"), at(999));
        assert_eq!(announced, Plan::nothing(), "a kubelet may take its time");
    }

    #[test]
    fn a_status_that_says_it_already_is_not_written() {
        let mut objects = vec![budget(json!({"minAvailable": 1})), set(2)];
        objects.extend(members(2));
        objects[0]["status"] = set_status(&plan(&objects));
        assert_eq!(plan(&objects), Plan::nothing());
    }
}
