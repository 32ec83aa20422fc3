//! What is still right to do while a decision is carried out: what fails on the way decides about what comes after it.
//!
//! It is remembered first, then withdrawn, and asked last. What is not remembered is neither withdrawn nor asked, and what cannot be
//! withdrawn leaves no place for others.

use std::collections::{HashMap, HashSet};

use usher_api::Refusal;
use usher_decide::snapshot::Key;

use crate::places::{Place, without_place};
use crate::plan::Proposal;
use crate::policy::{Limits, Policy};
use crate::requester::{AskOutcome, Way};

/// A decision, as far as it is carried out.
#[derive(Debug)]
pub struct CarryOut<'a> {
    limits: Limits,
    places: &'a HashMap<Key, Place>,
    is_unsaved: bool,
    lost: Vec<Place>,
    is_dropped: bool,
}

/// Who is asked in the end.
#[derive(Debug, PartialEq)]
pub struct Asks {
    pub asks: Vec<(Proposal, Way)>,
    /// They would have to be remembered, or have no place after all.
    pub not_asked: Vec<Proposal>,
    /// There was something to do, which is not tried as it could not be remembered.
    pub is_dropped: bool,
}

impl<'a> CarryOut<'a> {
    /// The places are those of the pods whose requests are withdrawn, by the request.
    pub fn new(limits: Limits, places: &'a HashMap<Key, Place>) -> Self {
        Self { limits, places, is_unsaved: false, lost: Vec::new(), is_dropped: false }
    }

    /// What could not be remembered is not done.
    pub fn not_remembered(&mut self) {
        self.is_unsaved = true;
    }

    /// Whether a request may be withdrawn.
    pub fn may_withdraw(&mut self) -> bool {
        self.is_dropped |= self.is_unsaved;
        !self.is_unsaved
    }

    /// Its pod keeps the place which others were to have.
    pub fn not_withdrawn(&mut self, request: &Key, gives_place: bool) {
        self.lost.extend(self.places.get(request).filter(|_| gives_place).cloned());
    }

    pub fn asks(self, asks: Vec<(Proposal, Way)>) -> Asks {
        let is_dropped = self.is_dropped || (self.is_unsaved && !asks.is_empty());
        let proposals: Vec<&Proposal> = asks.iter().map(|(proposal, _)| proposal).collect();
        let waiting =
            if self.is_unsaved { proposals } else { without_place(&proposals, &self.lost, self.limits) };
        let waiting: HashSet<String> = waiting.into_iter().map(|proposal| proposal.pod.uid.clone()).collect();
        let (not_asked, asks): (Vec<_>, Vec<_>) =
            asks.into_iter().partition(|(proposal, _)| waiting.contains(&proposal.pod.uid));
        let not_asked = not_asked.into_iter().map(|(proposal, _)| proposal).collect();
        Asks { asks, not_asked, is_dropped }
    }
}

/// What came of all cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CarriedOut {
    /// Pods that were asked, and requests that were withdrawn.
    pub done: usize,
    pub failed: usize,
}

impl CarriedOut {
    pub fn asked(&mut self, outcome: &AskOutcome) {
        match outcome {
            AskOutcome::Refused | AskOutcome::Unknown => self.failed += 1,
            AskOutcome::Requested
            | AskOutcome::ByOthers
            | AskOutcome::Evicted
            | AskOutcome::InBackground
            | AskOutcome::Gone => self.done += 1,
        }
    }

    pub fn withdrawn(&mut self, done: usize, failed: usize) {
        self.done += done;
        self.failed += failed;
    }

    /// There was something to do, which was not tried, or of which nobody knows what came of it.
    pub fn dropped(&mut self) {
        self.failed += 1;
    }
}

impl AskOutcome {
    /// Others may have the place of the pod in the same cycle: it stays. One of which nobody knows may be leaving.
    pub fn gives_place(&self) -> bool {
        *self == Self::Refused
    }

    /// What a refusal of the eviction API means. It is no refusal where somebody moves the pod in the background, and after a failure
    /// within the server the pod may have been evicted all the same.
    pub fn of_refusal(refusal: &Refusal, in_background: bool, policy: &Policy) -> Self {
        match refusal {
            refusal if in_background && is_promise(refusal, policy) => Self::InBackground,
            Refusal::Server { code: 500.., .. } => Self::Unknown,
            _ => Self::Refused,
        }
    }

    /// What it means that a call failed. Where nobody knows what came of it, the pod may have been asked all the same.
    pub fn of_failure(may_be_done: bool) -> Self {
        if may_be_done { Self::Unknown } else { Self::Refused }
    }
}

const DENIED: &str = " denied the request: ";

