//! What would become of a pod that nobody asks to leave, if somebody asked now.

use jiff::Timestamp;
use usher_api::Interceptor;
use usher_api::names::requester_finalizer;
use usher_decide::eviction_request::{Refusal, SelectingBudget};
use usher_decide::snapshot::{Budget, Pod, Request};
use usher_decide::waiting_on::WaitingOn;

use super::{ManagerStep, RequestState, RequestWait};

/// What a request by this requester, with these interceptors, would wait for at first. `budgets` are those of the pod, if they may be
/// read.
pub fn forecast(
    pod: &Pod,
    interceptors: &[Interceptor],
    requester: &str,
    budgets: Option<&[&Budget]>,
    now: Timestamp,
) -> RequestWait {
    let finalizers = requester_finalizer(requester).into_iter().collect();
    let request = Request::if_asked(pod, finalizers, interceptors.into(), now);
    let wait = RequestState::of(&request, Some(pod), budgets, None, now).wait;
    match several_budgets(pod, budgets.unwrap_or_default()) {
        // The manager learns of it when it evicts; whoever knows the budgets knows the answer before.
        Some(refusal) if wait == RequestWait::Manager(ManagerStep::Evict) => RequestWait::Refused(refusal),
        _ => wait,
    }
}

/// What keeps the eviction API from the pod until somebody does something about it, whoever has a turn before. `request` asks it to leave;
/// before there is one, it is that of this requester. Budgets are not among it: they let pods go again by themselves.
pub fn obstacle(pod: &Pod, request: Option<&Request>, requester: &str, now: Timestamp) -> Option<WaitingOn> {
    let asked = request.map(|request| RequestState::of(request, Some(pod), None, None, now).wait);
    let after_interceptors = forecast(pod, &[], requester, None, now);
    asked.into_iter().chain([after_interceptors]).find_map(|wait| match wait {
        RequestWait::On(obstacle @ (WaitingOn::NotEvictable { .. } | WaitingOn::InterceptorsNotResolved)) => {
            Some(obstacle)
        }
        _ => None,
    })
}

