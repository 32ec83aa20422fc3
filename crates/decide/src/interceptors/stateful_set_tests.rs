//! The section "StatefulSet Controller" of the specification, sentence by sentence.

use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use super::super::samples::{applied, at, pod, request};
use super::*;
use crate::snapshot::StatefulSetOnWire;

const CLASS: &str = STATEFUL_SET_CLASS;

fn set(replicas: u32, with: Value) -> StatefulSet {
    let mut object = json!({
        "metadata": {"name": "db", "namespace": "ns", "uid": "db", "annotations": {
            "evictionrequest.coordination.k8s.io/eviction-request-strategy": "MaxUnavailable",
        }},
        "spec": {"replicas": replicas}, "status": {"updateRevision": "v1"},
    });
    for (key, value) in with.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value::<StatefulSetOnWire>(object).unwrap().into()
}

fn replica(ordinal: u32, with: Value) -> Arc<Pod> {
    let name = format!("db-{ordinal}");
    let mut all = json!({"metadata": {"labels": {"controller-revision-hash": "v1"}}});
    for (key, value) in with.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    pod(&name, "StatefulSet", "db", "n1", all)
}

fn unready() -> Value {
    json!({"status": {"phase": "Running", "conditions": []}})
}

/// A set with these pods, and requests for some.
fn scene(set: StatefulSet, pods: Vec<Arc<Pod>>, asked: &[u32]) -> StatefulSets {
    let mut known = StatefulSets::default();
    known.observe(Event::StatefulSet(applied(set)), at(0));
    for pod in pods {
        known.observe(Event::Pod(applied(pod)), at(0));
    }
    for ordinal in asked {
        known.observe(Event::Request(applied(request(&format!("db-{ordinal}"), CLASS, json!({})))), at(0));
    }
    known
}

fn healthy(replicas: u32, with: Value, asked: &[u32]) -> StatefulSets {
    scene(set(replicas, with), (0..replicas).map(|it| replica(it, json!({}))).collect(), asked)
}

fn decided(known: &mut StatefulSets, second: i64) -> Decision {
    known.decide(&Item::Workload(Key::new("ns", "db")), at(second))
}

/// Those that are given over to the eviction API, and those that wait, with what is said to them.
fn gone_and_waiting(decision: &Decision) -> (Vec<String>, Vec<(String, bool, String)>) {
    let (mut goes, mut waits) = (Vec::new(), Vec::new());
    for effect in &decision.effects {
        let (Effect::Report { request, report } | Effect::ReportIfAvailable { request, report, .. }) = effect
        else {
            continue;
        };
        let name = request.pod_name.to_string();
        if report.completed {
            goes.push(name);
        } else {
            waits.push((name, report.progress, report.message.clone().unwrap_or_default()));
        }
    }
    (goes, waits)
}

fn goes(known: &mut StatefulSets, second: i64) -> Vec<String> {
    gone_and_waiting(&decided(known, second)).0
}

#[test]
fn without_opt_in_it_declines_at_once_and_on_delete_is_never_supported() {
    let plain = StatefulSet { strategy: None, ..set(3, json!({})) };
    let off = StatefulSet { strategy: Some("Off".into()), ..set(3, json!({})) };
    let on_delete = set(3, json!({"updateStrategy": {"type": "OnDelete"}}));
    let deleting = StatefulSet { is_deleting: true, ..set(3, json!({})) };
    for (set, words) in
        [(plain, "it opts in by"), (off, "opted out"), (on_delete, "OnDelete"), (deleting, "deleted")]
    {
        let pods = (0..3).map(|it| replica(it, json!({}))).collect();
        let mut known = scene(set, pods, &[2, 0]);
        let decision = decided(&mut known, 0);
        assert_eq!(
            gone_and_waiting(&decision).0,
            ["db-0", "db-2"],
            "the eviction API is next for all of them"
        );
        let Effect::Report { report, .. } = &decision.effects[0] else { panic!() };
        assert!(report.message.as_ref().is_some_and(|it| it.contains(words)), "{report:?}");
    }
}

