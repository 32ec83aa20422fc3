//! Explanations as people read them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::explanation::{PodFound, explain};
use super::stateful_set::SetFound;
use super::text;
use crate::Environment;
use crate::samples::{NOW, budget, pod, request, world};
use usher_decide::snapshot::{PodOnWire, StatefulSetOnWire};
use usher_forecast::request_state::Leader;

fn found(pod: Option<Value>, request: Option<Value>, budgets: &[Value]) -> PodFound {
    PodFound {
        namespace: "shop".into(),
        name: "web-1".into(),
        pod: pod.map(|pod| serde_json::from_value(pod).unwrap()),
        request: request.map(|request| serde_json::from_value(request).unwrap()),
        world: world(&[], &[], budgets),
        events: Vec::new(),
        leader: Leader::Unknown,
        set: None,
    }
}

fn rendered(found: &PodFound) -> String {
    let now: Timestamp = NOW.parse().unwrap();
    text::render(&explain(found, now), &Environment::plain(), now)
}

fn event(at: &str, kind: &str, reason: &str, message: &str) -> k8s_openapi::api::core::v1::Event {
    serde_json::from_value(json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "lastTimestamp": at, "type": kind, "reason": reason,
        "message": message,
    }))
    .unwrap()
}

fn interceptors() -> Value {
    json!([
        {"interceptorClass": "backup.example.com", "priority": 12000},
        {"interceptorClass": "db.example.com", "priority": 11000, "role": "knowledgeable"},
        {"interceptorClass": "replicaset.apps.k8s.io", "priority": 10000, "role": "controller"},
    ])
}

#[test]
fn an_interceptor_that_has_its_turn() {
    let mut request = request("web-1");
    request["spec"]["interceptors"] = interceptors();
    request["status"] = json!({
        "activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:57:00Z",
        "expectedInterceptorFinishTime": "2026-01-01T12:05:00Z", "message": "moving 3 of 5 shards",
        "evictionRequestCancellationPolicy": "Forbid",
    });
    let mut found = found(Some(pod("web-1", "node-1")), Some(request), &[budget("web", 0)]);
    found.events = vec![
        event(
            "2026-01-01T11:45:01Z",
            "Normal",
            "InterceptorSelected",
            "backup.example.com goes first (2 interceptors)",
        ),
        event(
            "2026-01-01T11:50:00Z",
            "Normal",
            "InterceptorSelected",
            "backup.example.com completed, db.example.com is next",
        ),
        event(
            "2026-01-01T11:45:02Z",
            "Normal",
            "InterceptorSelected",
            "backup.example.com goes first (2 interceptors)",
        ),
    ];
    assert_eq!(
        rendered(&found),
        "\
Pod shop/web-1 on node-1 (Running, ready, of ReplicaSet/web-abc) has not been evicted yet.

Waiting on    interceptor db.example.com has its turn
Since         10m ago (2026-01-01 11:50:00Z)
Until         in 27m (2026-01-01 12:27:00Z) at the latest, without progress until then; it expects to finish in 5m (2026-01-01 12:05:00Z)
What to do    wait; if db.example.com is stuck, look at its logs. It gives up its turn by setting status.activeInterceptorCompleted

Requested by  admin.usher.dev
Requested     15m ago (2026-01-01 11:45:00Z)
Cancellation  forbidden by the interceptor: the eviction goes on until the pod is gone
Message       moving 3 of 5 shards
Turns         1/3   backup.example.com       12000                 done
              2/3   db.example.com           11000/knowledgeable   active, last progress 3m ago
              3/3   replicaset.apps.k8s.io   10000/controller      waiting
              then the eviction API; 30m without progress passes the turn on
Budgets       web (minAvailable 3): does not allow the eviction; 0 allowed, 3 of 3 pods healthy, 3 wanted
Events        14m ago   Normal   InterceptorSelected   backup.example.com goes first (2 interceptors)
              10m ago   Normal   InterceptorSelected   backup.example.com completed, db.example.com is next
"
    );
}

