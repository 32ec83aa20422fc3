use serde_json::{Value, json};

use super::super::samples::{applied, at, pod, request};
use super::*;
use usher_api::names::SURGE_ANNOTATION;

use crate::snapshot::{AutoscalerOnWire, DeploymentOnWire, ReplicaSetOnWire};

fn deployment(replicas: u32) -> Deployment {
    let object = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "web", "generation": 1, "resourceVersion": "4"},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas},
    });
    serde_json::from_value::<DeploymentOnWire>(object).unwrap().into()
}

fn set(owner: Value) -> ReplicaSet {
    let object =
        json!({"metadata": {"name": "web-1", "namespace": "ns", "uid": "web-1", "ownerReferences": [owner]}});
    serde_json::from_value::<ReplicaSetOnWire>(object).unwrap().into()
}

fn of_deployment(uid: &str) -> ReplicaSet {
    set(json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": true}))
}

fn web_pod(name: &str, with: Value) -> Event {
    Event::Pod(applied(pod(name, "ReplicaSet", "web-1", "node-1", with)))
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// What has become worth a look by these events.
fn pending(known: &mut Deployments, events: impl IntoIterator<Item = Event>) -> Vec<Item> {
    for event in events {
        known.learn(event, at(0));
    }
    known.pending().into_iter().collect()
}

#[test]
fn whatever_comes_first_the_deployment_of_a_request_is_found() {
    let events = || {
        [
            Event::Deployment(applied(deployment(1))),
            Event::ReplicaSet(applied(of_deployment("web"))),
            web_pod("a", json!({})),
            Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({})))),
        ]
    };
    for first in 0..4 {
        let mut known = Deployments::default();
        let mut events: Vec<Event> = events().into();
        events.rotate_left(first);
        let items = pending(&mut known, events);
        assert!(items.contains(&Item::Workload(key("web"))), "{first}: {items:?}");
        let decision = known.decide(&Item::Workload(key("web")), at(1));
        assert!(
            matches!(decision.effects[..], [Effect::Resize { .. }, Effect::Prefer { .. }, ..]),
            "{first}"
        );
    }
}

#[test]
fn pods_of_a_deployment_that_nobody_asks_for_cost_no_look() {
    let mut known = Deployments::default();
    let start = [Event::Deployment(applied(deployment(2))), Event::ReplicaSet(applied(of_deployment("web")))];
    pending(&mut known, start);
    assert_eq!(pending(&mut known, [web_pod("a", json!({}))]), []);
    let asked = Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))));
    assert_eq!(pending(&mut known, [asked]), [Item::Workload(key("web"))]);
    known.decide(&Item::Workload(key("web")), at(1));
    assert_eq!(pending(&mut known, [web_pod("b", json!({}))]), [Item::Workload(key("web"))]);
    let gone = Event::Request(crate::snapshot::WatchEvent::Deleted(key("a")));
    assert_eq!(pending(&mut known, [gone]), [Item::Workload(key("web"))]);
    known.decide(&Item::Workload(key("web")), at(2));
    assert_eq!(pending(&mut known, [web_pod("b", json!({}))]), []);
}

#[test]
fn a_deployment_of_the_same_name_with_another_uid_is_another_one() {
    let mut known = Deployments::default();
    let asked = request("a", DEPLOYMENT_CLASS, json!({}));
    pending(
        &mut known,
        [
            Event::Deployment(applied(deployment(1))),
            Event::ReplicaSet(applied(of_deployment("before"))),
            web_pod("a", json!({})),
            Event::Request(applied(asked)),
        ],
    );
    assert_eq!(known.decide(&Item::Workload(key("web")), at(1)).effects, []);
    let decision = known.decide(&Item::Request(key("a")), at(1));
    assert!(
        matches!(&decision.effects[..], [Effect::Prefer { .. }, Effect::Report { report, .. }] if report.completed)
    );
}

#[test]
fn a_pod_that_no_replica_set_controls_is_left_to_the_eviction_api() {
    let mut known = Deployments::default();
    let job = Event::Pod(applied(pod(
        "a",
        "Job",
        "work",
        "node-1",
        json!({"metadata": {"annotations": {"interceptor.evictionrequest.coordination.k8s.io/priority_x.example.com": "5"}}}),
    )));
    pending(&mut known, [Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({})))), job]);
    let decision = known.decide(&Item::Request(key("a")), at(1));
    assert!(matches!(&decision.effects[..], [Effect::Report { report, .. }] if report.completed));
}

fn autoscaler(name: &str, raised: Option<&str>) -> Event {
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": raised.map(|raised| json!({SURGE_ANNOTATION: raised}))},
        "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
    });
    Event::Autoscaler(applied(serde_json::from_value::<AutoscalerOnWire>(object).unwrap().into()))
}

#[test]
fn raised_limits_are_set_back_also_if_another_autoscaler_comes() {
    let mut known = Deployments::default();
    let raised = r#"{"by":1,"minBy":1,"minReplicas":2}"#;
    let start =
        [Event::Deployment(applied(deployment(1))), autoscaler("z", Some(raised)), autoscaler("a", None)];
    pending(&mut known, start);
    let decision = known.decide(&Item::Workload(key("web")), at(1));
    assert!(
        matches!(&decision.effects[..], [Effect::Limit { autoscaler, raised: None, min_replicas: 1, .. }] if &*autoscaler.key.name == "z"),
        "{decision:?}"
    );
}

#[test]
fn a_mark_without_a_request_is_removed_also_from_a_pod_without_a_deployment() {
    let mut known = Deployments::default();
    let marked = json!({"metadata": {"annotations": {
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648", "evictionrequest.coordination.k8s.io/deletion-cost-before": "7",
    }}});
    let items = pending(&mut known, [web_pod("a", marked)]);
    assert_eq!(items, [Item::Request(key("a"))]);
    let decision = known.decide(&items[0], at(1));
    assert!(matches!(&decision.effects[..], [Effect::Prefer { cost: None, .. }]), "{decision:?}");
}

#[test]
fn a_tool_that_removes_the_annotation_with_the_surge_has_set_it_back() {
    let surged = |replicas: u32, surge: Option<Surge>| Deployment { surge, ..deployment(replicas) };
    let held = Surge { by: 1, replicas: 2, reverted: 1 };
    let mut known = Deployments::default();
    let asked = Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))));
    let start = [Event::ReplicaSet(applied(of_deployment("web"))), web_pod("a", json!({})), asked];
    pending(&mut known, start);
    pending(&mut known, [Event::Deployment(applied(surged(2, Some(held))))]);
    pending(&mut known, [Event::Deployment(applied(surged(1, None)))]);
    let decision = known.decide(&Item::Workload(key("web")), at(1));
    let is_counted = |effect: &Effect| {
        matches!(effect, Effect::Resize { surge: Some(Surge { by: 0, reverted: 2, .. }), .. })
    };
    assert!(decision.effects.iter().any(is_counted), "{decision:?}");
    // What was taken back here is forgotten.
    let taken_back = Effect::Resize { deployment: Box::new(deployment(1)), replicas: 1, surge: None };
    known.carried_out(&taken_back, Outcome::Done, at(2));
    pending(&mut known, [Event::Deployment(applied(surged(1, None)))]);
    assert_eq!(known.deployments[&key("web")].surge, None);
}
