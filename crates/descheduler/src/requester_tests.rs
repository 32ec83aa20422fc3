use serde_json::{Value, json};
use usher_api::names::{DESCHEDULER_INSTANCE_ANNOTATION, REQUESTER_FINALIZER_PREFIX};
use usher_decide::snapshot::RequestOnWire;

use super::*;
use crate::plan::{Problem, Reason, Stop, Stopped};
use crate::policy::PluginName;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A request for the pod of that UID, by these.
fn request(uid: &str, by: &[&str], created: i64, more: Value) -> Arc<Request> {
    let finalizers: Vec<String> =
        by.iter().map(|name| format!("{REQUESTER_FINALIZER_PREFIX}{name}")).collect();
    let mut object = json!({
        "metadata": {
            "name": uid, "namespace": "ns", "uid": format!("r-{uid}"), "creationTimestamp": at(created).to_string(),
            "finalizers": finalizers,
        },
        "spec": {"podRef": {"name": uid, "uid": uid}, "progressDeadlineSeconds": 1800},
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    Arc::new(serde_json::from_value::<RequestOnWire>(object).unwrap().into())
}

fn observe(requester: &mut Requester, request: Arc<Request>) {
    let created = request.created;
    requester.request_changed(&request.key.clone(), Some(request), created);
}

fn pod(uid: &str) -> PodRef {
    PodRef { namespace: "ns".into(), name: uid.into(), uid: uid.into(), node: "n".into() }
}

fn id(uid: &str) -> PodId {
    PodId::new("ns", uid, uid)
}

/// What a cycle would be told, for pods of namespace `ns` that are called by their UID.
struct Counted(InProgress);

impl Counted {
    fn asked(&self, uid: &str) -> Option<&crate::in_progress::LeavingPod> {
        self.0.pods().find(|(_, _, of, _)| *of == uid).map(|(_, _, _, asked)| asked)
    }

    fn is_leaving(&self, uid: &str) -> bool {
        self.asked(uid).is_some_and(|asked| !asked.by.is_empty())
    }

    fn cools_until(&self, uid: &str) -> Option<Timestamp> {
        self.asked(uid)?.cools_until
    }
}

/// What a cycle is told, and what is done where it has nothing to say.
fn in_progress(requester: &mut Requester, now: Timestamp) -> (Counted, Vec<Effect>) {
    let told = requester.in_progress(now);
    let problem = Problem::UnknownPriorityClass { profile: "p".into(), class: "c".into() };
    let effects = requester.decide(&Plan { problems: vec![problem], ..Plan::default() }, now);
    (Counted(told), effects)
}

fn cooling(all: &[(&str, i64)]) -> Memory {
    Memory { cooling: all.iter().map(|(uid, until)| (id(uid), at(*until))).collect(), ..Memory::default() }
}

fn proposal(uid: &str) -> Proposal {
    Proposal {
        pod: pod(uid),
        profile: "default".into(),
        plugin: PluginName::RemoveFailedPods,
        reason: Reason::Failed { reason: None },
        fits_on: None,
        owner: None,
    }
}

fn plan(still_wanted: &[&str]) -> Plan {
    Plan { still_wanted: still_wanted.iter().map(|uid| (*uid).to_owned()).collect(), ..Plan::default() }
}

fn withdrawn(effects: &[Effect]) -> Vec<(&str, Withdrawal)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Withdraw { request, why, .. } => Some((&*request.pod_uid, *why)),
            _ => None,
        })
        .collect()
}

const EVICT_ONLY: PodMarks = PodMarks {
    request_evict_only: true,
    in_progress: false,
    names_interceptors: false,
    is_terminating: false,
    is_over: false,
};
const MOVING: PodMarks = PodMarks { in_progress: true, ..EVICT_ONLY };

#[test]
fn requests_by_anybody_count_from_the_start_of_a_cycle() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &["example.com"], 0, json!({})));
    observe(&mut requester, request("b", &[REQUESTER, "example.com"], 0, json!({})));
    // Withdrawn by all, and about to go.
    observe(&mut requester, request("c", &[], 0, json!({})));
    let (told, effects) = in_progress(&mut requester, at(1));
    assert_eq!((told.is_leaving("a"), told.is_leaving("b"), told.is_leaving("c")), (true, true, false));
    assert_eq!(told.asked("b").unwrap().by.len(), 2);
    assert!(effects.is_empty());
}

#[test]
fn a_request_that_no_watch_has_told_of_counts_all_the_same() {
    let mut requester = Requester::default();
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(0));
    assert!(in_progress(&mut requester, at(1)).0.is_leaving("a"));
    let key = Key::new("ns", "a");
    requester.request_changed(&key, Some(request("a", &[REQUESTER], 0, json!({}))), at(0));
    requester.request_changed(&key, None, at(0));
    assert!(!in_progress(&mut requester, at(2)).0.is_leaving("a"), "it came and went");
    requester.asked(&proposal("b"), &AskOutcome::Requested, at(0));
    assert!(!in_progress(&mut requester, at(60)).0.is_leaving("b"), "nobody has seen it for a minute");
    requester.asked(&proposal("c"), &AskOutcome::Unknown, at(60));
    assert!(in_progress(&mut requester, at(61)).0.is_leaving("c"), "it may have been asked");
    requester.asked(&proposal("d"), &AskOutcome::Refused, at(60));
    assert!(!in_progress(&mut requester, at(61)).0.is_leaving("d"));
}

#[test]
fn what_takes_too_long_is_given_up_and_not_asked_again_at_once() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    assert!(in_progress(&mut requester, at(3599)).1.is_empty());
    let (told, effects) = in_progress(&mut requester, at(3600));
    assert!(!told.is_leaving("a"), "its place is free");
    assert_eq!(told.cools_until("a"), Some(at(7200)));
    // First it is remembered: whoever is killed in between asks nobody too early.
    assert_eq!(effects[0], Effect::Remember(cooling(&[("a", 7200)])));
    let after = SignedDuration::from_secs(3600);
    assert_eq!(withdrawn(&effects), [("a", Withdrawal::TookTooLong { after })]);
    requester.request_changed(&Key::new("ns", "a"), None, at(0));
    assert_eq!(in_progress(&mut requester, at(7200)).0.cools_until("a"), None, "it may be asked again");
}

