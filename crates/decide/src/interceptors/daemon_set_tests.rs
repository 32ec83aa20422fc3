//! The section "DaemonSet Controller" of the specification, sentence by sentence, and what keeps pods from coming back.

use serde_json::{Value, json};

use super::super::samples::{applied, at, maintenance, pod, request};
use super::*;
use crate::snapshot::{DaemonSetOnWire, NamespaceOnWire, WatchEvent};

const CLASS: &str = DAEMON_SET_CLASS;

fn set(with: &Value) -> Arc<DaemonSet> {
    let mut object = json!({"metadata": {"name": "critical-ds", "namespace": "ns", "uid": "critical-ds"}});
    if let Some(strategy) = with.as_str() {
        object["metadata"]["annotations"] =
            json!({"evictionrequest.coordination.k8s.io/eviction-request-strategy": strategy});
    }
    Arc::new(serde_json::from_value::<DaemonSetOnWire>(object).unwrap().into())
}

fn daemon(name: &str, node: &str, with: Value) -> Arc<Pod> {
    pod(name, "DaemonSet", "critical-ds", node, with)
}

/// As in the example: all others and DaemonSets up to 5000.
fn targets() -> Value {
    json!([{"podPriority": 2_147_483_647, "podType": "Default"}, {"podPriority": 5000, "podType": "DaemonSet"}])
}

/// A pod on node six with a request, under the maintenance of the example, which admission was told of.
fn example() -> DaemonSets {
    let mut known = DaemonSets::default();
    for event in [
        Event::DaemonSet(applied(set(&json!(null)))),
        Event::Maintenance(applied(maintenance("m", "Drain", &[("six", targets())]))),
        Event::Pod(applied(daemon("p", "six", json!({})))),
        Event::Request(applied(request("p", CLASS, json!({})))),
    ] {
        known.observe(event, at(0));
    }
    tell_admission(&mut known, -1);
    known
}

/// Carries out what is to be told to admission, and says what that is.
fn tell_admission(known: &mut DaemonSets, second: i64) -> BTreeMap<String, String> {
    let decision = known.decide(&Item::HeldNodes, at(second));
    for effect in &decision.effects {
        known.carried_out(effect, &EffectOutcome::Done, at(second));
    }
    known.held.written.as_deref().cloned().unwrap_or_default()
}

fn decided(known: &mut DaemonSets, second: i64) -> Decision {
    known.decide(&Item::Request(Key::new("ns", "p")), at(second))
}

fn report(decision: &Decision) -> Option<&usher_api::report::Report> {
    decision.effects.iter().find_map(|effect| match effect {
        Effect::Report { report, .. } => Some(&**report),
        _ => None,
    })
}

fn deletes(decision: &Decision) -> bool {
    decision.effects.iter().any(|effect| matches!(effect, Effect::DeletePod { .. }))
}

#[test]
fn the_status_is_updated_as_in_the_example_and_the_pod_deleted() {
    let decision = decided(&mut example(), 32);
    let report = report(&decision).unwrap();
    assert_eq!(
        report.message.as_deref(),
        Some("critical-ds is terminating the pod due to node maintenance (OS upgrade).")
    );
    assert_eq!(report.finish, Some(at(32 + 60)), "now + terminationGracePeriodSeconds");
    assert!(report.progress && !report.completed);
    let [Effect::Report { .. }, Effect::DeletePod { pod, version: None }] = &decision.effects[..] else {
        panic!("{decision:?}")
    };
    assert_eq!(&*pod.uid, "p", "first the status, then this very pod");
}

#[test]
fn it_responds_only_if_there_is_a_maintenance_on_that_node_that_reaches_the_pod() {
    let other =
        |targets: &[(&str, Value)], stage| Event::Maintenance(applied(maintenance("m", stage, targets)));
    let rows: [(&str, Event); 5] = [
        ("no maintenance", Event::Maintenance(WatchEvent::Deleted("m".into()))),
        ("another node", other(&[("seven", targets())], "Drain")),
        ("not a stage that drains", other(&[("six", targets())], "Cordon")),
        ("other types", other(&[("six", json!([{"podPriority": 9999, "podType": "Default"}]))], "Drain")),
        (
            "a lower priority",
            other(&[("six", json!([{"podPriority": 4999, "podType": "DaemonSet"}]))], "Drain"),
        ),
    ];
    for (what, event) in rows {
        let mut known = example();
        known.observe(event, at(0));
        let decision = decided(&mut known, 5);
        assert_eq!(decision.effects, [], "{what}: no reaction, and no activeInterceptorCompleted");
        assert_eq!(decision.waiting_on, Some(Wait::NotReached), "{what}");
    }
}

