//! Where a request stands, in words: `usher-decide` says what is waited for ([`RequestState`]), and here it is told.

use jiff::Timestamp;
use serde::Serialize;
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};
use usher_decide::eviction_request::{Refusal, RefusalReason, Turn, turn};
use usher_decide::maintenance::waiting::{NodeWait, PodWait};
use usher_decide::snapshot::Request;
use usher_decide::waiting_on::{Unevictable, WaitingOn};
use usher_forecast::request_state::{ManagerStep, RequestState, RequestWait};

use crate::error::MANAGER_PODS;
use crate::span;
use crate::world::World;

/// What is waited for as machines read it: the same fields wherever it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingOnFacts {
    pub kind: &'static str,
    /// More closely, as in the reason of a condition.
    pub reason: &'static str,
    pub is_blocked: bool,
    /// Of the interceptor, the budgets or the finalizers.
    pub names: Vec<String>,
}

impl WaitingOnFacts {
    /// Of a pod that the drain of its node has not asked to leave.
    pub fn of_pod(wait: &PodWait) -> Self {
        let kind = match wait {
            PodWait::Request | PodWait::CameBack { .. } => "Manager",
            PodWait::LaterWave { .. } | PodWait::LaterInPlan { .. } => "DrainPlan",
        };
        Self { kind, reason: wait.reason(), is_blocked: false, names: Vec::new() }
    }

    /// Of a node that is to be cordoned.
    pub fn of_node(wait: &NodeWait) -> Self {
        Self { kind: "Cordon", reason: wait.reason(), is_blocked: false, names: Vec::new() }
    }
}