/// The refusal says that the eviction goes on in the background: with the code that asks to come back later, and in words that are known.
fn is_promise(refusal: &Refusal, policy: &Policy) -> bool {
    let Refusal::Webhook { code: 429, message } = refusal else { return false };
    // The server says which webhook it was first.
    let said = message.split_once(DENIED).map_or(message.as_str(), |(_, said)| said);
    policy.eviction_message_prefixes.iter().any(|prefix| said.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PodRef, Reason};
    use crate::policy::PluginName;

    fn ask(name: &str) -> (Proposal, Way) {
        let text = |text: &str| text.to_owned();
        let proposal = Proposal {
            pod: PodRef { namespace: text("shop"), name: text(name), uid: text(name), node: text("n-1") },
            profile: text("p"),
            plugin: PluginName::RemoveFailedPods,
            reason: Reason::Failed { reason: None },
            fits_on: None,
            owner: None,
        };
        (proposal, Way::Request)
    }

    fn names(asks: &Asks) -> (Vec<&str>, Vec<&str>, bool) {
        let asked = asks.asks.iter().map(|(proposal, _)| proposal.pod.name.as_str()).collect();
        let not_asked = asks.not_asked.iter().map(|proposal| proposal.pod.name.as_str()).collect();
        (asked, not_asked, asks.is_dropped)
    }

    #[test]
    fn what_is_not_remembered_is_neither_withdrawn_nor_asked() {
        let places = HashMap::new();
        let mut remembered = CarryOut::new(Limits::default(), &places);
        assert!(remembered.may_withdraw());
        assert_eq!(names(&remembered.asks(vec![ask("a"), ask("b")])), (vec!["a", "b"], vec![], false));

        let mut forgotten = CarryOut::new(Limits::default(), &places);
        forgotten.not_remembered();
        assert_eq!(names(&forgotten.asks(vec![ask("a")])), (vec![], vec!["a"], true));

        let mut forgotten = CarryOut::new(Limits::default(), &places);
        forgotten.not_remembered();
        assert!(!forgotten.may_withdraw());
        assert_eq!(names(&forgotten.asks(vec![])), (vec![], vec![], true));

        let mut nothing = CarryOut::new(Limits::default(), &places);
        nothing.not_remembered();
        assert_eq!(names(&nothing.asks(vec![])), (vec![], vec![], false), "there was nothing to do");
    }

    #[test]
    fn who_was_to_have_the_place_of_a_request_that_stays_is_not_asked() {
        let key = Key::new("shop", "r");
        let place = Place { namespace: "shop".to_owned(), node: Some("n-1".to_owned()) };
        let (places, limits) =
            ([(key.clone(), place)].into(), Limits { per_node: Some(2), ..Limits::default() });
        for (gives_place, wanted) in
            [(true, (vec!["a"], vec!["b"], false)), (false, (vec!["a", "b"], vec![], false))]
        {
            let mut carry_out = CarryOut::new(limits, &places);
            carry_out.not_withdrawn(&key, gives_place);
            assert_eq!(names(&carry_out.asks(vec![ask("a"), ask("b")])), wanted);
        }
    }

    #[test]
    fn only_a_refusal_with_a_known_text_is_a_promise() {
        let policy = Policy::read(
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nevictionMessagePrefixes: [Migration begun]\n",
        )
        .unwrap();
        let webhook = |code: u16, text: &str| Refusal::Webhook {
            code,
            message: format!("admission webhook \"v.example.com\" denied the request: {text}"),
        };
        let begun = webhook(429, "Migration begun for vm-1");
        let server = |code| Refusal::Server { code, message: "no".to_owned() };
        for (refusal, in_background, wanted) in [
            (begun.clone(), true, AskOutcome::InBackground),
            (begun, false, AskOutcome::Refused),
            (webhook(429, "no Migration begun"), true, AskOutcome::Refused),
            (webhook(403, "Migration begun, and may not be"), true, AskOutcome::Refused),
            (Refusal::Budget { message: "Migration begun".to_owned() }, true, AskOutcome::Refused),
            (server(500), true, AskOutcome::Unknown),
            (server(422), true, AskOutcome::Refused),
        ] {
            assert_eq!(AskOutcome::of_refusal(&refusal, in_background, &policy), wanted, "{refusal:?}");
        }
    }

    #[test]
    fn who_had_no_answer_was_not_asked_and_gives_no_place_to_others() {
        for (outcome, wanted) in [
            (AskOutcome::Requested, (1, 0, false)),
            (AskOutcome::ByOthers, (1, 0, false)),
            (AskOutcome::Evicted, (1, 0, false)),
            (AskOutcome::InBackground, (1, 0, false)),
            (AskOutcome::Gone, (1, 0, false)),
            (AskOutcome::Refused, (0, 1, true)),
            (AskOutcome::Unknown, (0, 1, false)),
        ] {
            let mut carried_out = CarriedOut::default();
            carried_out.asked(&outcome);
            let CarriedOut { done, failed } = carried_out;
            assert_eq!((done, failed, outcome.gives_place()), wanted, "{outcome:?}");
        }
        let mut carried_out = CarriedOut { done: 1, failed: 1 };
        carried_out.withdrawn(2, 3);
        carried_out.dropped();
        assert_eq!(carried_out, CarriedOut { done: 3, failed: 5 });
    }

    #[test]
    fn who_had_no_answer_may_have_been_asked() {
        assert_eq!(AskOutcome::of_failure(false), AskOutcome::Refused);
        assert_eq!(AskOutcome::of_failure(true), AskOutcome::Unknown);
    }
}
