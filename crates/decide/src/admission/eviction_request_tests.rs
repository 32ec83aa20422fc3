//! A table for each rule, named as the rule.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::names::{
    INTERCEPTOR_ANNOTATION_PREFIX, INTERCEPTORS_RESOLVED_ANNOTATION, REQUESTER_FINALIZER_PREFIX,
};
use usher_api::{EvictionRequest, EvictionRequestCancellationPolicy as Policy, EvictionRequestSpec};
use usher_api::{EvictionRequestStatus, Interceptor};

use super::eviction_request::{on_create, on_created, on_delete, on_update};
use super::{Access, Changes, FoundPod, Rule, Verdict};

const UID: &str = "0b5c6a6e-1111-2222-3333-444455556666";
const CREATED: i64 = 1_700_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(CREATED + seconds).unwrap()
}

fn time(seconds: i64) -> Option<Time> {
    Some(Time(at(seconds)))
}

fn request() -> EvictionRequest {
    let mut request = EvictionRequest::new(UID, EvictionRequestSpec::for_pod("web-1", UID));
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.finalizers = Some(vec![format!("{REQUESTER_FINALIZER_PREFIX}drainer.example.com")]);
    request.metadata.annotations = Some(mark());
    request
}

/// What admission writes on a request whose pod names no interceptor.
fn mark() -> BTreeMap<String, String> {
    [(INTERCEPTORS_RESOLVED_ANNOTATION.to_owned(), "true".to_owned())].into()
}

fn pod() -> FoundPod {
    FoundPod { uid: UID.to_owned(), phase: "Running".to_owned(), ..FoundPod::default() }
}

fn annotated(entries: &[(&str, &str)]) -> FoundPod {
    let key = |class: &str| format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}");
    let annotations = entries.iter().map(|(class, value)| (key(class), (*value).to_owned())).collect();
    FoundPod { annotations, ..pod() }
}

fn interceptor(class: &str, priority: i32) -> Interceptor {
    Interceptor { interceptor_class: class.to_owned(), priority, role: None }
}

/// A request with the interceptors high, middle, low and this status.
fn started(change: impl FnOnce(&mut EvictionRequestStatus)) -> EvictionRequest {
    let mut request = request();
    request.metadata.creation_timestamp = time(0);
    // Listed in another order than that of their turns.
    request.spec.interceptors =
        vec![interceptor("low.io", 1), interceptor("high.io", 300), interceptor("middle.io", 20)];
    let mut status = EvictionRequestStatus::default();
    change(&mut status);
    request.status = Some(status);
    request
}

fn turn_of(class: &str) -> EvictionRequest {
    started(|status| status.active_interceptor_class = Some(class.to_owned()))
}

fn rules(verdict: Verdict) -> Vec<Rule> {
    match verdict {
        Verdict::Allow { .. } => Vec::new(),
        Verdict::Deny(denial) => denial.refusals().map(|refusal| refusal.rule).collect(),
    }
}

fn update(old: &EvictionRequest, new: &EvictionRequest, now: i64) -> Vec<Rule> {
    rules(on_update(old, new, &Access::Allowed, at(now)))
}

fn message(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow { .. } => String::new(),
        Verdict::Deny(denial) => denial.to_string(),
    }
}

fn create(request: &EvictionRequest, pod: &FoundPod) -> Verdict {
    on_create(request, Some(pod), &Access::Allowed)
}

#[test]
fn a_plain_request_is_allowed_as_it_is() {
    assert_eq!(create(&request(), &pod()), Verdict::allow());
    assert_eq!(on_created(&request(), Some(&pod()), &Access::Allowed), Verdict::allow());
}

#[test]
fn no_generate_name() {
    for (prefix, name, broken) in
        [(Some("er-"), None, true), (Some("er-"), Some(UID), true), (Some(""), Some(UID), false)]
    {
        let mut request = request();
        request.metadata.generate_name = prefix.map(str::to_owned);
        request.metadata.name = name.map(str::to_owned);
        let wanted = if broken { vec![Rule::NoGenerateName] } else { vec![] };
        assert_eq!(rules(create(&request, &pod())), wanted, "{prefix:?} {name:?}");
    }
}

#[test]
fn name_is_pod_uid() {
    for (name, broken) in [(Some(UID), false), (Some("web-1"), true), (None, true)] {
        let mut request = request();
        request.metadata.name = name.map(str::to_owned);
        let wanted = if broken { vec![Rule::NameIsPodUid] } else { vec![] };
        assert_eq!(rules(create(&request, &pod())), wanted, "{name:?}");
    }
}