#[test]
fn it_responds_only_when_it_observes_its_own_class() {
    for status in [
        json!({"status": {"activeInterceptorClass": "other.example.com"}}),
        json!({"status": {"activeInterceptorCompleted": true}}),
    ] {
        let mut known = example();
        known.observe(Event::Request(applied(request("p", CLASS, status))), at(0));
        assert_eq!(decided(&mut known, 5), Decision::default());
    }
    let withdrawn = request("p", CLASS, json!({"metadata": {"finalizers": []}}));
    let mut known = example();
    known.observe(Event::Request(applied(withdrawn)), at(0));
    assert_eq!(decided(&mut known, 5), Decision::default(), "nobody wants it to leave any more");
}

#[test]
fn a_pod_of_another_uid_is_never_touched() {
    let mut known = example();
    known.observe(Event::Pod(applied(daemon("p", "six", json!({"metadata": {"uid": "another"}})))), at(0));
    assert_eq!(decided(&mut known, 5), Decision::default());
}

#[test]
fn pods_of_no_daemon_set_and_of_one_that_opted_out_are_not_its_matter() {
    let completes = |known: &mut DaemonSets, words: &str| {
        let decision = decided(known, 5);
        let report = report(&decision).unwrap().clone();
        assert!(
            report.completed && report.message.as_ref().is_some_and(|it| it.contains(words)),
            "{report:?}"
        );
        assert!(!deletes(&decision));
    };
    let mut known = example();
    known.observe(Event::DaemonSet(WatchEvent::Deleted(Key::new("ns", "critical-ds"))), at(0));
    completes(&mut known, "no DaemonSet controls the pod");
    let mut known = example();
    known.observe(Event::DaemonSet(applied(set(&json!("Off")))), at(0));
    completes(&mut known, "opted out");
    let mut known = example();
    let namespace = json!({"metadata": {"name": "ns", "annotations": {
        "evictionrequest.coordination.k8s.io/eviction-request-strategy": "Off",
    }}});
    let namespace = serde_json::from_value::<NamespaceOnWire>(namespace).unwrap();
    known.observe(Event::Namespace(applied(Arc::new(namespace.into()))), at(0));
    completes(&mut known, "opted out");
}

#[test]
fn a_pod_that_names_the_class_without_a_daemon_set_is_declined() {
    let mut known = example();
    let annotated = json!({"metadata": {"annotations": {
        "interceptor.evictionrequest.coordination.k8s.io/priority_daemonset.apps.k8s.io": "10000/controller",
    }}});
    known.observe(Event::Pod(applied(pod("p", "ReplicaSet", "rs", "six", annotated))), at(0));
    let decision = decided(&mut known, 5);
    assert!(report(&decision).unwrap().completed && !deletes(&decision));
}

#[test]
fn skipped_interceptors_leave_the_daemon_set_as_the_only_one_who_ends_its_pod() {
    let mut known = example();
    let blocked = json!([{
        "type": "EvictionBlocked", "status": "True", "reason": "DaemonSetPod", "message": "m",
        "lastTransitionTime": at(0).to_string(),
    }]);
    let skipped = json!({
        "metadata": {"annotations": {"evictionrequest.coordination.k8s.io/skip-interceptors": "hurry"}},
        "status": {"conditions": blocked},
    });
    known.observe(Event::Request(applied(request("p", CLASS, skipped))), at(0));
    assert!(matches!(decided(&mut known, 5).effects[..], [Effect::DeletePod { .. }]));
}

