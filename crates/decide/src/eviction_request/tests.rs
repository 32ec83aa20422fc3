//! The rules of the specification's sections Interceptor Class Selection, Eviction and Garbage Collection, by name.

use std::sync::Arc;
use usher_api::workloads::Strategy;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use usher_api::eviction_request::selection_order;
use usher_api::names::{REQUESTER_FINALIZER_PREFIX, requester_finalizer};
use usher_api::{EvictionRequestCancellationPolicy as Policy, EvictionRequestStatus, Interceptor};

use super::*;
use crate::decision::Ending;
use crate::snapshot::{BudgetRule, Key, Owner, Phase, UnhealthyPolicy};
use crate::waiting_on::Unevictable;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn interceptor(class: &str, priority: i32) -> Interceptor {
    Interceptor { interceptor_class: class.into(), priority, role: None }
}

/// A request of second 0 by `drain.example.com`, for the pod `p`, with these interceptors.
fn request(interceptors: &[(&str, i32)]) -> Request {
    let mut sorted: Vec<Interceptor> =
        interceptors.iter().map(|(class, priority)| interceptor(class, *priority)).collect();
    sorted.sort_by(selection_order);
    Request {
        rare: None,
        key: Key::new("default", "uid-p"),
        uid: "uid-r".into(),
        resource_version: "7".into(),
        created: at(0),
        is_deleting: false,
        finalizers: [requester_finalizer("drain.example.com").unwrap()].into(),
        pod_name: "p".into(),
        pod_uid: "uid-p".into(),
        interceptors: sorted.into(),
        interceptors_are_resolved: true,
        deadline: SignedDuration::from_secs(1800),
        is_progress_reported: false,
        status: EvictionRequestStatus::default(),
        is_progress_corrected: false,
    }
}

/// The same, with the turn given to `class` and its last report at a time.
fn at_turn(class: &str, progress: i64) -> Request {
    let mut request = request(&[("low.example.com", 2000), ("high.example.com", 11_000)]);
    request.status.active_interceptor_class = Some(class.into());
    request.status.progress_timestamp = Some(Time(at(progress)));
    request
}

fn pod() -> Pod {
    Pod {
        key: Key::new("default", "p"),
        uid: "uid-p".into(),
        created: Timestamp::UNIX_EPOCH,
        node: "n1".into(),
        labels: Arc::new([("app".to_string(), "web".to_string())].into()),
        phase: Phase::Running,
        ready_since: Some(Timestamp::UNIX_EPOCH),
        owner: None,
        is_mirror: false,
        names_interceptors: false,
        grace_seconds: 30,
        waiting: None,
        rare: None,
        evict: None,
        priority: 0,
    }
}

fn terminating(mut pod: Pod, grace_ends: Timestamp) -> Pod {
    pod.rare.get_or_insert_default().deletion = Some(grace_ends);
    pod
}

fn budget(name: &str, allowed: i32) -> Budget {
    Budget {
        key: Key::new("default", name),
        rule: BudgetRule::MinAvailable(IntOrString::Int(3)),
        selector: Some(Selector::from_iter([kube::core::Expression::Equal("app".into(), "web".into())])),
        policy: UnhealthyPolicy::IfHealthyBudget,
        allowed,
        current_healthy: 3,
        desired_healthy: 3,
        expected_pods: 3,
        disrupted_pods: [].into(),
    }
}

/// Where no budget has room.
fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    super::decide(case, &mut false, now)
}

/// Where the budget gives its room to the pod.
fn granted(case: &Case<'_>, now: Timestamp) -> Decision {
    super::decide(case, &mut true, now)
}

fn case<'a>(request: &'a Request, pod: &'a Pod) -> Case<'a> {
    Case {
        request,
        pod: Target::Found(pod),
        budgets: &[],
        attempt: None,
        daemon_set: Some(Strategy::Default),
        interceptors_limit: None,
        withdraw_after: None,
    }
}

fn evicts(decision: &Decision) -> bool {
    decision.effects.contains(&Effect::Evict)
}

fn written(decision: &Decision) -> Option<&EvictionRequestStatus> {
    decision.effects.iter().find_map(|effect| match effect {
        Effect::WriteStatus(status) => Some(&**status),
        _ => None,
    })
}

fn reasons_told(decision: &Decision) -> Vec<&'static str> {
    let told = decision.effects.iter().filter_map(|effect| match effect {
        Effect::RecordEvent(notice) => Some(notice.reason),
        _ => None,
    });
    told.collect()
}

fn refused(refusal: Refusal, second: i64, counter: i32) -> Attempt {
    Attempt { at: at(second), answer: Answer::Refused(refusal), counter, budgets: Vec::new() }
}

mod interceptor_class_selection {
    use super::*;

    #[test]
    fn the_highest_priority_has_the_first_turn() {
        let request = request(&[("low.example.com", 2000), ("high.example.com", 11_000)]);
        let decision = decide(&case(&request, &pod()), at(5));
        let status = written(&decision).unwrap();
        assert_eq!(status.active_interceptor_class.as_deref(), Some("high.example.com"));
        assert_eq!(status.progress_timestamp, Some(Time(at(5))));
        assert!(!evicts(&decision));
    }

    #[test]
    fn equal_priorities_have_their_turns_by_class() {
        let request = request(&[("b.example.com", 5), ("a.example.com", 5)]);
        let decision = decide(&case(&request, &pod()), at(5));
        let status = written(&decision).unwrap();
        assert_eq!(status.active_interceptor_class.as_deref(), Some("a.example.com"));
    }