#[test]
fn a_cool_down_outlives_a_restart() {
    let mut requester = Requester::default();
    requester.remembered(cooling(&[("a", 100)]));
    assert_eq!(in_progress(&mut requester, at(50)).0.cools_until("a"), Some(at(100)));
    assert_eq!(in_progress(&mut requester, at(100)).0.cools_until("a"), None);
}

#[test]
fn what_the_interceptor_forbids_is_not_withdrawn_and_counts() {
    let mut requester = Requester::default();
    let forbids = json!({"status": {"evictionRequestCancellationPolicy": "Forbid"}});
    observe(&mut requester, request("a", &[REQUESTER], 0, forbids.clone()));
    observe(&mut requester, request("b", &[], 0, forbids));
    let (told, effects) = in_progress(&mut requester, at(90_000));
    assert!(told.is_leaving("a") && told.is_leaving("b") && effects.is_empty());
    for _ in 0..5 {
        assert!(requester.decide(&plan(&[]), at(90_000)).is_empty());
    }
}

#[test]
fn requests_of_others_are_neither_given_up_nor_withdrawn() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &["example.com"], 0, json!({})));
    assert!(in_progress(&mut requester, at(90_000)).1.is_empty());
    for _ in 0..5 {
        assert!(requester.decide(&plan(&[]), at(90_000)).is_empty());
    }
}

#[test]
fn a_request_that_no_plugin_wants_any_more_is_withdrawn_after_two_cycles_and_its_pod_left_alone() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    assert!(requester.decide(&plan(&["a"]), at(1)).is_empty());
    assert!(requester.decide(&plan(&[]), at(2)).is_empty());
    assert!(requester.decide(&plan(&["a"]), at(3)).is_empty(), "it is wanted again");
    assert!(requester.decide(&plan(&[]), at(4)).is_empty());
    let effects = requester.decide(&plan(&[]), at(5));
    // Remembered first: whoever is killed in between asks nobody in a loop.
    assert_eq!(memory_of(&effects).cooling, cooling(&[("a", 3605)]).cooling);
    assert_eq!(withdrawn(&effects), [("a", Withdrawal::NotNeeded)]);
    let mut once = Requester::new(Options { unwanted_cycles: 1, ..Options::default() });
    observe(&mut once, request("a", &[REQUESTER], 0, json!({})));
    assert_eq!(withdrawn(&once.decide(&plan(&[]), at(1))).len(), 1, "there is no other cycle");
}

#[test]
fn a_cycle_without_nodes_says_nothing_of_who_is_still_wanted_and_one_that_met_a_limit_does() {
    let stopped_by = |by: Stop| {
        let mut requester = Requester::new(Options { unwanted_cycles: 1, ..Options::default() });
        observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
        let stops = vec![Stopped { by, plugin: None, pods: 0, places: BTreeMap::new() }];
        withdrawn(&requester.decide(&Plan { stops, ..plan(&[]) }, at(1))).len()
    };
    assert_eq!(stopped_by(Stop::FewerThanTwoReadyNodes { ready: 1 }), 0);
    assert_eq!(stopped_by(Stop::TotalLimit { limit: 1 }), 1, "or a full limit is never free again");
}

#[test]
fn a_request_that_is_given_up_counts_for_others_who_want_the_pod_to_leave() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &[REQUESTER, "drain.example.com"], 0, json!({})));
    let (told, effects) = in_progress(&mut requester, at(3600));
    assert_eq!(withdrawn(&effects).len(), 1);
    assert_eq!(told.asked("a").unwrap().by, ["drain.example.com"]);
}

#[test]
fn a_request_that_somebody_deletes_is_withdrawn_after_a_minute() {
    let mut requester = Requester::default();
    let mut deleted = (*request("a", &[REQUESTER], 0, json!({}))).clone();
    deleted.rare.get_or_insert_default().deleted = Some(at(10));
    observe(&mut requester, Arc::new(deleted));
    assert!(in_progress(&mut requester, at(69)).1.is_empty(), "that of a pod that is gone ends by itself");
    let (told, effects) = in_progress(&mut requester, at(70));
    assert_eq!(withdrawn(&effects), [("a", Withdrawal::Deleted)]);
    assert!(told.cools_until("a").is_some(), "and it is not asked again at once");
}

