//! Where a request stands, as `usher-decide` sees it, in the few words that fit into a line.

use jiff::Timestamp;
use serde::Serialize;
use usher_api::workloads::Strategy;
use usher_decide::decision::Effect;
use usher_decide::eviction_request::{
    Attempt, BLOCKED_CONDITION, Case, Decision, Refusal, Target, Turn, decide, turn,
};
use usher_decide::snapshot::{Budget, Pod, Request};
use usher_decide::waiting_on::{Unevictable, WaitingOn};

use crate::error::MANAGER_PODS;
use crate::span;
use crate::world::World;

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    On(WaitingOn),
    /// The status tells of a refusal; when it is tried again is known to the manager alone.
    Refused(Refusal),
    /// Nobody stands in the way: the manager has something to do.
    Manager(Due),
    /// The eviction is next, unless a disruption budget is in the way: they may not be read.
    HiddenBudgets,
    /// Nothing is left to be done.
    Nothing,
}

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

/// What the manager is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    /// `budgets` are those of the pod, if they may be read. `attempt` is the last eviction that the status tells of, where its time is
    /// known.
    pub fn of(
        request: &Request,
        pod: Option<&Pod>,
        budgets: Option<&[&Budget]>,
        attempt: Option<&Attempt>,
        now: Timestamp,
    ) -> Self {
        let are_hidden = budgets.is_none();
        let budgets = budgets.unwrap_or_default();
        // With room in the budget the manager decides whose it is; here it is enough that there is some.
        let mut has_room = budgets.iter().all(|budget| budget.allowed > 0);
        let target = pod.map_or(Target::Gone, Target::Found);
        // Who the pod belongs to, and what the manager was told, is taken as it is said.
        let (daemon_set, interceptors_limit) = (Some(Strategy::Default), None);
        let case = Case { request, pod: target, budgets, attempt, daemon_set, interceptors_limit };
        let decision = decide(&case, &mut has_room, now);
        let (due, recheck_at) = (due(&decision), decision.recheck_at);
        let waits = match (decision.waiting_on, due) {
            (Some(waiting_on), _) => Waits::On(waiting_on),
            (None, Some(Due::Evict)) => match recorded_refusal(request) {
                // Whether a budget still refuses is seen in the budget itself.
                Some(refusal) if are_hidden || !matches!(refusal, Refusal::Budget { .. }) => {
                    Waits::Refused(refusal)
                }
                _ if are_hidden => Waits::HiddenBudgets,
                _ => Waits::Manager(Due::Evict),
            },
            (None, Some(due)) => Waits::Manager(due),
            (None, None) => Waits::Nothing,
        };
        Self { waits, due, recheck_at }
    }

    pub fn in_world(world: &World, request: &Request, now: Timestamp) -> Self {
        let pod = world.pod_of(request);
        let budgets = pod.map_or(Some(Vec::new()), |pod| world.budgets_of(pod));
        Self::of(request, pod, budgets.as_deref(), None, now)
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
            Self::Manager(_) | Self::HiddenBudgets | Self::Nothing => false,
        }
    }

    pub fn facts(&self) -> WaitingOnFacts {
        let (kind, reason, names) = match self {
            Self::On(waiting_on) => {
                let (kind, names) = kind(waiting_on);
                (kind, waiting_on.reason(), names)
            }
            Self::Refused(refusal) => ("Refused", refusal.reason(), names(refusal)),
            Self::Manager(due) => ("Manager", due.reason(), Vec::new()),
            Self::HiddenBudgets => ("HiddenBudgets", "Forbidden", Vec::new()),
            Self::Nothing => ("Nothing", "Done", Vec::new()),
        };
        WaitingOnFacts { kind, reason, is_blocked: self.is_blocked(), names }
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::On(waiting_on) => waiting_on.sentence(),
            Self::Refused(refusal) => refusal.sentence(),
            Self::Manager(Due::GiveTurn) => {
                "the manager has to give the next interceptor its turn".to_string()
            }
            Self::Manager(Due::Evict) => "nothing is in the way; the manager has to evict the pod".to_string(),
            Self::Manager(Due::EndRequest) => "done; the manager has to remove the request".to_string(),
            Self::Manager(Due::Report) => "the manager has to update the status".to_string(),
            Self::HiddenBudgets => {
                "eviction is next; whether a disruption budget is in the way is not known, as you may not list them"
                    .to_string()
            }
            Self::Nothing => "nothing; it is done".to_string(),
        }
    }

    pub fn advice(&self) -> String {
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

    /// A few words for a column.
    pub fn phrase(&self, now: Timestamp) -> String {
        match self {
            Self::On(waiting_on) => phrase(waiting_on, now),
            Self::Refused(refusal) => refusal_phrase(refusal),
            Self::Manager(Due::GiveTurn) => "manager: next interceptor".to_string(),
            Self::Manager(Due::Evict) => "manager: eviction".to_string(),
            Self::Manager(Due::EndRequest) => "manager: clean-up".to_string(),
            Self::Manager(Due::Report) => "manager: status".to_string(),
            Self::HiddenBudgets => "budgets you may not list".to_string(),
            Self::Nothing => String::new(),
        }
    }
}

