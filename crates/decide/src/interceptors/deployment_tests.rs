use serde_json::{Value, json};

use jiff::SignedDuration;

use super::super::samples::{applied, at, hand_over_pod, pod, request};
use super::*;
use usher_api::names::SURGE_ANNOTATION;

use crate::snapshot::{AutoscalerOnWire, DeploymentOnWire, ReplicaSetOnWire, StaleRecord, WatchEvent};

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
        known.observe(event, at(0));
    }
    known.pending().now.into_iter().collect()
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
    // What is known of the Deployment may be of yesterday, but not for long.
    assert_eq!(known.decide(&Item::Request(key("a")), at(1)).recheck_at, Some(at(6)));
    assert_eq!(known.decide(&Item::Request(key("a")), at(6)).recheck_at, Some(at(61)));
    let decision = known.decide(&Item::Request(key("a")), at(61));
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
    assert!(matches!(&decision.effects[..], [Effect::Prefer { before: None, .. }]), "{decision:?}");
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
    known.carried_out(&taken_back, &EffectOutcome::Done, at(2));
    pending(&mut known, [Event::Deployment(applied(surged(1, None)))]);
    assert_eq!(known.deployments[&key("web")].surge, None);
}

#[test]
fn a_record_that_comes_back_with_every_write_is_not_written_again_by_itself() {
    let mut known = Deployments::default();
    let forged = Deployment { stale_record: Some(StaleRecord::Label), ..deployment(2) };
    pending(&mut known, [Event::Deployment(applied(forged))]);
    let decision = known.decide(&Item::Workload(key("web")), at(1));
    let removed = decision.effects.iter().find(|effect| matches!(effect, Effect::Resize { .. })).unwrap();
    known.carried_out(removed, &EffectOutcome::Done, at(1));
    // A webhook may have put it back, so that nothing has changed of which a watch could tell.
    assert!(known.pending().now.is_empty());
}

#[test]
fn a_surge_that_is_taken_back_here_is_nobody_s_revert_though_the_watch_is_faster_than_the_answer() {
    let surged = |replicas: u32, surge: Option<Surge>| Deployment { surge, ..deployment(replicas) };
    let held = Surge { by: 1, replicas: 2, reverted: 0 };
    let mut known = Deployments::default();
    let start = [Event::ReplicaSet(applied(of_deployment("web"))), web_pod("a", json!({}))];
    pending(&mut known, start);
    let marked = json!({"metadata": {"annotations": {
        "controller.kubernetes.io/pod-deletion-cost": i32::MIN.to_string(),
        "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
    }}});
    pending(&mut known, [web_pod("b", marked)]);
    pending(&mut known, [Event::Deployment(applied(surged(2, Some(held))))]);
    // Nobody asks any more.
    let decision = known.decide(&Item::Workload(key("web")), at(1));
    let is_taken_back = |effect: &Effect| matches!(effect, Effect::Resize { replicas: 1, surge: None, .. });
    assert!(decision.effects.iter().any(is_taken_back), "{decision:?}");
    pending(&mut known, [Event::Deployment(applied(surged(1, None)))]);
    assert_eq!(known.deployments[&key("web")].surge, None);
}