    #[test]
    fn the_next_one_has_its_turn_when_the_active_one_completed_and_the_pod_exists() {
        let mut request = at_turn("high.example.com", 100);
        request.status.active_interceptor_completed = true;
        let decision = decide(&case(&request, &pod()), at(200));
        let status = written(&decision).unwrap();
        assert_eq!(status.active_interceptor_class.as_deref(), Some("low.example.com"));
    }

    #[test]
    fn the_next_one_has_its_turn_when_the_deadline_has_passed_since_the_last_progress() {
        let request = at_turn("high.example.com", 100);
        let before = decide(&case(&request, &pod()), at(1899));
        assert_eq!((before.effects.len(), before.recheck_at), (0, Some(at(1900))));
        let after = decide(&case(&request, &pod()), at(1900));
        assert_eq!(
            written(&after).unwrap().active_interceptor_class.as_deref(),
            Some("low.example.com"),
            "exactly at the deadline"
        );
        assert_eq!(reasons_told(&after), ["InterceptorSilent"]);
    }

    #[test]
    fn the_deadline_counts_from_the_creation_if_nobody_ever_reported() {
        let mut request = at_turn("high.example.com", 0);
        request.status.progress_timestamp = None;
        assert_eq!(written(&decide(&case(&request, &pod()), at(1799))), None);
        assert!(written(&decide(&case(&request, &pod()), at(1800))).is_some());
    }

    #[test]
    fn the_switch_resets_completed_progress_finish_time_and_message_and_keeps_the_cancellation_policy() {
        let mut request = at_turn("high.example.com", 100);
        request.status.active_interceptor_completed = true;
        request.status.expected_interceptor_finish_time = Some(Time(at(900)));
        request.status.message = "copying data".into();
        request.status.eviction_request_cancellation_policy = Policy::Forbid;
        let decision = decide(&case(&request, &pod()), at(200) + SignedDuration::from_millis(300));
        let status = written(&decision).unwrap();
        assert!(!status.active_interceptor_completed);
        assert_eq!(status.progress_timestamp, Some(Time(at(201))), "whole seconds, rounded up");
        assert_eq!(status.expected_interceptor_finish_time, None);
        assert_eq!(status.message, "high.example.com completed, low.example.com is next");
        assert_eq!(status.eviction_request_cancellation_policy, Policy::Forbid);
    }

    #[test]
    fn an_interceptor_that_reports_keeps_its_turn() {
        let request = at_turn("low.example.com", 5000);
        let decision = decide(&case(&request, &pod()), at(6000));
        assert_eq!(decision.effects, []);
        assert!(matches!(
            decision.waiting_on,
            Some(WaitingOn::Interceptor { class, until, .. }) if class == "low.example.com" && until == at(6800)
        ));
    }

    /// What the server takes while the webhook is away: nothing, earlier times, a time zone ahead.
    #[test]
    fn progress_that_was_undone_or_lies_in_the_future_is_put_right() {
        let known = at_turn("low.example.com", 5000);
        let now = at(5010);
        let stored = |progress: Option<i64>| {
            let mut request = at_turn("low.example.com", 0);
            request.status.progress_timestamp = progress.map(|second| Time(at(second)));
            request
        };
        let rows = [
            (Some(5000), None),
            (Some(5005), None),
            (Some(5060), None),
            (Some(4999), Some(5000)),
            (Some(10), Some(5000)),
            (None, Some(5000)),
            (Some(12_200), Some(5000)),
        ];
        for (progress, wanted) in rows {
            let found = stored(progress).true_progress(Some(&known), now);
            assert_eq!(found, wanted.map(|second| Time(at(second))), "{progress:?}");
        }
        assert_eq!(
            stored(Some(12_200)).true_progress(None, now),
            Some(Time(now)),
            "seen first by this manager"
        );
        assert_eq!(stored(Some(10)).true_progress(None, now), None);
        let mut completed = stored(Some(10));
        completed.status.active_interceptor_completed = true;
        assert_eq!(completed.true_progress(Some(&known), now), None, "the turn is over");
        let other = at_turn("high.example.com", 5000);
        assert_eq!(stored(Some(10)).true_progress(Some(&other), now), None, "another turn");

        let corrected = Request { is_progress_corrected: true, ..known };
        let decision = decide(&case(&corrected, &pod()), at(5020));
        assert_eq!(written(&decision).unwrap().progress_timestamp, Some(Time(at(5000))), "and is written");
    }

    #[test]
    fn an_active_class_that_the_spec_does_not_know_moves_nothing() {
        let request = at_turn("stranger.example.com", 0);
        let decision = decide(&case(&request, &pod()), at(9999));
        assert_eq!(decision.effects, []);
        assert!(matches!(decision.waiting_on, Some(WaitingOn::UnknownInterceptor { .. })));
    }
}

mod eviction {
    use super::*;

    #[test]
    fn without_interceptors_the_pod_is_evicted_at_once() {
        assert!(evicts(&decide(&case(&request(&[]), &pod()), at(0))));
    }

    #[test]
    fn after_the_last_one_completed_the_pod_is_evicted() {
        let mut request = at_turn("low.example.com", 100);
        request.status.active_interceptor_completed = true;
        assert!(evicts(&decide(&case(&request, &pod()), at(101))));
    }

    #[test]
    fn after_the_deadline_of_the_last_one_the_pod_is_evicted() {
        let request = at_turn("low.example.com", 100);
        assert!(!evicts(&decide(&case(&request, &pod()), at(1899))));
        assert!(evicts(&decide(&case(&request, &pod()), at(1900))));
    }

