//! Why the server did not evict a pod, and when to try again.

use jiff::{SignedDuration, Timestamp};

use super::BLOCKED_CONDITION;
use crate::snapshot::{Budget, Key, Phase, Pod, Request};

// Sentences that are read again by `Refusal::from_reason`.
const TWO_BUDGETS_START: &str = "the disruption budgets ";
const TWO_BUDGETS_END: &str = " all select the pod, and the server evicts no pod that has more than one";
const NOT_ALLOWED_START: &str = "Usher may not evict the pod: ";
const SERVER_START: &str = "the server failed with ";

/// A failed eviction, told apart by what one can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A disruption budget has nothing left.
    Budget { message: String },
    /// The budget's status is behind its spec; the disruption controller has to catch up.
    BudgetNotReady { message: String, retry_after: Option<u32> },
    /// More than one budget speaks for the pod, and the server refuses that always.
    TwoBudgets { names: Vec<String> },
    /// An admission webhook, or a policy, said no.
    Webhook { message: String },
    /// The server has too much to do.
    Throttled { retry_after: Option<u32> },
    /// The account of the manager lacks a right.
    NotAllowed { message: String },
    /// Anything else.
    Server { code: u16, message: String },
}

impl Refusal {
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Budget { .. } => "DisruptionBudget",
            Self::BudgetNotReady { .. } => "DisruptionBudgetNotReady",
            Self::TwoBudgets { .. } => "MoreThanOneDisruptionBudget",
            Self::Webhook { .. } => "AdmissionWebhook",
            Self::Throttled { .. } => "TooManyRequests",
            Self::NotAllowed { .. } => "NotAllowed",
            Self::Server { .. } => "ServerError",
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::Budget { message } if message.is_empty() => {
                "a disruption budget refuses the eviction".to_string()
            }
            Self::Budget { message } | Self::BudgetNotReady { message, .. } => message.clone(),
            Self::TwoBudgets { names } => {
                format!("{TWO_BUDGETS_START}{}{TWO_BUDGETS_END}", names.join(" and "))
            }
            Self::Webhook { message } => message.clone(),
            Self::Throttled { .. } => "the server is too busy to evict the pod now".to_string(),
            Self::NotAllowed { message } => format!("{NOT_ALLOWED_START}{message}"),
            Self::Server { code, message } => format!("{SERVER_START}{code}: {message}"),
        }
    }

    pub fn advice(&self) -> String {
        match self {
            Self::Budget { .. } => {
                "see that the application's other pods become ready, or change its budget".to_string()
            }
            Self::BudgetNotReady { .. } => {
                "wait; if it lasts, see whether the disruption controller runs".to_string()
            }
            Self::TwoBudgets { names } => {
                format!("change the selectors of {} so that one of them is left", names.join(" and "))
            }
            Self::Webhook { .. } => "ask the owner of the webhook; its message says why".to_string(),
            Self::Throttled { .. } => "wait; it is tried again by itself".to_string(),
            Self::NotAllowed { .. } => {
                "restore the ClusterRole of Usher's service account, which is part of its installation"
                    .to_string()
            }
            Self::Server { .. } => "wait; if it lasts, look at the API server".to_string(),
        }
    }

    /// The refusal that a condition with this reason and message tells of, as far as it can be told from them.
    pub fn from_reason(reason: &str, message: &str) -> Option<Self> {
        let owned = || message.to_string();
        Some(match reason {
            "DisruptionBudget" => Self::Budget { message: owned() },
            "DisruptionBudgetNotReady" => Self::BudgetNotReady { message: owned(), retry_after: None },
            "MoreThanOneDisruptionBudget" => {
                let names = message.strip_prefix(TWO_BUDGETS_START)?.strip_suffix(TWO_BUDGETS_END)?;
                Self::TwoBudgets { names: names.split(" and ").map(str::to_string).collect() }
            }
            "AdmissionWebhook" => Self::Webhook { message: owned() },
            "TooManyRequests" => Self::Throttled { retry_after: None },
            "NotAllowed" => {
                Self::NotAllowed { message: message.strip_prefix(NOT_ALLOWED_START)?.to_string() }
            }
            "ServerError" => {
                let (code, message) = message.strip_prefix(SERVER_START)?.split_once(": ")?;
                Self::Server { code: code.parse().ok()?, message: message.to_string() }
            }
            _ => return None,
        })
    }

    /// The pod's budgets were the reason, so that a change of them is worth another try at once.
    pub fn is_about_budgets(&self) -> bool {
        matches!(self, Self::Budget { .. } | Self::BudgetNotReady { .. } | Self::TwoBudgets { .. })
    }

    fn retry_after(&self) -> Option<u32> {
        match self {
            Self::BudgetNotReady { retry_after, .. } | Self::Throttled { retry_after } => *retry_after,
            _ => None,
        }
    }
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
            Self::Refused(refusal) => refusal.reason(),
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
        // The server asks no budget about such pods (rule 2).
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
        let condition = request.condition(BLOCKED_CONDITION).filter(|known| known.status == "True")?;
        let refusal = Refusal::from_reason(&condition.reason, &condition.message)?;
        let cause_is_there = match &refusal {
            Refusal::TwoBudgets { .. } => budgets.len() > 1,
            refusal => !refusal.is_about_budgets() || !budgets.is_empty(),
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
            Answer::Refused(Refusal::BudgetNotReady { .. }) => RECOUNTED_FAILURES,
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

    fn attempt(counter: i32, refusal: Refusal) -> Attempt {
        Attempt { at: Timestamp::UNIX_EPOCH, answer: Answer::Refused(refusal), counter, budgets: Vec::new() }
    }

    #[test]
    fn what_a_condition_tells_can_be_read_again() {
        let message = || "no: not now".to_string();
        for refusal in [
            Refusal::Budget { message: message() },
            Refusal::BudgetNotReady { message: message(), retry_after: None },
            Refusal::TwoBudgets { names: vec!["a".into(), "b".into()] },
            Refusal::Webhook { message: message() },
            Refusal::Throttled { retry_after: None },
            Refusal::NotAllowed { message: message() },
            Refusal::Server { code: 503, message: message() },
        ] {
            assert_eq!(Refusal::from_reason(refusal.reason(), &refusal.sentence()), Some(refusal));
        }
        assert_eq!(Refusal::from_reason("DaemonSetPod", "no"), None);
        assert_eq!(Refusal::from_reason("ServerError", "something else"), None);
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