#[test]
fn requests_of_another_descheduler_count_and_are_left_alone() {
    let mut requester = Requester::new(Options { instance: "ns/mine".into(), ..Options::default() });
    for (uid, instance) in [("a", "ns/mine"), ("b", "ns/other")] {
        let request = json!({
            "metadata": {
                "name": uid, "namespace": "ns", "uid": "r", "creationTimestamp": at(0).to_string(),
                "finalizers": [format!("{REQUESTER_FINALIZER_PREFIX}{REQUESTER}")],
                "annotations": {DESCHEDULER_INSTANCE_ANNOTATION: instance},
            },
            "spec": {"podRef": {"name": uid, "uid": uid}, "progressDeadlineSeconds": 1800},
        });
        let request: Request = serde_json::from_value::<RequestOnWire>(request).unwrap().into();
        observe(&mut requester, Arc::new(request));
    }
    let (told, effects) = in_progress(&mut requester, at(90_000));
    assert!(!told.is_leaving("a") && told.is_leaving("b"));
    assert_eq!(withdrawn(&effects).iter().map(|(uid, _)| *uid).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn what_was_asked_and_is_there_is_not_paused_for_an_answer_that_was_lost() {
    let mut requester = Requester::default();
    requester.asked(&proposal("a"), &AskOutcome::Unknown, at(0));
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    assert_eq!(in_progress(&mut requester, at(1)).0.cools_until("a"), None);
}

#[test]
fn a_pod_that_terminates_is_left_to_it() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    requester.pod_changed(&id("a"), PodMarks { is_terminating: true, ..PodMarks::default() }, at(1));
    assert!(in_progress(&mut requester, at(90_000)).1.is_empty());
    for _ in 0..5 {
        assert!(requester.decide(&plan(&[]), at(90_000)).is_empty());
    }
}

#[test]
fn pods_of_either_kind_are_asked_in_their_way() {
    let ways = |options: Options| {
        let mut requester = Requester::new(options);
        requester.pod_changed(&id("a"), EVICT_ONLY, at(0));
        // What has interceptors is never evicted past them.
        requester.pod_changed(&id("c"), PodMarks { names_interceptors: true, ..EVICT_ONLY }, at(0));
        // What is over has nobody to wait for, and a request for it would be refused.
        requester.pod_changed(
            &id("d"),
            PodMarks { is_over: true, names_interceptors: true, ..EVICT_ONLY },
            at(0),
        );
        let proposals = ["a", "b", "c", "d"].map(proposal).to_vec();
        let both = Plan { proposals, ..Plan::default() };
        let effects = requester.decide(&both, at(1));
        let ways = effects.iter().filter_map(|effect| match effect {
            Effect::Ask { by, .. } => Some(*by),
            _ => None,
        });
        ways.collect::<Vec<Way>>()
    };
    let all = Options::default();
    let (background, plain) = (Way::Eviction { in_background: true }, Way::Eviction { in_background: false });
    assert_eq!(ways(all.clone()), [background, Way::Request, Way::Request, plain]);
    assert_eq!(
        [Way::Request, plain, background].map(|way| way.to_string()),
        ["an EvictionRequest", "the eviction API", "the eviction API, to be moved in the background"]
    );
    assert_eq!(
        ways(Options { in_background: false, ..all.clone() }),
        [Way::Request, Way::Request, Way::Request, plain]
    );
    assert_eq!(ways(Options { requests: false, ..all.clone() }), [background, plain, Way::Request, plain]);
    assert_eq!(
        ways(Options { requests: false, in_background: false, ..all }),
        [plain, plain, Way::Request, plain]
    );
}

#[test]
fn an_eviction_in_the_background_counts_until_it_is_over_or_nobody_marks_the_pod_in_time() {
    let mut requester = Requester::default();
    requester.pod_changed(&id("a"), EVICT_ONLY, at(0));
    requester.asked(&proposal("a"), &AskOutcome::InBackground, at(0));
    assert!(in_progress(&mut requester, at(599)).0.is_leaving("a"));
    let mut marked = Requester::default();
    marked.pod_changed(&id("a"), EVICT_ONLY, at(0));
    marked.asked(&proposal("a"), &AskOutcome::InBackground, at(0));
    marked.pod_changed(&id("a"), MOVING, at(500));
    assert!(in_progress(&mut marked, at(3000)).0.is_leaving("a"), "it is confirmed, and takes its time");
    // Nobody has marked it.
    let (told, effects) = in_progress(&mut requester, at(600));
    assert!(!told.is_leaving("a"));
    assert!(told.cools_until("a").is_some());
    assert!(matches!(&effects[..], [Effect::Remember(_)]), "{effects:?}");
    // It is tried until it is remembered.
    assert!(matches!(&in_progress(&mut requester, at(601)).1[..], [Effect::Remember(_)]));
    requester.saved(&requester.memory());
    assert!(in_progress(&mut requester, at(602)).1.is_empty());
    // The migration failed, and the pod is as before.
    marked.pod_changed(&id("a"), EVICT_ONLY, at(3001));
    assert!(!in_progress(&mut marked, at(3001)).0.is_leaving("a"));
}

fn one_proposal() -> Plan {
    Plan { proposals: vec![proposal("a")], ..Plan::default() }
}

fn memory_of(effects: &[Effect]) -> Memory {
    let Some(Effect::Remember(memory)) = effects.first() else { panic!("{effects:?}") };
    memory.clone()
}

#[test]
fn a_promise_is_remembered_before_it_is_asked_for_and_outlives_a_restart() {
    let mut first = Requester::default();
    first.pod_changed(&id("a"), EVICT_ONLY, at(0));
    let effects = first.decide(&one_proposal(), at(0));
    assert!(matches!(&effects[..], [Effect::Remember(_), Effect::Ask { .. }]), "{effects:?}");
    let memory = memory_of(&effects);
    assert_eq!(memory.background, [(id("a"), (at(0), Moving::Asking))].into());
    // Killed here.
    let mut second = Requester::default();
    second.remembered(memory.clone());
    second.pod_changed(&id("a"), EVICT_ONLY, at(30));
    assert!(in_progress(&mut second, at(599)).0.is_leaving("a"));
    assert!(
        !in_progress(&mut second, at(600)).0.is_leaving("a"),
        "since it was asked, not since the restart"
    );
    // Whether anybody was asked is not known: the pod is tried again. A promise that nobody kept is one to wait after.
    assert_eq!(in_progress(&mut second, at(600)).0.cools_until("a"), None);
    let mut promised = Requester::default();
    promised.pod_changed(&id("a"), EVICT_ONLY, at(0));
    promised.asked(&proposal("a"), &AskOutcome::InBackground, at(0));
    let memory = memory_of(&promised.remember().into_iter().collect::<Vec<_>>());
    assert_eq!(memory.background, [(id("a"), (at(0), Moving::Promised))].into());
    second.remembered(memory.clone());
    assert_eq!(in_progress(&mut second, at(601)).0.cools_until("a"), Some(at(4201)));
    let mut third = Requester::default();
    third.remembered(memory);
    assert!(!in_progress(&mut third, at(30)).0.is_leaving("a"), "the pod is gone");
    // Where it could not be remembered, it was not asked; and one that was refused is not under way.
    first.not_asked(&pod("a"));
    assert!(!in_progress(&mut first, at(1)).0.is_leaving("a"));
    let _ = first.decide(&one_proposal(), at(0));
    first.asked(&proposal("a"), &AskOutcome::Refused, at(0));
    assert!(!in_progress(&mut first, at(1)).0.is_leaving("a"));
}

#[test]
fn after_a_restart_marked_pods_are_known_and_they_too_are_given_up() {
    let mut requester = Requester::default();
    requester.pod_changed(&id("a"), MOVING, at(0));
    let (told, effects) = in_progress(&mut requester, at(1));
    assert!(told.is_leaving("a"));
    // Run once every half an hour, each with nothing but what was remembered.
    let mut memory = memory_of(&effects);
    for (now, is_leaving) in [(1800, true), (3599, true), (3600, false), (5400, false), (7199, false)] {
        let mut next = Requester::default();
        next.pod_changed(&id("a"), MOVING, at(now));
        next.remembered(memory.clone());
        let (told, effects) = in_progress(&mut next, at(now));
        assert_eq!(told.is_leaving("a"), is_leaving, "{now}");
        assert_eq!(told.cools_until("a").is_some(), !is_leaving, "{now}");
        if let Some(Effect::Remember(saved)) = effects.first() {
            memory = saved.clone();
        }
    }
    // The cool-down is not renewed: it may be asked once more, and counts again.
    for is_remembered_first in [true, false] {
        let mut last = Requester::default();
        if is_remembered_first {
            last.remembered(memory.clone());
        }
        last.pod_changed(&id("a"), MOVING, at(7200));
        if !is_remembered_first {
            last.remembered(memory.clone());
        }
        let (told, _) = in_progress(&mut last, at(7200));
        assert!(!told.is_leaving("a") && told.cools_until("a").is_none());
        last.asked(&proposal("a"), &AskOutcome::InBackground, at(7200));
        assert!(in_progress(&mut last, at(7201)).0.is_leaving("a"));
    }
    let (told, _) = in_progress(&mut requester, at(3600));
    assert!(!told.is_leaving("a") && told.cools_until("a").is_some());
    // It stays so for as long as it is marked, and may be asked once more when the cool-down is over.
    assert!(!in_progress(&mut requester, at(7200)).0.is_leaving("a"));
    requester.asked(&proposal("a"), &AskOutcome::InBackground, at(7200));
    assert!(in_progress(&mut requester, at(7201)).0.is_leaving("a"));
}

#[test]
fn without_the_gate_annotations_mean_nothing() {
    let mut requester = Requester::new(Options { in_background: false, ..Options::default() });
    requester.pod_changed(&id("a"), MOVING, at(0));
    assert!(!in_progress(&mut requester, at(1)).0.is_leaving("a"));
}

#[test]
fn a_pod_that_cannot_be_asked_is_tried_later_and_later() {
    let mut requester = Requester::default();
    let mut until = Vec::new();
    for _ in 0..9 {
        requester.asked(&proposal("a"), &AskOutcome::Refused, at(0));
        until.push(
            in_progress(&mut requester, at(0)).0.cools_until("a").unwrap().duration_since(at(0)).as_mins(),
        );
    }
    assert_eq!(until, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(0));
    assert_eq!(in_progress(&mut requester, at(0)).0.cools_until("a"), None);
}

#[test]
fn no_more_cool_downs_are_remembered_than_fit_into_an_object() {
    let mut requester = Requester::default();
    for at_ in 0..3_000 {
        observe(&mut requester, request(&format!("{at_:036}"), &[REQUESTER], at_, json!({})));
    }
    let (_, effects) = in_progress(&mut requester, at(90_000));
    let Effect::Remember(all) = &effects[0] else { panic!("{:?}", effects[0]) };
    assert_eq!(all.cooling.len(), REMEMBERED);
    assert!(all.cooling.keys().map(|pod| pod.to_string().len() + 40).sum::<usize>() < 512 * 1024);
    assert_eq!(withdrawn(&effects).len(), 3_000);
}

#[test]
fn a_pod_is_remembered_as_text() {
    let pod = PodId::new("ns", "web-1", "u-1");
    assert_eq!(pod.to_string(), "ns/web-1/u-1");
    assert_eq!("ns/web-1/u-1".parse(), Ok(pod));
    for wrong in ["", "ns/web", "ns/web/u/x"] {
        assert_eq!(wrong.parse::<PodId>(), Err(()), "{wrong}");
    }
}

#[test]
fn what_is_remembered_is_read_as_it_is_written_and_nonsense_is_left_out() {
    let memory = Memory {
        background: [
            (id("a"), (at(0), Moving::Marked)),
            (id("b"), (at(1), Moving::Promised)),
            (id("d"), (at(2), Moving::GivenUp)),
            (id("e"), (at(3), Moving::Asking)),
        ]
        .into(),
        moved: [(
            id("f"),
            Moved { until: at(9), asked: at(4), plugin: PluginName::LowNodeUtilization, owner: "o-1".into() },
        )]
        .into(),
        failed: [(id("g"), (at(6), 3))].into(),
        asked: [
            (id("h"), Requested { since: at(7), by: None }),
            (
                id("i"),
                Requested {
                    since: at(8),
                    by: Some((PluginName::RemoveDuplicates, "my  own profile".into())),
                },
            ),
        ]
        .into(),
        ..cooling(&[("c", 5)])
    };
    let mut data = memory.to_data();
    assert_eq!(Memory::of_data(&data), memory);
    let until = at(5);
    let nonsense =
        format!("nonsense\nns/web {until}\nns/db/u-2 soon\nns/db/u-3 {until} {until} NoPlugin o\n\n");
    for text in data.values_mut() {
        *text = format!("{nonsense}{text}\n{nonsense}");
    }
    // A line with a word too many is read as far as it goes.
    let mut with_more = memory;
    with_more.cooling.insert(PodId::new("ns", "db", "u-3"), until);
    with_more.asked.insert(PodId::new("ns", "db", "u-3"), Requested { since: until, by: None });
    assert_eq!(Memory::of_data(&data), with_more);
}

#[test]
fn what_is_remembered_fits_into_an_object_also_with_the_longest_names() {
    let pod =
        |number: usize| PodId::new(&"n".repeat(63), &format!("{number:0253}"), &format!("{number:036}"));
    let until = |number: usize| at(i64::try_from(number).unwrap());
    let moved = |number: usize| Moved {
        until: until(number),
        asked: at(0),
        plugin: PluginName::RemovePodsViolatingTopologySpreadConstraint,
        owner: format!("{number:036}").into(),
    };
    let memory = Memory {
        cooling: (0..REMEMBERED).map(|number| (pod(number), until(number))).collect(),
        background: (0..REMEMBERED).map(|number| (pod(number), (until(number), Moving::GivenUp))).collect(),
        moved: (0..REMEMBERED).map(|number| (pod(number), moved(number))).collect(),
        asked: (0..REMEMBERED)
            .map(|number| (pod(number), Requested { since: until(number), by: None }))
            .collect(),
        ..Memory::default()
    };
    let data = memory.to_data();
    assert!(data.values().map(String::len).sum::<usize>() < 1_000_000);
    // Of those that do not fit, the oldest are left out.
    let read = Memory::of_data(&data);
    for (kept, last) in [
        (read.cooling.len(), read.cooling.contains_key(&pod(REMEMBERED - 1))),
        (read.background.len(), read.background.contains_key(&pod(REMEMBERED - 1))),
        (read.moved.len(), read.moved.contains_key(&pod(REMEMBERED - 1))),
    ] {
        assert!((500..REMEMBERED).contains(&kept) && last, "{kept}");
    }
    assert!(!read.cooling.contains_key(&pod(0)));
}

/// A proposal of a pod with this owner.
fn owned(uid: &str, reason: Reason) -> Plan {
    let (api_version, kind, name) = ("apps/v1".into(), "ReplicaSet".into(), "web".into());
    let owner = crate::OwnerRef { api_version, kind, name, uid: "owner".into() };
    let proposal =
        Proposal { owner: Some(owner), reason, plugin: PluginName::RemoveDuplicates, ..proposal(uid) };
    Plan { proposals: vec![proposal], ..Plan::default() }
}

const DUPLICATE: Reason = Reason::Duplicate { on_node: 2, at_most: 1 };

#[test]
fn that_a_pod_was_moved_is_remembered_before_it_is_asked_and_as_long_as_its_replacement_is_left_alone() {
    let mut requester = Requester::default();
    let effects = requester.decide(&owned("a", DUPLICATE), at(0));
    assert!(matches!(&effects[..], [Effect::Remember(_), Effect::Ask { .. }]), "{effects:?}");
    let until = |requester: &mut Requester, now: i64| {
        let (told, _) = in_progress(requester, at(now));
        Some(told.asked("a")?.moved.as_ref()?.until)
    };
    let mut after_a_restart = Requester::default();
    after_a_restart.remembered(memory_of(&effects));
    assert_eq!(until(&mut after_a_restart, 3599), Some(at(3600)));
    assert_eq!(until(&mut after_a_restart, 3600), None);
    // It takes its time to leave, and only then its replacement comes. The request is written by another clock, that of pods.
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(0));
    observe(&mut requester, request("a", &[REQUESTER], 100, json!({})));
    let (told, _) = in_progress(&mut requester, at(3000));
    assert_eq!(told.asked("a").unwrap().moved.as_ref().unwrap().asked, at(100));
    requester.request_changed(&Key::new("ns", "a"), None, at(3000));
    requester.pod_gone(&id("a"), at(3000));
    assert_eq!(until(&mut requester, 6599), Some(at(6600)));
    assert_eq!(until(&mut requester, 6600), None);
}