fn phrase(waiting_on: &WaitingOn, now: Timestamp) -> String {
    match waiting_on {
        WaitingOn::Interceptor { until, .. } => format!("interceptor, {} left", span::left(*until, now)),
        WaitingOn::Budget { name, rule, expected_pods, .. } if rule.keeps_all(*expected_pods) => {
            format!("budget {name}: {rule} of {expected_pods}")
        }
        WaitingOn::Budget { name, allowed, current_healthy, expected_pods, .. } => {
            format!("budget {name}: {allowed} allowed, {current_healthy}/{expected_pods} ready")
        }
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

/// What it is, and who.
fn kind(waiting_on: &WaitingOn) -> (&'static str, Vec<String>) {
    match waiting_on {
        WaitingOn::Interceptor { class, .. } => ("Interceptor", vec![class.clone()]),
        WaitingOn::Budget { name, .. } => ("Budget", vec![name.clone()]),
        WaitingOn::Refused { refusal, .. } => ("Refused", names(refusal)),
        WaitingOn::Evicted { .. } => ("Evicted", Vec::new()),
        WaitingOn::Termination { finalizers, .. } => ("Termination", finalizers.clone()),
        WaitingOn::NotEvictable { .. } => ("NotEvictable", Vec::new()),
        WaitingOn::Finalizers { names } => ("Finalizers", names.clone()),
        WaitingOn::PodLookup => ("PodLookup", Vec::new()),
        WaitingOn::InterceptorsNotResolved => ("InterceptorsNotResolved", Vec::new()),
        WaitingOn::UnknownInterceptor { class } => ("UnknownInterceptor", vec![class.clone()]),
    }
}

fn names(refusal: &Refusal) -> Vec<String> {
    match refusal {
        Refusal::TwoBudgets { names } => names.clone(),
        _ => Vec::new(),
    }
}

impl Due {
    pub fn reason(self) -> &'static str {
        match self {
            Self::GiveTurn => "GiveTurn",
            Self::Evict => "Evict",
            Self::EndRequest => "EndRequest",
            Self::Report => "Report",
        }
    }
}

fn refusal_phrase(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Budget { .. } => "budget".to_string(),
        Refusal::BudgetNotReady { .. } => "budget, not counted yet".to_string(),
        Refusal::TwoBudgets { names } if names.is_empty() => "two budgets".to_string(),
        Refusal::TwoBudgets { names } => format!("two budgets: {}", names.join(", ")),
        Refusal::Webhook { .. } => "admission webhook".to_string(),
        Refusal::Throttled { .. } => "busy API server".to_string(),
        Refusal::NotAllowed { .. } => "missing permission".to_string(),
        Refusal::Server { code, .. } => format!("server error {code}"),
    }
}