#[test]
fn one_that_opts_in_again_is_taken_off_although_its_turn_is_over() {
    let mut known = example();
    let blocked = json!([{
        "type": "EvictionBlocked", "status": "True", "reason": "DaemonSetPod", "message": "m",
        "lastTransitionTime": at(0).to_string(),
    }]);
    let over = json!({"status": {"activeInterceptorCompleted": true, "conditions": blocked}});
    known.observe(Event::Request(applied(request("p", CLASS, over))), at(0));
    let decision = decided(&mut known, 5);
    assert!(
        matches!(decision.effects[..], [Effect::DeletePod { .. }]),
        "the turn is over: nothing is reported"
    );
}

#[test]
fn an_annotation_that_means_nothing_is_told_once_and_counts_as_none() {
    let mut known = example();
    known.observe(Event::DaemonSet(applied(set(&json!("bogus")))), at(0));
    assert!(deletes(&decided(&mut known, 5)), "the default is safe");
    let item = Item::Workload(Key::new("ns", "critical-ds"));
    let told = known.decide(&item, at(5)).effects;
    let [Effect::RecordEvent { reason, message, is_warning: true, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(*reason, "UnknownEvictionRequestStrategy");
    assert!(message.contains("\"bogus\"") && message.contains("use Off"), "{message}");
    assert_eq!(known.decide(&item, at(6)), Decision::default());
}

#[test]
fn a_pod_on_its_way_shows_progress_until_its_grace_ends() {
    let mut known = example();
    let ends = json!({"metadata": {"deletionTimestamp": at(600).to_string()}});
    known.observe(Event::Pod(applied(daemon("p", "six", ends))), at(0));
    let first = decided(&mut known, 10);
    assert_eq!((first.effects.len(), first.waiting_on), (0, Some(Wait::Terminating)));
    // The last progress was at 0, and every 3 minutes another is due.
    assert_eq!(first.recheck_at, Some(at(180)));
    assert!(report(&decided(&mut known, 180)).unwrap().progress);
    assert_eq!(decided(&mut known, 601).effects, [], "what is overdue makes no progress");
}

#[test]
fn the_first_pod_goes_when_admission_keeps_the_next_one_off() {
    let mut known = DaemonSets::default();
    for event in [
        Event::DaemonSet(applied(set(&json!(null)))),
        Event::Maintenance(applied(maintenance("m", "Drain", &[("six", targets())]))),
        Event::Pod(applied(daemon("p", "six", json!({})))),
        Event::Request(applied(request("p", CLASS, json!({})))),
    ] {
        known.observe(event, at(0));
    }
    assert_eq!(decided(&mut known, 0).waiting_on, Some(Wait::HeldNodes));
    assert!(known.pending().now.contains(&Item::HeldNodes));
    assert_eq!(tell_admission(&mut known, 0), BTreeMap::from([("six".to_owned(), "5000".to_owned())]));
    assert!(known.pending().now.contains(&Item::Request(Key::new("ns", "p"))));
    let learns = decided(&mut known, 0);
    assert_eq!((learns.waiting_on, learns.recheck_at), (Some(Wait::HeldNodes), Some(at(1))));
    assert!(deletes(&decided(&mut known, 1)), "the API server knows by now");
    // Other nodes that are held make nobody wait again.
    let both = maintenance("m", "Drain", &[("six", targets()), ("seven", targets())]);
    known.observe(Event::Maintenance(applied(both)), at(1));
    assert_eq!(tell_admission(&mut known, 1).len(), 2);
    assert!(deletes(&decided(&mut known, 1)));
}

#[test]
fn pods_go_although_admission_cannot_be_told() {
    let mut known = DaemonSets::default();
    known.observe(Event::DaemonSet(applied(set(&json!(null)))), at(0));
    known.observe(Event::Maintenance(applied(maintenance("m", "Drain", &[("six", targets())]))), at(0));
    known.observe(Event::Pod(applied(daemon("p", "six", json!({})))), at(0));
    known.observe(Event::Request(applied(request("p", CLASS, json!({})))), at(0));
    let effect = known.decide(&Item::HeldNodes, at(0)).effects.remove(0);
    known.carried_out(&effect, &EffectOutcome::Refused(String::new()), at(0));
    assert!(deletes(&decided(&mut known, 0)));
}

#[test]
fn a_part_of_the_plan_with_a_selector_is_acted_on_and_not_told_to_admission() {
    let mut known = example();
    let selected =
        json!([{"podPriority": 9000, "podType": "DaemonSet", "podSelector": {"matchLabels": {"app": "x"}}}]);
    known.observe(Event::Maintenance(applied(maintenance("m", "Drain", &[("six", selected)]))), at(0));
    assert_eq!(tell_admission(&mut known, 10), BTreeMap::new());
    assert_eq!(decided(&mut known, 10).waiting_on, Some(Wait::NotReached));
    known.observe(
        Event::Pod(applied(daemon("p", "six", json!({"metadata": {"labels": {"app": "x"}}})))),
        at(0),
    );
    assert!(deletes(&decided(&mut known, 10)));
}

#[test]
fn two_maintenances_on_one_node_hold_up_to_the_higher_priority_until_both_have_ended() {
    let mut known = example();
    let further = json!([{"podPriority": 9000, "podType": "DaemonSet"}]);
    known.observe(Event::Maintenance(applied(maintenance("n", "Drain", &[("six", further)]))), at(0));
    assert_eq!(tell_admission(&mut known, 10)["six"], "9000");
    known.observe(Event::Maintenance(WatchEvent::Deleted("n".into())), at(0));
    assert_eq!(tell_admission(&mut known, 20)["six"], "5000");
    known.observe(Event::Maintenance(applied(maintenance("m", "Complete", &[("six", targets())]))), at(0));
    assert_eq!(tell_admission(&mut known, 30), BTreeMap::new());
}

#[test]
fn a_pod_that_came_back_is_asked_again_later_and_later_and_told() {
    let mut known = example();
    let (mut second, mut pauses) = (0, Vec::new());
    for round in 0..4 {
        let decision = decided(&mut known, second);
        assert!(deletes(&decision), "{round}");
        let told = decision
            .effects
            .iter()
            .any(|it| matches!(it, Effect::RecordEvent { reason: "DaemonSetPodCameBack", .. }));
        assert_eq!(told, round > 0);
        for effect in &decision.effects {
            known.carried_out(effect, &EffectOutcome::Done, at(second));
        }
        let uid = format!("p{round}");
        let back = json!({"metadata": {"uid": uid}});
        known.observe(Event::Pod(applied(daemon("p", "six", back.clone()))), at(second));
        let asked = json!({"metadata": {"uid": "r"}, "spec": {"podRef": {"name": "p", "uid": uid}}});
        known.observe(Event::Request(applied(request("p", CLASS, asked))), at(second));
        // What admission goes by is written anew: somebody may have changed it.
        if round > 0 {
            assert_eq!(decided(&mut known, second).waiting_on, Some(Wait::HeldNodes));
            tell_admission(&mut known, second);
        }
        let Some(Wait::CameBack { until }) = decided(&mut known, second).waiting_on else {
            panic!("{round}")
        };
        pauses.push((until - at(second)).get_seconds());
        second += pauses[round];
    }
    assert_eq!(pauses, [2, 4, 8, 16]);
    // When the maintenance is over that is forgotten.
    known.observe(Event::Maintenance(WatchEvent::Deleted("m".into())), at(second));
    assert!(known.removals.is_empty());
}

fn gated() -> Arc<Pod> {
    let fields = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["six"]}]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": fields}}});
    let gates = json!([{"name": "nodemaintenance.k8s.io/held"}]);
    let spec = json!({"schedulingGates": gates, "affinity": affinity});
    daemon("g", "", json!({"spec": spec, "status": {"phase": "Pending", "conditions": []}}))
}