#[test]
fn pod_exists_and_pod_has_uid_and_pod_is_not_terminal() {
    let other = FoundPod { uid: "another".to_owned(), ..pod() };
    let phase = |phase: &str| FoundPod { phase: phase.to_owned(), ..pod() };
    for (pod, wanted, code, part) in [
        (None, vec![Rule::PodExists], 404, "there is no pod web-1 in namespace shop"),
        (Some(other), vec![Rule::PodHasUid], 409, "has another UID than 0b5c6a6e"),
        (Some(phase("Succeeded")), vec![Rule::PodIsNotTerminal], 409, "has ended already (Succeeded)"),
        (Some(phase("Failed")), vec![Rule::PodIsNotTerminal], 409, "has ended already (Failed)"),
    ] {
        let verdict = on_create(&request(), pod.as_ref(), &Access::Allowed);
        assert_eq!(rules(verdict.clone()), wanted);
        let Verdict::Deny(denial) = verdict else { panic!() };
        assert_eq!(denial.code(), code);
        assert!(denial.to_string().contains(part), "{denial}");
    }
    for phase in [phase("Pending"), phase(""), phase("Unknown")] {
        assert_eq!(create(&request(), &phase), Verdict::allow(), "{phase:?}");
    }
}

#[test]
fn no_status_on_creation() {
    let active =
        EvictionRequestStatus { active_interceptor_class: Some("a.io".to_owned()), ..Default::default() };
    let forbid =
        EvictionRequestStatus { eviction_request_cancellation_policy: Policy::Forbid, ..Default::default() };
    for (status, wanted) in [
        (EvictionRequestStatus::default(), vec![]),
        (active, vec![Rule::NoStatusOnCreation]),
        (forbid, vec![Rule::NoStatusOnCreation]),
    ] {
        let request = EvictionRequest { status: Some(status), ..request() };
        assert_eq!(rules(create(&request, &pod())), wanted, "{request:?}");
    }
}

#[test]
fn copied_from_pod() {
    let mut pod = annotated(&[("low.io", "1"), ("high.io", "300"), ("also-low.io", "1")]);
    pod.labels =
        BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())]);
    let mut request = request();
    request.metadata.labels =
        Some(BTreeMap::from([("app".to_owned(), "mine".to_owned()), ("why".to_owned(), "drain".to_owned())]));
    request.spec.interceptors = vec![interceptor("wished.io", 5)];
    let Verdict::Allow { changes, warnings } = create(&request, &pod) else { panic!() };
    let labels = BTreeMap::from(
        [("app", "web"), ("tier", "front"), ("why", "drain")].map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    let interceptors =
        vec![interceptor("high.io", 300), interceptor("also-low.io", 1), interceptor("low.io", 1)];
    assert_eq!(
        changes,
        Changes {
            labels: Some(labels.clone()),
            interceptors: Some(interceptors.clone()),
            ..Changes::default()
        }
    );
    assert_eq!(
        warnings,
        ["spec.interceptors is replaced by what the annotations of the pod say: leave it out"]
    );

    let verdict = on_created(&request, Some(&pod), &Access::Allowed);
    assert_eq!(rules(verdict), [Rule::CopiedFromPod], "nobody made the changes");
    request.metadata.labels = Some(labels);
    request.spec.interceptors = interceptors;
    assert_eq!(create(&request, &pod), Verdict::allow(), "once made there is nothing left to change");
    assert_eq!(on_created(&request, Some(&pod), &Access::Allowed), Verdict::allow());
}

#[test]
fn a_pod_with_invalid_annotations_can_be_asked_to_leave() {
    let pod = annotated(&[("good.io", "7"), ("bad.io", "seven")]);
    let Verdict::Allow { changes, warnings } = create(&request(), &pod) else { panic!() };
    assert_eq!(changes.interceptors, Some(vec![interceptor("good.io", 7)]));
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.starts_with("the pod's annotation for bad.io is ignored: "), "{warning}");
    assert!(warning.contains("does not start with an integer priority"), "{warning}");

    let many: Vec<(String, &str)> = (0..9).map(|n| (format!("bad{n}.io"), "x")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(class, value)| (class.as_str(), *value)).collect();
    let Verdict::Allow { warnings, .. } = create(&request(), &annotated(&many)) else { panic!() };
    assert_eq!(warnings.len(), 6);
    assert_eq!(warnings[5], "9 interceptor annotations of the pod are ignored in all");
}