#[test]
fn a_tool_that_replaces_an_autoscaler_whole_has_set_its_limits_back() {
    let autoscaler = |min: u32, raised: Option<Value>| {
        let annotations = raised.map(|raised| json!({SURGE_ANNOTATION: raised.to_string()}));
        let object = json!({
            "metadata": {"name": "hpa", "namespace": "ns", "uid": "hpa", "annotations": annotations},
            "spec": {"minReplicas": min, "maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        });
        let object: Autoscaler = serde_json::from_value::<AutoscalerOnWire>(object).unwrap().into();
        Event::Autoscaler(applied(object))
    };
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2, "maxReplicas": 5, "of": "web"});
    let mut known = Deployments::default();
    let asked = Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))));
    let start = [Event::ReplicaSet(applied(of_deployment("web"))), web_pod("a", json!({})), asked];
    pending(&mut known, start);
    pending(&mut known, [Event::Deployment(applied(deployment(1))), autoscaler(2, Some(raised.clone()))]);
    pending(&mut known, [autoscaler(1, None)]);
    let decision = known.decide(&Item::Workload(key("web")), at(1));
    let is_counted = |effect: &Effect| {
        matches!(effect, Effect::Resize { surge: Some(Surge { by: 0, reverted: 1, .. }), .. })
    };
    assert!(decision.effects.iter().any(is_counted), "{decision:?}");
    // Nothing is written of which a watch could tell, and it is looked at again all the same.
    let set_back = decision.effects.iter().find(|effect| matches!(effect, Effect::Limit { .. })).unwrap();
    known.carried_out(set_back, &EffectOutcome::Done, at(2));
    assert!(known.pending().now.contains(&Item::Workload(key("web"))));
    assert_eq!(known.autoscalers[&key("hpa")].raised, None);
    // What is taken back here is nobody's revert, though the watch may be faster than the answer.
    pending(&mut known, [Event::Deployment(applied(deployment(1))), autoscaler(2, Some(raised))]);
    pending(&mut known, [Event::Request(WatchEvent::Deleted(key("a")))]);
    let decision = known.decide(&Item::Workload(key("web")), at(3));
    assert!(
        matches!(&decision.effects[..], [Effect::Limit { raised: None, min_replicas: 1, .. }]),
        "{decision:?}"
    );
    pending(&mut known, [autoscaler(1, None)]);
    assert_eq!(known.autoscalers[&key("hpa")].raised, None);
}

#[test]
fn a_pod_to_be_handed_over_that_is_lost_again_and_again_is_made_later_and_later() {
    let mut known = Deployments::new(HandOver::Allowed);
    let effects = asked(&mut known, Some("HandOver"));
    let made = effects.into_iter().find(|effect| matches!(effect, Effect::MakeHandOver(_))).unwrap();
    let mut now = at(1);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        known.carried_out(&made, &EffectOutcome::Done, now);
        // Somebody has taken it at once.
        let decision = known.decide(&Item::Workload(key("web")), now);
        let makes = |decision: &Decision| {
            decision.effects.iter().any(|effect| matches!(effect, Effect::MakeHandOver(_)))
        };
        assert!(!makes(&decision), "{decision:?}");
        let next = (1..400).map(|second| now + SignedDuration::from_secs(second));
        let next =
            next.into_iter().find(|at| makes(&known.decide(&Item::Workload(key("web")), *at))).unwrap();
        pauses.push(next.duration_since(now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 4, 16, 64, 256, 300, 300]);
}

/// A Deployment of one whose pod is asked to leave, with this annotation.
fn asked(known: &mut Deployments, strategy: Option<&str>) -> Vec<Effect> {
    let web = Deployment { strategy: strategy.map(str::to_owned), ..deployment(1) };
    let asked = Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))));
    let set = Event::ReplicaSet(applied(of_deployment("web")));
    pending(known, [Event::Deployment(applied(web)), set, web_pod("a", json!({})), asked]);
    known.decide(&Item::Workload(key("web")), at(1)).effects
}