    #[test]
    fn pods_of_daemon_sets_and_mirror_pods_are_not_evicted() {
        let owner = Owner {
            api_version: "apps/v1".into(),
            kind: "DaemonSet".into(),
            name: "d".into(),
            uid: "u".into(),
        };
        let daemon = Pod { owner: Some(Arc::new(owner)), ..pod() };
        let mirror = Pod { is_mirror: true, ..pod() };
        for (pod, kind) in [(daemon, Unevictable::DaemonSetPod), (mirror, Unevictable::MirrorPod)] {
            let decision = decide(&case(&request(&[]), &pod), at(0));
            assert!(!evicts(&decision));
            assert_eq!(decision.waiting_on, Some(WaitingOn::NotEvictable { pod: kind }));
            assert_eq!(reasons_told(&decision), ["EvictionBlocked"]);
        }
    }

    #[test]
    fn terminating_pods_are_not_evicted() {
        let pod = terminating(pod(), at(30));
        let decision = decide(&case(&request(&[]), &pod), at(0));
        assert_eq!(decision.effects, []);
        assert!(matches!(decision.waiting_on, Some(WaitingOn::Termination { .. })));
    }

    #[test]
    fn a_failure_is_counted_once_told_once_and_retried_after_its_back_off() {
        let (pod, mut request) = (pod(), request(&[]));
        let webhook =
            Refusal::Webhook { code: 403, message: "admission webhook \"w\" denied the request: no".into() };
        let mut attempt = refused(webhook.clone(), 10, 0);
        let first = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(10));
        let status = written(&first).unwrap().clone();
        assert_eq!((status.failed_api_eviction_counter, reasons_told(&first)), (1, vec!["EvictionBlocked"]));
        assert_eq!(status.conditions[0].reason, "AdmissionWebhook");

        request.status = status;
        let waiting = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(10));
        assert_eq!(waiting.effects, []);
        let retry_at = waiting.recheck_at.unwrap();
        assert!(evicts(&decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, retry_at)));

        attempt = refused(webhook, 20, 1);
        let again = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(20));
        assert_eq!(written(&again).unwrap().failed_api_eviction_counter, 2);
        assert_eq!(reasons_told(&again), [""; 0], "the same reason is not told again");
    }

    #[test]
    fn a_late_interceptor_that_reports_calls_the_eviction_off_until_the_deadline_has_passed_again() {
        let pod = pod();
        let mut request = at_turn("low.example.com", 100);
        let attempt = refused(Refusal::Server { code: 500, message: "x".into() }, 2000, 0);
        let failed = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(2000));
        request.status = written(&failed).unwrap().clone();

        request.status.progress_timestamp = Some(Time(at(2001)));
        let called_off = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(3000));
        assert!(!evicts(&called_off));
        let condition = &written(&called_off).unwrap().conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "ProgressReported"));
        request.status = written(&called_off).unwrap().clone();

        let still = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(3800));
        assert_eq!((still.effects.len(), still.recheck_at), (0, Some(at(3801))));
        assert!(evicts(&decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(3801))));
    }

    #[test]
    fn progress_on_a_request_without_interceptors_calls_nothing_off() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let blocked = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(10));
        request.status = written(&blocked).unwrap().clone();
        request.status.progress_timestamp = Some(Time(at(11)));
        assert!(evicts(&decide(&case(&request, &pod), at(20))), "nobody has a turn");
    }

    /// The passing turn rounds up, the condition rounds down, and clocks of interceptors are some seconds ahead.
    #[test]
    fn a_completed_turn_never_calls_the_eviction_off_whatever_the_times_say() {
        let (pod, budget) = (pod(), budget("web", 0));
        for progress in [99, 100, 101, 105, 130] {
            for recovered in [false, true] {
                let mut request = at_turn("low.example.com", progress);
                request.status.active_interceptor_completed = true;
                let now = at(100) + SignedDuration::from_millis(300);
                let blocked = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, now);
                request.status = written(&blocked).unwrap().clone();
                if recovered {
                    // It was late before, reported, and then completed.
                    let condition = &mut request.status.conditions[0];
                    (condition.status, condition.reason) = ("False".into(), "ProgressReported".into());
                }
                let later = decide(&case(&request, &pod), at(101));
                assert!(evicts(&later), "{progress} {recovered}: the budget is gone, {later:?}");
            }
        }
    }

    #[test]
    fn a_request_without_interceptors_whose_pod_names_some_waits_and_says_why() {
        let mut request = request(&[]);
        let named = Pod { names_interceptors: true, ..pod() };
        assert!(evicts(&decide(&case(&request, &named), at(0))), "named after the request was admitted");
        request.interceptors_are_resolved = false;
        let waiting = decide(&case(&request, &named), at(0));
        assert!(!evicts(&waiting));
        assert_eq!(waiting.waiting_on, Some(WaitingOn::InterceptorsNotResolved));
        assert_eq!(reasons_told(&waiting), ["EvictionBlocked"]);
        assert_eq!(written(&waiting).unwrap().conditions[0].reason, "InterceptorsNotResolved");
        assert!(evicts(&decide(&case(&request, &pod()), at(0))), "nobody is named");
    }

    #[test]
    fn what_blocked_an_eviction_is_not_told_any_more_while_the_pod_terminates() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let blocked = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(10));
        request.status = written(&blocked).unwrap().clone();
        let pod = terminating(pod, at(60));
        let terminating = decide(&case(&request, &pod), at(30));
        let status = written(&terminating).unwrap().clone();
        let condition = &status.conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Terminating"));
        assert_eq!((&*status.message, condition.last_transition_time.0), ("the pod is terminating", at(30)));
        request.status = status;
        assert_eq!(decide(&case(&request, &pod), at(31)).effects, [], "it is told once");
    }

    #[test]
    fn words_of_others_are_cut_to_what_the_server_takes() {
        let (request, pod) = (request(&[]), pod());
        let long = Refusal::Webhook { code: 403, message: "\u{e4}".repeat(40_000) };
        let attempt = refused(long, 10, 0);
        let decision = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(10));
        let status = written(&decision).unwrap();
        assert_eq!(status.message.chars().count(), 1024);
        assert_eq!(status.conditions[0].message, status.message);
        let told = decision.effects.iter().find_map(|effect| match effect {
            Effect::RecordEvent(notice) => Some(notice.message.chars().count()),
            _ => None,
        });
        assert_eq!(told, Some(1024));
    }

    #[test]
    fn a_counter_at_its_limit_stays_there() {
        let (mut request, pod) = (request(&[]), pod());
        request.status.failed_api_eviction_counter = i32::MAX;
        let attempt = refused(Refusal::Server { code: 500, message: "x".into() }, 10, i32::MAX);
        let decision = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(10));
        assert!(decision.recheck_at > Some(at(10)), "{decision:?}");
        assert!(evicts(&decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(2000))));
    }

    #[test]
    fn an_eviction_that_cannot_be_cancelled_names_no_requester() {
        let mut request = request(&[]);
        request.finalizers = [].into();
        request.status.eviction_request_cancellation_policy = Policy::Forbid;
        let decision = decide(&case(&request, &pod()), at(0));
        let told = decision.effects.iter().find_map(|effect| match effect {
            Effect::RecordEvent(notice) => Some(notice.message.as_str()),
            _ => None,
        });
        assert!(told.unwrap().contains("no requester is left"), "{told:?}");
    }

    #[test]
    fn progress_from_before_the_eviction_began_does_not_call_it_off() {
        let pod = pod();
        let mut request = at_turn("low.example.com", 100);
        request.status.active_interceptor_completed = true;
        let attempt = refused(Refusal::Server { code: 500, message: "x".into() }, 200, 0);
        let failed = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(200));
        request.status = written(&failed).unwrap().clone();
        assert!(evicts(&decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(210))));
    }

    #[test]
    fn an_accepted_eviction_is_not_repeated_until_the_pod_shows_it() {
        let (request, pod) = (request(&[]), pod());
        let accepted = Attempt { at: at(0), answer: Answer::Accepted, counter: 0, budgets: Vec::new() };
        let waiting = decide(&Case { attempt: Some(&accepted), ..case(&request, &pod) }, at(1));
        assert_eq!(waiting.effects, []);
        assert_eq!(waiting.waiting_on, Some(WaitingOn::Evicted { at: at(0) }));
        assert!(evicts(&decide(&Case { attempt: Some(&accepted), ..case(&request, &pod) }, at(40))));
    }
}

