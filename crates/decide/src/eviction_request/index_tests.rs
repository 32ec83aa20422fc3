use super::*;
use crate::snapshot::{PodOnWire, RequestOnWire};
use crate::waiting_on::WaitingOn;
use serde_json::{Value, json};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(name: &str, uid: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": uid, "labels": {"app": "web"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap())
}

fn request(pod: &str, uid: &str, deleted: bool) -> Request {
    let mut request = json!({
        "metadata": {
            "name": uid, "namespace": "d", "uid": format!("r-{uid}"), "resourceVersion": "7",
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {"podRef": {"name": pod, "uid": uid}, "interceptors": []},
    });
    if deleted {
        request["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:01Z".into();
    }
    Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
}

fn budget(allowed: i32, disrupted: &[&str]) -> Budget {
    let disrupted: serde_json::Map<String, Value> =
        disrupted.iter().map(|name| (name.to_string(), "1970-01-01T00:00:00Z".into())).collect();
    let budget: k8s_openapi::api::policy::v1::PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "d", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "disruptedPods": disrupted,
            "currentHealthy": 9, "desiredHealthy": 7, "expectedPods": 9,
        },
    }))
    .unwrap();
    Budget::from(budget)
}

/// Pods `a`, `b` and `c`, all asked to leave, and a budget with room for so many.
fn three(allowed: i32) -> (Index, [Key; 3]) {
    let mut index = Index::default();
    index.budget_seen(budget(allowed, &[]), at(0));
    let keys = ["a", "b", "c"].map(|name| {
        index.pod_seen(pod(name, name));
        index.request_seen(request(name, name, false), at(0))
    });
    (index, keys)
}

fn evicts(index: &mut Index, key: &Key) -> bool {
    index.decide(key, at(1)).unwrap().evicts()
}

#[test]
fn those_with_room_go_one_after_another_and_only_those_without_are_told_to_wait() {
    let (mut index, [a, b, c]) = three(2);
    assert!(evicts(&mut index, &a));
    let later = index.decide(&b, at(1)).unwrap().decision;
    let turn = WaitingOn::TurnAtBudget { name: "web".into() };
    assert_eq!(later, Decision::wait(turn), "it has room, so there is nothing to write");
    let waits = index.decide(&c, at(1)).unwrap().decision;
    assert!(matches!(waits.waiting_on, Some(WaitingOn::Budget { .. })) && !waits.effects.is_empty());

    index.answered(&a, Answer::Accepted, Vec::new(), at(2));
    let asked: Vec<Key> = index.budgets_to_ask().into_iter().collect();
    assert_eq!(asked, [Key::new("d", "web")]);
    assert_eq!(index.grant(&asked[0], at(2)).0, Some(b.clone()), "the next turn begins");
    assert!(evicts(&mut index, &b) && !evicts(&mut index, &c));
}

#[test]
fn who_waits_for_its_turn_is_not_told_to_be_blocked_any_more_and_that_once() {
    let (mut index, [a, b, _]) = three(2);
    let told = |index: &mut Index, reason: &str| {
        let mut told = request("b", "b", false);
        let status = if reason == "Queued" { "False" } else { "True" };
        let condition = json!({
            "type": "EvictionBlocked", "status": status, "reason": reason, "message": "budget web",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        told.status.conditions = vec![serde_json::from_value(condition).unwrap()];
        index.request_seen(told, at(0));
        index.decide(&b, at(1)).unwrap().decision
    };
    assert!(evicts(&mut index, &a));
    let corrected = told(&mut index, "DisruptionBudget");
    assert_eq!(corrected.waiting_on.as_ref().map(WaitingOn::reason), Some("Queued"));
    let [Effect::WriteStatus(status)] = &corrected.effects[..] else { panic!("{corrected:?}") };
    assert_eq!(
        (&*status.conditions[0].status, &*status.message),
        ("False", "queued: budget web has room for the pod, and others go before it")
    );
    assert!(told(&mut index, "Queued").effects.is_empty(), "it is told once");
    // A webhook that refused it will be asked again, and is what people are to know until then.
    let refused = told(&mut index, "AdmissionWebhook");
    assert_eq!((refused.waiting_on, refused.effects), (corrected.waiting_on, Vec::new()));
    assert_eq!(told(&mut index, "MoreThanOneDisruptionBudget").effects.len(), 1);
}

#[test]
fn who_is_refused_by_somebody_else_than_the_budget_goes_behind_those_who_were_not_tried() {
    let (mut index, keys) = three(1);
    let budget = Key::new("d", "web");
    let refusal = Refusal::Server { code: 403, message: "admission webhook \"w\" denied the request".into() };
    let mut tried = Vec::new();
    for second in 0..3 {
        // A long time passes, so that all back-offs are over.
        let now = at(1 + 100 * second);
        let turn = keys.iter().find(|key| index.decide(key, now).unwrap().evicts()).unwrap().clone();
        index.answered(&turn, Answer::Refused(refusal.clone()), Vec::new(), now);
        tried.push(turn);
        index.grant(&budget, now);
    }
    tried.sort();
    assert_eq!(tried, keys, "everybody has been tried once before anybody is tried again");
}

#[test]
fn what_was_not_carried_out_makes_room_for_the_next() {
    let (mut index, [a, b, _]) = three(1);
    assert!(evicts(&mut index, &a) && !evicts(&mut index, &b));
    index.not_carried_out(&a);
    assert_eq!(index.grant(&Key::new("d", "web"), at(2)).0, Some(b.clone()));
    assert!(evicts(&mut index, &b) && !evicts(&mut index, &a));
}

#[test]
fn nothing_is_decided_on_a_request_that_is_deleted_until_the_watch_tells() {
    let (mut index, [a, ..]) = three(1);
    index.pod_gone(&a_pod());
    let decided = index.decide(&a, at(1)).unwrap();
    let ended = [Effect::Delete(Ending::PodLeft), Effect::KeepFinalizers(Vec::new())];
    assert_eq!((&decided.decision.effects[..], decided.ending()), (&ended[..], Some(Ending::PodLeft)));
    index.carried_out(&decided);
    index.request_seen(request("a", "a", true), at(0));
    assert!(index.decide(&a, at(1)).is_none(), "an old event of the watch changes nothing");
    index.request_gone(&a);
    index.request_seen(request("a", "a", false), at(0));
    assert!(index.decide(&a, at(2)).is_some(), "another one of the name is another one");
}

fn a_pod() -> Key {
    Key::new("d", "a")
}

#[test]
fn a_pod_concerns_its_own_request_and_that_of_the_one_before_it() {
    let (mut index, [a, ..]) = three(1);
    assert_eq!(index.pod_seen(pod("a", "a")), std::slice::from_ref(&a));
    assert_eq!(index.pod_seen(pod("a", "a2")), [a], "its pod is gone");
    let second = index.request_seen(request("a", "a2", false), at(0));
    assert_eq!(index.pod_seen(pod("a", "a2")), std::slice::from_ref(&second));
    assert_eq!(index.pod_gone(&a_pod()), Some(second));
    assert_eq!(index.pod_gone(&a_pod()), None);
}