#[test]
fn a_manager_that_must_not_make_pods_surges_and_says_so() {
    let is_surge =
        |effects: &[Effect]| effects.iter().any(|it| matches!(it, Effect::Resize { replicas: 2, .. }));
    let is_made = |effects: &[Effect]| effects.iter().any(|it| matches!(it, Effect::MakeHandOver(_)));
    let is_told = |effects: &[Effect]| {
        effects.iter().any(|it| matches!(it, Effect::RecordEvent { reason: "HandOverOff", .. }))
    };
    for (switch, strategy, surges, tells) in [
        (HandOver::Off, None, true, false),
        (HandOver::Off, Some("HandOver"), true, true),
        (HandOver::Allowed, None, true, false),
        (HandOver::Allowed, Some("HandOver"), false, false),
        (HandOver::Always, None, false, false),
        (HandOver::Always, Some("Surge"), true, false),
    ] {
        let mut known = Deployments::new(switch);
        let effects = asked(&mut known, strategy);
        let case = format!("{switch:?} {strategy:?}: {effects:?}");
        assert_eq!((is_surge(&effects), is_made(&effects)), (surges, !surges), "{case}");
        assert_eq!(is_told(&effects), tells, "{case}");
        let again = known.decide(&Item::Workload(key("web")), at(2)).effects;
        assert!(!is_told(&again), "{case}");
    }
}

#[test]
fn a_pod_that_is_to_be_handed_over_is_known_until_its_replica_set_has_it() {
    let mut known = Deployments::new(HandOver::Allowed);
    asked(&mut known, Some("HandOver"));
    let new = hand_over_pod("n", "web-1", "r-a", json!({}));
    assert_eq!(pending(&mut known, [Event::Pod(applied(new))]), [Item::Workload(key("web"))]);
    let completes = |effects: &[Effect]| {
        effects.iter().any(|it| matches!(it, Effect::Report { report, .. } if report.completed))
    };
    let marked = json!({"metadata": {"annotations": {
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648", "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
    }}});
    pending(&mut known, [web_pod("a", marked)]);
    assert!(completes(&known.decide(&Item::Workload(key("web")), at(2)).effects));
    // It is asked to leave itself: its Deployment sees to it, and nobody evicts it.
    let own = Event::Request(applied(request("n", DEPLOYMENT_CLASS, json!({}))));
    assert_eq!(pending(&mut known, [own]), [Item::Workload(key("web"))]);
    assert_eq!(known.decide(&Item::Request(key("n")), at(2)).effects, []);
    let effects = known.decide(&Item::Workload(key("web")), at(2)).effects;
    assert!(effects.iter().any(|it| matches!(it, Effect::DropHandOver { .. })), "{effects:?}");
    pending(&mut known, [Event::Request(crate::snapshot::WatchEvent::Deleted(key("n")))]);
    // Nobody asks for it any more.
    pending(&mut known, [Event::Request(crate::snapshot::WatchEvent::Deleted(key("a")))]);
    let effects = known.decide(&Item::Workload(key("web")), at(3)).effects;
    assert!(effects.iter().any(|it| matches!(it, Effect::DropHandOver { .. })), "{effects:?}");
    // Adopted, it is one of the others.
    pending(
        &mut known,
        [web_pod(
            "n",
            json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/hand-over": "web-1"}}}),
        )],
    );
    assert!(known.handed.is_empty());
    let effects = known.decide(&Item::Workload(key("web")), at(4)).effects;
    assert!(!effects.iter().any(|it| matches!(it, Effect::DropHandOver { .. })), "{effects:?}");
}

#[test]
fn what_the_server_refuses_is_told_by_an_event_and_forgotten_once_it_takes_it() {
    let mut known = Deployments::default();
    let effects = asked(&mut known, None);
    let resize = effects.iter().find(|it| matches!(it, Effect::Resize { .. })).unwrap().clone();
    known.carried_out(&resize, &EffectOutcome::Refused("deployments is forbidden".to_owned()), at(1));
    let told = |effects: &[Effect]| -> Vec<&'static str> {
        effects
            .iter()
            .filter_map(|it| match it {
                Effect::RecordEvent { reason, message, .. } => {
                    assert!(
                        message.contains("deployments is forbidden") && message.contains("deploy/workloads")
                    );
                    Some(*reason)
                }
                _ => None,
            })
            .collect()
    };
    let decide = |known: &mut Deployments| known.decide(&Item::Workload(key("web")), at(2)).effects;
    let first = decide(&mut known);
    assert_eq!(told(&first), ["SurgeRefused"]);
    let said = |it: &Effect| matches!(it, Effect::Report { report, .. } if report.message.as_ref().is_some_and(|it| it.contains("deployments is forbidden")));
    assert!(first.iter().any(said), "{first:?}");
    assert_eq!(told(&decide(&mut known)), [""; 0]);
    known.carried_out(&resize, &EffectOutcome::Done, at(3));
    assert!(!decide(&mut known).iter().any(said));
}