#[test]
fn a_request_without_requesters_is_warned_of() {
    let mut request = request();
    request.metadata.finalizers = None;
    let Verdict::Allow { warnings, .. } = create(&request, &pod()) else { panic!() };
    assert!(warnings[0].starts_with("no requester stands behind this request"), "{warnings:?}");
}

#[test]
fn spec_is_immutable() {
    let old = turn_of("high.io");
    let changed = |change: fn(&mut EvictionRequestSpec)| {
        let mut new = old.clone();
        change(&mut new.spec);
        new
    };
    for (new, broken) in [
        (changed(|_| {}), false),
        (changed(|spec| spec.interceptors.reverse()), false),
        (changed(|spec| spec.pod_ref.name = "web-2".to_owned()), true),
        (changed(|spec| spec.pod_ref.uid = "other".to_owned()), true),
        (changed(|spec| spec.interceptors.truncate(2)), true),
        (changed(|spec| spec.interceptors[0].priority = 2), true),
        (changed(|spec| spec.progress_deadline_seconds = 600), true),
    ] {
        let wanted = if broken { vec![Rule::SpecIsImmutable] } else { vec![] };
        assert_eq!(update(&old, &new, 10), wanted, "{:?}", new.spec);
    }
}

#[test]
fn highest_priority_first_and_active_interceptor_is_known() {
    let none = started(|_| {});
    let without_status = EvictionRequest { status: None, ..none.clone() };
    for old in [&none, &without_status] {
        for (class, wanted) in [
            ("high.io", vec![]),
            ("middle.io", vec![Rule::HighestPriorityFirst]),
            ("low.io", vec![Rule::HighestPriorityFirst]),
            ("stranger.io", vec![Rule::ActiveInterceptorIsKnown]),
        ] {
            assert_eq!(update(old, &turn_of(class), 10), wanted, "{class}");
        }
    }
    let verdict = on_update(&none, &turn_of("low.io"), &Access::Allowed, at(10));
    assert!(message(verdict).contains("start with high.io"));
}

#[test]
fn active_interceptor_stays() {
    assert_eq!(update(&turn_of("high.io"), &started(|_| {}), 10_000), [Rule::ActiveInterceptorStays]);
}

#[test]
fn next_in_order() {
    let completed = |class: &str| {
        started(|status| {
            status.active_interceptor_class = Some(class.to_owned());
            status.active_interceptor_completed = true;
        })
    };
    for (from, to, wanted) in [
        ("high.io", "middle.io", vec![]),
        ("middle.io", "low.io", vec![]),
        ("high.io", "low.io", vec![Rule::NextInOrder]),
        ("middle.io", "high.io", vec![Rule::NextInOrder]),
        ("low.io", "high.io", vec![Rule::NextInOrder]),
    ] {
        assert_eq!(update(&completed(from), &turn_of(to), 10), wanted, "{from} -> {to}");
    }
    let verdict = on_update(&completed("high.io"), &turn_of("low.io"), &Access::Allowed, at(10));
    assert!(message(verdict).contains("the next one is middle.io"));
}

#[test]
fn turn_is_over() {
    let old = |progress: Option<i64>, completed: bool| {
        let mut old = turn_of("high.io");
        if let Some(status) = &mut old.status {
            status.progress_timestamp = progress.and_then(time);
            status.active_interceptor_completed = completed;
        }
        old
    };
    // The deadline is 1800 s after the last progress, or after the creation; clocks may differ by 30 s.
    for (progress, completed, now, over) in [
        (None, false, 0, false),
        (None, false, 1769, false),
        (None, false, 1770, true),
        (None, false, 1800, true),
        (Some(600), false, 1800, false),
        (Some(600), false, 2369, false),
        (Some(600), false, 2370, true),
        (Some(600), true, 601, true),
        (None, true, 1, true),
    ] {
        let wanted = if over { vec![] } else { vec![Rule::TurnIsOver] };
        let found = update(&old(progress, completed), &turn_of("middle.io"), now);
        assert_eq!(found, wanted, "progress {progress:?}, completed {completed}, now {now}");
    }
}