#[test]
fn nothing_is_remembered_of_pods_that_were_not_moved_or_whose_replacements_are_not_wanted_at_once() {
    for asked in [AskOutcome::Refused, AskOutcome::Gone, AskOutcome::ByOthers] {
        let mut requester = Requester::default();
        let _ = requester.decide(&owned("a", DUPLICATE), at(0));
        requester.asked(&proposal("a"), &asked, at(0));
        assert!(requester.memory().moved.is_empty(), "{asked:?}");
    }
    let once = [
        Reason::Failed { reason: None },
        Reason::TooManyRestarts { restarts: 9, threshold: 5 },
        Reason::LifeTime { age: SignedDuration::from_hours(9), limit_seconds: Some(60) },
        Reason::RequiredNodeAffinity,
        Reason::Taint { taint: "broken:NoSchedule".into() },
        Reason::AntiAffinity { other: "ns/b".into(), topology_key: "zone".into() },
    ];
    for reason in once {
        let mut requester = Requester::default();
        let effects = requester.decide(&owned("a", reason.clone()), at(0));
        assert!(matches!(&effects[..], [Effect::Ask { .. }]), "{reason:?}");
    }
    let mut soft = Requester::default();
    let _ = soft.decide(&owned("a", Reason::Taint { taint: "slow:PreferNoSchedule".into() }), at(0));
    assert_eq!(soft.memory().moved.len(), 1);
}