#[test]
fn a_request_says_so_if_the_manager_has_the_interceptor_and_not_its_role() {
    let mut known = StatefulSets::default();
    known.observe(Event::NotAllowed(Watch::StatefulSets), at(0));
    known.observe(Event::Pod(applied(replica(0, json!({})))), at(0));
    known.observe(Event::Request(applied(request("db-0", CLASS, json!({})))), at(0));
    let item = Item::Request(Key::new("ns", "db-0"));
    let effects = known.decide(&item, at(1)).effects;
    let [Effect::Report { report, .. }] = &effects[..] else { panic!("{effects:?}") };
    let message = report.message.clone().unwrap();
    assert!(!report.completed && message.contains("deploy/workloads/statefulset-role.yaml"), "{message}");
    // With the role all of it is looked at.
    known.observe(Event::StatefulSet(applied(set(1, json!({})))), at(2));
    known.pending();
    let all = Arc::new([Key::new("ns", "db")].into());
    known.observe(Event::StatefulSet(crate::snapshot::WatchEvent::Listed(all)), at(2));
    assert_ne!(known.decide(&Item::Workload(Key::new("ns", "db")), at(60)), Decision::default());
}

/// What is reported for the first of two pods that are asked, and waits for the other one.
fn report_of(with: Value, is_progress_reported: bool, second: i64) -> Option<(bool, Option<String>)> {
    let mut known = healthy(3, json!({}), &[0, 1]);
    known.observe(Event::Pod(applied(replica(2, unready()))), at(0));
    let asked = Request { is_progress_reported, ..(*request("db-0", CLASS, with)).clone() };
    known.observe(Event::Request(applied(Arc::new(asked))), at(0));
    decided(&mut known, second).effects.into_iter().find_map(|effect| match effect {
        Effect::Report { request, report } if request.key.name.as_ref() == "db-0" && !report.completed => {
            Some((report.progress, report.message))
        }
        _ => None,
    })
}

#[test]
fn the_first_report_of_a_turn_is_progress_whatever_was_said_before_it() {
    let role = json!({"status": {"message": "Usher's account may not list statefulsets"}});
    for (what, with, is_progress_reported, wanted) in [
        ("nothing was said", json!({}), true, true),
        ("only that a role is missing", role.clone(), false, true),
        ("something was reported", role, true, false),
    ] {
        let report = report_of(with, is_progress_reported, 1);
        assert_eq!(report.is_some_and(|(progress, _)| progress), wanted, "{what}");
    }
}

#[test]
fn what_blocks_the_eviction_after_a_silent_turn_is_not_talked_over() {
    let blocked = "budget db allows no disruption";
    let status = json!({"status": {"message": blocked, "conditions": [{
        "type": crate::eviction_request::BLOCKED_CONDITION, "status": "True", "reason": "DisruptionBudget", "message": blocked,
        "lastTransitionTime": at(1801).to_string(),
    }]}});
    for is_progress_reported in [false, true] {
        assert_eq!(report_of(status.clone(), is_progress_reported, 1802), None, "{is_progress_reported}");
    }
}

#[test]
fn waiting_for_min_ready_seconds_is_progress() {
    let long = json!({"minReadySeconds": 1200});
    let ready = |second: i64| {
        json!({"metadata": {"creationTimestamp": at(0).to_string(), "labels": {"controller-revision-hash": "v1"}}, "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second).to_string()}],
        }})
    };
    let mut known = scene(set(2, long), vec![replica(0, ready(-5000)), replica(1, ready(10))], &[0]);
    let told = json!({"status": {"message": "StatefulSet db: db-0 waits until db-1", "progressTimestamp": at(20).to_string()}});
    known.observe(Event::Request(applied(request("db-0", CLASS, told))), at(20));
    let progress = |known: &mut StatefulSets, second: i64| {
        let effects = decided(known, second).effects;
        effects.iter().any(|it| matches!(it, Effect::Report { report, .. } if report.progress))
    };
    assert!(progress(&mut known, 1000));
}