#[test]
fn turn_starts_fresh() {
    let mut old = turn_of("high.io");
    if let Some(status) = &mut old.status {
        status.active_interceptor_completed = true;
    }
    let completed = started(|status| {
        status.active_interceptor_class = Some("middle.io".to_owned());
        status.active_interceptor_completed = true;
    });
    let expected = started(|status| {
        status.active_interceptor_class = Some("middle.io".to_owned());
        status.expected_interceptor_finish_time = time(100);
    });
    for new in [completed, expected] {
        assert_eq!(update(&old, &new, 10), [Rule::TurnStartsFresh]);
    }
}

#[test]
fn counter_only_rises() {
    let counted = |count: i32| started(|status| status.failed_api_eviction_counter = count);
    for (from, to, broken) in [(0, 1, false), (3, 3, false), (3, 9, false), (3, 2, true), (1, 0, true)] {
        let wanted = if broken { vec![Rule::CounterOnlyRises] } else { vec![] };
        assert_eq!(update(&counted(from), &counted(to), 10), wanted, "{from} -> {to}");
    }
    let without = EvictionRequest { status: None, ..counted(0) };
    assert_eq!(update(&counted(2), &without, 10), [Rule::CounterOnlyRises]);
}

#[test]
fn progress_not_in_future() {
    let reported = |seconds: i64| started(|status| status.progress_timestamp = time(seconds));
    let none = started(|_| {});
    for (old, new, broken) in [
        (&none, 100, false),
        (&none, 130, false),
        (&none, 131, true),
        (&reported(10), 90, false),
        (&reported(10), 5_000, true),
        // Already there: not this update's doing.
        (&reported(5_000), 5_000, false),
    ] {
        let wanted = if broken { vec![Rule::ProgressNotInFuture] } else { vec![] };
        assert_eq!(update(old, &reported(new), 100), wanted, "{:?} -> {new}", old.status);
    }
}

#[test]
fn requester_finalizer_form() {
    let good = format!("{REQUESTER_FINALIZER_PREFIX}other.example.com");
    let long = format!("{REQUESTER_FINALIZER_PREFIX}{}", "a".repeat(59));
    let upper = format!("{REQUESTER_FINALIZER_PREFIX}Drainer");
    let foreign = "requester.evictionrequest.coordination.k8s.io/drainer".to_owned();
    let own = "drainer.example.com/report".to_owned();
    for (finalizer, broken) in [(good, false), (own, false), (long, true), (upper, true), (foreign, true)] {
        let wanted = if broken { vec![Rule::RequesterFinalizerForm] } else { vec![] };
        let plain = request();
        let mut with = request();
        with.metadata.finalizers.get_or_insert_default().push(finalizer.clone());
        assert_eq!(rules(create(&with, &pod())), wanted, "created with {finalizer}");
        assert_eq!(update(&plain, &with, 10), wanted, "added {finalizer}");
        assert_eq!(update(&with, &with, 10), [], "kept {finalizer}");
        assert_eq!(update(&with, &plain, 10), [], "removed {finalizer}");
    }
}

#[test]
fn deletion_forbidden() {
    let with = |policy| started(|status| status.eviction_request_cancellation_policy = policy);
    let other = FoundPod { uid: "another".to_owned(), ..pod() };
    let ended = FoundPod { phase: "Succeeded".to_owned(), ..pod() };
    let without_status = EvictionRequest { status: None, ..request() };
    for (request, pod, broken) in [
        (with(Policy::Allow), Some(pod()), false),
        (without_status, Some(pod()), false),
        (with(Policy::Forbid), Some(pod()), true),
        (with(Policy::Forbid), None, false),
        (with(Policy::Forbid), Some(other), false),
        (with(Policy::Forbid), Some(ended), false),
    ] {
        let wanted = if broken { vec![Rule::DeletionForbidden] } else { vec![] };
        let verdict = on_delete(&request, pod.as_ref(), &Access::Allowed);
        assert_eq!(rules(verdict), wanted, "{:?} {pod:?}", request.status);
    }
    let mut forbidden = turn_of("high.io");
    if let Some(status) = &mut forbidden.status {
        status.eviction_request_cancellation_policy = Policy::Forbid;
    }
    let text = message(on_delete(&forbidden, Some(&pod()), &Access::Allowed));
    assert!(text.starts_with("interceptor high.io cannot stop any more"), "{text}");
    assert!(text.ends_with("(rule deletion-forbidden)"), "{text}");
}