#[test]
fn without_events_the_manager_s_write_tells_since_when_a_turn_lasts() {
    let mut request = request("web-1");
    request["spec"]["interceptors"] = interceptors();
    request["status"] =
        json!({"activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:57:00Z"});
    request["metadata"]["managedFields"] = json!([
        {"manager": "usher", "operation": "Update", "subresource": "status", "time": "2026-01-01T11:52:00Z"},
        {"manager": "db", "operation": "Update", "subresource": "status", "time": "2026-01-01T11:57:00Z"},
    ]);
    let text = rendered(&found(Some(pod("web-1", "node-1")), Some(request), &[]));
    assert!(text.contains("Since         8m ago (2026-01-01 11:52:00Z)\n"), "{text}");
}

fn blocked(reason: &str, message: &str, failures: i32) -> Value {
    json!({
        "failedAPIEvictionCounter": failures, "message": message, "conditions": [{
            "type": "EvictionBlocked", "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T11:48:00Z",
        }],
    })
}

#[test]
fn a_budget_that_has_nothing_left() {
    let mut request = request("web-1");
    let sentence = "disruption budget web does not allow the pod to be evicted";
    request["status"] = blocked("DisruptionBudget", sentence, 1);
    let found = found(Some(pod("web-1", "node-1")), Some(request), &[budget("web", 0)]);
    assert_eq!(
        rendered(&found),
        "\
Pod shop/web-1 on node-1 (Running, ready, of ReplicaSet/web-abc) has not been evicted yet.

Waiting on    disruption budget web does not allow the pod to be evicted
Since         12m ago (2026-01-01 11:48:00Z)
Until         this changes
What to do    budget web has minAvailable 3 and 3 pods: scale up to 4 pods or more, or lower minAvailable

Requested by  admin.usher.dev
Requested     15m ago (2026-01-01 11:45:00Z)
Turns         no interceptor; the eviction API, which was refused once
Budgets       web (minAvailable 3): does not allow the eviction; 0 allowed, 3 of 3 pods healthy, 3 wanted
"
    );
}

#[test]
fn a_webhook_that_refuses_is_tried_again_at_a_time() {
    let mut request = request("web-1");
    let sentence = "admission webhook \"hold.example.com\" denied the request: not now";
    request["status"] = blocked("AdmissionWebhook", sentence, 6);
    let refused = "Waiting on    admission webhook \"hold.example.com\" denied the request: not now\n\
                   Since         12m ago (2026-01-01 11:48:00Z)\n";
    let advice = "What to do    ask the owner of the webhook or policy; its message says why\n";

    let unknown = rendered(&found(Some(pod("web-1", "node-1")), Some(request.clone()), &[]));
    let until = "Until         retried automatically, up to 15m apart\n";
    assert!(unknown.contains(&format!("{refused}{until}{advice}")), "{unknown}");

    request["metadata"]["managedFields"] = json!([
        {"manager": "usher", "operation": "Update", "subresource": "status", "time": "2026-01-01T11:59:50Z"},
    ]);
    let known = rendered(&found(Some(pod("web-1", "node-1")), Some(request), &[]));
    let until = "Until         in 25s (2026-01-01 12:00:24Z)\n";
    assert!(known.contains(&format!("{refused}{until}{advice}")), "{known}");
    assert!(!known.contains("manager"), "{known}");
}