#[test]
fn a_stuck_surge_is_told_once_before_what_is_refused_and_again_for_the_next_pod() {
    let mut known = Deployments::default();
    let effects = asked(&mut known, None);
    let resize = effects.iter().find(|it| matches!(it, Effect::Resize { .. })).unwrap().clone();
    known.carried_out(&resize, &EffectOutcome::Refused("deployments is forbidden".to_owned()), at(1));
    let is_told = |it: &Effect| matches!(it, Effect::RecordEvent { reason: "SurgeStuck", .. });
    let decide = |known: &mut Deployments| known.decide(&Item::Workload(key("web")), at(100_000)).effects;
    let first = decide(&mut known);
    let told = first.iter().position(is_told).unwrap();
    let refused = first.iter().position(|it| matches!(it, Effect::Resize { .. })).unwrap();
    assert!(told < refused, "{first:?}");
    assert!(!decide(&mut known).iter().any(is_told));
    known.warned_stuck.insert(key("web"), "of another request".into());
    assert!(decide(&mut known).iter().any(is_told));
}

#[test]
fn what_was_refused_and_is_not_wanted_any_more_is_not_told_as_the_reason() {
    let mut known = Deployments::default();
    asked(&mut known, None);
    let pod = hand_over_pod("n", "web-1", "r-a", json!({}));
    known.carried_out(
        &Effect::DropHandOver { pod },
        &EffectOutcome::Refused("pods is forbidden".to_owned()),
        at(1),
    );
    let effects = known.decide(&Item::Workload(key("web")), at(2)).effects;
    assert!(!format!("{effects:?}").contains("pods is forbidden"), "{effects:?}");
}

#[test]
fn an_autoscaler_that_is_given_another_target_gets_its_limits_back() {
    let raised = r#"{"by":1,"minBy":1,"minReplicas":2,"of":"web"}"#;
    let targeting = |kind: &str, name: &str| {
        let object = json!({
            "metadata": {"name": "z", "namespace": "ns", "uid": "z", "annotations": {SURGE_ANNOTATION: raised}},
            "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"kind": kind, "name": name}},
        });
        Event::Autoscaler(applied(serde_json::from_value::<AutoscalerOnWire>(object).unwrap().into()))
    };
    let is_restored = |effect: &Effect| matches!(effect, Effect::Limit { autoscaler, raised: None, min_replicas: 1, .. } if &*autoscaler.key.name == "z");
    let is_remembered = |effect: &Effect| matches!(effect, Effect::Resize { deployment, replicas: 2, surge: Some(Surge { by: 1, replicas: 2, .. }) } if &*deployment.key.name == "web");
    // It has grown before that was written down, or is about to.
    for (kind, name, replicas) in
        [("Deployment", "other", 2), ("StatefulSet", "web", 2), ("Deployment", "other", 1)]
    {
        let mut known = Deployments::default();
        let other = Deployment { key: key("other"), uid: "other".into(), ..deployment(1) };
        let start = [Event::Deployment(applied(deployment(replicas))), Event::Deployment(applied(other))];
        pending(&mut known, start);
        pending(&mut known, [targeting("Deployment", "web")]);
        let items = pending(&mut known, [targeting(kind, name)]);
        assert!(items.contains(&Item::Workload(key("web"))), "{items:?}");
        let effects = known.decide(&Item::Workload(key("web")), at(1)).effects;
        assert!(
            matches!(&effects[..], [first, second] if is_remembered(first) && is_restored(second)),
            "{effects:?}"
        );
        // The Deployment that has it now does not take what is left on it for its own.
        let effects = known.decide(&Item::Workload(key("other")), at(1)).effects;
        assert_eq!(effects, [], "{kind}");
    }
}

