//! What becomes of pods that are wanted gone, by each rule, and what holds whatever comes together.

use proptest::prelude::*;
use serde_json::{Value, json};
use usher_api::workloads::BundledInterceptor;

use super::index::Index;
use super::*;
use crate::snapshot::{
    Key, Namespace, NamespaceOnWire, PodOnWire, RequestOnWire, TaintedNode, TaintedNodeOnWire, WatchEvent,
};

const NOON: &str = "2026-01-01T12:00:00Z";
const OPTIONS: Options = Options {
    timeout: SignedDuration::from_secs(60),
    withdraw_after: Some(SignedDuration::from_mins(5)),
    interceptors_limit: None,
};

/// So many seconds after noon.
fn at(seconds: i64) -> Timestamp {
    later(NOON.parse().unwrap(), SignedDuration::from_secs(seconds))
}

fn text(seconds: i64) -> String {
    at(seconds).to_string()
}

#[derive(Debug, Clone, Default)]
struct Scene {
    policy: Option<&'static str>,
    of_namespace: Option<&'static str>,
    /// The taint eviction controller wanted it gone.
    driven_off: bool,
    /// Its node has the taint, since noon.
    tainted: bool,
    /// Marked since this second, and last asked for by an eviction at that one.
    marked: Option<(i64, Option<i64>)>,
    interceptors: bool,
    /// Requesters, and whose turn it is.
    request: Option<(Vec<String>, Value)>,
    deleting: bool,
    has_failed: bool,
}

impl Scene {
    fn pod(&self) -> Value {
        let mut annotations = serde_json::Map::new();
        if let Some(policy) = self.policy {
            annotations.insert("evictionrequest.coordination.k8s.io/evict-policy".to_owned(), policy.into());
        }
        if self.interceptors {
            let key = "interceptor.evictionrequest.coordination.k8s.io/priority_a.io";
            annotations.insert(key.to_owned(), "7".into());
        }
        if let Some((since, asked)) = self.marked {
            let asked = asked.map(|asked| json!({"by": "alice", "at": text(asked)}));
            let mark = json!({"uid": "u", "since": text(since), "asked": asked});
            annotations.insert("kubernetes.io/pod-evict-wanted".to_owned(), "true".into());
            annotations.insert(
                "evictionrequest.coordination.k8s.io/evict-wanted".to_owned(),
                mark.to_string().into(),
            );
        }
        let condition =
            json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"});
        json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "annotations": annotations,
                "deletionTimestamp": self.deleting.then_some(NOON),
            },
            "spec": {"nodeName": "n1"},
            "status": {"phase": if self.has_failed { "Failed" } else { "Running" }, "conditions": if self.driven_off { json!([condition]) } else { json!([]) }},
        })
    }

    fn index(&self) -> Index {
        let mut index = Index::new(OPTIONS, BundledInterceptor::ALL.to_vec());
        let taints =
            json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": NOON}]);
        let taints = if self.tainted { taints } else { json!([]) };
        let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": taints}});
        let node = TaintedNode::from(serde_json::from_value::<TaintedNodeOnWire>(node).unwrap());
        let pod = Pod::from(serde_json::from_value::<PodOnWire>(self.pod()).unwrap());
        let namespace = json!({"metadata": {
            "name": "shop", "annotations": self.of_namespace.map(|policy| json!({"evictionrequest.coordination.k8s.io/evict-policy": policy})),
        }});
        let namespace = Namespace::from(serde_json::from_value::<NamespaceOnWire>(namespace).unwrap());
        index.namespaces_changed(WatchEvent::Applied(Arc::new(namespace)));
        index.pods_changed(WatchEvent::Applied(Arc::new(pod)));
        index.nodes_changed(WatchEvent::Applied(node));
        if let Some((requesters, status)) = &self.request {
            let prefix = "requester.evictionrequest.coordination.k8s.io/name_";
            let finalizers: Vec<String> = requesters.iter().map(|name| format!("{prefix}{name}")).collect();
            let ask = json!({"by": TAINT_EVICTION_USER, "at": NOON}).to_string();
            let request = json!({
                "metadata": {
                    "name": "u", "namespace": "shop", "uid": "r", "creationTimestamp": NOON, "finalizers": finalizers,
                    "annotations": {format!("gateway.evictionrequest.coordination.k8s.io/{}", taint_requester().as_str()): ask},
                },
                "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": [{"interceptorClass": "a.io", "priority": 1}]},
                "status": status,
            });
            let request = Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap());
            index.requests_changed(WatchEvent::Applied(Arc::new(request)));
        }
        index
    }

    fn decide(&self, seconds: i64) -> Decision {
        self.index().decide(&Key::new("shop", "web"), at(seconds))
    }

    /// What is done, in a word each.
    fn does(&self, seconds: i64) -> Vec<&'static str> {
        let word = |effect: &Effect| match effect {
            Effect::Mark { .. } => Some("mark"),
            Effect::Unmark { .. } => Some("unmark"),
            Effect::Ask { .. } => Some("ask"),
            Effect::Withdraw { .. } => Some("withdraw"),
            Effect::Delete { .. } => Some("delete"),
            Effect::RecordEvent { .. } => None,
        };
        self.decide(seconds).effects.iter().filter_map(word).collect()
    }
}