#[test]
fn how_long_a_request_takes_is_measured_by_one_clock() {
    // The server is five minutes ahead, and five minutes behind.
    for apart in [300, -300] {
        let mut requester = Requester::default();
        requester.asked(&proposal("a"), &AskOutcome::Requested, at(0));
        let made = request("a", &[REQUESTER], apart, json!({}));
        requester.request_changed(&made.key.clone(), Some(made), at(1));
        assert!(withdrawn(&in_progress(&mut requester, at(3599)).1).is_empty(), "{apart}");
        assert_eq!(withdrawn(&in_progress(&mut requester, at(3600)).1).len(), 1, "{apart}");
    }
    // After a restart there is only what is written, which was not in the future.
    let mut requester = Requester::default();
    let made = request("a", &[REQUESTER], 300, json!({}));
    requester.request_changed(&made.key.clone(), Some(made), at(1));
    assert_eq!(withdrawn(&in_progress(&mut requester, at(3601)).1).len(), 1);
}

#[test]
fn another_pod_of_the_same_name_changes_nothing_for_the_one_before_it() {
    let of = |uid: &str| PodId::new("ns", "db-0", uid);
    let asks = |uid: &str| {
        let mut request = (*request(uid, &[REQUESTER], 0, json!({}))).clone();
        request.pod_name = "db-0".into();
        Arc::new(request)
    };
    let mut requester = Requester::default();
    observe(&mut requester, asks("old"));
    observe(&mut requester, asks("new"));
    let (told, _) = in_progress(&mut requester, at(1));
    assert!(told.is_leaving("old") && told.is_leaving("new"));
    requester.remembered(Memory {
        cooling: [(of("old"), at(100)), (of("new"), at(200))].into(),
        ..Memory::default()
    });
    let (told, _) = in_progress(&mut requester, at(1));
    assert_eq!((told.cools_until("old"), told.cools_until("new")), (Some(at(100)), Some(at(200))));
    // The pause of a pod ends with it, and not with another of its name.
    requester.pod_gone(&of("old"), at(0));
    let (told, effects) = in_progress(&mut requester, at(2));
    assert_eq!((told.cools_until("old"), told.cools_until("new")), (None, Some(at(200))));
    assert_eq!(memory_of(&effects).cooling.len(), 1, "and it is not remembered any more");
}

