//! Why the API server did not evict a pod.

use std::fmt;

/// A failed eviction, told apart by what one can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A disruption budget has nothing left.
    Budget { message: String },
    /// The budget's status is behind its spec; the disruption controller has to catch up.
    BudgetNotReady { message: String, retry_after: Option<u32> },
    /// More than one budget speaks for the pod, and the server refuses that always.
    TwoBudgets { names: Vec<String> },
    /// An admission webhook, or a policy, said no, with a code of its choice.
    Webhook { code: u16, message: String },
    /// The server has too much to do.
    Throttled { retry_after: Option<u32> },
    /// The account of the manager lacks a right.
    NotAllowed { message: String },
    /// Anything else.
    Server { code: u16, message: String },
    /// What a condition tells of an earlier refusal: its kind, and the sentence as it was written.
    Recorded { reason: RefusalReason, sentence: String },
}

/// The kind of a refusal, which conditions and metrics have as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    DisruptionBudget,
    DisruptionBudgetNotReady,
    MoreThanOneDisruptionBudget,
    AdmissionWebhook,
    TooManyRequests,
    NotAllowed,
    ServerError,
}

impl RefusalReason {
    pub const ALL: [Self; 7] = [
        Self::DisruptionBudget,
        Self::DisruptionBudgetNotReady,
        Self::MoreThanOneDisruptionBudget,
        Self::AdmissionWebhook,
        Self::TooManyRequests,
        Self::NotAllowed,
        Self::ServerError,
    ];

    /// The word in `reason` of a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DisruptionBudget => "DisruptionBudget",
            Self::DisruptionBudgetNotReady => "DisruptionBudgetNotReady",
            Self::MoreThanOneDisruptionBudget => "MoreThanOneDisruptionBudget",
            Self::AdmissionWebhook => "AdmissionWebhook",
            Self::TooManyRequests => "TooManyRequests",
            Self::NotAllowed => "NotAllowed",
            Self::ServerError => "ServerError",
        }
    }

    /// `None`: a condition with this reason tells of something else.
    pub fn of_condition(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == reason)
    }

    /// The pod's budgets were the reason, so that a change of them is worth another try at once.
    pub fn is_about_budgets(self) -> bool {
        matches!(
            self,
            Self::DisruptionBudget | Self::DisruptionBudgetNotReady | Self::MoreThanOneDisruptionBudget
        )
    }
}

impl Refusal {
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::Budget { .. } => RefusalReason::DisruptionBudget,
            Self::BudgetNotReady { .. } => RefusalReason::DisruptionBudgetNotReady,
            Self::TwoBudgets { .. } => RefusalReason::MoreThanOneDisruptionBudget,
            Self::Webhook { .. } => RefusalReason::AdmissionWebhook,
            Self::Throttled { .. } => RefusalReason::TooManyRequests,
            Self::NotAllowed { .. } => RefusalReason::NotAllowed,
            Self::Server { .. } => RefusalReason::ServerError,
            Self::Recorded { reason, .. } => *reason,
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::Budget { message } if message.is_empty() => {
                "a disruption budget refuses the eviction".to_string()
            }
            Self::Budget { message } | Self::BudgetNotReady { message, .. } => message.clone(),
            Self::TwoBudgets { names } => {
                format!(
                    "the disruption budgets {} all select the pod, and the server evicts no pod that has more than one",
                    names.join(" and ")
                )
            }
            Self::Webhook { message, .. } => message.clone(),
            Self::Throttled { .. } => "the server is too busy to evict the pod now".to_string(),
            Self::NotAllowed { message } => format!("Usher may not evict the pod: {message}"),
            Self::Server { code, message } => format!("the server failed with {code}: {message}"),
            Self::Recorded { sentence, .. } => sentence.clone(),
        }
    }

    pub fn advice(&self) -> String {
        let advice = match self.reason() {
            RefusalReason::DisruptionBudget => {
                "see that the application's other pods become ready, or change its budget"
            }
            RefusalReason::DisruptionBudgetNotReady => {
                "wait; if it lasts, see whether the disruption controller runs"
            }
            RefusalReason::MoreThanOneDisruptionBudget => {
                let names = match self {
                    Self::TwoBudgets { names } => names.join(" and "),
                    _ => "these budgets".to_string(),
                };
                return format!("change the selectors of {names} so that one of them is left");
            }
            RefusalReason::AdmissionWebhook => "ask the owner of the webhook or policy; its message says why",
            RefusalReason::TooManyRequests => "wait; it is tried again by itself",
            RefusalReason::NotAllowed => {
                "restore the ClusterRole of Usher's service account, which is part of its installation"
            }
            RefusalReason::ServerError => "wait; if it lasts, look at the API server",
        };
        advice.to_string()
    }

    /// The names of the budgets that are too many.
    pub fn budgets(&self) -> &[String] {
        match self {
            Self::TwoBudgets { names } => names,
            _ => &[],
        }
    }

    pub fn is_about_budgets(&self) -> bool {
        self.reason().is_about_budgets()
    }

    /// In how many seconds the server wants to be asked again.
    pub fn retry_after(&self) -> Option<u32> {
        match self {
            Self::BudgetNotReady { retry_after, .. } | Self::Throttled { retry_after } => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Whoever asked.
            Self::NotAllowed { message } => write!(f, "the eviction is not allowed: {message}"),
            other => f.write_str(&other.sentence()),
        }
    }
}

impl std::error::Error for Refusal {}