#[test]
fn pods_go_from_the_highest_index_to_the_lowest_according_to_max_unavailable() {
    assert_eq!(goes(&mut healthy(4, json!({}), &[0, 1, 3]), 0), ["db-3"], "1 where it is absent");
    let two = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
    assert_eq!(goes(&mut healthy(4, two, &[0, 1, 3]), 0), ["db-3", "db-1"]);
    let half = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    assert_eq!(goes(&mut healthy(4, half, &[0, 1, 2, 3]), 0), ["db-3", "db-2"]);
}

#[test]
fn a_set_that_says_how_many_go_at_a_time_lets_no_more_go_also_if_they_are_down() {
    let object = json!({
        "metadata": {"name": "db", "namespace": "ns", "uid": "db", "annotations": {
            "evictionrequest.coordination.k8s.io/evict-max-unavailable": "1",
        }},
        "spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}, "status": {"updateRevision": "v2"},
    });
    let one_at_a_time =
        || StatefulSet::from(serde_json::from_value::<StatefulSetOnWire>(object.clone()).unwrap());
    let all = |with: fn() -> Value| (0..3).map(|it| replica(it, with())).collect::<Vec<_>>();
    assert_eq!(goes(&mut scene(one_at_a_time(), all(|| json!({})), &[0, 1, 2]), 0), ["db-2"]);
    assert_eq!(goes(&mut scene(one_at_a_time(), all(unready), &[0, 1, 2]), 0), ["db-2"]);
    let mixed = vec![replica(0, unready()), replica(1, json!({})), replica(2, json!({}))];
    assert_eq!(
        goes(&mut scene(one_at_a_time(), mixed, &[0, 1, 2]), 0),
        ["db-0"],
        "one that is down costs nothing"
    );
    let mut gone = scene(one_at_a_time(), vec![replica(0, unready()), replica(1, unready())], &[0, 1]);
    assert!(goes(&mut gone, 0).is_empty(), "the one before is not replaced");
}

#[test]
fn the_first_waits_a_moment_for_those_of_higher_ordinals() {
    let mut known = healthy(3, json!({}), &[]);
    let asked = |ordinal: u32, second: i64| {
        let created = json!({"metadata": {"creationTimestamp": at(second).to_string()}});
        Event::Request(applied(request(&format!("db-{ordinal}"), CLASS, created)))
    };
    known.observe(asked(0, 0), at(0));
    let early = decided(&mut known, 0);
    assert_eq!((early.effects.len(), early.recheck_at), (0, Some(at(3))));
    known.observe(asked(2, 1), at(1));
    assert_eq!(goes(&mut known, 3), ["db-2"]);
}

#[test]
fn before_a_pod_goes_the_server_is_asked_whether_enough_are_available() {
    let two = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
    let decision = decided(&mut healthy(4, two, &[0, 1, 3]), 0);
    let needed: Vec<_> = decision
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ReportIfAvailable { pods, at_least, .. } => Some((pods.clone(), *at_least)),
            _ => None,
        })
        .collect();
    // The first of them leaves three; the second one goes if the first is still there, or back.
    assert_eq!(needed.iter().map(|(_, at_least)| *at_least).collect::<Vec<_>>(), [3, 4]);
    let pods = &needed[0].0;
    assert_eq!(*pods, needed[1].0, "so that it is asked once for both");
    let all: Vec<Pod> = (0..4).map(|it| Pod::clone(&replica(it, json!({})))).collect();
    assert_eq!((pods.count(&all, at(0)), pods.count(&all[..3], at(0))), (4, 3));
    let unready: Vec<Pod> = (0..4).map(|it| Pod::clone(&replica(it, unready()))).collect();
    assert_eq!(pods.count(&unready, at(0)), 0);
}

