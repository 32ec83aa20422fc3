//! Who asks by plain evictions cannot take it back in words: it stops asking. The gateway remembers when it was last asked, and after a
//! while without another ask the requester is taken off, unless the interceptor has forbidden to stop.

use jiff::{SignedDuration, Timestamp};
use usher_api::EvictionRequestCancellationPolicy as Policy;
use usher_api::names::requester_of;

use super::{Case, Decision, Target};
use crate::decision::{About, Effect, Notice, limited};

/// When each of those who ask through the gateway counts as silent.
fn silent_at<'a>(case: &Case<'a>) -> impl Iterator<Item = (&'a str, Timestamp)> {
    let (request, after) = (case.request, case.withdraw_after);
    // A pod that is on its way out is not brought back by anybody.
    let stays = matches!(case.pod, Target::Found(pod)
        if pod.uid == request.pod_uid && !pod.is_terminating() && !pod.phase.is_terminal());
    let allowed = request.status.eviction_request_cancellation_policy == Policy::Allow;
    let matters = stays && allowed;
    let after = after.filter(|_| matters);
    let silent = move |(name, ask): &'a (String, usher_api::gateway::Ask)| {
        Some((name.as_str(), ask.at.0.checked_add(after?).unwrap_or(Timestamp::MAX)))
    };
    request.asks().iter().filter_map(silent)
}

/// When the next of them has been silent for too long.
pub fn next(case: &Case<'_>) -> Option<Timestamp> {
    silent_at(case).map(|(_, at)| at).min()
}

/// Takes off those who have been silent for too long.
pub fn decide(case: &Case<'_>, now: Timestamp) -> Option<Decision> {
    let silent: Vec<&str> = silent_at(case).filter(|(_, at)| now >= *at).map(|(name, _)| name).collect();
    if silent.is_empty() {
        return None;
    }
    let request = case.request;
    let is_silent = |finalizer: &str| requester_of(finalizer).is_some_and(|name| silent.contains(&name));
    let kept = request.finalizers.iter().filter(|finalizer| !is_silent(finalizer)).cloned().collect();
    let after = case.withdraw_after.unwrap_or(SignedDuration::ZERO).as_secs();
    let who: Vec<&str> =
        silent.iter().map(|name| request.ask_of(name).map_or(*name, |ask| ask.by.as_str())).collect();
    let message = format!("{} tried no more to evict the pod for {after} seconds: withdrawn", who.join(", "));
    let about = &[About::Request, About::Pod];
    let notice = Notice { about, is_warning: false, reason: WITHDRAWN, message: limited(message) };
    Some(Decision::default().act(Effect::KeepFinalizers(kept)).act(Effect::RecordWithdrawal(notice)))
}