#[test]
fn it_is_not_scheduled_again_until_the_maintenance_is_complete() {
    let ends: [(&str, Event); 4] = [
        ("completed", Event::Maintenance(applied(maintenance("m", "Complete", &[("six", targets())])))),
        ("deleted", Event::Maintenance(WatchEvent::Deleted("m".into()))),
        (
            "the node has left",
            Event::Maintenance(applied(maintenance("m", "Drain", &[("seven", targets())]))),
        ),
        ("opted out", Event::DaemonSet(applied(set(&json!("Off"))))),
    ];
    for (what, event) in ends {
        let mut known = example();
        known.observe(Event::Pod(applied(gated())), at(0));
        let item = Item::GatedPod(Key::new("ns", "g"));
        assert_eq!(known.decide(&item, at(100)), Decision::default(), "{what}: it waits behind the gate");
        known.observe(event, at(100));
        assert_eq!(
            known.decide(&item, at(100)),
            Decision::default(),
            "{what}: admission has to be told first"
        );
        tell_admission(&mut known, 100);
        assert!(known.pending().now.contains(&item), "{what}");
        assert_eq!(known.decide(&item, at(100)).recheck_at, Some(at(101)), "{what}");
        let effects = known.decide(&item, at(101)).effects;
        let [Effect::DeletePod { version: Some(version), .. }] = &effects[..] else {
            panic!("{what}: {effects:?}")
        };
        assert_eq!(version, "1", "only as it was seen");
    }
}

