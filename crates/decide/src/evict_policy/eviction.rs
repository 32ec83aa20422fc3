//! A plain eviction of a pod that nobody answers for, and whose workload takes over.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use usher_api::evict_policy::{EvictPolicy, EvictWanted, policy_annotation};
use usher_api::gateway::Ask;

use super::whole_second;
use crate::admission::gateway::{Effect, Judgement, Pass, REMEMBERED_FOR, TRIGGERED};
use crate::later;

/// Everything that it depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// `NAMESPACE/NAME`.
    pub pod: &'a str,
    pub uid: &'a str,
    /// Its mark, if it has one.
    pub wanted: Option<&'a EvictWanted>,
    /// Who asks.
    pub ask: &'a Ask,
    /// Nothing is to be changed.
    pub is_dry_run: bool,
    /// So long its workload has.
    pub timeout: SignedDuration,
}

/// How long the workload of a pod has, if it takes over at all: the pod's own policy counts before its namespace's.
pub fn time_to_take_over(
    pod: &BTreeMap<String, String>,
    namespace: Option<EvictPolicy>,
    timeout: Option<SignedDuration>,
) -> Option<SignedDuration> {
    let policy = EvictPolicy::of(policy_annotation(Some(pod)), namespace.map(EvictPolicy::as_str));
    timeout.filter(|_| policy == EvictPolicy::ControllerTakeOver)
}

pub fn judge(case: &Case<'_>, now: Timestamp) -> Judgement {
    let since = case.wanted.map_or_else(|| whole_second(now), |wanted| wanted.since.clone());
    let until = later(since.0, case.timeout);
    if case.wanted.is_some() && now >= until {
        return Judgement::pass(Pass::WorkloadHadItsTime);
    }
    let is_fresh = case
        .wanted
        .and_then(|wanted| wanted.asked.as_ref())
        .is_some_and(|known| now.duration_since(known.at.0) < REMEMBERED_FOR && known.by == case.ask.by);
    let message = format!(
        "{TRIGGERED} of pod {}: its evict policy is ControllerTakeOver, and its workload has taken over since {:.0}; the eviction passes \
         after {until:.0}",
        case.pod, since.0
    );
    let mark = EvictWanted { uid: case.uid.to_owned(), since, asked: Some(case.ask.clone()) };
    let effect = (!is_fresh && !case.is_dry_run).then_some(Effect::MarkPod(mark));
    Judgement::refuse(message, effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gateway::Answer;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn ask(by: &str, when: &str) -> Ask {
        Ask::new(by, Time(at(when)), None)
    }

    fn judged(wanted: Option<&EvictWanted>, ask: &Ask, is_dry_run: bool) -> Judgement {
        let case = Case {
            pod: "shop/web",
            uid: "u",
            wanted,
            ask,
            is_dry_run,
            timeout: SignedDuration::from_secs(60),
        };
        judge(&case, ask.at.0)
    }

    fn mark_of(judgement: &Judgement) -> Option<&EvictWanted> {
        match &judgement.effect {
            Some(Effect::MarkPod(mark)) => Some(mark),
            _ => None,
        }
    }

    #[test]
    fn the_first_eviction_marks_the_pod_and_is_refused_and_one_after_the_timeout_passes() {
        let first = judged(None, &ask("alice", "12:00:00"), false);
        let (Some(mark), Answer::Refuse(message)) = (mark_of(&first), &first.answer) else {
            panic!("{first:?}")
        };
        assert_eq!((mark.uid.as_str(), mark.since.0), ("u", at("12:00:00")));
        assert_eq!(
            message,
            "Eviction triggered evacuation of pod shop/web: its evict policy is ControllerTakeOver, and its workload has taken over since \
             2026-01-01T12:00:00Z; the eviction passes after 2026-01-01T12:01:00Z"
        );
        assert_ne!(
            judged(Some(mark), &ask("alice", "12:00:59"), false),
            Judgement::pass(Pass::WorkloadHadItsTime)
        );
        assert_eq!(
            judged(Some(mark), &ask("bob", "12:01:00"), false),
            Judgement::pass(Pass::WorkloadHadItsTime),
            "whoever asks"
        );
    }

    #[test]
    fn that_somebody_still_asks_is_written_now_and_then_and_the_time_stays() {
        let first = judged(None, &ask("alice", "12:00:00"), false);
        let mark = mark_of(&first).unwrap();
        assert_eq!(mark_of(&judged(Some(mark), &ask("alice", "12:00:29"), false)), None);
        let again = judged(Some(mark), &ask("alice", "12:00:30"), false);
        let again = mark_of(&again).unwrap();
        assert_eq!(
            (again.since.0, again.asked.as_ref().map(|it| it.at.0)),
            (at("12:00:00"), Some(at("12:00:30")))
        );
        let other = judged(Some(mark), &ask("bob", "12:00:05"), false);
        assert_eq!(mark_of(&other).and_then(|it| it.asked.as_ref()).map(|it| it.by.as_str()), Some("bob"));
    }

    #[test]
    fn a_dry_run_gets_the_answer_and_marks_nothing() {
        let judgement = judged(None, &ask("alice", "12:00:00"), true);
        assert_eq!(mark_of(&judgement), None);
        assert!(matches!(&judgement.answer, Answer::Refuse(message) if message.starts_with(TRIGGERED)));
    }

    #[test]
    fn the_pods_own_policy_counts_before_its_namespaces() {
        let take_over = "ControllerTakeOver";
        let minute = Some(SignedDuration::from_secs(60));
        let namespace: Option<EvictPolicy> = take_over.parse().ok();
        assert!(namespace.is_some());
        for (own, namespace, timeout, wanted) in [
            (None, None, minute, None),
            (None, namespace, minute, minute),
            (Some(take_over), None, minute, minute),
            (Some("Default"), namespace, minute, None),
            (Some("nonsense"), namespace, minute, minute),
            (Some(take_over), namespace, None, None),
        ] {
            let annotations = own
                .map(|own| (usher_api::names::EVICT_POLICY_ANNOTATION.to_owned(), own.to_owned()))
                .into_iter()
                .collect();
            assert_eq!(time_to_take_over(&annotations, namespace, timeout), wanted, "{own:?} {namespace:?}");
        }
    }
}