const TAKES_OVER: Option<&str> = Some("ControllerTakeOver");

/// A pod on a tainted node whose workload has taken over at noon.
fn driven_off() -> Scene {
    Scene { policy: TAKES_OVER, driven_off: true, tainted: true, marked: Some((0, None)), ..Scene::default() }
}

fn at_work() -> Value {
    json!({"activeInterceptorClass": "a.io", "progressTimestamp": NOON})
}

fn completed() -> Value {
    json!({"activeInterceptorClass": "a.io", "activeInterceptorCompleted": true})
}

#[test]
fn a_pod_whose_deletion_was_refused_to_the_taint_eviction_controller_is_marked() {
    let fresh = Scene { marked: None, ..driven_off() };
    assert_eq!(fresh.does(5), ["mark"]);
    let Some(Effect::Mark { wanted, .. }) = fresh.decide(5).effects.into_iter().next() else { panic!() };
    assert_eq!((wanted.uid.as_str(), wanted.since.0), ("u", at(5)));
    for (what, scene) in [
        ("its policy is Default", Scene { policy: Some("Default"), ..fresh.clone() }),
        ("it has no policy", Scene { policy: None, ..fresh.clone() }),
        ("nobody wanted it gone", Scene { driven_off: false, ..fresh.clone() }),
        ("the node is healthy again", Scene { tainted: false, ..fresh.clone() }),
        ("it is on its way out", Scene { deleting: true, ..fresh.clone() }),
    ] {
        assert!(scene.does(5).is_empty(), "{what}");
    }
    let of_namespace = Scene { policy: None, of_namespace: TAKES_OVER, ..fresh.clone() };
    assert_eq!(of_namespace.does(5), ["mark"], "its namespace says so");
    let own = Scene { policy: Some("Default"), of_namespace: TAKES_OVER, ..fresh };
    assert!(own.does(5).is_empty(), "the pod's own word comes first");
}

#[test]
fn the_workload_has_its_time_and_then_the_pod_is_deleted() {
    let decision = driven_off().decide(59);
    assert!(decision.effects.is_empty());
    assert_eq!(decision.waiting_on, Some(Wait::Workload { until: at(60) }));
    assert_eq!(decision.recheck_at, Some(at(60)));
    assert_eq!(driven_off().does(60), ["delete"]);
    let lost = Scene { policy: None, ..driven_off() };
    assert_eq!(
        lost.does(5),
        ["delete"],
        "the policy was taken off in the middle, and nobody else comes back for the pod"
    );
    assert!(Scene { deleting: true, ..driven_off() }.does(60).is_empty());
}

#[test]
fn a_pod_that_has_ended_is_nobodys_to_take_over() {
    let failed = Scene { has_failed: true, interceptors: true, ..driven_off() };
    assert_eq!(failed.does(1), ["delete"], "it was refused to the taint eviction controller before");
    assert_eq!(Scene { marked: None, ..failed.clone() }.does(1), ["mark"]);
    assert_eq!(Scene { tainted: false, ..failed }.does(1), ["unmark"]);
}

#[test]
fn the_mark_goes_when_nobody_wants_the_pod_gone_any_more() {
    let healthy = Scene { tainted: false, ..driven_off() };
    assert_eq!(healthy.does(30), ["unmark"]);
    assert_eq!(healthy.does(3600), ["unmark"], "however late that is");
    let asked = |last: i64| Scene { marked: Some((0, Some(last))), ..healthy.clone() };
    assert!(asked(0).does(299).is_empty(), "a drainer may ask again");
    assert_eq!(asked(0).decide(299).recheck_at, Some(at(300)));
    assert_eq!(asked(0).does(300), ["unmark"], "it has withdrawn");
    let other = Scene { policy: Some("Default"), ..asked(0) };
    assert_eq!(other.does(1), ["unmark"], "its workload takes over no more");
}