/// The reason of the event.
const WITHDRAWN: &str = "RequesterWithdrawn";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Pod, PodOnWire, Request, RequestOnWire};
    use serde_json::{Value, json};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn pod(deletion: Option<&str>) -> Pod {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u", "deletionTimestamp": deletion});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap())
    }

    /// Asked by a maintenance, by kubectl at 12:00 and by Karpenter at 12:02.
    fn request(status: Value) -> Request {
        let name = |name: &str| format!("requester.evictionrequest.coordination.k8s.io/name_{name}");
        let finalizers = [name("nodemaintenance.k8s.io"), name("a.user.gateway"), name("k.sa.gateway")];
        let ask = |by: &str, at: &str| json!({"by": by, "at": at}).to_string();
        let request = json!({
            "metadata": {
                "name": "u", "namespace": "shop", "uid": "r", "creationTimestamp": "2026-01-01T11:50:00Z",
                "finalizers": finalizers,
                "annotations": {
                    "gateway.evictionrequest.coordination.k8s.io/a.user.gateway": ask("alice", "2026-01-01T12:00:00Z"),
                    "gateway.evictionrequest.coordination.k8s.io/k.sa.gateway": ask("karpenter", "2026-01-01T12:02:00Z"),
                    // It has no finalizer: it has withdrawn already.
                    "gateway.evictionrequest.coordination.k8s.io/b.user.gateway": ask("bob", "2026-01-01T11:00:00Z"),
                },
            },
            "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": [{"interceptorClass": "a.io", "priority": 1}]},
            "status": status,
        });
        Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
    }

    fn case<'a>(request: &'a Request, pod: &'a Pod) -> Case<'a> {
        Case {
            request,
            pod: Target::Found(pod),
            budgets: &[],
            attempt: None,
            daemon_set: None,
            interceptors_limit: None,
            withdraw_after: Some(SignedDuration::from_mins(5)),
        }
    }

    /// The requesters that are left, if any is taken off.
    fn left(case: &Case<'_>, now: &str) -> Option<Vec<String>> {
        let effects = decide(case, at(now))?.effects;
        let kept = effects.into_iter().find_map(|effect| match effect {
            Effect::KeepFinalizers(kept) => Some(kept),
            _ => None,
        });
        Some(kept.unwrap().iter().filter_map(|it| requester_of(it)).map(str::to_owned).collect())
    }

    #[test]
    fn who_stops_asking_has_withdrawn() {
        let (request, pod) = (request(json!({"activeInterceptorClass": "a.io"})), pod(None));
        let case = case(&request, &pod);
        assert_eq!(left(&case, "2026-01-01T12:04:59Z"), None);
        assert_eq!(next(&case), Some(at("2026-01-01T12:05:00Z")));
        let only_karpenter = ["nodemaintenance.k8s.io", "k.sa.gateway"].map(str::to_owned).to_vec();
        assert_eq!(left(&case, "2026-01-01T12:05:00Z"), Some(only_karpenter));
        assert_eq!(left(&case, "2026-01-01T12:07:00Z"), Some(vec!["nodemaintenance.k8s.io".to_owned()]));
        let effects = decide(&case, at("2026-01-01T12:07:00Z")).unwrap().effects;
        let [Effect::KeepFinalizers(_), Effect::RecordWithdrawal(told)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert!(!told.is_warning && told.reason == "RequesterWithdrawn");
        assert!(told.message.starts_with("alice, karpenter tried no more to evict the pod for 300 seconds"));
    }

    #[test]
    fn nobody_is_taken_off_where_it_would_not_help_or_is_not_allowed() {
        let late = "2026-01-01T13:00:00Z";
        let (allowed, staying) = (request(json!({})), pod(None));
        assert!(left(&case(&allowed, &staying), late).is_some());
        let forbidden = request(json!({"evictionRequestCancellationPolicy": "Forbid"}));
        let terminating = pod(Some("2026-01-01T12:00:00Z"));
        let never = Case { withdraw_after: None, ..case(&allowed, &staying) };
        let gone = Case { pod: Target::Gone, ..case(&allowed, &staying) };
        for (what, case) in [
            ("forbidden", case(&forbidden, &staying)),
            ("on its way out", case(&allowed, &terminating)),
            ("never", never),
            ("gone", gone),
        ] {
            assert_eq!((left(&case, late), next(&case)), (None, None), "{what}");
        }
    }

    #[test]
    fn who_stops_asking_is_taken_off_a_request_that_somebody_deleted_too() {
        let (deleted, pod) = (Request { is_deleting: true, ..request(json!({})) }, pod(None));
        let left = left(&case(&deleted, &pod), "2026-01-01T12:07:00Z");
        assert_eq!(left, Some(vec!["nodemaintenance.k8s.io".to_owned()]));
    }

    #[test]
    fn a_controller_looks_again_when_the_next_one_is_silent() {
        let status = json!({"activeInterceptorClass": "a.io", "progressTimestamp": "2026-01-01T12:00:00Z"});
        let (request, pod) = (request(status), pod(None));
        let decision = super::super::decide(&case(&request, &pod), &mut true, at("2026-01-01T12:01:00Z"));
        assert_eq!(decision.recheck_at, Some(at("2026-01-01T12:05:00Z")));
    }

    #[test]
    fn the_grace_period_is_the_longest_that_was_asked_for() {
        let with = |first: Option<i64>, second: Option<i64>| {
            let mut request = request(json!({}));
            request.finalizers = request.finalizers[1..].into();
            let asks = &mut request.rare.get_or_insert_default().asks;
            asks[0].1.grace_period_seconds = first;
            asks[1].1.grace_period_seconds = second;
            request.grace_period_seconds()
        };
        assert_eq!(with(Some(5), Some(30)), Some(30));
        assert_eq!(with(Some(5), None), None, "the pod's own");
        assert_eq!(request(json!({})).grace_period_seconds(), None, "the maintenance gave none");
    }
}
