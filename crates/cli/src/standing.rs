//! Where a request stands, as `usher-decide` sees it, in the few words that fit into a line.

use jiff::Timestamp;
use serde::Serialize;
use usher_decide::decision::{Decision, Effect};
use usher_decide::eviction_request::{Attempt, BLOCKED_CONDITION, Case, Refusal, Target, Turn, decide, turn};
use usher_decide::snapshot::{Budget, Pod, Request};
use usher_decide::waiting_on::{Unevictable, WaitingOn};

use crate::span;
use crate::world::World;

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Waits {
    On(WaitingOn),
    /// The status tells of a refusal; when it is tried again is known to the manager alone.
    Refused(Refusal),
    /// Nobody stands in the way: the manager has something to do.
    Manager(Due),
    /// Nothing is left to be done.
    Nothing,
}

/// What the manager is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
pub enum Due {
    GiveTurn,
    Evict,
    EndRequest,
    /// Write down what is waited for.
    Report,
}

/// Where a request stands.
#[derive(Debug, Clone)]
pub struct Standing {
    pub waits: Waits,
    /// What the manager is to do, whoever else is waited for.
    pub due: Option<Due>,
    /// When the passing of time alone may change it.
    pub recheck_at: Option<Timestamp>,
}

impl Standing {
    /// `attempt` is the last eviction that the status tells of, where its time is known.
    pub fn of(
        request: &Request,
        pod: Option<&Pod>,
        budgets: &[&Budget],
        attempt: Option<&Attempt>,
        now: Timestamp,
    ) -> Self {
        // With room in the budget the manager decides whose it is; here it is enough that there is some.
        let granted = budgets.iter().all(|budget| budget.allowed > 0);
        let target = pod.map_or(Target::Gone, Target::Found);
        let decision = decide(&Case { request, pod: target, budgets, attempt, granted }, now);
        let (due, recheck_at) = (due(&decision), decision.recheck_at);
        let waits = match (decision.waiting_on, due) {
            (Some(waiting_on), _) => Waits::On(waiting_on),
            (None, Some(Due::Evict)) => match recorded_refusal(request) {
                // Whether a budget still refuses is seen in the budget itself.
                Some(refusal) if !matches!(refusal, Refusal::Budget { .. }) => Waits::Refused(refusal),
                _ => Waits::Manager(Due::Evict),
            },
            (None, Some(due)) => Waits::Manager(due),
            (None, None) => Waits::Nothing,
        };
        Self { waits, due, recheck_at }
    }

    pub fn in_world(world: &World, request: &Request, now: Timestamp) -> Self {
        let pod = world.pod_of(request);
        let budgets = pod.map(|pod| world.budgets_of(pod)).unwrap_or_default();
        Self::of(request, pod, &budgets, None, now)
    }
}

fn due(decision: &Decision) -> Option<Due> {
    decision.effects.iter().find_map(|effect| match effect {
        Effect::Evict => Some(Due::Evict),
        Effect::Delete | Effect::KeepFinalizers(_) => Some(Due::EndRequest),
        Effect::WriteStatus(_) if decision.waiting_on.is_some() => Some(Due::Report),
        Effect::WriteStatus(_) => Some(Due::GiveTurn),
        Effect::LookUpPod | Effect::Confirm | Effect::Tell(_) => None,
    })
}

/// The refusal that the status tells of.
pub fn recorded_refusal(request: &Request) -> Option<Refusal> {
    let condition = request.condition(BLOCKED_CONDITION).filter(|condition| condition.status == "True")?;
    Refusal::from_reason(&condition.reason, &condition.message)
}

/// `db.example.com (2/3)`, or `eviction API` once no interceptor is left.
pub fn turn_text(request: &Request, now: Timestamp) -> String {
    let class = match turn(request, now) {
        Turn::Pass { to, .. } => to.interceptor_class.as_str(),
        Turn::Active { class, .. } => class,
        Turn::Nobody(_) => return "eviction API".to_string(),
        Turn::Unknown { class } => return format!("{class} (unknown)"),
    };
    let position = request.interceptors.iter().position(|one| one.interceptor_class == class);
    format!("{class} ({}/{})", position.map_or(0, |at| at + 1), request.interceptors.len())
}

