//! The Pod Evict Policy: what becomes of a pod that Kubernetes wants to evict, and whose workload takes over.
//!
//! The pod is marked for as long as it is wanted gone, by whomever: a plain eviction ([`eviction`]), an eviction request, or the taint
//! eviction controller. The last one tries once and is refused, so that its part is done here: where the pod has interceptors, a request is
//! made in its name, and once the workload has had its time and nobody is at work on the pod, it is deleted. A node without the taint
//! wants nobody gone, and what was asked for is taken back.

pub mod eviction;
pub mod index;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::EvictionRequestCancellationPolicy as Cancellation;
use usher_api::evict_policy::{EvictPolicy, EvictWanted, TAINT_EVICTION_USER};
use usher_api::gateway::{Ask, WayToAsk, requester_of_user};
use usher_api::names::{RequesterName, requester_of};

use crate::admission::gateway::way_to_ask;
use crate::decision;
use crate::eviction_request::is_nobodys;
use crate::later;
use crate::snapshot::{Pod, Request, Taint, driven_off_at};

/// What is decided.
pub type Decision = decision::Decision<Effect, Wait>;

/// So long workloads have, unless an administrator says otherwise.
pub const TIMEOUT: SignedDuration = SignedDuration::from_mins(1);

/// What an administrator sets for the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// So long the workload of a pod that is wanted gone has, until the policy falls back to `Default`.
    pub timeout: SignedDuration,
    /// Who asks by plain evictions, and has not done so for this long, has withdrawn.
    pub withdraw_after: Option<SignedDuration>,
    /// How long all interceptors of a pod may take together.
    pub interceptors_limit: Option<SignedDuration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: TIMEOUT, withdraw_after: None, interceptors_limit: None }
    }
}

/// Everything that a decision on a pod depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub pod: &'a Arc<Pod>,
    /// What counts for it: its own word, or its namespace's.
    pub policy: EvictPolicy,
    /// Those of its node.
    pub taints: &'a [Taint],
    /// Somebody answers for it before it is evicted.
    pub has_interceptors: bool,
    /// The request for it, if there is one.
    pub request: Option<&'a Arc<Request>>,
    /// Since when no request could be made for it.
    pub ask_failed_since: Option<Timestamp>,
    pub options: &'a Options,
}

/// One write, for the pod of that UID and no other.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Shows that it is wanted gone.
    Mark { pod: Arc<Pod>, wanted: Box<EvictWanted> },
    /// It is not, or not any more. Refused if the pod has changed since.
    Unmark { pod: Arc<Pod> },
    /// Asks for it by a request, in the name of the taint eviction controller.
    Ask { pod: Arc<Pod>, way: WayToAsk, request: Option<Arc<Request>>, ask: Box<Ask> },
    /// Takes that back: only these finalizers stay.
    Withdraw { request: Arc<Request>, finalizers: Vec<String> },
    /// The policy has fallen back: deletes it as the taint eviction controller would have. Refused if the pod or its request has changed
    /// since: an interceptor may have begun with it.
    Delete { pod: Arc<Pod>, request: Option<Arc<Request>> },
    /// Records an event on the pod.
    RecordEvent { pod: Arc<Pod>, is_warning: bool, reason: &'static str, message: String },
}

/// Why nothing is done about a pod that is wanted gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Its workload has time until then.
    Workload { until: Timestamp },
    /// An interceptor is at work on it.
    Interceptor,
    /// Whoever evicts it tries again, and passes.
    Caller,
}

impl Wait {
    /// One word, for labels of metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Workload { .. } => "Workload",
            Self::Interceptor => "Interceptor",
            Self::Caller => "Caller",
        }
    }
}

/// The requester in whose name it is asked for pods of tainted nodes.
pub fn taint_requester() -> RequesterName {
    requester_of_user(TAINT_EVICTION_USER)
}

/// Who reads times by the second reads this one.
pub fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// A pod was marked.
fn wanted_event(pod: &Arc<Pod>, wanted: &EvictWanted) -> Effect {
    let by = wanted.asked.as_ref().map(|ask| format!("{} evicts the pod", ask.by));
    let by = by.unwrap_or_else(|| "Kubernetes wants to evict the pod".to_owned());
    let message = decision::limited(format!(
        "{by}, and its workload takes over: its evict policy is ControllerTakeOver"
    ));
    Effect::RecordEvent { pod: pod.clone(), is_warning: false, reason: "EvictWanted", message }
}

fn is_its(finalizer: &str) -> bool {
    requester_of(finalizer).is_some_and(|name| name == taint_requester().as_str())
}

/// What was asked for is remembered at least three times before it counts as withdrawn.
fn renewed_at(case: &Case<'_>, request: &Request) -> Option<Timestamp> {
    let after = case.options.withdraw_after?;
    let asked = request.ask_of(taint_requester().as_str()).map_or(Timestamp::MIN, |ask| ask.at.0);
    Some(later(asked, after / 3))
}