#[test]
fn a_manager_that_does_not_act_is_told_of() {
    let mut request = request("web-1");
    request["spec"]["interceptors"] = interceptors();
    let mut found = found(Some(pod("web-1", "node-1")), Some(request.clone()), &[]);
    let text = rendered(&found);
    assert!(
        text.contains(
            "What to do    the manager does not seem to run: it should give the next interceptor its turn since 15m ago \
             (2026-01-01 11:45:00Z); see kubectl get pods -A -l app.kubernetes.io/name=usher\n"
        ),
        "{text}"
    );
    let renewed = |at: &str| Leader::Renewed { at: at.parse().unwrap(), namespace: "tools".to_string() };
    found.leader = renewed("2026-01-01T11:30:00Z");
    let text = rendered(&found);
    assert!(
        text.contains(
            "and last renewed its lease 30m ago (2026-01-01 11:30:00Z); see kubectl get pods -n tools\n"
        ),
        "{text}"
    );
    found.leader = renewed("2026-01-01T11:59:58Z");
    let text = rendered(&found);
    assert!(text.contains("the manager runs, but should give the next interceptor its turn since"), "{text}");
    assert!(text.contains("look at its logs in namespace tools\n"), "{text}");

    // Bundled interceptors are the manager's as well, and others are not.
    let mut turn = request.clone();
    for (class, is_its) in [("deployment.apps.k8s.io", true), ("db.example.com", false)] {
        turn["spec"]["interceptors"] = json!([{"interceptorClass": class, "priority": 10001}]);
        turn["status"] =
            json!({"activeInterceptorClass": class, "progressTimestamp": "2026-01-01T11:45:00Z"});
        found = self::found(Some(pod("web-1", "node-1")), Some(turn.clone()), &[]);
        found.leader = renewed("2026-01-01T11:50:00Z");
        let text = rendered(&found);
        assert_eq!(
            text.contains("it should act as the interceptor of its workload since 10m ago"),
            is_its,
            "{text}"
        );
        found.leader = renewed("2026-01-01T11:59:58Z");
        assert!(!rendered(&found).contains("manager"), "{}", rendered(&found));
    }

    request["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:55Z");
    let young = rendered(&self::found(Some(pod("web-1", "node-1")), Some(request), &[]));
    assert!(
        young.contains(
            "What to do    wait a moment; if it lasts, check that the manager runs: kubectl get pods -A"
        ),
        "{young}"
    );
}

#[test]
fn whether_a_budget_frees_is_not_held_against_a_manager_that_may_run() {
    let request = request("web-1");
    let mut found = found(Some(pod("web-1", "node-1")), Some(request), &[budget("web", 1)]);
    assert!(
        rendered(&found).contains(
            "What to do    wait a moment; if it lasts, check that the manager runs: kubectl get pods"
        )
    );
    found.leader = Leader::Missing;
    assert!(rendered(&found).contains("the manager does not seem to run: it should evict the pod since"));
}

#[test]
fn termination_that_something_holds() {
    let mut pod = pod("web-1", "node-1");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let text = rendered(&found(Some(pod), Some(request("web-1")), &[]));
    assert!(
        text.starts_with(
            "\
Pod shop/web-1 on node-1 (terminating, due 60s late, of ReplicaSet/web-abc) has not been evicted yet.

Waiting on    the pod is terminating and held by the finalizers example.com/hold
Since         90s ago (2026-01-01 11:58:30Z)
Until         60s ago (2026-01-01 11:59:00Z)
What to do    ask the owners of the finalizers to remove them
"
        ),
        "{text}"
    );
}

#[test]
fn a_pod_that_nobody_asks_to_leave() {
    let mut pod = pod("web-1", "node-1");
    assert_eq!(
        rendered(&found(Some(pod.clone()), None, &[])),
        "\
Pod shop/web-1 on node-1 (Running, ready, of ReplicaSet/web-abc) has no eviction request.

If evicted    it would be evicted at once: it has no interceptor, and no budget is in the way
To evict it   usher evict web-1 -n shop
"
    );
    assert_eq!(
        rendered(&found(Some(pod.clone()), None, &[budget("web", 0), budget("all", 1)])),
        "\
Pod shop/web-1 on node-1 (Running, ready, of ReplicaSet/web-abc) has no eviction request.

If evicted    the disruption budgets all and web all select the pod, and the server evicts no pod that has more than one
Before that   change the selectors of all and web so that one of them is left
To evict it   usher evict web-1 -n shop
Budgets       all (minAvailable 2): allows the eviction; 1 allowed, 3 of 3 pods healthy, 2 wanted
              web (minAvailable 3): does not allow the eviction; 0 allowed, 3 of 3 pods healthy, 3 wanted
              the eviction API refuses pods with more than one budget
"
    );
    pod["metadata"]["annotations"] = json!({
        "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com": "11000/knowledgeable",
        "interceptor.evictionrequest.coordination.k8s.io/priority_low.example.com": "2000",
    });
    assert_eq!(
        rendered(&found(Some(pod.clone()), None, &[])),
        "\
Pod shop/web-1 on node-1 (Running, ready, of ReplicaSet/web-abc) has no eviction request.

If evicted    db.example.com would go first (2 interceptors)
To evict it   usher evict web-1 -n shop

Interceptors  1/2   db.example.com    11000/knowledgeable
              2/2   low.example.com   2000
"
    );
    pod["metadata"]["annotations"] =
        json!({"interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com": "soon"});
    let text = rendered(&found(Some(pod), None, &[]));
    assert!(text.contains("\nAnnotation    "), "{text}");
}