impl Waits {
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::On(waiting_on) => waiting_on.is_blocked(),
            Self::Refused(_) => true,
            Self::Manager(_) | Self::Nothing => false,
        }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::On(waiting_on) => waiting_on.sentence(),
            Self::Refused(refusal) => refusal.sentence(),
            Self::Manager(Due::GiveTurn) => {
                "the manager is to give the next interceptor its turn".to_string()
            }
            Self::Manager(Due::Evict) => {
                "nothing stands in the way of the eviction; the manager is to do it".to_string()
            }
            Self::Manager(Due::EndRequest) => "all is done; the manager is to remove the request".to_string(),
            Self::Manager(Due::Report) => "the manager is to write down where it stands".to_string(),
            Self::Nothing => "nothing is left to be done".to_string(),
        }
    }

    pub fn advice(&self) -> String {
        match self {
            Self::On(waiting_on) => waiting_on.advice(),
            Self::Refused(refusal) => refusal.advice(),
            Self::Manager(_) => "wait a moment; if it lasts, see whether the manager runs".to_string(),
            Self::Nothing => "nothing".to_string(),
        }
    }

    /// A few words for a column.
    pub fn phrase(&self, now: Timestamp) -> String {
        match self {
            Self::On(waiting_on) => phrase(waiting_on, now),
            Self::Refused(refusal) => refusal_phrase(refusal),
            Self::Manager(Due::GiveTurn) => "manager: next turn".to_string(),
            Self::Manager(Due::Evict) => "manager: eviction".to_string(),
            Self::Manager(Due::EndRequest) => "manager: clean-up".to_string(),
            Self::Manager(Due::Report) => "manager: report".to_string(),
            Self::Nothing => String::new(),
        }
    }
}

fn phrase(waiting_on: &WaitingOn, now: Timestamp) -> String {
    match waiting_on {
        WaitingOn::Interceptor { until, .. } => format!("interceptor, {} left", span::left(*until, now)),
        WaitingOn::Progress { until, .. } => format!("progress, {} left", span::left(*until, now)),
        WaitingOn::Budget { name, allowed, current_healthy, desired_healthy, .. } => {
            format!("budget {name}: {allowed} allowed, {current_healthy} healthy, {desired_healthy} wanted")
        }
        WaitingOn::Refused { refusal, retry_at, .. } => {
            format!("{}, again in {}", refusal_phrase(refusal), span::left(*retry_at, now))
        }
        WaitingOn::Evicted { .. } => "pod, which is evicted".to_string(),
        WaitingOn::Termination { grace_ends, finalizers } => match &finalizers[..] {
            [] if *grace_ends > now => format!("termination, {} left", span::left(*grace_ends, now)),
            [] => format!("termination, {} late", span::age(*grace_ends, now)),
            finalizers => format!("termination, held by {}", finalizers.join(", ")),
        },
        WaitingOn::NotEvictable { pod: Unevictable::DaemonSetPod } => "nobody: DaemonSet pod".to_string(),
        WaitingOn::NotEvictable { pod: Unevictable::MirrorPod } => "nobody: mirror pod".to_string(),
        WaitingOn::Finalizers { names } => format!("finalizer {}", names.join(", ")),
        WaitingOn::PodLookup => "pod lookup".to_string(),
        WaitingOn::InterceptorsNotResolved => "webhook: interceptors not known".to_string(),
        WaitingOn::UnknownInterceptor { class } => format!("unknown interceptor {class}"),
    }
}

fn refusal_phrase(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Budget { .. } => "budget".to_string(),
        Refusal::BudgetNotReady { .. } => "budget, not counted yet".to_string(),
        Refusal::TwoBudgets { names } if names.is_empty() => "two budgets".to_string(),
        Refusal::TwoBudgets { names } => format!("two budgets: {}", names.join(", ")),
        Refusal::Webhook { .. } => "admission webhook".to_string(),
        Refusal::Throttled { .. } => "busy server".to_string(),
        Refusal::NotAllowed { .. } => "missing right".to_string(),
        Refusal::Server { code, .. } => format!("server error {code}"),
    }
}