mod budgets {
    use super::*;

    #[test]
    fn a_budget_is_asked_for_room_before_the_server_is() {
        let (request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let waiting = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(0));
        assert!(!evicts(&waiting));
        assert!(
            matches!(&waiting.waiting_on, Some(WaitingOn::Budget { name, allowed: 0, .. }) if name == "web")
        );
        assert_eq!(written(&waiting).unwrap().failed_api_eviction_counter, 0, "nothing was tried");
        assert!(evicts(&granted(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(0))));
    }

    #[test]
    fn what_kept_a_surge_from_helping_is_to_be_mended_first_and_no_words_of_others_tell_of_one() {
        let (pod, budget) = (pod(), budget("web", 0));
        for (class, said_so, has_failed) in [
            ("deployment.apps.k8s.io", Some("True"), true),
            ("replicaset.apps.k8s.io", Some("True"), true),
            ("horizontalpodautoscaler.autoscaling.k8s.io", Some("True"), true),
            ("deployment.apps.k8s.io", Some("False"), false),
            ("deployment.apps.k8s.io", None, false),
            ("db.example.com", Some("True"), false),
        ] {
            let mut request = request(&[(class, 2000)]);
            request.status.active_interceptor_class = Some(class.into());
            request.status.active_interceptor_completed = true;
            request.status.message = "it has no available replacement of the pod".into();
            let condition = |status: &str| {
                let condition = serde_json::json!({
                    "type": "SurgeFailed", "status": status, "reason": "NotReplaced", "message": "",
                    "lastTransitionTime": at(0).to_string(),
                });
                serde_json::from_value(condition).unwrap()
            };
            request.status.conditions = said_so.map(condition).into_iter().collect();
            let waiting = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(0));
            let advice = waiting.waiting_on.unwrap().advice();
            assert_eq!(
                advice.starts_with("mend what keeps new pods of its Deployment"),
                has_failed,
                "{class}: {advice}"
            );
        }
    }

    #[test]
    fn a_blocked_pod_is_told_once() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let first = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(7));
        assert_eq!(reasons_told(&first), ["EvictionBlocked"]);
        request.status = written(&first).unwrap().clone();
        assert_eq!(request.status.conditions[0].last_transition_time, Time(at(7)));
        let again = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(99));
        assert_eq!(again.effects, []);
    }

    #[test]
    fn pods_that_need_no_budget_pass() {
        let not_ready = Pod { ready_since: None, ..pod() };
        let pending = Pod { phase: Phase::Pending, ready_since: None, ..pod() };
        let healthy = budget("web", 0);
        let unhealthy = Budget { current_healthy: 2, ..budget("web", 0) };
        let none_wanted = Budget { desired_healthy: 0, ..budget("web", 0) };
        let always = Budget { policy: UnhealthyPolicy::AlwaysAllow, ..unhealthy.clone() };
        let unknown = Budget { policy: UnhealthyPolicy::Unknown, ..budget("web", 0) };
        let rows = [
            ("ready", &pod(), &always, false),
            ("pending, rule 2", &pending, &unhealthy, true),
            ("not ready, healthy budget, rule 5", &not_ready, &healthy, true),
            ("not ready, unhealthy budget, rule 5", &not_ready, &unhealthy, false),
            ("not ready, nothing desired, rule 5", &not_ready, &none_wanted, false),
            ("not ready, AlwaysAllow, rule 5", &not_ready, &always, true),
            ("not ready, unknown policy, rule 5", &not_ready, &unknown, false),
        ];
        let request = request(&[]);
        for (name, pod, budget, passes) in rows {
            let decision = decide(&Case { budgets: &[budget], ..case(&request, pod) }, at(0));
            assert_eq!(evicts(&decision), passes, "{name}");
        }
    }

    #[test]
    fn two_budgets_are_named_and_the_server_asked_later_and_later() {
        let (mut request, pod) = (request(&[]), pod());
        let (a, b) = (budget("a", 5), budget("b", 5));
        let budgets = [&a, &b];
        let first = Case { budgets: &budgets, ..case(&request, &pod) };
        assert!(evicts(&decide(&first, at(0))), "the first time to have its word");
        let attempt = Attempt {
            budgets: SelectingBudget::all(&budgets, &pod),
            ..refused(Refusal::Server { code: 500, message: "more than one".into() }, 0, 0)
        };
        let told = decide(&Case { attempt: Some(&attempt), ..first }, at(0));
        let status = written(&told).unwrap().clone();
        assert_eq!(status.conditions[0].reason, "MoreThanOneDisruptionBudget");
        assert!(status.message.contains("a and b"), "{}", status.message);
        request.status = status;
        let waiting =
            decide(&Case { budgets: &budgets, attempt: Some(&attempt), ..case(&request, &pod) }, at(0));
        assert!(!evicts(&waiting) && waiting.recheck_at > Some(at(0)));
    }

    /// Two budgets, then one; a budget, then none; a selector that leaves the pod out.
    #[test]
    fn a_refusal_whose_cause_is_gone_is_not_waited_out() {
        let (mut request, pod) = (request(&[]), pod());
        request.status.failed_api_eviction_counter = 9;
        let (a, b) = (budget("a", 5), budget("b", 5));
        let refusals = [
            (Refusal::Server { code: 500, message: "more than one".into() }, vec![&a, &b], vec![&a]),
            (Refusal::Budget { message: "needs 3".into() }, vec![&a], vec![]),
            (Refusal::BudgetNotReady { message: "not yet".into(), retry_after: Some(10) }, vec![&a], vec![]),
        ];
        for (refusal, then, now_there) in refusals {
            let budgets = SelectingBudget::all(&then, &pod);
            let attempt = Attempt { budgets, ..refused(refusal.clone(), 100, 8) };
            let base = Case { attempt: Some(&attempt), ..case(&request, &pod) };
            let decided = granted(&Case { budgets: &now_there, ..base }, at(101));
            assert!(evicts(&decided), "{refusal:?}: {decided:?}");
        }
        let attempt = Attempt {
            budgets: SelectingBudget::all(&[&a, &b], &pod),
            ..refused(Refusal::Server { code: 500, message: "more than one".into() }, 100, 8)
        };
        let both = Case { budgets: &[&a, &b], attempt: Some(&attempt), ..case(&request, &pod) };
        assert!(!evicts(&granted(&both, at(101))), "it is still there");
    }

    #[test]
    fn a_budget_that_moves_queues_a_pod_and_one_that_cannot_blocks_it() {
        let (request, pod) = (request(&[]), pod());
        let with = |allowed, current_healthy, desired_healthy, disrupted: &[&str]| Budget {
            current_healthy,
            desired_healthy,
            expected_pods: 6,
            disrupted_pods: disrupted.iter().map(ToString::to_string).collect(),
            ..budget("web", allowed)
        };
        let queued = "queued: budget web allows 1 at a time";
        let rows = [
            (with(1, 6, 5, &[]), "EvictionQueued", queued),
            (with(0, 6, 5, &["q"]), "EvictionQueued", queued),
            (with(0, 5, 5, &[]), "EvictionQueued", "waiting for 1 of 6 pods of budget web to become ready"),
            (
                with(0, 6, 6, &[]),
                "EvictionBlocked",
                "disruption budget web does not allow the pod to be evicted",
            ),
            (
                with(0, 5, 6, &[]),
                "EvictionBlocked",
                "disruption budget web does not allow the pod to be evicted",
            ),
        ];
        for (budget, reason, message) in rows {
            let decision = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(0));
            assert_eq!(reasons_told(&decision), [reason], "{budget:?}");
            let status = written(&decision).unwrap();
            assert_eq!(status.message, message);
            let is_blocked = status.conditions[0].status == "True";
            assert_eq!(is_blocked, reason == "EvictionBlocked");
            let warned = decision.effects.iter().any(|e| matches!(e, Effect::RecordEvent(n) if n.is_warning));
            assert_eq!(warned, is_blocked);
            // What a webhook has refused stays told until the server says something else.
            let mut refused = request.clone();
            refused.status = status.clone();
            refused.status.conditions[0].status = "True".into();
            refused.status.conditions[0].reason = "AdmissionWebhook".into();
            let webhook = Refusal::Webhook { code: 403, message: "no".into() };
            let attempt = Attempt { counter: -1, ..super::refused(webhook, 0, 0) };
            let told_at = |now: Timestamp| {
                decide(&Case { budgets: &[&budget], attempt: Some(&attempt), ..case(&refused, &pod) }, now)
            };
            let until = crate::later(attempt.retry_at("uid-p"), crate::budgets::PATIENCE);
            let decision = told_at(until - SignedDuration::from_millis(1));
            assert!(decision.effects.is_empty() && decision.waiting_on.is_some(), "{decision:?}");
            // Where the budget lets nobody ask again, the budget is told.
            assert_eq!(decision.recheck_at, is_blocked.then_some(until));
            assert_eq!(reasons_told(&told_at(until)), if is_blocked { vec![reason] } else { Vec::new() });
        }
    }

    #[test]
    fn what_the_last_interceptor_has_said_stays_before_what_blocks() {
        let pod = pod();
        let mut request = at_turn("low.example.com", 100);
        request.status.active_interceptor_completed = true;
        request.status.message = "no new pod has room".into();
        let budget = Budget { current_healthy: 1, desired_healthy: 1, expected_pods: 1, ..budget("web", 0) };
        let told = |request: &Request| {
            let decision = decide(&Case { budgets: &[&budget], ..case(request, &pod) }, at(0));
            written(&decision).cloned()
        };
        let status = told(&request).unwrap();
        let blocked = "disruption budget web does not allow the pod to be evicted";
        assert_eq!(status.message, format!("no new pod has room; {blocked}"));
        assert_eq!(status.conditions[0].message, blocked);
        // It is said once.
        request.status = status.clone();
        assert_eq!(told(&request), None);
        request.status.conditions[0].reason = "Queued".into();
        assert_eq!(told(&request).unwrap().message, status.message);
        // However long that was, what blocks is told whole.
        request.status.conditions.clear();
        request.status.message = "x".repeat(2_000);
        let long = told(&request).unwrap().message;
        assert_eq!(long.chars().count(), 1024);
        assert!(long.ends_with(&format!("x...; {blocked}")), "{long}");
        // What was said here with the turn is no word of the interceptor.
        for own in [
            "low.example.com goes first (1 interceptor)",
            "high.example.com completed, low.example.com is next",
        ] {
            request.status.message = own.into();
            assert_eq!(told(&request).unwrap().message, blocked, "{own}");
        }
    }

    #[test]
    fn what_blocked_is_not_told_as_the_words_of_an_interceptor_that_is_back() {
        let mut request = at_turn("low.example.com", 0);
        let blocked = "disruption budget web does not allow the pod to be evicted";
        request.status.message = blocked.into();
        let condition = serde_json::json!({
            "type": BLOCKED_CONDITION, "status": "True", "reason": "DisruptionBudget", "message": blocked,
            "lastTransitionTime": at(0).to_string(),
        });
        request.status.conditions = vec![serde_json::from_value(condition).unwrap()];
        let decision = decide(&case(&request, &pod()), at(1));
        assert_eq!(written(&decision).unwrap().message, "");
        // What it says itself stays.
        request.status.message = "half of it is copied".into();
        let decision = decide(&case(&request, &pod()), at(1));
        assert_eq!(written(&decision).unwrap().message, "half of it is copied");
    }

    #[test]
    fn the_back_off_is_the_same_after_a_failover() {
        let (mut request, pod) = (request(&[]), pod());
        let webhook = Refusal::Webhook { code: 403, message: "no".into() };
        let attempt = refused(webhook.clone(), 100, 7);
        request.status.failed_api_eviction_counter = 7;
        let counted = decide(&Case { attempt: Some(&attempt), ..case(&request, &pod) }, at(100));
        request.status = written(&counted).unwrap().clone();
        let remembered = Attempt::remembered(&request, Vec::new(), at(150)).unwrap();
        let recorded = Refusal::Recorded { reason: webhook.reason(), sentence: webhook.sentence() };
        let expected = Attempt { at: at(150), answer: Answer::Refused(recorded), ..attempt.clone() };
        assert_eq!(remembered, expected);
        assert_eq!(remembered.retry_at("u"), Attempt { at: at(150), ..attempt }.retry_at("u"));
        let waiting = decide(&Case { attempt: Some(&remembered), ..case(&request, &pod) }, at(150));
        assert_eq!(waiting.effects, []);
        assert!(waiting.recheck_at >= Some(at(150 + 128)), "{waiting:?}");
    }

    #[test]
    fn after_a_failover_a_cause_that_is_gone_is_not_waited_out_either() {
        let (mut request, pod) = (request(&[]), pod());
        let (a, b) = (budget("a", 0), budget("b", 0));
        request.status.failed_api_eviction_counter = 7;
        for (reason, enough) in [("DisruptionBudget", 1), ("MoreThanOneDisruptionBudget", 2)] {
            let words = Refusal::TwoBudgets { names: vec!["a".into(), "b".into()] }.sentence();
            let case = Case { budgets: &[&a], ..case(&request, &pod) };
            let mut status = written(&decide(&case, at(0))).unwrap().clone();
            (status.conditions[0].reason, status.conditions[0].message) = (reason.into(), words);
            let known = Request { status, ..request.clone() };
            let remembered = |budgets: &[&Budget]| {
                Attempt::remembered(&known, SelectingBudget::all(budgets, &pod), at(9)).is_some()
            };
            let found = [remembered(&[]), remembered(&[&a]), remembered(&[&a, &b])];
            assert_eq!(found, [false, enough <= 1, true], "{reason}");
        }
    }

    #[test]
    fn a_refusal_for_the_budgets_sake_waits_for_the_budget_and_not_for_a_back_off() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let attempt = refused(Refusal::Budget { message: "needs 3 healthy pods and has 3".into() }, 10, 0);
        let counted =
            decide(&Case { budgets: &[&budget], attempt: Some(&attempt), ..case(&request, &pod) }, at(10));
        request.status = written(&counted).unwrap().clone();
        assert_eq!(request.status.failed_api_eviction_counter, 1);
        let base = Case { budgets: &[&budget], attempt: Some(&attempt), ..case(&request, &pod) };
        let waiting = decide(&base, at(10));
        assert!(matches!(waiting.waiting_on, Some(WaitingOn::Budget { .. })) && waiting.recheck_at.is_none());
        assert!(evicts(&granted(&base, at(10))));
    }
}

