//! A plain eviction of a pod that nobody answers for, and whose workload takes over.

use jiff::{SignedDuration, Timestamp};
use usher_api::evict_policy::EvictWanted;
use usher_api::gateway::Ask;

use super::{later, whole_second};
use crate::admission::gateway::{REMEMBERED_FOR, TRIGGERED};

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

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// The workload has had its time: the eviction is left to the API server.
    FellBack,
    /// It is refused with these words, after this mark was written.
    Refuse { mark: Option<EvictWanted>, message: String },
}

pub fn judge(case: &Case<'_>, now: Timestamp) -> Judgement {
    let since = case.wanted.map_or_else(|| whole_second(now), |wanted| wanted.since.clone());
    let until = later(since.0, case.timeout);
    if case.wanted.is_some() && now >= until {
        return Judgement::FellBack;
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
    Judgement::Refuse { mark: (!is_fresh && !case.is_dry_run).then_some(mark), message }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        match judgement {
            Judgement::Refuse { mark, .. } => mark.as_ref(),
            Judgement::FellBack => None,
        }
    }

    #[test]
    fn the_first_eviction_marks_the_pod_and_is_refused_and_one_after_the_timeout_passes() {
        let first = judged(None, &ask("alice", "12:00:00"), false);
        let Judgement::Refuse { mark: Some(mark), message } = &first else { panic!("{first:?}") };
        assert_eq!((mark.uid.as_str(), mark.since.0), ("u", at("12:00:00")));
        assert_eq!(
            message,
            "Eviction triggered evacuation of pod shop/web: its evict policy is ControllerTakeOver, and its workload has taken over since \
             2026-01-01T12:00:00Z; the eviction passes after 2026-01-01T12:01:00Z"
        );
        assert_ne!(judged(Some(mark), &ask("alice", "12:00:59"), false), Judgement::FellBack);
        assert_eq!(judged(Some(mark), &ask("bob", "12:01:00"), false), Judgement::FellBack, "whoever asks");
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
        let Judgement::Refuse { mark, message } = judged(None, &ask("alice", "12:00:00"), true) else {
            panic!()
        };
        assert!(mark.is_none() && message.starts_with(TRIGGERED));
    }
}