#[test]
fn a_pod_that_is_over_is_neither_moved_nor_leaving() {
    let over = |marks: PodMarks| PodMarks { is_over: true, ..marks };
    let mut requester = Requester::default();
    requester.pod_changed(&id("a"), over(MOVING), at(0));
    requester.pod_changed(&id("b"), MOVING, at(0));
    requester.pod_changed(&id("c"), EVICT_ONLY, at(0));
    requester.asked(&proposal("c"), &AskOutcome::InBackground, at(0));
    observe(&mut requester, request("d", &[REQUESTER, "example.com"], 0, json!({})));
    let (told, _) = in_progress(&mut requester, at(1));
    assert_eq!(["a", "b", "c", "d"].map(|uid| told.is_leaving(uid)), [false, true, true, true]);
    requester.pod_changed(&id("b"), over(MOVING), at(2));
    requester.pod_changed(&id("c"), over(EVICT_ONLY), at(2));
    requester.pod_changed(&id("d"), over(PodMarks::default()), at(2));
    let (told, effects) = in_progress(&mut requester, at(90_000));
    assert_eq!(["a", "b", "c", "d"].map(|uid| told.is_leaving(uid)), [false; 4]);
    assert!(withdrawn(&effects).is_empty(), "its request ends by itself");
}

#[test]
fn a_pod_whose_request_somebody_else_has_withdrawn_is_left_alone_for_a_while() {
    let gone = |before: &Arc<Request>, after: Option<Arc<Request>>, marks: PodMarks| {
        let mut requester = Requester::default();
        observe(&mut requester, before.clone());
        requester.pod_changed(&id("a"), marks, at(1));
        requester.request_changed(&before.key, after, at(0));
        requester.request_was(before, at(2));
        in_progress(&mut requester, at(3)).0.cools_until("a")
    };
    let ours = request("a", &[REQUESTER], 0, json!({}));
    let marks = PodMarks::default();
    assert_eq!(gone(&ours, None, marks), Some(at(3602)));
    // A drain goes on, without the descheduler.
    let shared = request("a", &[REQUESTER, "drain.example.com"], 0, json!({}));
    let of_drain = request("a", &["drain.example.com"], 0, json!({}));
    assert_eq!(gone(&shared, Some(of_drain.clone()), marks), Some(at(3602)));
    assert_eq!(gone(&ours, Some(shared), marks), None, "it is still there");
    assert_eq!(gone(&of_drain, None, marks), None, "it was not ours");
    assert_eq!(gone(&ours, None, PodMarks { is_terminating: true, ..marks }), None, "it has served");
    // One that this descheduler withdraws has its pause already, and gets no longer one.
    let mut requester = Requester::default();
    observe(&mut requester, ours.clone());
    assert_eq!(withdrawn(&in_progress(&mut requester, at(3600)).1).len(), 1);
    requester.request_changed(&ours.key, None, at(0));
    requester.request_was(&ours, at(3700));
    assert_eq!(in_progress(&mut requester, at(3701)).0.cools_until("a"), Some(at(7200)));
}

#[test]
fn a_request_that_cannot_be_withdrawn_is_tried_again_and_counts() {
    let gives_place = |effects: &[Effect]| {
        let one = effects.iter().find_map(|effect| match effect {
            Effect::Withdraw { gives_place, .. } => Some(*gives_place),
            _ => None,
        });
        one.unwrap()
    };
    let mut requester = Requester::default();
    let stuck = request("a", &[REQUESTER], 0, json!({}));
    observe(&mut requester, stuck.clone());
    let (told, effects) = in_progress(&mut requester, at(3600));
    assert!(!told.is_leaving("a") && gives_place(&effects), "its place is given to others");
    requester.not_withdrawn(&stuck.key);
    let (told, effects) = in_progress(&mut requester, at(3660));
    assert!(told.is_leaving("a") && !gives_place(&effects), "it is there, and is tried again");
    requester.request_changed(&stuck.key, None, at(0));
    assert!(!in_progress(&mut requester, at(3720)).0.is_leaving("a"));
}

#[test]
fn a_request_that_is_not_needed_is_tried_in_every_cycle_until_it_is_withdrawn_also_after_a_restart() {
    // Another profile has a problem all the time, and says nothing of this pod.
    let cycle = |requester: &mut Requester, now: i64| {
        let problem = Problem::UnknownPriorityClass { profile: "another".into(), class: "c".into() };
        let _ = requester.in_progress(at(now));
        requester.decide(&Plan { problems: vec![problem], ..plan(&[]) }, at(now))
    };
    let mut requester = Requester::default();
    let made = request("a", &[REQUESTER], 0, json!({}));
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(0));
    observe(&mut requester, made.clone());
    assert_eq!([60, 120].map(|now| withdrawn(&cycle(&mut requester, now)).len()), [0, 1]);
    for now in [180, 240] {
        requester.not_withdrawn(&made.key);
        observe(&mut requester, made.clone());
        assert_eq!(withdrawn(&cycle(&mut requester, now)), [("a", Withdrawal::NotNeeded)], "{now}");
    }
    let mut restarted = Requester::new(Options { unwanted_cycles: 1, ..Options::default() });
    restarted.remembered(requester.memory());
    observe(&mut restarted, made.clone());
    restarted.synced(|_| true, at(300));
    assert_eq!(withdrawn(&cycle(&mut restarted, 300)).len(), 1);
    // It is withdrawn at last. When it is asked again nobody has counted yet.
    requester.request_changed(&made.key, None, at(300));
    requester.request_was(&made, at(300));
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(4000));
    observe(&mut requester, request("a", &[REQUESTER], 4000, json!({})));
    assert_eq!([4060, 4120].map(|now| withdrawn(&cycle(&mut requester, now)).len()), [0, 1]);
}