#[test]
fn the_next_manager_lets_pods_through_that_the_one_before_has_left() {
    let mut known = DaemonSets::default();
    known.observe(Event::DaemonSet(applied(set(&json!(null)))), at(0));
    known.observe(Event::Pod(applied(gated())), at(0));
    let item = Item::GatedPod(Key::new("ns", "g"));
    assert_eq!(known.decide(&item, at(0)).effects, [], "what admission was told is not known yet");
    assert!(known.pending().now.contains(&Item::HeldNodes));
    tell_admission(&mut known, 0);
    let effects = known.decide(&item, at(1)).effects;
    assert!(matches!(effects[..], [Effect::DeletePod { version: Some(_), .. }]));
    // Another one that is gated all the same is not deleted again and again.
    known.carried_out(&effects[0], &EffectOutcome::Done, at(1));
    let another = Pod { uid: "g2".into(), ..Pod::clone(&gated()) };
    known.observe(Event::Pod(applied(Arc::new(another))), at(1));
    assert_eq!(known.decide(&item, at(1)).recheck_at, Some(at(3)));
}

#[test]
fn admission_is_told_at_most_once_a_second() {
    let mut known = example();
    let both = maintenance("m", "Drain", &[("six", targets()), ("seven", targets())]);
    known.observe(Event::Maintenance(applied(both)), at(0));
    let decision = known.decide(&Item::HeldNodes, at(-1));
    assert_eq!((decision.effects.len(), decision.recheck_at), (0, Some(at(0))));
    assert_eq!(tell_admission(&mut known, 0).len(), 2);
}