mod garbage_collection {
    use super::*;

    fn effects(request: &Request, target: Target<'_>) -> Vec<Effect> {
        let pod = pod();
        let case = Case { pod: target, ..case(request, &pod) };
        let told = |effect: &Effect| matches!(effect, Effect::RecordEvent(_));
        decide(&case, at(10)).effects.into_iter().filter(|effect| !told(effect)).collect()
    }

    #[test]
    fn without_requesters_the_request_is_deleted_if_cancellation_is_allowed() {
        let mut request = at_turn("low.example.com", 0);
        request.finalizers = ["notify.example.com/hear".into()].into();
        assert_eq!(
            effects(&request, Target::Found(&pod())),
            [Effect::Delete(Ending::Withdrawn)],
            "the other finalizer is respected"
        );
        request.is_deleting = true;
        assert_eq!(effects(&request, Target::Found(&pod())), []);
    }

    #[test]
    fn without_requesters_it_goes_on_if_cancellation_is_forbidden() {
        let mut request = at_turn("high.example.com", 0);
        request.finalizers = [].into();
        request.status.eviction_request_cancellation_policy = Policy::Forbid;
        request.status.active_interceptor_completed = true;
        let decision = decide(&case(&request, &pod()), at(10));
        assert_eq!(written(&decision).unwrap().active_interceptor_class.as_deref(), Some("low.example.com"));
    }

