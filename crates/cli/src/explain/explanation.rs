//! An explanation as data, made from what was found and the time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use serde::Serialize;
use usher_api::{EvictionRequest, EvictionRequestCancellationPolicy as Policy, Interceptor, interceptors_of};
use usher_decide::eviction_request::message::gives_turn;
use usher_decide::eviction_request::{INTERCEPTOR_SELECTED, INTERCEPTOR_SILENT, SelectingBudget};
use usher_decide::snapshot::{Budget, Pod, PodOnWire, Request, RequestOnWire};
use usher_decide::waiting_on::WaitingOn;
use usher_forecast::request_state::{
    InterceptorState, Leader, ManagerStep, ManagerView, RequestState, RequestWait, forecast,
};

use super::manager::{ManagerFacts, is_status_of_manager, last_write, recorded_attempt};
use super::stateful_set::{SetFound, UnavailableFacts};
use crate::DEFAULT_REQUESTER;
use crate::request_text::{WaitText as _, WaitingOnFacts};
use crate::world::World;

/// So many events are told, the newest.
const EVENTS: usize = 8;

/// What an explanation is made from.
pub struct PodFound {
    pub namespace: String,
    pub name: String,
    pub pod: Option<PodOnWire>,
    pub request: Option<EvictionRequest>,
    /// With the budgets of the namespace.
    pub world: World,
    pub events: Vec<Event>,
    pub leader: Leader,
    /// The StatefulSet of the pod, if it has the turn.
    pub set: Option<SetFound>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub namespace: String,
    pub name: String,
    /// Absent if the pod is gone.
    pub pod: Option<PodFacts>,
    /// Absent if nobody asks the pod to leave.
    pub request: Option<RequestFacts>,
    /// With a request: what it waits on. Without: what would be in the way.
    pub waiting_on: WaitingOnFacts,
    #[serde(skip)]
    pub waits: RequestWait,
    pub is_blocked: bool,
    pub sentence: String,
    pub advice: String,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub interceptors: Vec<InterceptorFacts>,
    /// Why the pod's interceptor annotations cannot be read.
    pub invalid_annotations: Vec<String>,
    /// Pods of its StatefulSet that are waited for, if that has the turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnavailableFacts>,
    /// Those of the pod; `None` if they may not be read.
    pub budgets: Option<Vec<BudgetFacts>>,
    pub events: Vec<EventFacts>,
    /// Set if the manager has had time to act and did not.
    pub manager: Option<ManagerFacts>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    pub uid: String,
    pub node: String,
    pub phase: String,
    pub ready: bool,
    /// When its grace ends, if it terminates.
    pub terminating_until: Option<Timestamp>,
    pub owner: Option<String>,
    /// Since when Kubernetes wants to evict it and its workload takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_wanted: Option<EvictWantedFacts>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictWantedFacts {
    pub since: Timestamp,
    /// Who evicts it by the eviction API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestFacts {
    pub name: String,
    pub created: Timestamp,
    pub requesters: Vec<String>,
    /// Those of them who asked by plain evictions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plain_evictions: Vec<PlainEvictionFacts>,
    pub deadline_seconds: i64,
    pub cancellation_policy: Policy,
    pub refused_evictions: i32,
    pub message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlainEvictionFacts {
    pub requester: String,
    pub user: String,
    pub last_asked: Timestamp,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterceptorFacts {
    pub class: String,
    pub priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub turn: InterceptorState,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetFacts {
    pub name: String,
    /// `maxUnavailable 0`, `minAvailable 50%`.
    pub rule: String,
    pub allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    /// The pod may go now as far as this budget is concerned.
    pub lets_pass: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventFacts {
    pub at: Option<Timestamp>,
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
}

pub fn explain(found: &PodFound, now: Timestamp) -> Explanation {
    let pod = found.pod.clone().map(Pod::from);
    let named = found.pod.as_ref().map(|pod| interceptors_of(pod.annotations()));
    let (named, invalid) = match named {
        Some(Ok(named)) => (named, Vec::new()),
        Some(Err(errors)) => (Vec::new(), errors.iter().map(ToString::to_string).collect()),
        None => (Vec::new(), Vec::new()),
    };
    let budgets = pod.as_ref().map_or(Some(Vec::new()), |pod| found.world.budgets_of(pod));
    let budgets = budgets.as_deref();
    let asked = found.request.as_ref().and_then(slim_request);
    let mut events: Vec<EventFacts> = found.events.iter().map(event).collect();
    // The same is told of the request and of the pod.
    events.sort_by_key(|event| (event.reason.clone(), event.message.clone(), event.at));
    events.dedup_by(|later, event| (&later.reason, &later.message) == (&event.reason, &event.message));
    events.sort_by_key(|event| event.at);
    events.drain(..events.len().saturating_sub(EVENTS));

    let explanation = Explanation {
        namespace: found.namespace.clone(),
        name: found.name.clone(),
        pod: found.pod.as_ref().zip(pod.as_ref()).map(|(read, pod)| pod_facts(read.phase(), pod)),
        request: asked.as_ref().map(request_facts),
        waiting_on: RequestWait::Nothing.facts(),
        waits: RequestWait::Nothing,
        is_blocked: false,
        sentence: String::new(),
        advice: String::new(),
        since: None,
        until: None,
        interceptors: Vec::new(),
        invalid_annotations: invalid,
        unavailable: found.set.as_ref().map(|set| set.unavailable(now)).unwrap_or_default(),
        budgets: budgets.map(|budgets| {
            pod.iter().flat_map(|pod| budgets.iter().map(|budget| budget_facts(budget, pod))).collect()
        }),
        events,
        manager: None,
    };
    match (&found.request, &asked) {
        (Some(full), Some(request)) => {
            let selecting =
                pod.iter().flat_map(|pod| SelectingBudget::all(budgets.unwrap_or_default(), pod)).collect();
            let attempt = recorded_attempt(full, request, selecting);
            let state = RequestState::of(request, pod.as_ref(), budgets, attempt.as_ref(), now);
            let deletion_began = found.pod.as_ref().and_then(deletion_began);
            let since = state.wait.since(request, deletion_began, |class| turn_began(class, found));
            let view = ManagerView {
                request,
                last_write: last_write(full, |_, _| true),
                attempt: attempt.as_ref(),
                leader: &found.leader,
                may_have_budget: budgets.is_none_or(|budgets| !budgets.is_empty()),
            };
            let manager = state.overdue_step(&view, now).map(|overdue| ManagerFacts {
                due: overdue.step,
                due_since: overdue.since,
                leader: found.leader.clone(),
            });
            let explanation =
                Explanation { interceptors: turns(request, now), since, manager, ..explanation };
            with_wait(explanation, state.wait)
        }
        _ => {
            let waits = match &pod {
                Some(pod) => forecast(pod, &named, DEFAULT_REQUESTER, budgets, now),
                None => RequestWait::Nothing,
            };
            let sentence = match (&waits, named.first()) {
                (RequestWait::Manager(ManagerStep::GiveTurn), Some(first)) => {
                    format!("{} would go first ({})", first.interceptor_class, interceptors(named.len()))
                }
                (RequestWait::Manager(_), _) => {
                    "it would be evicted at once: it has no interceptor, and no budget is in the way"
                        .to_string()
                }
                (RequestWait::HiddenBudgets, _) => {
                    "it has no interceptor; whether a disruption budget is in the way is not known, as you may not list \
                     them"
                        .to_string()
                }
                (waits, _) => waits.sentence(),
            };
            let interceptors = named.into_iter().map(|one| facts(one, InterceptorState::ToCome)).collect();
            Explanation { sentence, ..with_wait(Explanation { interceptors, ..explanation }, waits) }
        }
    }
}

fn interceptors(count: usize) -> String {
    if count == 1 { "1 interceptor".to_string() } else { format!("{count} interceptors") }
}

/// With what the pod waits for.
fn with_wait(explanation: Explanation, waits: RequestWait) -> Explanation {
    let until = match &waits {
        RequestWait::On(WaitingOn::Termination { grace_ends, .. }) => Some(*grace_ends),
        RequestWait::On(waiting_on) => waiting_on.until(),
        _ => None,
    };
    Explanation {
        is_blocked: waits.is_blocked(),
        sentence: waits.sentence(),
        advice: waits.advice(),
        until,
        waiting_on: waits.facts(),
        waits,
        ..explanation
    }
}

pub fn slim_request(request: &EvictionRequest) -> Option<Request> {
    let text = serde_json::to_string(request).ok()?;
    serde_json::from_str::<RequestOnWire>(&text).ok().map(Request::from)
}

/// When it was asked for that the pod is deleted: its time of deletion is the end of its grace.
fn deletion_began(pod: &PodOnWire) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_sub(grace).ok()
}

/// The newest event that gave it the turn tells, or else the manager's last write: it writes when it gives a turn.
fn turn_began(class: &str, found: &PodFound) -> Option<Timestamp> {
    let given = found.events.iter().filter(|event| {
        matches!(event.reason.as_deref(), Some(INTERCEPTOR_SELECTED | INTERCEPTOR_SILENT))
            && event.message.as_deref().is_some_and(|message| gives_turn(message, class))
    });
    let written = || found.request.as_ref().and_then(|full| last_write(full, is_status_of_manager));
    given.filter_map(event_time).max().or_else(written)
}

fn turns(request: &Request, now: Timestamp) -> Vec<InterceptorFacts> {
    let states = InterceptorState::all(request, now);
    request.interceptors.iter().cloned().zip(states).map(|(one, state)| facts(one, state)).collect()
}

fn facts(interceptor: Interceptor, turn: InterceptorState) -> InterceptorFacts {
    let Interceptor { interceptor_class, priority, role } = interceptor;
    InterceptorFacts { class: interceptor_class, priority, role, turn }
}

fn pod_facts(phase: &str, pod: &Pod) -> PodFacts {
    PodFacts {
        uid: pod.uid.to_string(),
        node: pod.node.to_string(),
        phase: if phase.is_empty() { "Pending".to_string() } else { phase.to_string() },
        ready: pod.is_ready(),
        terminating_until: pod.deletion(),
        owner: pod.owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name)),
        evict_wanted: pod.evict.as_ref().and_then(|facts| facts.wanted.as_ref()).map(|wanted| {
            EvictWantedFacts { since: wanted.since.0, user: wanted.asked.as_ref().map(|ask| ask.by.clone()) }
        }),
    }
}

fn request_facts(request: &Request) -> RequestFacts {
    RequestFacts {
        name: request.key.name.to_string(),
        created: request.created,
        requesters: request.requesters().map(str::to_string).collect(),
        plain_evictions: request
            .asks()
            .iter()
            .map(|(requester, ask)| PlainEvictionFacts {
                requester: requester.clone(),
                user: ask.by.clone(),
                last_asked: ask.at.0,
            })
            .collect(),
        deadline_seconds: request.deadline.as_secs(),
        cancellation_policy: request.status.eviction_request_cancellation_policy,
        refused_evictions: request.status.failed_api_eviction_counter,
        message: request.status.message.clone(),
    }
}

fn budget_facts(budget: &Budget, pod: &Pod) -> BudgetFacts {
    BudgetFacts {
        name: budget.key.name.to_string(),
        rule: budget.rule.to_string(),
        allowed: budget.allowed,
        current_healthy: budget.current_healthy,
        desired_healthy: budget.desired_healthy,
        expected_pods: budget.expected_pods,
        lets_pass: budget.admits(pod),
    }
}

pub fn event_time(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

fn event(event: &Event) -> EventFacts {
    EventFacts {
        at: event_time(event),
        kind: event.type_.clone().unwrap_or_default(),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
    }
}