#[test]
fn the_next_batch_waits_until_the_new_pods_are_available() {
    let mut known = healthy(3, json!({}), &[0, 1, 2]);
    assert_eq!(goes(&mut known, 0), ["db-2"]);
    let given_over = request("db-2", CLASS, json!({"status": {"activeInterceptorCompleted": true}}));
    known.observe(Event::Request(applied(given_over)), at(1));
    assert_eq!(goes(&mut known, 1), [""; 0], "it is still there, and on its way");
    for (state, with) in [
        (
            "terminating",
            json!({"metadata": {"deletionTimestamp": at(60).to_string(), "labels": {"controller-revision-hash": "v1"}}}),
        ),
        ("starting", json!({"status": {"phase": "Pending", "conditions": []}})),
        ("not ready", unready()),
    ] {
        known.observe(Event::Pod(applied(replica(2, with))), at(2));
        assert_eq!(goes(&mut known, 2), [""; 0], "{state}");
    }
    known.observe(Event::Pod(crate::snapshot::WatchEvent::Deleted(Key::new("ns", "db-2"))), at(3));
    assert_eq!(goes(&mut known, 3), [""; 0], "missing");
    known.observe(
        Event::Pod(applied(replica(
            2,
            json!({"metadata": {"uid": "new", "labels": {"controller-revision-hash": "v1"}}}),
        ))),
        at(4),
    );
    assert_eq!(goes(&mut known, 4), ["db-1"]);
}

#[test]
fn a_pod_is_available_after_min_ready_seconds() {
    let since =
        |second| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(second).to_string()}]);
    let ready = |second: i64| json!({"status": {"phase": "Running", "conditions": since(second)}});
    let pods = vec![replica(0, ready(-500)), replica(1, ready(-90))];
    let mut known = scene(set(2, json!({"minReadySeconds": 100})), pods, &[0]);
    let early = decided(&mut known, 5);
    assert_eq!((gone_and_waiting(&early).0.len(), early.recheck_at), (0, Some(at(10))));
    assert_eq!(goes(&mut known, 10), ["db-0"]);
}

#[test]
fn a_pod_that_is_not_available_costs_nothing() {
    let pods = vec![replica(0, unready()), replica(1, json!({})), replica(2, json!({}))];
    let mut known = scene(set(3, json!({})), pods, &[0, 2]);
    assert_eq!(goes(&mut known, 0), ["db-0"], "db-2 waits for it");
}

#[test]
fn those_that_are_down_go_as_many_at_a_time_as_may_be_down() {
    let pods = || (0..3).map(|it| replica(it, unready())).collect();
    let mut known = scene(set(3, json!({})), pods(), &[0, 1, 2]);
    assert_eq!(goes(&mut known, 0), ["db-2"], "they may be ready again before they have left");
    let over = request("db-2", CLASS, json!({"status": {"activeInterceptorCompleted": true}}));
    known.observe(Event::Request(applied(over)), at(1));
    assert_eq!(goes(&mut known, 1), [""; 0]);
}

#[test]
fn a_set_of_millions_costs_no_more_than_its_pods() {
    let mut known = scene(set(u32::MAX / 2, json!({})), vec![replica(0, json!({}))], &[0]);
    let (gone, waits) = gone_and_waiting(&decided(&mut known, 0));
    assert_eq!((gone.len(), waits.len()), (0, 1));
    let (pods, requests) = (BTreeMap::from([(0, replica(0, json!({})))]), HashMap::new());
    let set = set(u32::MAX / 2, json!({}));
    let case = Case { set: &set, strategy: Strategy::MaxUnavailable, pods: &pods, requests: &requests };
    assert!(state(&case, set.rolling_update.as_ref().unwrap(), at(0)).unavailable.len() <= NAMED);
}

#[test]
fn only_pods_of_its_own_namespace_and_names_are_its_pods() {
    let mut known = healthy(2, json!({}), &[1]);
    let old = json!({"namespace": "zz", "labels": {"controller-revision-hash": "v0"}});
    known.observe(Event::Pod(applied(replica(0, json!({"metadata": old})))), at(0));
    let odd = pod(
        "db-01",
        "StatefulSet",
        "db",
        "n1",
        json!({"metadata": {"labels": {"controller-revision-hash": "v0"}}}),
    );
    known.observe(Event::Pod(applied(odd)), at(0));
    assert_eq!(goes(&mut known, 0), ["db-1"]);
}