#[test]
fn what_takes_too_long_while_a_cycle_goes_on_keeps_its_place_until_the_next_one_withdraws_it() {
    let mut requester = Requester::default();
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    observe(&mut requester, request("b", &[REQUESTER], 1, json!({})));
    let names = |effects: &[Effect]| -> Vec<String> {
        withdrawn(effects).into_iter().map(|(uid, _)| uid.to_owned()).collect()
    };
    assert_eq!(names(&in_progress(&mut requester, at(3600)).1), ["a"]);
    let told = Counted(requester.still_in_progress(at(3601)));
    assert!(!told.is_leaving("a") && told.is_leaving("b"));
    assert_eq!(told.cools_until("b"), None);
    assert!(names(&requester.decide_more(&plan(&[]), at(3601))).is_empty());
    requester.request_changed(&Key::new("ns", "a"), None, at(3602));
    let (told, effects) = in_progress(&mut requester, at(3660));
    assert!(!told.is_leaving("b"));
    assert_eq!(names(&effects), ["b"]);
}

/// A watch may tell of a request after its pod has gone, and a cycle may look at it before it goes too.
#[test]
fn nothing_is_kept_of_a_request_that_came_after_its_pod_had_gone() {
    let mut requester = Requester::default();
    requester.pod_gone(&id("a"), at(0));
    let late = request("a", &[REQUESTER], 0, json!({}));
    observe(&mut requester, late.clone());
    let _ = requester.decide(&plan(&[]), at(1));
    requester.request_changed(&late.key, None, at(2));
    assert!(requester.asked.is_empty() && requester.unwanted.is_empty() && requester.begun.is_empty());
}

#[test]
fn cycles_between_those_of_the_interval_do_not_count_for_what_is_not_needed() {
    let options = Options { interval: SignedDuration::from_secs(60), ..Options::default() };
    let mut requester = Requester::new(options);
    observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
    for (now, withdraws) in [(0, 0), (5, 0), (59, 0), (60, 1)] {
        assert_eq!(withdrawn(&requester.decide(&plan(&[]), at(now))).len(), withdraws, "{now}");
    }
}

#[test]
fn a_request_that_somebody_withdrew_while_no_descheduler_ran_leaves_its_pod_alone_for_a_while() {
    let mut first = Requester::default();
    for uid in ["a", "b", "c", "d"] {
        first.asked(&proposal(uid), &AskOutcome::Requested, at(0));
    }
    let memory = memory_of(&first.remember().into_iter().collect::<Vec<_>>());
    // Of these one has its request still, one is gone and one is about to go.
    let mut second = Requester::default();
    second.remembered(memory);
    observe(&mut second, request("b", &[REQUESTER], 0, json!({})));
    second.pod_changed(&id("d"), PodMarks { is_terminating: true, ..PodMarks::default() }, at(10));
    second.synced(|pod| *pod != id("c"), at(10));
    let (told, effects) = in_progress(&mut second, at(10));
    assert_eq!(["a", "b", "c", "d"].map(|uid| told.cools_until(uid)), [Some(at(3610)), None, None, None]);
    let saved = memory_of(&effects);
    assert_eq!((saved.cooling.len(), saved.asked.len()), (1, 1), "and that is remembered");
    // What a descheduler has withdrawn itself is not taken for that when its cool-down is over.
    let mut third = Requester::default();
    observe(&mut third, request("b", &[REQUESTER], 0, json!({})));
    let (_, effects) = in_progress(&mut third, at(3600));
    assert!(memory_of(&effects).asked.is_empty());
}

#[test]
fn that_a_pod_could_not_be_asked_outlives_a_restart() {
    let mut first = Requester::default();
    first.asked(&proposal("a"), &AskOutcome::Refused, at(0));
    first.asked(&proposal("a"), &AskOutcome::Refused, at(60));
    let mut second = Requester::default();
    second.remembered(memory_of(&first.remember().into_iter().collect::<Vec<_>>()));
    assert_eq!(in_progress(&mut second, at(61)).0.cools_until("a"), Some(at(180)));
    second.asked(&proposal("a"), &AskOutcome::Refused, at(180));
    assert_eq!(in_progress(&mut second, at(181)).0.cools_until("a"), Some(at(420)), "later and later");
}

#[test]
fn a_cycle_that_goes_on_asks_others_and_withdraws_nothing_twice() {
    let mut requester = Requester::default();
    observe(&mut requester, request("old", &[REQUESTER], 0, json!({})));
    let (_, effects) = in_progress(&mut requester, at(3600));
    assert_eq!(withdrawn(&effects).len(), 1);
    requester.asked(&proposal("a"), &AskOutcome::Requested, at(3600));
    requester.asked(&proposal("b"), &AskOutcome::Refused, at(3600));
    let told = Counted(requester.still_in_progress(at(3600)));
    assert!(told.is_leaving("a") && !told.is_leaving("b") && told.cools_until("b").is_some());
    let proposals = vec![proposal("c")];
    let effects = requester.decide_more(&Plan { proposals, ..Plan::default() }, at(3600));
    assert!(matches!(&effects[..], [Effect::Ask { .. }]), "{effects:?}");
    assert!(requester.is_unsaved(), "whom it could not ask is for the end of the cycle");
    let effects = requester.decide_more(&owned("d", DUPLICATE), at(3600));
    assert!(matches!(&effects[..], [Effect::Remember(_), Effect::Ask { .. }]), "{effects:?}");
}

#[test]
fn a_pod_that_is_not_moved_in_the_background_any_more_and_stays_is_left_alone_for_a_while() {
    let after = |marks: PodMarks| {
        let mut requester = Requester::default();
        requester.pod_changed(&id("a"), MOVING, at(0));
        requester.pod_changed(&id("a"), marks, at(100));
        let (told, _) = in_progress(&mut requester, at(100));
        assert!(!told.is_leaving("a"));
        told.cools_until("a")
    };
    assert_eq!(after(EVICT_ONLY), Some(at(3700)), "who has taken the mark away had a reason");
    assert_eq!(after(PodMarks { is_over: true, ..EVICT_ONLY }), None, "it was moved");
    assert_eq!(after(PodMarks { is_terminating: true, ..EVICT_ONLY }), None, "it goes");
    // What took too long has had its cool-down, and gets no other.
    let mut given_up = Requester::default();
    given_up.pod_changed(&id("a"), MOVING, at(0));
    assert_eq!(in_progress(&mut given_up, at(3600)).0.cools_until("a"), Some(at(7200)));
    given_up.pod_changed(&id("a"), EVICT_ONLY, at(9000));
    assert_eq!(in_progress(&mut given_up, at(9000)).0.cools_until("a"), None);
}