#[test]
fn a_pod_with_interceptors_gets_the_request_and_the_mark_shows_it() {
    let both = Scene { interceptors: true, ..driven_off() };
    assert_eq!(both.does(1), ["ask"], "there is none");
    let asked = |requesters: &[&str], status: Value| {
        let requesters = requesters.iter().map(|it| (*it).to_owned()).collect();
        Scene { request: Some((requesters, status)), ..both.clone() }
    };
    let ours = taint_requester().as_str().to_owned();
    let way = |scene: Scene, seconds: i64| match scene.decide(seconds).effects.first() {
        Some(Effect::Ask { way, .. }) => Some(*way),
        _ => None,
    };
    assert_eq!(way(both.clone(), 1), Some(WayToAsk::Create));
    assert_eq!(way(asked(&["a.user.gateway"], at_work()), 1), Some(WayToAsk::Join));
    assert_eq!(way(asked(&[&ours], at_work()), 100), Some(WayToAsk::Remember));
    assert_eq!(ours, "node-controller.kube-system.sa.gateway");
    assert_eq!(asked(&["a.user.gateway"], at_work()).does(1), ["ask"], "others have asked: it is joined");
    assert!(asked(&[&ours], at_work()).does(99).is_empty());
    assert_eq!(
        asked(&[&ours], at_work()).does(100),
        ["ask"],
        "it is renewed long before it counts as withdrawn"
    );
    let by_drain = Scene {
        policy: TAKES_OVER,
        request: Some((vec!["a.user.gateway".to_owned()], at_work())),
        ..Scene::default()
    };
    assert_eq!(by_drain.does(1), ["mark"], "whoever has asked");
    assert!(Scene { policy: None, ..by_drain }.does(1).is_empty());
}

#[test]
fn a_pod_is_not_deleted_while_an_interceptor_is_at_work() {
    let with = |status: Value| Scene {
        interceptors: true,
        request: Some((vec![taint_requester().as_str().to_owned()], status)),
        ..driven_off()
    };
    assert_eq!(with(at_work()).decide(90).waiting_on, Some(Wait::Interceptor));
    assert!(with(at_work()).does(90).is_empty());
    assert_eq!(with(completed()).does(59), Vec::<&str>::new(), "its time is not over");
    assert_eq!(with(completed()).does(60), ["delete"], "a budget may be in the way of the eviction");
    let deleted = with(completed()).decide(60).effects;
    let Some(Effect::Delete { request: Some(request), .. }) = deleted.first() else { panic!("{deleted:?}") };
    assert_eq!(&*request.uid, "r", "as long as its request is the one that was looked at");
    let none = Scene { interceptors: true, ..driven_off() };
    assert_eq!(none.does(600), ["ask"], "nobody is deleted past interceptors that were not asked");
    let mut index = none.index();
    let key = Key::new("shop", "web");
    index.asked(&key, false, at(600));
    let deletes = |index: &mut Index, seconds| {
        let effects = index.decide(&key, at(seconds)).effects;
        effects.iter().any(|effect| matches!(effect, Effect::Delete { .. }))
    };
    assert!(!deletes(&mut index, 659) && deletes(&mut index, 660), "no request could be made for a minute");
    index.asked(&key, true, at(660));
    assert!(!deletes(&mut index, 660));
}

#[test]
fn what_was_asked_for_is_taken_back_when_the_node_is_healthy_again() {
    let back = |policy: &str, requesters: &[&str]| Scene {
        tainted: false,
        interceptors: true,
        request: Some((
            requesters.iter().map(|it| (*it).to_owned()).collect(),
            json!({"activeInterceptorClass": "a.io", "evictionRequestCancellationPolicy": policy}),
        )),
        ..driven_off()
    };
    let ours = taint_requester().as_str().to_owned();
    assert_eq!(back("Allow", &[&ours]).does(30), ["withdraw", "unmark"]);
    assert_eq!(back("Allow", &[&ours, "a.user.gateway"]).does(30), ["withdraw"], "others want it gone");
    let withdrawn = back("Allow", &[&ours, "a.user.gateway"]).decide(30).effects;
    let Some(Effect::Withdraw { finalizers, .. }) = withdrawn.first() else { panic!() };
    assert_eq!(finalizers, &["requester.evictionrequest.coordination.k8s.io/name_a.user.gateway"]);
    assert_eq!(back("Forbid", &[&ours]).does(30), ["unmark"], "the interceptor forbids to stop");
}