#[test]
fn a_pod_that_the_set_has_no_place_for_is_declined() {
    let pods = (0..3).map(|it| replica(it, json!({}))).collect();
    assert_eq!(goes(&mut scene(set(1, json!({})), pods, &[1, 2]), 0), ["db-1", "db-2"]);
}

#[test]
fn during_its_own_rolling_update_it_waits_for_that() {
    let old = json!({"metadata": {"labels": {"controller-revision-hash": "v0"}}});
    let pods = vec![replica(0, old.clone()), replica(1, old.clone()), replica(2, json!({}))];
    let mut known = scene(set(3, json!({})), pods.clone(), &[2]);
    let (gone, waits) = gone_and_waiting(&decided(&mut known, 0));
    assert_eq!(gone, [""; 0]);
    assert_eq!(waits[0].2, "StatefulSet db: db-2 waits until its rolling update is done");
    // With a partition the lower ones keep their revision, and nothing is waited for.
    let partition = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
    assert_eq!(goes(&mut scene(set(3, partition), pods, &[2]), 0), ["db-2"]);
    let started = json!({"ordinals": {"start": 5}, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
    let pods = vec![replica(5, old.clone()), replica(6, old.clone()), replica(7, json!({}))];
    assert_eq!(
        goes(&mut scene(set(3, started), pods, &[5]), 0),
        ["db-5"],
        "a partition counts from the first"
    );
    let unseen = StatefulSet { is_observed: false, ..set(3, json!({})) };
    assert_eq!(goes(&mut scene(unseen, (0..3).map(|it| replica(it, json!({}))).collect(), &[2]), 0), [""; 0]);
}

#[test]
fn pod_management_parallel_and_other_first_ordinals_make_no_difference() {
    let with = json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}});
    let pods = (5..8).map(|it| replica(it, json!({}))).collect();
    assert_eq!(goes(&mut scene(set(3, with), pods, &[5, 7]), 0), ["db-7"]);
}

#[test]
fn those_that_wait_report_progress_while_the_batch_moves_and_none_when_it_does_not() {
    let mut known = healthy(3, json!({}), &[0, 1]);
    known.observe(Event::Pod(applied(replica(2, unready()))), at(0));
    let (_, waits) = gone_and_waiting(&decided(&mut known, 1));
    let said = "StatefulSet db: db-1 waits until db-2 is available, which is not ready";
    assert_eq!(waits[0], ("db-1".into(), true, said.into()), "its turn has begun");
    // It is written: then nothing more until a sign of life is due.
    let heard = |progress: i64, message: &str| json!({"status": {"progressTimestamp": at(progress).to_string(), "message": message}});
    known.observe(Event::Request(applied(request("db-1", CLASS, heard(1, said)))), at(1));
    let quiet = decided(&mut known, 100);
    assert!(!gone_and_waiting(&quiet).1.iter().any(|(name, ..)| name == "db-1"));
    assert_eq!(
        gone_and_waiting(&decided(&mut known, 200)).1.iter().filter(|it| it.0 == "db-1").count(),
        0,
        "nothing has moved"
    );
    // A new pod came: that is progress.
    let came = json!({"metadata": {"uid": "new", "creationTimestamp": at(150).to_string()}, "status": {"conditions": []}});
    known.observe(Event::Pod(applied(replica(2, came))), at(150));
    let (_, waits) = gone_and_waiting(&decided(&mut known, 200));
    assert!(waits.iter().any(|(name, progress, _)| name == "db-1" && *progress));
}

#[test]
fn a_volume_that_cannot_move_is_a_cause_of_its_own() {
    for words in ["had volume node affinity conflict", "didn't match PersistentVolume's node affinity"] {
        is_told_of_a_volume(&format!("0/3 nodes are available: 1 node(s) {words}."));
    }
}