#[test]
fn a_request_that_outlives_its_pod() {
    let mut request = request("web-1");
    request["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:58:00Z");
    request["metadata"]["finalizers"] = json!(["audit.example.com/log"]);
    let text = rendered(&found(None, Some(request), &[]));
    assert!(
        text.starts_with(
            "\
Pod shop/web-1 is gone; only its eviction request is still there.

Waiting on    the request is held by the finalizers audit.example.com/log
Since         2m ago (2026-01-01 11:58:00Z)
Until         not known
What to do    ask the owners of the finalizers to remove them

Requested by  nobody; all have withdrawn
"
        ),
        "{text}"
    );
}

#[test]
fn a_pod_that_is_wanted_gone_is_told_with_who_evicts_it() {
    let mut pod = pod("web-1", "node-1");
    let mark = json!({"uid": pod["metadata"]["uid"], "since": "2026-01-01T11:59:40Z", "asked": {"by": "alice", "at": "2026-01-01T11:59:50Z"}});
    pod["metadata"]["annotations"]["kubernetes.io/pod-evict-wanted"] = "true".into();
    pod["metadata"]["annotations"]["evictionrequest.coordination.k8s.io/evict-wanted"] =
        mark.to_string().into();
    let found = found(Some(pod), None, &[]);
    let explanation = explain(&found, NOW.parse().unwrap());
    let text = super::text::render(&explanation, &Environment::plain(), NOW.parse().unwrap());
    let wanted = "20s ago (2026-01-01 11:59:40Z), evicted by alice; its workload takes over";
    assert!(text.contains(wanted), "{text}");
    let value = serde_json::to_value(explanation).unwrap();
    assert_eq!(value["pod"]["evictWanted"]["user"], "alice");
}

#[test]
fn who_evicts_plainly_is_told_by_name() {
    let mut request = request("web-1");
    let requester = "karpenter.kube-system.sa.gateway";
    request["metadata"]["finalizers"] = json!([
        "requester.evictionrequest.coordination.k8s.io/name_admin.usher.dev",
        format!("requester.evictionrequest.coordination.k8s.io/name_{requester}"),
    ]);
    let user = "system:serviceaccount:kube-system:karpenter";
    let ask = json!({"by": user, "at": "2026-01-01T11:59:40Z"}).to_string();
    request["metadata"]["annotations"][format!("gateway.evictionrequest.coordination.k8s.io/{requester}")] =
        ask.into();
    let found = found(Some(pod("web-1", "node-1")), Some(request), &[]);
    let explanation = explain(&found, NOW.parse().unwrap());
    let text = super::text::render(&explanation, &Environment::plain(), NOW.parse().unwrap());
    let wanted = "Requested by  admin.usher.dev, system:serviceaccount:kube-system:karpenter by plain evictions, the last 20s ago";
    assert!(text.contains(wanted), "{text}");
    let value = serde_json::to_value(explanation).unwrap();
    assert_eq!(value["request"]["plainEvictions"][0]["user"], user);
}

#[test]
fn machines_get_the_same_in_fields() {
    let mut request = request("web-1");
    request["status"] = blocked("DisruptionBudget", "x", 2);
    let found = found(Some(pod("web-1", "node-1")), Some(request), &[budget("web", 0)]);
    let value = serde_json::to_value(explain(&found, NOW.parse().unwrap())).unwrap();
    assert_eq!(
        value["waitingOn"],
        json!({"kind": "Budget", "reason": "DisruptionBudget", "isBlocked": true, "names": ["web"]})
    );
    assert_eq!(value["budgets"][0]["currentHealthy"], 3);
    assert_eq!((&value["isBlocked"], &value["since"]), (&json!(true), &json!("2026-01-01T11:48:00Z")));
    assert_eq!(value["request"]["requesters"], json!(["admin.usher.dev"]));
    assert_eq!(value["budgets"][0]["letsPass"], false);
    assert_eq!((&value["until"], &value["manager"]), (&Value::Null, &Value::Null));
}