#[test]
fn a_mark_that_was_written_for_another_pod_does_not_count() {
    let mut pod = Scene { tainted: true, ..driven_off() }.pod();
    pod["metadata"]["uid"] = "copy".into();
    let mut index = driven_off().index();
    let pod = Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap());
    index.pods_changed(WatchEvent::Applied(Arc::new(pod)));
    let effects = index.decide(&Key::new("shop", "web"), at(600)).effects;
    assert!(
        matches!(effects.as_slice(), [Effect::Mark { wanted, .. }] if wanted.uid == "copy"),
        "{effects:?}"
    );
}

#[test]
fn a_bundled_interceptor_that_is_off_answers_for_nobody() {
    let mut pod = driven_off().pod();
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "s", "controller": true}]);
    pod["metadata"]["annotations"]["interceptor.evictionrequest.coordination.k8s.io/priority_replicaset.apps.k8s.io"] =
        "10000/controller".into();
    for (on, wanted) in [(BundledInterceptor::ALL.to_vec(), 1), (Vec::new(), 0)] {
        let mut index = Index::new(OPTIONS, on);
        let pod = Pod::from(serde_json::from_value::<PodOnWire>(pod.clone()).unwrap());
        index.pods_changed(WatchEvent::Applied(Arc::new(pod)));
        let node =
            json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
        index.nodes_changed(WatchEvent::Applied(
            serde_json::from_value::<TaintedNodeOnWire>(node).unwrap().into(),
        ));
        let effects = index.decide(&Key::new("shop", "web"), at(1)).effects;
        assert_eq!(effects.len(), wanted, "{effects:?}");
    }
}

#[test]
fn people_are_told_once_that_a_pod_is_wanted_gone_and_that_its_workload_did_not_end_it() {
    let key = Key::new("shop", "web");
    let mut index = Scene { marked: None, ..driven_off() }.index();
    let marked = Pod::from(serde_json::from_value::<PodOnWire>(driven_off().pod()).unwrap());
    index.pods_changed(WatchEvent::Applied(Arc::new(marked)));
    let mut told = |seconds: i64| -> Vec<&'static str> {
        let effects = index.decide(&key, at(seconds)).effects;
        effects
            .iter()
            .filter_map(|it| if let Effect::RecordEvent { reason, .. } = it { Some(*reason) } else { None })
            .collect()
    };
    assert_eq!(told(1), ["EvictWanted"]);
    assert!(told(2).is_empty());
    assert_eq!(told(60), ["EvictPolicyFellBack"]);
    let mut restarted = driven_off().index();
    assert!(restarted.decide(&key, at(1)).effects.is_empty(), "a manager before this one has told it");
}

#[test]
fn only_what_may_have_changed_is_looked_at_again() {
    let mut index = driven_off().index();
    let key = Key::new("shop", "web");
    assert!(index.pending().contains(&key));
    let node = |taints: Value| {
        let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": taints}});
        WatchEvent::Applied(TaintedNode::from(serde_json::from_value::<TaintedNodeOnWire>(node).unwrap()))
    };
    index.nodes_changed(node(json!([])));
    assert!(index.pending().contains(&key), "the taint is gone");
    index.nodes_changed(node(json!([])));
    assert!(index.pending().is_empty(), "a sign of life");
    let mut plain = Scene { tainted: true, ..Scene::default() }.index();
    assert!(plain.pending().is_empty(), "most pods have no policy");
}

fn scenes() -> impl Strategy<Value = (Scene, i64)> {
    let policy = || prop::sample::select(vec![None, Some("Default"), TAKES_OVER, Some("whatever")]);
    let marked = prop::option::of((-100..100_i64, prop::option::of(-400..100_i64)));
    let status = prop::sample::select(vec![json!({}), at_work(), completed()]);
    let names = prop::sample::subsequence(
        vec![taint_requester().as_str().to_owned(), "a.user.gateway".to_owned()],
        0..=2,
    );
    let request = prop::option::of((names, status));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    (policy(), policy(), flags, marked, request, -10..400_i64).prop_map(
        |(policy, of_namespace, (driven_off, tainted, interceptors, deleting), marked, request, now)| {
            let has_failed = false;
            let scene = Scene {
                policy,
                of_namespace,
                driven_off,
                tainted,
                marked,
                interceptors,
                request,
                deleting,
                has_failed,
            };
            (scene, now)
        },
    )
}