fn is_told_of_a_volume(message: &str) {
    let conditions =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    let stuck = json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending", "conditions": conditions}});
    let pods = BTreeMap::from([(0, replica(0, json!({}))), (1, replica(1, stuck))]);
    let set = set(2, json!({}));
    let case = Case { set: &set, strategy: Strategy::MaxUnavailable, pods: &pods, requests: &HashMap::new() };
    let state = state(&case, set.rolling_update.as_ref().unwrap(), at(0));
    assert_eq!(state.unavailable[&1].reason(), "VolumeCannotMove");
    assert_eq!(state.room, 0);
    let words = state.unavailable[&1].words();
    assert!(
        words.contains("its volume cannot move") && words.contains(message.trim_end_matches('.')),
        "{words}"
    );
}

#[test]
fn how_long_it_takes_is_told_by_batches() {
    let mut known = healthy(4, json!({}), &[0, 1, 2, 3]);
    let decision = decided(&mut known, 0);
    let finish: Vec<_> = decision
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Report { report, .. } => report.finish,
            _ => None,
        })
        .collect();
    // A pod of the set took 10 s to start and may take 60 s to end; db-3 goes now.
    assert_eq!(finish, [at(140), at(210), at(280)]);
}

#[test]
fn times_at_their_limits_stop_nobody() {
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-30T22:00:00Z"}]);
    let odd = json!({
        "spec": {"terminationGracePeriodSeconds": i64::MAX},
        "status": {"phase": "Running", "conditions": ready},
    });
    let pods = (0..3).map(|it| replica(it, odd.clone())).collect();
    let mut known = scene(set(3, json!({"minReadySeconds": i32::MAX})), pods, &[0, 1, 2]);
    let (gone, waits) = gone_and_waiting(&decided(&mut known, 0));
    assert_eq!((gone.len(), waits.len()), (1, 2));
}

#[test]
fn a_pod_without_a_set_is_declined() {
    let mut known = StatefulSets::default();
    let bare = pod("x", "ReplicaSet", "rs", "n1", json!({}));
    known.observe(Event::Request(applied(request("x", CLASS, json!({})))), at(0));
    known.observe(Event::Pod(applied(bare)), at(0));
    let item = Item::Request(Key::new("ns", "x"));
    assert!(known.pending().now.contains(&item));
    assert_eq!(gone_and_waiting(&known.decide(&item, at(0))).0, ["x"]);
}

/// `kubectl delete statefulset --cascade=orphan`, then `kubectl apply`.
#[test]
fn a_set_that_is_deleted_without_its_pods_and_made_anew_goes_on_one_by_one() {
    let mut known = healthy(3, json!({}), &[0, 1, 2]);
    assert_eq!(goes(&mut known, 0), ["db-2"]);
    let orphans = StatefulSet { is_deleting: true, orphans_pods: true, ..set(3, json!({})) };
    known.observe(Event::StatefulSet(applied(orphans)), at(1));
    assert_eq!(goes(&mut known, 1), [""; 0]);
    let labels = |it: u32| json!({"controller-revision-hash": "v1", "statefulset.kubernetes.io/pod-name": format!("db-{it}")});
    for ordinal in 0..3 {
        let orphan = Pod {
            owner: None,
            ..Pod::clone(&replica(ordinal, json!({"metadata": {"labels": labels(ordinal)}})))
        };
        known.observe(Event::Pod(applied(Arc::new(orphan))), at(2));
    }
    known.observe(Event::StatefulSet(crate::snapshot::WatchEvent::Deleted(Key::new("ns", "db"))), at(2));
    let items: Vec<Item> = (0..3).map(|it| Item::Request(Key::new("ns", format!("db-{it}")))).collect();
    for item in &items {
        assert!(known.pending.contains(item), "{item:?}");
        let decision = known.decide(item, at(2));
        assert_eq!(
            (gone_and_waiting(&decision).0.len(), decision.recheck_at),
            (0, Some(at(62))),
            "a set may take it over"
        );
    }
    let anew = StatefulSet { uid: "anew".into(), ..set(3, json!({})) };
    known.observe(Event::StatefulSet(applied(anew)), at(30));
    for (ordinal, item) in (0..3).zip(&items) {
        assert_eq!(gone_and_waiting(&known.decide(item, at(30))).0.len(), 0, "it has not taken over any yet");
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "anew", "controller": true}]);
        let adopted = json!({"metadata": {"labels": labels(ordinal), "ownerReferences": owner}});
        known.observe(Event::Pod(applied(replica(ordinal, adopted))), at(31));
    }
    assert_eq!(goes(&mut known, 31), ["db-2"]);
    for item in &items {
        assert_eq!(gone_and_waiting(&known.decide(item, at(31))).0.len(), 0);
    }
    assert!(known.orphaned.is_empty());
}