#[test]
fn a_deployment_of_very_many_pods_is_not_looked_at_whole_for_each_of_its_events() {
    const PODS: usize = 10_000;
    let mut known = Deployments::default();
    let first = Event::Request(applied(request("p0", DEPLOYMENT_CLASS, json!({}))));
    let start = [
        Event::Deployment(applied(deployment(10_000))),
        Event::ReplicaSet(applied(of_deployment("web"))),
        first,
    ];
    pending(&mut known, start);
    let all = (0..PODS).map(|number| web_pod(&format!("p{number}"), json!({})));
    pending(&mut known, all);
    known.decide(&Item::Workload(key("web")), at(0));
    // In ten seconds, five thousand of them change.
    let (mut looks, mut next) = (0, None);
    for number in 0..5_000_u32 {
        let now = at(0) + SignedDuration::from_millis(2) * i32::try_from(number).unwrap();
        let status = json!({"metadata": {"resourceVersion": number.to_string()}, "spec": {"nodeName": number.to_string()}});
        known.observe(web_pod(&format!("p{number}"), status), now);
        let Pending { now: at_once, at } = known.pending();
        next = at.into_values().next().or(next);
        if !at_once.is_empty() || next.is_some_and(|next| next <= now) {
            known.decide(&Item::Workload(key("web")), now);
            (looks, next) = (looks + 1, None);
        }
    }
    assert!((5..=20).contains(&looks), "{looks} looks at {PODS} pods each, where each event had one");
    // What is small is looked at at once.
    let mut small = Deployments::default();
    asked(&mut small, None);
    assert_eq!(pending(&mut small, [web_pod("b", json!({}))]), [Item::Workload(key("web"))]);
}

#[test]
fn a_request_says_so_if_the_manager_has_the_interceptor_and_not_its_role() {
    let mut known = Deployments::default();
    let listed = || Event::Deployment(crate::snapshot::WatchEvent::Listed(Arc::new([key("web")].into())));
    pending(&mut known, [Event::NotAllowed(Watch::Deployments), Event::NotAllowed(Watch::ReplicaSets)]);
    let start = [web_pod("a", json!({})), Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))))];
    assert!(pending(&mut known, start).contains(&Item::Request(key("a"))));
    let effects = known.decide(&Item::Request(key("a")), at(1)).effects;
    let [Effect::Report { report, .. }] = &effects[..] else { panic!("{effects:?}") };
    let message = report.message.clone().unwrap();
    assert!(!report.completed && !report.progress, "{report:?}");
    assert!(
        message.starts_with("Usher's account may not list deployments and replicasets, so that"),
        "{message}"
    );
    assert!(message.contains("deploy/workloads/deployment-role.yaml"));
    let told = request("a", DEPLOYMENT_CLASS, json!({"status": {"message": message}}));
    pending(&mut known, [Event::Request(applied(told))]);
    assert_eq!(known.decide(&Item::Request(key("a")), at(2)).effects, []);
    // The role is there: all of it is looked at.
    let set = Event::ReplicaSet(crate::snapshot::WatchEvent::Listed(Arc::new([key("web-1")].into())));
    pending(
        &mut known,
        [
            Event::Deployment(applied(deployment(1))),
            listed(),
            Event::ReplicaSet(applied(of_deployment("web"))),
        ],
    );
    assert_eq!(known.decide(&Item::Workload(key("web")), at(3)).effects, []);
    assert!(pending(&mut known, [set]).contains(&Item::Workload(key("web"))));
    assert!(!known.decide(&Item::Workload(key("web")), at(4)).effects.is_empty());
}