    #[test]
    fn with_one_requester_left_it_goes_on() {
        let mut request = at_turn("low.example.com", 0);
        request.finalizers = [format!("{REQUESTER_FINALIZER_PREFIX}other.example.com")].into();
        assert_eq!(effects(&request, Target::Found(&pod())), []);
    }

    #[test]
    fn it_ends_when_the_pod_is_gone_terminal_or_another_one() {
        let mut request = request(&[]);
        let requester = request.finalizers[0].clone();
        request.finalizers = [requester, "notify.example.com/hear".into()].into();
        let other = Pod { uid: "uid-q".into(), ..pod() };
        let succeeded = Pod { phase: Phase::Succeeded, ..pod() };
        let failed = Pod { phase: Phase::Failed, ..pod() };
        for target in [Target::Gone, Target::Found(&other), Target::Found(&succeeded), Target::Found(&failed)]
        {
            assert_eq!(
                effects(&request, target),
                [
                    Effect::Delete(Ending::PodLeft),
                    Effect::KeepFinalizers(vec!["notify.example.com/hear".into()])
                ],
                "{target:?}"
            );
        }
    }

    #[test]
    fn finalizers_of_the_garbage_collector_are_not_written_again_once_a_deletion_has_taken_them_off() {
        for garbage in ["foregroundDeletion", "orphan"] {
            let mut request = request(&[]);
            let requester = request.finalizers[0].clone();
            request.finalizers = [requester, garbage.into(), "notify.example.com/hear".into()].into();
            let kept =
                |names: &[&str]| Effect::KeepFinalizers(names.iter().copied().map(str::to_owned).collect());
            let left = kept(&["notify.example.com/hear"]);
            assert_eq!(effects(&request, Target::Gone), [Effect::Delete(Ending::PodLeft), left]);
            request.is_deleting = true;
            let left = kept(&[garbage, "notify.example.com/hear"]);
            assert_eq!(
                effects(&request, Target::Gone),
                [left],
                "deleted by others: it is not ours to take off"
            );
        }
    }