#[test]
fn the_time_of_a_replacement_begins_when_its_pod_is_gone_however_it_leaves() {
    let until = |requester: &mut Requester, now: i64| {
        let (told, _) = in_progress(requester, at(now));
        Some(told.asked("a")?.moved.as_ref()?.until)
    };
    let never_given_up = || Requester::new(Options { time_to_live: None, ..Options::default() });
    let mut requested = never_given_up();
    let _ = requested.decide(&owned("a", DUPLICATE), at(0));
    observe(&mut requested, request("a", &[REQUESTER], 0, json!({})));
    let mut in_background = never_given_up();
    in_background.pod_changed(&id("a"), EVICT_ONLY, at(0));
    let _ = in_background.decide(&owned("a", DUPLICATE), at(0));
    in_background.pod_changed(&id("a"), MOVING, at(1));
    let mut terminating = never_given_up();
    let _ = terminating.decide(&owned("a", DUPLICATE), at(0));
    terminating.pod_changed(&id("a"), PodMarks { is_terminating: true, ..PodMarks::default() }, at(1));
    for mut requester in [requested, in_background, terminating] {
        assert_eq!(until(&mut requester, 5000), Some(at(8600)), "it is still leaving");
        requester.request_changed(&Key::new("ns", "a"), None, at(6000));
        requester.pod_gone(&id("a"), at(6000));
        assert_eq!(until(&mut requester, 9599), Some(at(9600)));
        assert_eq!(until(&mut requester, 9600), None);
    }
}

#[test]
fn a_problem_of_one_profile_or_plugin_keeps_only_its_own_requests_from_being_withdrawn() {
    let of = |uid: &str, profile: &str, plugin: PluginName| Proposal {
        profile: profile.into(),
        plugin,
        ..proposal(uid)
    };
    let (utilization, taints) = (PluginName::LowNodeUtilization, PluginName::RemovePodsViolatingNodeTaints);
    let withdrawn_with = |problems: Vec<Problem>| {
        let mut requester = Requester::new(Options { unwanted_cycles: 1, ..Options::default() });
        for proposal in [of("a", "one", utilization), of("b", "one", taints), of("c", "two", utilization)] {
            requester.asked(&proposal, &AskOutcome::Requested, at(0));
            observe(&mut requester, request(&proposal.pod.uid, &[REQUESTER], 0, json!({})));
        }
        // Of an older version, which did not say by whom.
        observe(&mut requester, request("d", &[REQUESTER], 0, json!({})));
        let effects = requester.decide(&Plan { problems, ..plan(&[]) }, at(1));
        withdrawn(&effects).into_iter().map(|(uid, _)| uid.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(withdrawn_with(Vec::new()), ["a", "b", "c", "d"]);
    let (profile, node) = ("one".to_owned(), "n".to_owned());
    let no_usage = Problem::NoUsageOfNode { profile: profile.clone(), plugin: utilization, node };
    assert_eq!(withdrawn_with(vec![no_usage]), ["b", "c"]);
    assert_eq!(withdrawn_with(vec![Problem::UnknownPriorityClass { profile, class: "c".into() }]), ["c"]);
}

#[test]
fn what_is_remarked_of_a_policy_keeps_no_request_from_being_withdrawn() {
    let text = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n";
    let remark = crate::Policy::read(text).unwrap().remarks.pop().map(Problem::Remark);
    let (profile, plugin) = ("p".to_owned(), PluginName::LowNodeUtilization);
    let unknown = Problem::UnknownResource { profile, plugin, resource: "example.com/gpu".to_owned() };
    let silent = Problem::UnknownPriorityClass { profile: "p".into(), class: "c".into() };
    for (problem, is_withdrawn) in [(remark.unwrap(), true), (unknown, true), (silent, false)] {
        let mut requester = Requester::default();
        observe(&mut requester, request("a", &[REQUESTER], 0, json!({})));
        let plan = Plan { problems: vec![problem.clone()], ..Plan::default() };
        let mut effects = Vec::new();
        for cycle in 1..=2 {
            requester.in_progress(at(cycle));
            effects = requester.decide(&plan, at(cycle));
        }
        let withdraws = effects.iter().any(|effect| matches!(effect, Effect::Withdraw { .. }));
        assert_eq!(withdraws, is_withdrawn, "{problem}");
    }
}

#[test]
fn a_promise_is_kept_if_the_pod_goes_or_ends_while_somebody_moves_it() {
    let kept = |uid: &str| MoveChange::Ended { kept: Some(Box::new(proposal(uid))) };
    let promised = |uid: &str| {
        let mut requester = Requester::default();
        requester.asked(&proposal(uid), &AskOutcome::InBackground, at(0));
        requester
    };
    assert_eq!(promised("a").pod_gone(&id("a"), at(1)), kept("a"));
    let over = PodMarks { is_over: true, ..EVICT_ONLY };
    assert_eq!(promised("a").pod_changed(&id("a"), over, at(1)), kept("a"));
    let mut failed = promised("a");
    assert_eq!(failed.pod_changed(&id("a"), MOVING, at(1)), MoveChange::Unchanged, "it was promised before");
    assert_eq!(failed.pod_changed(&id("a"), EVICT_ONLY, at(2)), MoveChange::Ended { kept: None });
    assert_eq!(failed.pod_gone(&id("a"), at(3)), MoveChange::Unchanged);
    let mut late = promised("a");
    in_progress(&mut late, at(3600));
    assert_eq!(late.pod_gone(&id("a"), at(3601)), MoveChange::Unchanged, "nobody has kept it in time");
    let mut unasked = Requester::default();
    assert_eq!(unasked.pod_changed(&id("a"), MOVING, at(0)), MoveChange::Began);
    assert_eq!(
        unasked.pod_gone(&id("a"), at(1)),
        MoveChange::Ended { kept: None },
        "nobody has asked for it"
    );
}

#[test]
fn a_single_cycle_does_not_wait_for_another_one_to_withdraw() {
    let set = || Options { unwanted_cycles: 3, ..Options::default() };
    for (interval, wanted) in [
        (None, (1, SignedDuration::ZERO)),
        (Some(SignedDuration::from_secs(60)), (3, SignedDuration::from_secs(60))),
    ] {
        let options = set().in_cycles(interval);
        assert_eq!((options.unwanted_cycles, options.interval), wanted);
    }
}