#[test]
fn what_was_completed_counts_before_the_watch_tells_it() {
    let mut web = deployment(3);
    let update = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "web"}, "spec": {
        "replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    }});
    let update: Deployment = serde_json::from_value::<DeploymentOnWire>(update).unwrap().into();
    web.rolling_update = update.rolling_update;
    web.strategy = Some("MaxUnavailable".to_owned());
    let asked = |name: &str, status: Value| {
        Event::Request(applied(request(name, DEPLOYMENT_CLASS, json!({"status": status}))))
    };
    let completed = |known: &mut Deployments| -> Vec<Effect> {
        let effects = known.decide(&Item::Workload(key("web")), at(0)).effects;
        effects
            .into_iter()
            .filter(|effect| match effect {
                Effect::Report { report, .. } | Effect::ReportIfAvailable { report, .. } => report.completed,
                _ => false,
            })
            .collect()
    };
    let mut known = Deployments::default();
    let mut start = vec![Event::Deployment(applied(web)), Event::ReplicaSet(applied(of_deployment("web")))];
    for name in ["a", "b", "c"] {
        start.extend([web_pod(name, json!({})), asked(name, json!({}))]);
    }
    pending(&mut known, start);
    let first = completed(&mut known);
    assert_eq!(first.len(), 1, "{first:?}");
    known.carried_out(&first[0], &EffectOutcome::Done, at(0));
    assert_eq!(completed(&mut known), [], "the watch has not told it yet");
    // What it tells may be older than what was written.
    known.observe(asked("a", json!({"message": "before"})), at(0));
    assert_eq!(completed(&mut known), [], "nor now");
    known.observe(asked("a", json!({"activeInterceptorCompleted": true})), at(0));
    assert_eq!(completed(&mut known), [], "it goes");
    assert!(known.completed.is_empty(), "told");
    known.observe(Event::Pod(WatchEvent::Deleted(key("a"))), at(1));
    assert_eq!(completed(&mut known), [], "it is not replaced");
    known.observe(web_pod("d", json!({})), at(1));
    assert_eq!(completed(&mut known).len(), 1, "the next one");
}

#[test]
fn a_replica_set_without_a_deployment_lets_so_many_go_at_a_time_as_it_says() {
    let annotation = json!({"evictionrequest.coordination.k8s.io/evict-max-unavailable": "1"});
    let bare = |annotations: &Value| {
        let metadata =
            json!({"name": "web-1", "namespace": "ns", "uid": "web-1", "annotations": annotations});
        let object = json!({"metadata": metadata, "spec": {"replicas": 3}});
        Event::ReplicaSet(applied(serde_json::from_value::<ReplicaSetOnWire>(object).unwrap().into()))
    };
    let asked = |name: &str, status: Value| {
        Event::Request(applied(request(name, REPLICA_SET_CLASS, json!({"status": status}))))
    };
    let item = Item::ReplicaSet(key("web-1"));
    let goes = |known: &mut Deployments| -> Vec<String> {
        let effects = known.decide(&item, at(0)).effects;
        let completed = effects.iter().filter_map(|effect| match effect {
            Effect::Report { request, report } if report.completed => Some(request.pod_name.to_string()),
            _ => None,
        });
        completed.collect()
    };
    let mut known = Deployments::default();
    let mut start = vec![bare(&annotation)];
    for name in ["a", "b", "c"] {
        let down = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        start.extend([web_pod(name, down), asked(name, json!({}))]);
    }
    assert!(pending(&mut known, start).contains(&item));
    assert_eq!(goes(&mut known), ["a"]);
    let waits = known.decide(&item, at(0)).effects;
    let told = |name: &str| {
        waits.iter().any(|it| matches!(it, Effect::Report { request, report } if &*request.pod_name == name && report.progress))
    };
    assert!(told("b") && told("c"), "{waits:?}");
    // One by one they are left to it, and not to the eviction API all at once.
    let alone = known.decide(&Item::Request(key("b")), at(0)).effects;
    assert!(!alone.iter().any(|it| matches!(it, Effect::Report { .. })), "{alone:?}");
    // The watch has not told yet that the first one goes.
    let done = known
        .decide(&item, at(0))
        .effects
        .into_iter()
        .find(|it| matches!(it, Effect::Report { report, .. } if report.completed));
    known.carried_out(&done.unwrap(), &EffectOutcome::Done, at(0));
    assert!(goes(&mut known).is_empty());
    known.observe(asked("a", json!({"activeInterceptorCompleted": true})), at(1));
    assert!(goes(&mut known).is_empty(), "it goes");
    let gone = |name: &str| Event::Pod(crate::snapshot::WatchEvent::Deleted(key(name)));
    assert!(pending(&mut known, [gone("a")]).contains(&item));
    assert!(goes(&mut known).is_empty(), "it is not replaced");
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    known.observe(web_pod("d", not_ready), at(1));
    assert!(goes(&mut known).is_empty(), "its replacement is not ready");
    assert!(pending(&mut known, [web_pod("d", json!({}))]).contains(&item));
    assert_eq!(goes(&mut known), ["b"], "the next one");
    // Without the annotation they are left to the eviction API as ever.
    known.observe(bare(&json!({})), at(2));
    assert!(known.decide(&item, at(2)).effects.is_empty());
    let alone = known.decide(&Item::Request(key("b")), at(2)).effects;
    assert!(
        alone.iter().any(|it| matches!(it, Effect::Report { report, .. } if report.completed)),
        "{alone:?}"
    );
}