#[test]
fn admission_that_refuses_is_asked_later_and_later_and_each_maintenance_hears_it_once() {
    let mut known = DaemonSets::default();
    known.observe(Event::DaemonSet(applied(set(&json!(null)))), at(0));
    known.observe(Event::Maintenance(applied(maintenance("m", "Drain", &[("six", targets())]))), at(0));
    let (mut second, mut pauses, mut told) = (0, Vec::new(), Vec::new());
    for _ in 0..10 {
        let decision = known.decide(&Item::HeldNodes, at(second));
        let (writes, tells): (Vec<_>, Vec<_>) =
            decision.effects.into_iter().partition(|it| matches!(it, Effect::HoldNodes(_)));
        told.extend(tells);
        known.carried_out(&writes[0], &EffectOutcome::Refused(String::new()), at(second));
        let waits = known.decide(&Item::HeldNodes, at(second));
        told.extend(waits.effects);
        let pause = (waits.recheck_at.unwrap() - at(second)).get_seconds();
        pauses.push(pause);
        second += pause;
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    let [Effect::RecordEvent { namespace, workload, reason: "HeldNodesRefused", is_warning: true, message }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((&**namespace, &*workload.kind, &*workload.name), ("", "NodeMaintenance", "m"));
    assert!(message.contains("usher-held-nodes"), "{message}");
    // Another one has not heard it yet.
    known
        .observe(Event::Maintenance(applied(maintenance("n", "Drain", &[("seven", targets())]))), at(second));
    let told = known.decide(&Item::HeldNodes, at(second - 1)).effects;
    let [Effect::RecordEvent { workload, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(&*workload.name, "n");
    // Once it is taken, all is as before.
    tell_admission(&mut known, second);
    known.observe(Event::Maintenance(WatchEvent::Deleted("n".into())), at(second));
    assert_eq!(known.decide(&Item::HeldNodes, at(second)).recheck_at, Some(at(second + 1)));
}

#[test]
fn a_daemon_set_whose_template_has_the_gate_is_told_once_and_its_pods_are_left_alone() {
    let mut known = DaemonSets::default();
    let with_gate = Arc::new(DaemonSet { has_gate: true, ..DaemonSet::clone(&set(&json!(null))) });
    known.observe(Event::DaemonSet(applied(with_gate)), at(0));
    known.observe(Event::Pod(applied(gated())), at(0));
    tell_admission(&mut known, 0);
    let (item, workload) =
        (Item::GatedPod(Key::new("ns", "g")), Item::Workload(Key::new("ns", "critical-ds")));
    assert_eq!(known.decide(&item, at(100)), Decision::default(), "the next one would have it as well");
    let told = known.decide(&workload, at(100)).effects;
    assert!(matches!(told[..], [Effect::RecordEvent { reason: "SchedulingGateInTemplate", .. }]), "{told:?}");
    assert_eq!(known.decide(&workload, at(101)), Decision::default());
    // Without it in the template, the pod is one of those that others have left.
    known.observe(Event::DaemonSet(applied(set(&json!(null)))), at(101));
    assert!(known.pending().now.contains(&item));
    assert!(matches!(known.decide(&item, at(101)).effects[..], [Effect::DeletePod { version: Some(_), .. }]));
}

#[test]
fn switched_off_it_holds_no_node_and_lets_through_what_was_held() {
    let mut known = DaemonSets::switched_off();
    known.observe(Event::DaemonSet(applied(set(&json!(null)))), at(0));
    known.observe(Event::Pod(applied(daemon("p", "six", json!({})))), at(0));
    known.observe(Event::Pod(applied(gated())), at(0));
    assert!(known.pending().now.contains(&Item::HeldNodes));
    let held = known.decide(&Item::HeldNodes, at(0)).effects;
    assert_eq!(
        held,
        [Effect::HoldNodes(Arc::default())],
        "what the manager before has written is taken back"
    );
    let item = Item::GatedPod(Key::new("ns", "g"));
    assert_eq!(known.decide(&item, at(0)).effects, [], "else the next one is gated as well");
    known.carried_out(&held[0], &EffectOutcome::Done, at(0));
    assert!(known.pending().now.contains(&item));
    let effects = known.decide(&item, at(1)).effects;
    let [Effect::DeletePod { pod, version: Some(_) }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(&*pod.key.name, "g");
    known.carried_out(&effects[0], &EffectOutcome::Done, at(1));
    known.observe(Event::Pod(WatchEvent::Deleted(Key::new("ns", "g"))), at(1));
    assert_eq!(known.decide(&Item::HeldNodes, at(10)), Decision::default(), "once");
    assert!(known.pods.is_empty(), "of pods that run, nothing is remembered");
}

#[test]
fn daemon_sets_without_pods_crowd_out_nobody_and_cost_no_look_at_others() {
    let mut known = example();
    known.pending();
    for number in 0..5_000 {
        let object = json!({"metadata": {
            "name": format!("{}-{number}", "x".repeat(200)), "namespace": "ns", "uid": format!("u-{number}"),
            "annotations": {"evictionrequest.coordination.k8s.io/eviction-request-strategy": "Off"},
        }});
        let set: DaemonSet = serde_json::from_value::<DaemonSetOnWire>(object).unwrap().into();
        known.observe(Event::DaemonSet(applied(Arc::new(set))), at(1));
        let pending = known.pending().now;
        assert!(pending.len() <= 2, "itself and what admission is told: {pending:?}");
    }
    assert_eq!(known.wanted(), BTreeMap::from([("six".to_owned(), "5000".to_owned())]));
    // One that has a pod, or gets one, is told.
    let of_first = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u-0", "controller": true},
    ]}});
    known.observe(Event::Pod(applied(daemon("first", "six", of_first))), at(2));
    assert!(known.pending().now.contains(&Item::HeldNodes));
    assert_eq!(known.wanted().get("stays_u-0").map(String::as_str), Some(""));
    known.observe(Event::Pod(WatchEvent::Deleted(Key::new("ns", "first"))), at(3));
    assert!(known.pending().now.contains(&Item::HeldNodes));
    assert_eq!(known.wanted().len(), 1);
}