/// Machines need not know which of them it is to find what they look for.
#[test]
fn what_is_waited_for_has_the_same_fields_everywhere() {
    let mut webhook = request("web-1");
    webhook["status"] = blocked("AdmissionWebhook", "no", 6);
    let mut gone = request("web-1");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:58:00Z");
    gone["metadata"]["finalizers"] = json!(["audit.example.com/log"]);
    let there = || Some(pod("web-1", "node-1"));
    let all = [
        found(there(), Some(request("web-1")), &[]),
        found(there(), Some(request("web-1")), &[budget("web", 0)]),
        found(there(), Some(request("web-1")), &[budget("web", 0), budget("all", 0)]),
        found(there(), Some(webhook), &[]),
        found(None, Some(gone), &[]),
        found(there(), None, &[]),
    ];
    let mut kinds = Vec::new();
    for found in all {
        let value = serde_json::to_value(explain(&found, NOW.parse().unwrap())).unwrap();
        let waiting_on = value["waitingOn"].as_object().unwrap();
        assert_eq!(waiting_on.keys().collect::<Vec<_>>(), ["isBlocked", "kind", "names", "reason"]);
        assert!(waiting_on["names"].is_array() && waiting_on["reason"].is_string());
        kinds.push(waiting_on["kind"].as_str().unwrap().to_string());
    }
    assert_eq!(kinds, ["Manager", "Budget", "Manager", "Refused", "Finalizers", "Manager"]);
}

#[test]
fn budgets_that_may_not_be_read_are_told_of_and_never_said_to_be_out_of_the_way() {
    let hidden = |request: Option<Value>| {
        let mut found = found(Some(pod("web-1", "node-1")), request, &[]);
        found.world.budgets_are_hidden = true;
        let value = serde_json::to_value(explain(&found, NOW.parse().unwrap())).unwrap();
        assert_eq!(value["budgets"], Value::Null, "{value}");
        (rendered(&found), value["waitingOn"]["kind"].clone())
    };
    let (text, kind) = hidden(None);
    assert_eq!(kind, "HiddenBudgets");
    assert!(
        text.contains(
            "If evicted    it has no interceptor; whether a disruption budget is in the way is not known"
        ),
        "{text}"
    );
    assert!(text.contains("Budgets       not known: you may not list poddisruptionbudgets here\n"), "{text}");
    let (text, kind) = hidden(Some(request("web-1")));
    assert_eq!(kind, "HiddenBudgets");
    assert!(!text.contains("nothing is in the way") && !text.contains("the manager does not seem"), "{text}");
    // What the manager has written down is known to everybody.
    let mut refused = request("web-1");
    refused["status"] = blocked("DisruptionBudget", "disruption budget web does not allow it", 1);
    let (text, kind) = hidden(Some(refused));
    assert_eq!(kind, "Refused");
    assert!(text.contains("Waiting on    disruption budget web does not allow it\n"), "{text}");
}

#[test]
fn an_interceptor_that_has_not_reported_yet_is_said_to_be_so() {
    let mut request = request("web-1");
    request["spec"]["interceptors"] = interceptors();
    request["status"] =
        json!({"activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:57:00Z"});
    let written_by = |manager: &str| {
        json!([{
            "manager": manager, "operation": "Update", "subresource": "status", "time": "2026-01-01T11:57:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:progressTimestamp": {}}},
        }])
    };
    for (manager, wanted) in
        [("usher", "active, no progress reported yet\n"), ("db", "active, last progress 3m ago\n")]
    {
        request["metadata"]["managedFields"] = written_by(manager);
        let text = rendered(&found(Some(pod("web-1", "node-1")), Some(request.clone()), &[]));
        assert!(text.contains(wanted), "{manager}: {text}");
    }
}