pub fn decide(case: &Case<'_>, now: Timestamp) -> Decision {
    let pod = case.pod;
    let mut decision = Decision::default();
    if pod.is_terminating() {
        return decision;
    }
    let facts = pod.evict.as_deref();
    let wanted = facts.and_then(|facts| facts.wanted.as_ref());
    let takes_over = case.policy == EvictPolicy::ControllerTakeOver;
    // Who has lost the policy in the middle has been refused to the taint eviction controller, which does not come back.
    let concerns_us = takes_over || wanted.is_some();
    let driven_off = facts
        .filter(|facts| facts.was_driven_off && concerns_us)
        .and_then(|facts| driven_off_at(case.taints, &facts.tolerations));
    let by_taint = driven_off.is_some_and(|at| at <= now);
    if pod.phase.is_terminal() && !(by_taint && takes_over) {
        // Nobody has to be asked for it.
        let is_shown = facts.is_some_and(|facts| facts.is_shown);
        return if is_shown { decision.act(Effect::Unmark { pod: pod.clone() }) } else { decision };
    }
    let request = case.request.filter(|request| request.pod_uid == pod.uid);
    let is_asked = |request: &&Arc<Request>| request.finalizers.iter().any(|it| is_its(it));
    if let Some(request) = request.filter(is_asked)
        && !by_taint
        && request.status.eviction_request_cancellation_policy == Cancellation::Allow
    {
        let kept = request.finalizers.iter().filter(|it| !is_its(it)).cloned().collect();
        decision.effects.push(Effect::Withdraw { request: request.clone(), finalizers: kept });
    }
    let by_request = request.is_some_and(|request| {
        request.requesters().any(|name| by_taint || name != taint_requester().as_str())
    });
    let asked_until =
        wanted.and_then(|wanted| wanted.asked.as_ref()).map(|ask| match case.options.withdraw_after {
            Some(after) => later(ask.at.0, after),
            None => Timestamp::MAX,
        });
    let by_eviction = asked_until.is_some_and(|until| now < until);
    decision.recheck_at = [driven_off, asked_until].into_iter().flatten().filter(|at| *at > now).min();
    if !(by_taint || takes_over && (by_request || by_eviction)) {
        if facts.is_some_and(|facts| facts.is_shown) {
            decision.effects.push(Effect::Unmark { pod: pod.clone() });
        }
        return decision;
    }
    let Some(wanted) = wanted else {
        let wanted = EvictWanted { uid: pod.uid.to_string(), since: whole_second(now), asked: None };
        return decision.act(Effect::Mark { pod: pod.clone(), wanted: Box::new(wanted) });
    };
    let is_at_work = request.is_some_and(|request| is_at_work(request, case.options.interceptors_limit, now));
    if !by_taint {
        decision.waiting_on = Some(if is_at_work { Wait::Interceptor } else { Wait::Caller });
        return decision;
    }
    let until = if takes_over { later(wanted.since.0, case.options.timeout) } else { Timestamp::MIN };
    let until = if pod.phase.is_terminal() { Timestamp::MIN } else { until };
    let asks = takes_over && case.has_interceptors && !pod.phase.is_terminal();
    // Nobody is deleted past interceptors that were not asked: where that fails, time counts from then.
    let until = match case.ask_failed_since {
        _ if !asks || request.is_some() => until,
        Some(failed) => until.max(later(failed, case.options.timeout.max(TIMEOUT))),
        None => Timestamp::MAX,
    };
    let renewed = request.filter(is_asked).map(|request| renewed_at(case, request));
    let is_due = match (request, renewed) {
        (_, Some(at)) => at.is_some_and(|at| at <= now),
        // What is being deleted takes nobody on.
        (Some(request), None) => !request.is_deleting,
        (None, None) => true,
    };
    let is_over = !is_at_work && now >= until;
    if asks && is_due && !is_over {
        let ask = Ask::new(TAINT_EVICTION_USER, whole_second(now), None);
        decision.effects.push(Effect::Ask {
            pod: pod.clone(),
            way: way_to_ask(request.map(|request| &**request), taint_requester().as_str()),
            request: request.cloned(),
            ask: Box::new(ask),
        });
    }
    let next = renewed.flatten().filter(|_| asks);
    if is_at_work {
        decision.waiting_on = Some(Wait::Interceptor);
    } else if !is_over {
        decision.waiting_on = Some(Wait::Workload { until });
    } else {
        let message = format!(
            "its workload did not end it within {} seconds: the evict policy falls back to Default, and the pod is deleted",
            case.options.timeout.as_secs()
        );
        let (pod, is_warning) = (pod.clone(), true);
        decision.effects.push(Effect::Delete { pod: pod.clone(), request: request.cloned() });
        decision.effects.push(Effect::RecordEvent {
            pod,
            is_warning,
            reason: "EvictPolicyFellBack",
            message,
        });
    }
    let soon = [next, Some(until)].into_iter().flatten().filter(|at| *at > now && *at < Timestamp::MAX);
    decision.recheck_at = decision.recheck_at.into_iter().chain(soon).min();
    decision
}

/// Somebody answers for the pod, and has, or is about to have, the turn.
fn is_at_work(request: &Request, limit: Option<SignedDuration>, now: Timestamp) -> bool {
    request.requesters().next().is_some() && !is_nobodys(request, limit, now)
}
