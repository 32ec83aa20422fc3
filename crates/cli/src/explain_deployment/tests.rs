//! Deployments explained as people read them.

use serde_json::{Value, json};
use usher_decide::snapshot::{AutoscalerOnWire, DeploymentOnWire};
use usher_forecast::request_state::Leader;

use super::explanation::{DeploymentExplanation, DeploymentFound, explain};
use super::text;
use crate::Environment;
use crate::explain::PodFound;
use crate::samples::{NOW, pod, request, world};

fn deployment(replicas: u32, with: &Value) -> Value {
    let mut deployment = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "d", "generation": 1},
        "spec": {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas},
    });
    json_patch(&mut deployment, with);
    deployment
}

fn json_patch(into: &mut Value, with: &Value) {
    match with {
        Value::Object(fields) => {
            for (name, field) in fields {
                json_patch(&mut into[name], field);
            }
        }
        value => into.clone_from(value),
    }
}

fn surging(by: u32, replicas: u32) -> Value {
    json!({"metadata": {"labels": {"evictionrequest.coordination.k8s.io/surge": format!("{by}-{replicas}-0")}}})
}

fn found(name: &str, has_turn: bool, is_ready: bool) -> PodFound {
    let mut pod = pod(name, "n1");
    if !is_ready {
        pod["spec"]["nodeName"] = json!("");
        pod["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]});
    }
    let request = has_turn.then(|| {
        let mut request = request(name);
        request["status"] = json!({
            "activeInterceptorClass": "deployment.apps.k8s.io", "message": "waits until its replacement is there",
            "progressTimestamp": "2026-01-01T11:59:00Z",
        });
        request["spec"]["interceptors"] = json!([
            {"interceptorClass": "deployment.apps.k8s.io", "priority": 10001},
            {"interceptorClass": "replicaset.apps.k8s.io", "priority": 10000},
        ]);
        request
    });
    PodFound {
        namespace: "shop".into(),
        name: name.into(),
        pod: serde_json::from_value(pod).unwrap(),
        request: request.map(|request| serde_json::from_value(request).unwrap()),
        world: world(&[], &[], &[]),
        events: Vec::new(),
        leader: Leader::Unknown,
        set: None,
    }
}

fn explained(deployment: Value, autoscaler: Option<Value>, pods: Vec<PodFound>) -> DeploymentExplanation {
    let found = DeploymentFound {
        deployment: serde_json::from_value::<DeploymentOnWire>(deployment).unwrap().into(),
        namespace_strategy: None,
        autoscaler: autoscaler.map(|it| serde_json::from_value::<AutoscalerOnWire>(it).unwrap().into()),
        pods,
    };
    explain(&found, NOW.parse().unwrap())
}

fn rendered(explanation: &DeploymentExplanation) -> String {
    text::render(explanation, &Environment::plain(), NOW.parse().unwrap())
}

#[test]
fn a_surge_is_told_with_what_it_waits_for() {
    let pods = vec![found("web-1", true, true), found("web-2", false, true), found("web-3", false, false)];
    let explanation = explained(deployment(3, &surging(1, 3)), None, pods);
    assert_eq!((explanation.wanted_replicas, explanation.surge), (2, 1));
    assert_eq!((explanation.available_replicas, explanation.replicas_to_evict), (2, 1));
    assert!(explanation.eviction_request_in_progress);
    assert_eq!(explanation.waiting, ["web-1"]);
    assert_eq!(explanation.unavailable[0].reason, "Unschedulable");
    let text = rendered(&explanation);
    for part in [
        "Deployment shop/web surges by 1: 1 of its pods is asked to leave.",
        "Replicas      2 wanted and 1 more for now, 2 available",
        "Surge         at most 1 at a time",
        "Waits for     web-3 cannot be scheduled: 0/3 nodes are available (Unschedulable)",
        "More          usher explain POD -n shop",
        "What to do  wait until enough others of its pods are available",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("explain deployment/"), "{text}");
}

#[test]
fn pods_that_cannot_be_made_and_a_strategy_that_says_nothing_are_told() {
    let mut with = surging(1, 2);
    let annotation = "evictionrequest.coordination.k8s.io/eviction-request-strategy";
    with["metadata"]["annotations"] = json!({annotation: "Surgery"});
    with["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}]);
    let text = rendered(&explained(deployment(2, &with), None, vec![found("web-1", true, true)]));
    for part in [
        "1 more pod, which cannot be made: exceeded quota (ReplicaFailure)",
        "is \"Surgery\", which means nothing for a Deployment: use Surge, HandOver, MaxUnavailable or Off",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn what_is_left_to_the_eviction_api_is_told_with_its_reason() {
    let recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
    let text = rendered(&explained(deployment(1, &recreate), None, vec![found("web-1", true, true)]));
    assert!(text.contains("1 of its pods is asked to leave, and left to the eviction API."), "{text}");
    assert!(text.contains("Surge         Deployment web has the strategy Recreate"), "{text}");
}

#[test]
fn one_that_does_not_surge_says_how_many_go_at_a_time() {
    let fewer = json!({
        "metadata": {"annotations": {"evictionrequest.coordination.k8s.io/eviction-request-strategy": "MaxUnavailable"}},
        "spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}},
    });
    let pods = vec![found("web-1", true, true), found("web-2", true, true), found("web-3", false, true)];
    let text = rendered(&explained(deployment(3, &fewer), None, pods));
    assert!(
        text.contains("Surge         none: at most 2 of its pods go at a time, and others come"),
        "{text}"
    );
}

#[test]
fn in_progress_is_what_an_interceptor_has_and_not_what_is_left_to_the_eviction_api() {
    let asked = |change: fn(&mut usher_api::EvictionRequest)| {
        let mut pod = found("web-1", true, true);
        change(pod.request.as_mut().unwrap());
        let explanation = explained(deployment(1, &json!({})), None, vec![pod]);
        (explanation.replicas_to_evict, explanation.eviction_request_in_progress)
    };
    assert_eq!(asked(|_| {}), (1, true));
    assert_eq!(asked(|it| it.status.as_mut().unwrap().active_interceptor_completed = true), (1, false));
    assert_eq!(asked(|it| it.status.as_mut().unwrap().active_interceptor_class = None), (1, false));
    // Nobody wants it gone any more.
    assert_eq!(asked(|it| it.metadata.finalizers = None), (0, false));
}

#[test]
fn a_manager_that_must_not_make_pods_is_seen_to_surge_by_replicas_instead() {
    let wants = json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/eviction-request-strategy": "HandOver"}}});
    let asks_for_it = |with: &Value| {
        let mut deployment = deployment(2, &wants);
        json_patch(&mut deployment, with);
        explained(deployment, None, vec![found("web-1", true, true), found("web-2", false, true)]).hands_over
    };
    assert!(asks_for_it(&json!({})));
    assert!(!asks_for_it(&surging(1, 2)));
}

#[test]
fn a_deployment_in_peace_and_one_below_an_autoscaler_say_how_they_would_surge() {
    let autoscaler = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 5},
    });
    let explanation =
        explained(deployment(1, &json!({})), Some(autoscaler), vec![found("web-1", false, true)]);
    assert!(!explanation.eviction_request_in_progress);
    let text = rendered(&explanation);
    assert!(text.contains("Deployment shop/web: none of its pods is asked to leave."), "{text}");
    assert!(
        text.contains("Surge         at most 1 at a time, through the limits of HorizontalPodAutoscaler web"),
        "{text}"
    );
}

#[test]
fn a_hand_over_is_told_with_the_pod_that_it_waits_for() {
    let strategy = json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/eviction-request-strategy": "HandOver"}}});
    let leaving = found("web-1", true, true);
    let mut new = found("web-2", false, false);
    let meta = &mut new.pod.as_mut().unwrap().metadata;
    let uid = leaving.request.as_ref().unwrap().metadata.uid.clone();
    meta.annotations =
        Some([("evictionrequest.coordination.k8s.io/hand-over".to_owned(), "web".to_owned())].into());
    meta.owner_references = serde_json::from_value(json!([{
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "x", "uid": uid.unwrap_or_default(),
    }]))
    .unwrap();
    let explanation = explained(deployment(1, &strategy), None, vec![leaving, new]);
    assert_eq!((explanation.available_replicas, explanation.missing, explanation.hands_over), (1, 0, true));
    let text = rendered(&explanation);
    for part in [
        "Surge         at most 1 at a time, handed over beside the replicas",
        "Waits for     web-2 cannot be scheduled: 0/3 nodes are available (Unschedulable)",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}