    #[test]
    fn who_holds_an_ended_request_reads_that_it_is_not_blocked_any_more() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let blocked = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(10));
        request.status = written(&blocked).unwrap().clone();
        let gone = |request: &Request| decide(&Case { pod: Target::Gone, ..case(request, &pod) }, at(20));
        assert!(written(&gone(&request)).is_none(), "nobody is left to read it");
        request.finalizers = ["notify.example.com/hear".into()].into();
        let decision = gone(&request);
        let condition = &written(&decision).unwrap().conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Terminated"));
        request.is_deleting = true;
        request.status.eviction_request_cancellation_policy = Policy::Forbid;
        let allowed = gone(&request);
        assert_eq!(written(&allowed).unwrap().eviction_request_cancellation_policy, Policy::Allow);
    }

    #[test]
    fn a_pod_that_has_ended_is_called_kept_only_if_nobody_deletes_it() {
        let kept = Pod { phase: Phase::Succeeded, ..pod() };
        let deleted = terminating(kept.clone(), at(5));
        for (pod, words) in [(kept, "is kept"), (deleted, "is being deleted")] {
            let decision = decide(&case(&request(&[]), &pod), at(10));
            let told = decision.effects.iter().find_map(|effect| match effect {
                Effect::RecordEvent(notice) => Some(notice.message.clone()),
                _ => None,
            });
            assert!(told.as_deref().is_some_and(|told| told.contains(words)), "{told:?}");
        }
    }

    #[test]
    fn forbid_is_set_back_to_allow_once_the_pod_has_terminated() {
        let mut request = request(&[]);
        request.status.eviction_request_cancellation_policy = Policy::Forbid;
        let effects = effects(&request, Target::Gone);
        assert!(matches!(&effects[0], Effect::WriteStatus(status)
            if status.eviction_request_cancellation_policy == Policy::Allow));
        assert_eq!(effects[1..], [Effect::Delete(Ending::PodLeft), Effect::KeepFinalizers(Vec::new())]);
    }

    #[test]
    fn a_request_that_is_being_deleted_goes_on_while_somebody_wants_it() {
        let mut request = request(&[]);
        request.is_deleting = true;
        assert!(evicts(&decide(&case(&request, &pod()), at(0))));
    }

    #[test]
    fn a_foreign_finalizer_does_not_keep_others_from_asking_for_the_pod() {
        let mut request = request(&[]);
        request.finalizers = ["notify.example.com/hear".into(), "foregroundDeletion".into()].into();
        request.is_deleting = true;
        request.rare.get_or_insert_default().deleted = Some(at(0));
        let (pod, early) = (pod(), at(59));
        let waiting = decide(&case(&request, &pod), early);
        assert!(
            waiting.effects.is_empty() && matches!(waiting.waiting_on, Some(WaitingOn::Finalizers { .. }))
        );
        assert_eq!(waiting.recheck_at, Some(at(60)));
        let taken_off = decide(&case(&request, &pod), at(60));
        let none = Effect::KeepFinalizers(Vec::new());
        assert_eq!(taken_off.effects[0], none, "also what makes the garbage collector wait for others");
        let Effect::RecordEvent(notice) = &taken_off.effects[1] else { panic!("{taken_off:?}") };
        assert!(
            notice.is_warning
                && notice.message.starts_with("notify.example.com/hear, foregroundDeletion held"),
            "{notice:?}"
        );
        request.rare.get_or_insert_default().deleted = Some(Timestamp::MAX);
        assert!(decide(&case(&request, &pod), at(60)).effects.is_empty());
    }

    #[test]
    fn a_pod_that_was_never_seen_is_looked_up_before_it_counts_as_gone() {
        assert_eq!(effects(&request(&[]), Target::NeverSeen), [Effect::LookUpPod]);
    }
}