/// Where a request stands in what is known.
pub fn state_in(world: &World, request: &Request, now: Timestamp) -> RequestState {
    let pod = world.pod_of(request);
    let budgets = pod.map_or(Some(Vec::new()), |pod| world.budgets_of(pod));
    RequestState::of(request, pod, budgets.as_deref(), None, now)
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

/// What is waited for, in words.
pub trait WaitText {
    fn facts(&self) -> WaitingOnFacts;
    fn sentence(&self) -> String;
    fn advice(&self) -> String;
    /// What whoever has its turn says of it.
    fn said(&self) -> Option<&str>;
    /// A few words for a column.
    fn phrase(&self, now: Timestamp) -> String;
}

impl WaitText for RequestWait {
    fn facts(&self) -> WaitingOnFacts {
        let (kind, reason, names) = match self {
            Self::On(waiting_on) => (kind(waiting_on), waiting_on.reason(), waiting_on.names()),
            Self::Refused(refusal) => ("Refused", refusal.reason().as_str(), refusal.budgets().to_vec()),
            Self::Manager(step) => ("Manager", step.as_str(), Vec::new()),
            Self::HiddenBudgets => ("HiddenBudgets", "Forbidden", Vec::new()),
            Self::Nothing => ("Nothing", "Done", Vec::new()),
        };
        WaitingOnFacts { kind, reason, is_blocked: self.is_blocked(), names }
    }

    fn sentence(&self) -> String {
        match self {
            Self::On(waiting_on) => waiting_on.sentence(),
            Self::Refused(refusal) => refusal.sentence(),
            Self::Manager(ManagerStep::GiveTurn) => {
                "the manager has to give the next interceptor its turn".to_string()
            }
            Self::Manager(ManagerStep::Evict) => "nothing is in the way; the manager has to evict the pod".to_string(),
            Self::Manager(ManagerStep::EndRequest) => "done; the manager has to remove the request".to_string(),
            Self::Manager(ManagerStep::Report) => "the manager has to update the status".to_string(),
            Self::Manager(ManagerStep::Intercept) => "the manager has its turn as an interceptor".to_string(),
            Self::HiddenBudgets => {
                "eviction is next; whether a disruption budget is in the way is not known, as you may not list them"
                    .to_string()
            }
            Self::Nothing => "nothing; it is done".to_string(),
        }
    }

    fn advice(&self) -> String {
        match self {
            Self::On(waiting_on) => waiting_on.advice(),
            Self::Refused(refusal) => refusal.advice(),
            Self::Manager(_) => {
                format!("wait a moment; if it lasts, check that the manager runs: {MANAGER_PODS}")
            }
            Self::HiddenBudgets => {
                "wait; to see more, ask for permission to list poddisruptionbudgets".to_string()
            }
            Self::Nothing => "nothing".to_string(),
        }
    }

    fn said(&self) -> Option<&str> {
        match self {
            Self::On(waiting_on) => waiting_on.said(),
            Self::Refused(_) | Self::Manager(_) | Self::HiddenBudgets | Self::Nothing => None,
        }
    }

    fn phrase(&self, now: Timestamp) -> String {
        match self {
            Self::On(waiting_on) => phrase(waiting_on, now),
            Self::Refused(refusal) => refusal_phrase(refusal),
            Self::Manager(ManagerStep::GiveTurn) => "manager: next interceptor".to_string(),
            Self::Manager(ManagerStep::Evict) => "manager: eviction".to_string(),
            Self::Manager(ManagerStep::EndRequest) => "manager: clean-up".to_string(),
            Self::Manager(ManagerStep::Report) => "manager: status".to_string(),
            Self::Manager(ManagerStep::Intercept) => "manager: interceptor".to_string(),
            Self::HiddenBudgets => "budgets you may not list".to_string(),
            Self::Nothing => String::new(),
        }
    }
}

fn phrase(waiting_on: &WaitingOn, now: Timestamp) -> String {
    match waiting_on {
        WaitingOn::Interceptor { class, until, .. } => {
            let who = match class.as_str() {
                DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS => "its Deployment",
                // It gives up long before the deadline.
                REPLICA_SET_CLASS => return "its ReplicaSet".to_string(),
                _ => "interceptor",
            };
            format!("{who}, {} left", span::left(*until, now))
        }
        WaitingOn::Budget { name, rule, expected_pods, .. } if rule.keeps_all(*expected_pods) => {
            format!("budget {name}: {rule} of {expected_pods}")
        }
        WaitingOn::Budget { name, allowed, current_healthy, expected_pods, .. } => {
            format!("budget {name}: {allowed} allowed, {current_healthy}/{expected_pods} ready")
        }
        WaitingOn::TurnAtBudget { name } => format!("budget {name}: others go first"),
        WaitingOn::Refused { refusal, retry_at, .. } => {
            format!("{}, retry in {}", refusal_phrase(refusal), span::left(*retry_at, now))
        }
        WaitingOn::Evicted { .. } => "termination".to_string(),
        WaitingOn::Termination { grace_ends, finalizers } => match &finalizers[..] {
            [] if *grace_ends > now => format!("termination, {} left", span::left(*grace_ends, now)),
            [] => format!("termination, {}", span::eta(*grace_ends, now)),
            finalizers => format!("termination, held by {}", finalizers.join(", ")),
        },
        WaitingOn::NotEvictable { pod: Unevictable::DaemonSetPod } => {
            "never evicted: DaemonSet pod".to_string()
        }
        WaitingOn::NotEvictable { pod: Unevictable::DaemonSetStays } => {
            "stays: its DaemonSet opted out".to_string()
        }
        WaitingOn::NotEvictable { pod: Unevictable::MirrorPod } => "never evicted: static pod".to_string(),
        WaitingOn::Finalizers { names } => format!("finalizer {}", names.join(", ")),
        WaitingOn::PodLookup => "pod lookup".to_string(),
        WaitingOn::InterceptorsNotResolved => "webhook: interceptors not known".to_string(),
        WaitingOn::UnknownInterceptor { class } => format!("unknown interceptor {class}"),
    }
}

fn kind(waiting_on: &WaitingOn) -> &'static str {
    match waiting_on {
        WaitingOn::Interceptor { .. } => "Interceptor",
        WaitingOn::Budget { .. } | WaitingOn::TurnAtBudget { .. } => "Budget",
        WaitingOn::Refused { .. } => "Refused",
        WaitingOn::Evicted { .. } => "Evicted",
        WaitingOn::Termination { .. } => "Termination",
        WaitingOn::NotEvictable { .. } => "NotEvictable",
        WaitingOn::Finalizers { .. } => "Finalizers",
        WaitingOn::PodLookup => "PodLookup",
        WaitingOn::InterceptorsNotResolved => "InterceptorsNotResolved",
        WaitingOn::UnknownInterceptor { .. } => "UnknownInterceptor",
    }
}

fn refusal_phrase(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TwoBudgets { names } if !names.is_empty() => {
            return format!("two budgets: {}", names.join(", "));
        }
        Refusal::Server { code, .. } => return format!("server error {code}"),
        _ => {}
    }
    let phrase = match refusal.reason() {
        RefusalReason::DisruptionBudget => "budget",
        RefusalReason::DisruptionBudgetNotReady => "budget, not counted yet",
        RefusalReason::MoreThanOneDisruptionBudget => "two budgets",
        RefusalReason::AdmissionWebhook => "admission webhook",
        RefusalReason::TooManyRequests => "busy API server",
        RefusalReason::NotAllowed => "missing permission",
        RefusalReason::ServerError => "server error",
    };
    phrase.to_string()
}