proptest! {
    /// Nobody is deleted whom Kubernetes does not want gone now, who was not marked, before the time is over, or while somebody is at work.
    #[test]
    fn nobody_is_deleted_too_early((scene, now) in scenes()) {
        let takes_over = EvictPolicy::of(scene.policy, scene.of_namespace) == EvictPolicy::ControllerTakeOver;
        if scene.does(now).contains(&"delete") {
            prop_assert!(scene.driven_off && scene.tainted && !scene.deleting && now >= 0);
            prop_assert!(scene.marked.is_some_and(|(since, _)| !takes_over || now >= since + 60));
            let is_at_work = |(names, status): &(Vec<String>, Value)| !names.is_empty() && *status != completed();
            prop_assert!(!scene.request.as_ref().is_some_and(is_at_work));
        }
    }

    /// Who has been driven off and marked is gone in the end, whatever else is so, also where no request can be made.
    #[test]
    fn nobody_stays_for_ever((scene, _) in scenes()) {
        let scene = Scene { driven_off: true, tainted: true, deleting: false, marked: Some((0, None)), request: None, ..scene };
        let (mut index, key) = (scene.index(), Key::new("shop", "web"));
        let is_deleted = [1, 60, 61].into_iter().any(|seconds| {
            let effects = index.decide(&key, at(seconds)).effects;
            if effects.iter().any(|effect| matches!(effect, Effect::Ask { .. })) {
                index.asked(&key, false, at(seconds));
            }
            effects.iter().any(|effect| matches!(effect, Effect::Delete { .. }))
        });
        prop_assert!(is_deleted);
    }

    /// A mark is there exactly while somebody wants the pod gone: it is written once, and taken off once.
    #[test]
    fn what_is_marked_is_wanted((scene, now) in scenes()) {
        let does = scene.does(now);
        prop_assert!(!(does.contains(&"mark") && scene.marked.is_some()));
        prop_assert!(!(does.contains(&"unmark") && scene.marked.is_none()));
        prop_assert!(!(does.contains(&"unmark") && does.contains(&"delete")));
        if does.contains(&"mark") {
            let wanted = Scene { marked: Some((now, None)), ..scene.clone() };
            prop_assert!(!wanted.does(now).contains(&"unmark"), "it would be taken off again");
        }
        if does.contains(&"unmark") {
            let left = Scene { marked: None, ..scene };
            prop_assert!(!left.does(now).contains(&"mark"), "it would be marked again");
        }
    }
}

/// What is left after a manager has done the first so many effects of its decision.
fn after(mut scene: Scene, seconds: i64, done: usize) -> Scene {
    for effect in scene.decide(seconds).effects.into_iter().take(done) {
        let ours = taint_requester().as_str().to_owned();
        match effect {
            Effect::Mark { .. } => scene.marked = Some((seconds, None)),
            Effect::Unmark { .. } => scene.marked = None,
            Effect::Ask { .. } => {
                let (names, _) = scene.request.get_or_insert_with(|| (Vec::new(), at_work()));
                if !names.contains(&ours) {
                    names.push(ours);
                }
            }
            Effect::Withdraw { .. } => {
                if let Some((names, _)) = &mut scene.request {
                    names.retain(|name| *name != ours);
                }
            }
            Effect::Delete { .. } => scene.deleting = true,
            Effect::RecordEvent { .. } => {}
        }
    }
    scene
}

proptest! {
    /// A manager is killed after any of its effects, again and again, while the node is lost and comes back. In the end it is healthy, and
    /// the pod is gone, or has neither a mark nor a request of ours.
    #[test]
    fn whoever_is_killed_in_the_middle_leaves_nothing_behind(
        (scene, _) in scenes(), steps in prop::collection::vec((0..4_usize, 1..40_i64, any::<bool>()), 1..12),
    ) {
        let mut scene = Scene { marked: None, request: None, deleting: false, ..scene };
        let mut now = 0;
        for (done, passes, tainted) in steps {
            scene = after(scene, now, done);
            now += passes;
            scene.tainted = tainted;
        }
        scene.tainted = false;
        // The request goes once nobody wants it.
        for _ in 0..4 {
            scene = after(scene, now, usize::MAX);
            if scene.request.as_ref().is_some_and(|(names, _)| names.is_empty()) {
                scene.request = None;
            }
        }
        prop_assert!(scene.deleting || (scene.marked.is_none() && scene.request.is_none()), "{scene:?}");
    }
}