mod limits {
    use super::*;

    #[test]
    fn who_fills_the_conditions_does_not_keep_us_from_saying_what_is_the_matter() {
        let (mut request, pod, budget) = (request(&[]), pod(), budget("web", 0));
        let condition = |number: usize| Condition {
            type_: format!("example.com/{number}"),
            status: "True".into(),
            reason: "R".into(),
            message: String::new(),
            last_transition_time: Time(at(0)),
            observed_generation: None,
        };
        request.status.conditions = (0..usher_api::CONDITIONS_MAX).map(condition).collect();
        let decision = decide(&Case { budgets: &[&budget], ..case(&request, &pod) }, at(0));
        let conditions = &written(&decision).unwrap().conditions;
        assert_eq!(conditions.len(), usher_api::CONDITIONS_MAX);
        assert!(conditions.iter().any(|condition| condition.type_ == BLOCKED_CONDITION));
    }

    #[test]
    fn an_administrator_gets_past_interceptors_also_where_cancellation_is_forbidden() {
        let pod = pod();
        for class in [None, Some("high.example.com"), Some("unknown.example.com")] {
            let mut request = at_turn("high.example.com", 100);
            request.status.active_interceptor_class = class.map(str::to_owned);
            request.status.eviction_request_cancellation_policy = Policy::Forbid;
            assert!(!evicts(&decide(&case(&request, &pod), at(110))), "{class:?}");
            request.rare.get_or_insert_default().skips_interceptors = Some("the rack burns".into());
            let decision = decide(&case(&request, &pod), at(110));
            assert!(evicts(&decision), "{class:?}");
            let told = decision.effects.iter().any(|effect| {
                matches!(effect, Effect::RecordEvent(notice) if notice.reason == "InterceptorsSkipped"
                    && notice.is_warning && notice.message.ends_with("the rack burns"))
            });
            assert!(told, "{decision:?}");
            let budget = budget("web", 0);
            let held = Case { budgets: &[&budget], ..case(&request, &pod) };
            assert!(!evicts(&decide(&held, at(110))), "budgets hold all the same");
        }
    }

    #[test]
    fn interceptors_have_no_more_time_together_than_the_cluster_gives_them() {
        let (pod, limit) = (pod(), SignedDuration::from_secs(3600));
        let request = at_turn("high.example.com", 3500);
        let case = Case { interceptors_limit: Some(limit), ..case(&request, &pod) };
        let waiting = decide(&case, at(3550));
        assert!(!evicts(&waiting), "it reports progress");
        assert_eq!(waiting.recheck_at, Some(at(3600)), "before its deadline");
        assert!(evicts(&decide(&case, at(3600))));
        assert!(
            !evicts(&decide(&Case { interceptors_limit: None, ..case }, at(3600))),
            "as the specification has it"
        );
    }

    #[test]
    fn a_pod_stays_for_a_daemon_set_only_if_there_is_one() {
        let owner = |api_version: &str| Pod {
            owner: Some(Arc::new(Owner {
                api_version: api_version.into(),
                kind: "DaemonSet".into(),
                name: "d".into(),
                uid: "d".into(),
            })),
            ..pod()
        };
        let request = request(&[]);
        let (real, other) = (owner("apps/v1"), owner("example.com/v1"));
        assert!(!evicts(&decide(&case(&request, &real), at(0))));
        assert!(evicts(&decide(&Case { daemon_set: None, ..case(&request, &real) }, at(0))));
        assert!(evicts(&decide(&case(&request, &other), at(0))), "a kind of another group by that name");
        assert_eq!(other.kind(), usher_api::PodType::Default);
    }
}