#[test]
fn a_pod_or_a_node_may_be_named_in_one_word_or_two() {
    use super::{Subject, subjects};
    let named = |words: &[&str]| subjects(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (pod, node) = (|| Ok(vec![Subject::Pod("a".into())]), || Ok(vec![Subject::Node("a".into())]));
    for words in [&["a"][..], &["pod/a"], &["pod", "a"], &["po", "a"]] {
        assert_eq!(named(words), pod(), "{words:?}");
    }
    for words in [&["node/a"][..], &["node", "a"], &["no/a"], &["nodes", "a"]] {
        assert_eq!(named(words), node(), "{words:?}");
    }
    assert_eq!(named(&["pod/node"]), Ok(vec![Subject::Pod("node".into())]), "a pod may be called so");
    let (one, two) = (Subject::Pod("a".into()), Subject::Pod("b".into()));
    for words in [&["a", "b"][..], &["pod/a", "b"], &["pods", "a", "b"], &["Pod", "a", "b"]] {
        assert_eq!(named(words), Ok(vec![one.clone(), two.clone()]), "{words:?}");
    }
    assert_eq!(named(&["Deployment/a"]), Ok(vec![Subject::Deployment("a".into())]), "as kubectl takes it");
    assert_eq!(named(&["a", "node/b"]), Ok(vec![one, Subject::Node("b".into())]));
    for (words, part) in [
        (&["node", "N"][..], "cannot be the name of a node"),
        (&["job/a"], "\"job\" cannot be explained: name a pod, node/NODE or deployment/NAME"),
        (
            &["nm/a"],
            "name a pod, node/NODE or deployment/NAME; for a maintenance: usher maintenance describe a",
        ),
        (&["nodemaintenance", "a"], "usher maintenance describe a"),
        (&["node", "node/a"], "cannot be the name of a node"),
        (&["Deployment"], "which one is meant? Name it after Deployment, as in Deployment/NAME"),
    ] {
        assert!(named(words).unwrap_err().contains(part), "{words:?}");
    }
}

#[test]
fn why_pods_of_a_stateful_set_are_not_available_is_a_field_and_a_line() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s", "controller": true}]);
    let replica = |ordinal: u32| {
        let mut pod = pod(&format!("db-{ordinal}"), "node-1");
        pod["metadata"]["ownerReferences"] = owner.clone();
        pod
    };
    let mut stuck = replica(2);
    stuck["spec"]["nodeName"] = "".into();
    let message = "0/3 nodes are available: 1 node(s) had volume node affinity conflict.";
    stuck["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
    ]});
    let mut request = request("db-1");
    request["spec"]["interceptors"] =
        json!([{"interceptorClass": "statefulset.apps.k8s.io", "priority": 10000, "role": "controller"}]);
    request["status"] = json!({"activeInterceptorClass": "statefulset.apps.k8s.io", "progressTimestamp": "2026-01-01T11:57:00Z"});
    let set = json!({
        "metadata": {"name": "db", "namespace": "shop", "uid": "s"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "db"}}},
    });
    let mut found = found(Some(replica(1)), Some(request), &[]);
    found.set = Some(SetFound {
        set: serde_json::from_value::<StatefulSetOnWire>(set).unwrap().into(),
        pods: [replica(0), replica(1), stuck]
            .map(|pod| serde_json::from_value::<PodOnWire>(pod).unwrap().into())
            .to_vec(),
    });
    let now: Timestamp = NOW.parse().unwrap();
    let explanation = serde_json::to_value(explain(&found, now)).unwrap();
    let reasons: Vec<_> =
        explanation["unavailable"].as_array().unwrap().iter().map(|it| (&it["pod"], &it["reason"])).collect();
    assert_eq!(reasons, [(&json!("db-3"), &json!("Missing")), (&json!("db-2"), &json!("VolumeCannotMove"))]);
    let text = rendered(&found);
    let lines = format!(
        "Not available db-3 is not there yet (Missing)\n              db-2 cannot be scheduled, as its volume cannot move to another \
         node: {} (VolumeCannotMove)\n",
        message.trim_end_matches('.')
    );
    assert!(text.contains(&lines), "{text}");
}