#[test]
fn new_pods_that_are_lost_again_and_again_are_no_progress() {
    let mut known = Deployments::default();
    let asked =
        json!({"status": {"message": "Deployment web: a waits", "progressTimestamp": at(0).to_string()}});
    let start = [
        Event::ReplicaSet(applied(of_deployment("web"))),
        Event::Deployment(applied(deployment(2))),
        web_pod("a", json!({})),
        // It stays, and is down: nobody goes.
        web_pod("b", json!({"status": {"conditions": []}})),
        Event::Request(applied(request("a", DEPLOYMENT_CLASS, asked))),
    ];
    pending(&mut known, start);
    let mut claims = Vec::new();
    for round in 1..5 {
        let (name, second) = (format!("n{round}"), round * 100);
        let new = json!({
            "metadata": {"creationTimestamp": at(second).to_string()},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second + 5).to_string()}]},
        });
        pending(&mut known, [web_pod(&name, new)]);
        let decision = known.decide(&Item::Workload(key("web")), at(second + 6));
        claims.push(decision.effects.iter().any(
            |effect| matches!(effect, Effect::Report { report, .. } if report.progress && !report.completed),
        ));
        let told = json!({"status": {"message": "Deployment web: a waits", "progressTimestamp": at(second + 6).to_string()}});
        pending(&mut known, [Event::Request(applied(request("a", DEPLOYMENT_CLASS, told)))]);
        if round != 3 {
            pending(&mut known, [Event::Pod(WatchEvent::Deleted(key(&name)))]);
        }
    }
    // The first, none, none, and two at a time.
    assert_eq!(claims, [true, false, false, true]);
}