#[test]
fn pods_that_no_set_takes_over_are_left_to_the_eviction_api_after_a_minute() {
    let mut known = StatefulSets::default();
    let labels = json!({"statefulset.kubernetes.io/pod-name": "db-0"});
    let orphan = Pod { owner: None, ..Pod::clone(&replica(0, json!({"metadata": {"labels": labels}}))) };
    known.observe(Event::Request(applied(request("db-0", CLASS, json!({})))), at(0));
    known.observe(Event::Pod(applied(Arc::new(orphan))), at(0));
    let item = Item::Request(Key::new("ns", "db-0"));
    assert_eq!(known.decide(&item, at(5)).recheck_at, Some(at(65)));
    assert_eq!(gone_and_waiting(&known.decide(&item, at(64))).0.len(), 0);
    assert_eq!(gone_and_waiting(&known.decide(&item, at(65))).0, ["db-0"]);
}

proptest! {
    /// Whatever the pods and requests are: never more than maxUnavailable are down through it, and from the highest down.
    #[test]
    fn no_more_than_max_unavailable_are_down_through_it(
        states in proptest::collection::vec((0..4_u8, 0..3_u8), 1..12),
        max in 1..4_u32,
    ) {
        let replicas = u32::try_from(states.len()).unwrap();
        let update = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": max}}});
        let mut known = StatefulSets::default();
        known.observe(Event::StatefulSet(applied(set(replicas, update))), at(0));
        let (mut down, mut available_asked) = (0, Vec::new());
        for (ordinal, (pod, asked)) in (0..replicas).zip(&states) {
            let with = match pod {
                0 => None,
                1 => Some(unready()),
                _ => Some(json!({})),
            };
            down += usize::from(*pod < 2);
            let Some(with) = with else { continue };
            known.observe(Event::Pod(applied(replica(ordinal, with))), at(0));
            if *asked == 0 {
                continue;
            }
            let is_over = *asked == 2;
            let status = json!({"status": {"activeInterceptorCompleted": is_over}});
            known.observe(Event::Request(applied(request(&format!("db-{ordinal}"), CLASS, status))), at(0));
            down += usize::from(is_over && *pod >= 2);
            if !is_over && *pod >= 2 {
                available_asked.push(format!("db-{ordinal}"));
            }
        }
        let gone: Vec<String> = goes(&mut known, 0).into_iter().filter(|it| available_asked.contains(it)).collect();
        prop_assert!(gone.is_empty() || down + gone.len() <= max as usize, "{} down, {:?} go", down, gone);
        available_asked.reverse();
        prop_assert_eq!(&gone[..], &available_asked[..gone.len()]);
        // And as many as may.
        let may = (max as usize).saturating_sub(down).min(available_asked.len());
        prop_assert_eq!(gone.len(), may);
    }
}

#[test]
fn no_other_pod_goes_before_the_watch_has_told_of_the_first() {
    let mut known = healthy(5, json!({}), &[0]);
    let first = decided(&mut known, 0);
    assert_eq!(gone_and_waiting(&first).0, ["db-0"]);
    for effect in &first.effects {
        known.carried_out(effect, &EffectOutcome::Done, at(0));
    }
    // The watch is late, and somebody asks for another one meanwhile.
    known.observe(Event::Request(applied(request("db-3", CLASS, json!({})))), at(1));
    assert_eq!(goes(&mut known, 1), [] as [String; 0]);
    let completed = json!({"status": {"activeInterceptorCompleted": true}});
    known.observe(Event::Request(applied(request("db-0", CLASS, completed))), at(2));
    assert_eq!(goes(&mut known, 2), [] as [String; 0]);
    assert!(known.completed.is_empty());
}