/// The server evicts no pod that has more than one budget (rule 3 of `docs/eviction-rules.md`).
pub(crate) fn several_budgets(pod: &Pod, budgets: &[&Budget]) -> Option<Refusal> {
    let asked = SelectingBudget::all(budgets, pod);
    let names = asked.iter().map(|budget| budget.key.name.to_string()).collect();
    (asked.len() > 1).then_some(Refusal::TwoBudgets { names })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{NOW, budget, pod, request};
    use super::*;
    use serde_json::{Value, json};
    use usher_decide::snapshot::{Owner, Phase};
    use usher_decide::waiting_on::Unevictable;

    #[test]
    fn a_request_that_is_not_there_is_one_that_admission_has_seen_and_nobody_has_written_since() {
        let interceptor = Interceptor { interceptor_class: "db.example.com".into(), priority: 1, role: None };
        let finalizers = || [requester_finalizer("a.example.com").unwrap()].into();
        let asked = Request::if_asked(&pod(None), finalizers(), [interceptor].into(), NOW.parse().unwrap());
        let interceptors = json!([{"interceptorClass": "db.example.com", "priority": 1}]);
        let stored = Request {
            uid: "".into(),
            created: NOW.parse().unwrap(),
            is_progress_reported: false,
            ..request(interceptors, json!({}))
        };
        assert_eq!(asked, stored);
    }

    fn of(pod: &Pod, interceptors: &[&str], budgets: Option<&[Budget]>) -> RequestWait {
        let interceptor =
            |class: &&str| Interceptor { interceptor_class: (*class).into(), priority: 1, role: None };
        let interceptors: Vec<Interceptor> = interceptors.iter().map(interceptor).collect();
        let budgets: Option<Vec<&Budget>> = budgets.map(|budgets| budgets.iter().collect());
        forecast(pod, &interceptors, "a.example.com", budgets.as_deref(), NOW.parse().unwrap())
    }

    #[test]
    fn the_first_interceptor_goes_first_whatever_budgets_say() {
        let wait = RequestWait::Manager(ManagerStep::GiveTurn);
        let two = [budget("a", 0), budget("b", 0)];
        for budgets in [Some(&two[..]), Some(&[]), None] {
            assert_eq!(of(&pod(None), &["db.example.com"], budgets), wait, "{budgets:?}");
        }
    }

    #[test]
    fn a_pod_without_interceptors_goes_as_its_budgets_let_it() {
        let evict = RequestWait::Manager(ManagerStep::Evict);
        assert_eq!(of(&pod(None), &[], Some(&[])), evict);
        assert_eq!(of(&pod(None), &[], Some(&[budget("a", 1)])), evict);
        assert_eq!(of(&pod(None), &[], None), RequestWait::HiddenBudgets);
        let blocked = of(&pod(None), &[], Some(&[budget("a", 0)]));
        assert!(blocked.is_blocked() && blocked.is_about_budgets(), "{blocked:?}");
    }

    #[test]
    fn two_budgets_are_refused_unless_the_server_asks_none() {
        let two = [budget("a", 1), budget("b", 0)];
        let names = vec!["a".to_owned(), "b".to_owned()];
        let refused = RequestWait::Refused(Refusal::TwoBudgets { names });
        assert_eq!(of(&pod(None), &[], Some(&two)), refused);
        let pending = Pod { phase: Phase::Pending, ..pod(None) };
        assert_eq!(of(&pending, &[], Some(&two)), RequestWait::Manager(ManagerStep::Evict));
    }

    #[test]
    fn a_pod_that_is_on_its_way_out_is_not_refused() {
        let two = [budget("a", 1), budget("b", 0)];
        let wait = of(&pod(Some("2026-01-01T12:00:20Z")), &[], Some(&two));
        assert_eq!(wait.cause().reason, "Terminating");
    }

    #[test]
    fn what_keeps_the_eviction_api_from_a_pod_is_known_before_the_turns_of_interceptors() {
        let owner = |kind: &str, version: &str| Owner {
            api_version: version.into(),
            kind: kind.into(),
            name: "x".into(),
            uid: "x".into(),
        };
        let daemon = || Pod { owner: Some(owner("DaemonSet", "apps/v1").into()), ..pod(None) };
        let mirror = || Pod { is_mirror: true, ..pod(None) };
        let names_one = || Pod { names_interceptors: true, ..pod(None) };
        let first_turn =
            |class: &str| request(json!([{"interceptorClass": class, "priority": 1}]), json!({}));
        let plain = |status: Value| request(json!([]), status);
        let stays = json!({"conditions": [{
            "type": "EvictionBlocked", "status": "True", "reason": "DaemonSetStays", "message": "",
            "lastTransitionTime": NOW,
        }]});
        let never = |pod| Some(WaitingOn::NotEvictable { pod });
        for (what, pod, request, wanted) in [
            ("no request yet", mirror(), None, never(Unevictable::MirrorPod)),
            ("asked", mirror(), Some(plain(json!({}))), never(Unevictable::MirrorPod)),
            ("first an interceptor", daemon(), Some(first_turn("a.com")), never(Unevictable::DaemonSetPod)),
            ("opted out", daemon(), Some(plain(stays)), never(Unevictable::DaemonSetStays)),
            ("past admission", names_one(), Some(plain(json!({}))), Some(WaitingOn::InterceptorsNotResolved)),
            ("resolved", names_one(), Some(first_turn("a.com")), None),
            ("not asked", names_one(), None, None),
            ("it may go", pod(None), Some(plain(json!({}))), None),
        ] {
            let obstacle = obstacle(&pod, request.as_ref(), "a.example.com", NOW.parse().unwrap());
            assert_eq!(obstacle, wanted, "{what}");
        }
    }
}