#[test]
fn a_pod_whose_replica_set_no_watch_has_told_of_is_not_left_to_the_eviction_api_at_once() {
    let completes = |known: &mut Deployments, second: i64| {
        let decision = known.decide(&Item::Request(key("a")), at(second));
        let is_completed = |it: &Effect| matches!(it, Effect::Report { report, .. } if report.completed);
        (decision.effects.iter().any(is_completed), decision.recheck_at)
    };
    let asked = || Event::Request(applied(request("a", DEPLOYMENT_CLASS, json!({}))));
    // Neither its ReplicaSet is known, nor, when that is, its Deployment.
    let mut known = Deployments::default();
    pending(&mut known, [web_pod("a", json!({})), asked()]);
    assert_eq!(completes(&mut known, 0), (false, Some(at(5))));
    let told = known.decide(&Item::Request(key("a")), at(5)).effects;
    let [Effect::Report { report, .. }] = &told[..] else { panic!("{told:?}") };
    let message = report.message.clone().unwrap_or_default();
    assert_eq!(message, "a waits until its ReplicaSet web-1 and that one's Deployment are known");
    assert!(!report.progress && !report.completed);
    let items = pending(&mut known, [Event::ReplicaSet(applied(of_deployment("web")))]);
    assert!(items.contains(&Item::Request(key("a"))), "{items:?}");
    assert_eq!(completes(&mut known, 30), (false, Some(at(60))));
    assert_eq!(completes(&mut known, 60), (true, None), "it is gone");
    // Nothing is remembered of it when they are there.
    pending(&mut known, [Event::Deployment(applied(deployment(2)))]);
    assert_eq!(completes(&mut known, 61), (false, None), "the Deployment answers");
    pending(&mut known, [Event::Deployment(WatchEvent::Deleted(key("web")))]);
    assert_eq!(completes(&mut known, 62), (false, Some(at(67))));
}

#[test]
fn those_who_were_asked_later_have_progress_of_their_own() {
    let after = |before: Option<MostReady>, since: i64, ready: &[i64]| {
        let ready: Vec<Timestamp> = ready.iter().map(|second| at(*second)).collect();
        MostReady::after(before, at(since), &ready)
    };
    let first = after(None, 0, &[10, 20, 30]);
    assert_eq!((first.count, first.moved), (3, at(30)));
    // The third is lost, and another one comes for it: that is no progress.
    let lost = after(Some(first), 0, &[10, 20]);
    let again = after(Some(lost), 0, &[10, 20, 50]);
    assert_eq!((again.count, again.moved), (3, at(30)));
    // Those that were asked at first have left, and none is new to those that were asked at second 60.
    let next = after(Some(again), 60, &[]);
    assert_eq!((next.count, next.moved), (0, at(30)));
    let moved = after(Some(next), 60, &[70]);
    assert_eq!((moved.count, moved.moved), (1, at(70)));
    // What is new to them already when they become the first is no progress either.
    let known = after(Some(again), 60, &[70]);
    assert_eq!((known.count, known.moved), (1, at(30)));
}

#[test]
fn a_priority_that_an_autoscaler_cannot_have_is_told() {
    let autoscaler = |priority: &str| {
        let object = json!({
            "metadata": {"name": "hpa", "namespace": "ns", "uid": "hpa", "annotations": {INTERCEPTOR_PRIORITY_ANNOTATION: priority}},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        });
        Autoscaler::from(serde_json::from_value::<crate::snapshot::AutoscalerOnWire>(object).unwrap())
    };
    let is_told = |priority: &str| unknown_priority(&autoscaler(priority)).is_some();
    assert_eq!(["11000", "9000", "10050", "high", "-1"].map(is_told), [false, false, true, true, true]);
}

#[test]
fn a_request_for_a_pod_of_a_replication_controller_may_be_known_before_the_pod() {
    let mark = json!({"metadata": {"annotations": {
        "controller.kubernetes.io/pod-deletion-cost": i32::MIN.to_string(),
        "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
    }}});
    let asked = request(
        "a",
        DEPLOYMENT_CLASS,
        json!({"spec": {"interceptors": []}, "status": {"activeInterceptorClass": null}}),
    );
    let mut known = Deployments::default();
    let mut replicated = pod("a", "ReplicationController", "rc", "node-1", mark);
    let owner = Arc::make_mut(&mut replicated).owner.as_mut().unwrap();
    Arc::make_mut(owner).api_version = "v1".into();
    let events = [Event::Request(applied(asked)), Event::Pod(applied(replicated))];
    for item in pending(&mut known, events) {
        let effects = known.decide(&item, at(1)).effects;
        assert!(!effects.iter().any(|it| matches!(it, Effect::Prefer { before: None, .. })), "{effects:?}");
    }
}