#[test]
fn caller_may_delete_pod() {
    let denied = Access::Denied { user: "mallory".to_owned() };
    let request = started(|_| {});
    // Not even whether the pod exists is told.
    for pod in [None, Some(pod())] {
        for verdict in [
            on_create(&self::request(), pod.as_ref(), &denied),
            on_created(&self::request(), pod.as_ref(), &denied),
            on_update(&request, &request, &denied, at(0)),
            on_delete(&request, pod.as_ref(), &denied),
        ] {
            assert_eq!(rules(verdict.clone()), [Rule::CallerMayDeletePod]);
            let text = message(verdict);
            assert!(text.starts_with("\"mallory\" may not delete pod web-1 in namespace shop"), "{text}");
        }
    }
}

#[test]
fn all_broken_rules_are_told_at_once() {
    let mut new = turn_of("low.io");
    new.spec.progress_deadline_seconds = 600;
    if let Some(status) = &mut new.status {
        status.progress_timestamp = Some(Time(at(0).saturating_add(SignedDuration::from_hours(5)).unwrap()));
    }
    let wanted = [Rule::SpecIsImmutable, Rule::NextInOrder, Rule::TurnIsOver, Rule::ProgressNotInFuture];
    assert_eq!(update(&turn_of("high.io"), &new, 10), wanted);
}

/// A full status PUT without the field, a time zone bug: neither ends a turn. Clocks may differ a little.
#[test]
fn progress_is_not_undone_during_a_turn_or_with_the_next_one() {
    let with = |class: &str, progress: Option<i64>| {
        started(|status| {
            status.active_interceptor_class = Some(class.to_owned());
            status.progress_timestamp = progress.and_then(time);
        })
    };
    let old = with("high.io", Some(10_000));
    let rows = [
        (Some(10_000), true),
        (Some(10_001), true),
        (Some(9_945), true),
        (Some(9_939), false),
        (Some(2_800), false),
        (None, false),
    ];
    for (progress, allowed) in rows {
        let found = update(&old, &with("high.io", progress), 10_010);
        let wanted = if allowed { Vec::new() } else { vec![Rule::ProgressIsNotUndone] };
        assert_eq!(found, wanted, "{progress:?}");
    }
    let mut completed = with("high.io", Some(10_000));
    completed.status.as_mut().unwrap().active_interceptor_completed = true;
    // Nor does the next one begin in the past, where it would be over at once.
    for (progress, wanted) in [(9_945, vec![]), (9_000, vec![Rule::ProgressIsNotUndone])] {
        assert_eq!(update(&completed, &with("middle.io", Some(progress)), 10_010), wanted, "{progress}");
    }
}

/// Written while no webhook was asked: the manager, or whoever has the turn, puts it right, and the next turn begins.
#[test]
fn progress_in_the_future_is_set_to_the_present() {
    let old = started(|status| status.progress_timestamp = time(1_000_000));
    let rows = [
        (Some(10_000), vec![]),
        (Some(9_951), vec![]),
        (Some(9_000), vec![Rule::ProgressIsNotUndone]),
        (None, vec![Rule::ProgressIsNotUndone]),
        (Some(999_999), vec![Rule::ProgressNotInFuture]),
    ];
    for (progress, wanted) in rows {
        let new = started(|status| status.progress_timestamp = progress.and_then(time));
        assert_eq!(update(&old, &new, 10_010), wanted, "{progress:?}");
    }
    let completed = started(|status| {
        status.active_interceptor_class = Some("high.io".to_owned());
        status.progress_timestamp = time(13_600);
        status.active_interceptor_completed = true;
    });
    let next = started(|status| {
        status.active_interceptor_class = Some("middle.io".to_owned());
        status.progress_timestamp = time(10_010);
    });
    assert_eq!(update(&completed, &next, 10_010), [], "its clock was an hour ahead");
}

#[test]
fn a_request_whose_pod_names_no_interceptor_is_marked_so() {
    let changes =
        |request: &EvictionRequest, pod: &FoundPod| match on_create(request, Some(pod), &Access::Allowed) {
            Verdict::Allow { changes, .. } => changes.annotations,
            Verdict::Deny(denial) => panic!("{denial}"),
        };
    let mut unmarked = request();
    unmarked.metadata.annotations = None;
    assert_eq!(changes(&unmarked, &pod()), Some(mark()));
    assert_eq!(changes(&unmarked, &annotated(&[("a.io", "nonsense")])), Some(mark()), "none that counts");
    assert_eq!(changes(&unmarked, &annotated(&[("a.io", "5")])), None);
    assert_eq!(changes(&request(), &pod()), None, "it is marked already");
}
