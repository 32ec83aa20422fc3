//! Why the server did not evict a pod, and when to try again.

use jiff::{SignedDuration, Timestamp};
use usher_api::{Refusal, RefusalReason};

use super::BLOCKED_CONDITION;
use crate::snapshot::{Budget, Key, Phase, Pod, Request};

/// The refusal that the status of a request tells of. `budgets` are the names of those that select the pod, as far as they are known.
pub fn recorded_refusal(request: &Request, budgets: &[&str]) -> Option<Refusal> {
    let condition = request.condition(BLOCKED_CONDITION).filter(|known| known.status == "True")?;
    let reason = RefusalReason::of_condition(&condition.reason)?;
    Some(match (reason, budgets) {
        (RefusalReason::MoreThanOneDisruptionBudget, [_, _, ..]) => {
            Refusal::TwoBudgets { names: budgets.iter().map(|name| (*name).to_string()).collect() }
        }
        _ => Refusal::Recorded { reason, sentence: condition.message.clone() },
    })
}

/// The longest pause between two attempts.
pub const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(15);

/// So many failures count for the back-off after a failover: 2^7 seconds.
const REMEMBERED_FAILURES: i32 = 7;
/// A budget that is counted again soon is not waited for longer than some seconds: 2^4.
const RECOUNTED_FAILURES: u32 = 4;

/// An accepted eviction shows in the pod at once. If it does not for so many seconds, it is tried again.
const ACCEPTED_PATIENCE: u32 = 30;

/// What the server said to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Refused(Refusal),
}

impl Answer {
    /// One word, for logs and labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Refused(refusal) => refusal.reason().as_str(),
        }
    }
}

/// A budget that selects the pod, and whether it lets the pod pass without taking anything from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectingBudget {
    pub key: Key,
    pub lets_pass: bool,
}

impl SelectingBudget {
    pub fn all(budgets: &[&Budget], pod: &Pod) -> Vec<Self> {
        // The server asks no budget about such pods (rule 2 of `docs/eviction-rules.md`).
        let are_asked = pod.phase != Phase::Pending && !pod.phase.is_terminal();
        let selecting = budgets.iter().filter(|budget| are_asked && budget.selects(pod));
        selecting.map(|budget| Self { key: budget.key.clone(), lets_pass: budget.lets_pass(pod) }).collect()
    }
}

/// The last attempt to evict a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub at: Timestamp,
    pub answer: Answer,
    /// `status.failedAPIEvictionCounter` at that time: the failure is counted once it is higher.
    pub counter: i32,
    /// The budgets that selected the pod then.
    pub budgets: Vec<SelectingBudget>,
}

impl Attempt {
    /// The last failure that the status of a request tells of, as if it had happened now: whoever takes over from another
    /// manager waits as that one would have, but for two minutes at most, so that restarts hold nobody up for ever.
    pub fn remembered(request: &Request, budgets: Vec<SelectingBudget>, now: Timestamp) -> Option<Self> {
        let names: Vec<&str> = budgets.iter().map(|budget| &*budget.key.name).collect();
        let refusal = recorded_refusal(request, &names)?;
        let cause_is_there = match refusal.reason() {
            RefusalReason::MoreThanOneDisruptionBudget => budgets.len() > 1,
            reason => !reason.is_about_budgets() || !budgets.is_empty(),
        };
        let failures = request.status.failed_api_eviction_counter;
        (failures > 0 && cause_is_there).then(|| Self {
            at: now,
            answer: Answer::Refused(refusal),
            counter: (failures - 1).min(REMEMBERED_FAILURES),
            budgets,
        })
    }

    /// Why it was refused. More than one budget is told by what selected the pod: the server's answer has no field for it.
    pub fn refusal(&self) -> Option<Refusal> {
        let Answer::Refused(given) = &self.answer else { return None };
        Some(match &self.budgets[..] {
            [_, _, ..] if matches!(given, Refusal::Server { code: 500, .. }) => Refusal::TwoBudgets {
                names: self.budgets.iter().map(|budget| budget.key.name.to_string()).collect(),
            },
            _ => given.clone(),
        })
    }

    /// Twice as long after every failure that was counted, up to a quarter of an hour, and never earlier than the
    /// server asked for. Who waits is spread by his UID, so that not all come back at once.
    pub fn retry_at(&self, uid: &str) -> Timestamp {
        let asked = match &self.answer {
            Answer::Refused(refusal) => refusal.retry_after().unwrap_or(0),
            Answer::Accepted => ACCEPTED_PATIENCE,
        };
        let most = match &self.answer {
            Answer::Refused(refusal) if refusal.reason() == RefusalReason::DisruptionBudgetNotReady => {
                RECOUNTED_FAILURES
            }
            _ => 10,
        };
        let exponent = u32::try_from(self.counter.max(0)).unwrap_or(0).min(most);
        let pause = SignedDuration::from_secs(1 << exponent).min(LONGEST_PAUSE);
        let asked = SignedDuration::from_secs(asked.into());
        let pause = pause.max(asked.min(LONGEST_PAUSE));
        let spread =
            uid.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 100;
        let extra = pause.as_millis() / 10 * i128::from(spread) / 100;
        let pause = pause + SignedDuration::from_millis(i64::try_from(extra).unwrap_or(0));
        self.at.checked_add(pause).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::RequestOnWire;
    use serde_json::json;

    fn attempt(counter: i32, refusal: Refusal) -> Attempt {
        Attempt { at: Timestamp::UNIX_EPOCH, answer: Answer::Refused(refusal), counter, budgets: Vec::new() }
    }

    fn blocked(reason: &str, message: &str) -> Request {
        let condition = json!({
            "type": BLOCKED_CONDITION, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let request = json!({
            "metadata": {"name": "u", "namespace": "shop", "uid": "r"},
            "spec": {"podRef": {"name": "web", "uid": "u"}}, "status": {"conditions": [condition]},
        });
        Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
    }

    #[test]
    fn what_a_condition_tells_is_told_apart_by_its_reason_whatever_its_message_says() {
        for reason in RefusalReason::ALL {
            let recorded = recorded_refusal(&blocked(reason.as_str(), "in other words"), &[]).unwrap();
            assert_eq!((recorded.reason(), recorded.sentence().as_str()), (reason, "in other words"));
            assert!(!recorded.advice().is_empty());
        }
        assert_eq!(recorded_refusal(&blocked("DaemonSetPod", "no"), &[]), None);
        let two = blocked("MoreThanOneDisruptionBudget", "in other words");
        let names = vec!["a".to_string(), "b".to_string()];
        assert_eq!(recorded_refusal(&two, &["a", "b"]), Some(Refusal::TwoBudgets { names }));
    }

    #[test]
    fn the_back_off_doubles_up_to_about_15_minutes() {
        let pause = |counter| {
            let attempt = attempt(counter, Refusal::Budget { message: String::new() });
            attempt.retry_at("").as_second()
        };
        let pauses: Vec<i64> = (0..12).map(pause).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn the_server_may_ask_for_a_longer_pause_and_the_spread_is_at_most_a_tenth() {
        let throttled = attempt(0, Refusal::Throttled { retry_after: Some(30) });
        assert_eq!(throttled.retry_at("").as_second(), 30);
        for uid in ["a", "b", "0f9c", "77777777-0000"] {
            let at = throttled.retry_at(uid).as_millisecond();
            assert!((30_000..=33_000).contains(&at), "{at}");
        }
    }
}
