//! Where a request stands, for somebody who looks on: what it waits for, and what the manager has to do about it.
//!
//! It is decided as the manager decides it ([`usher_decide::eviction_request::decide`]). What only the manager knows is taken as it is
//! told: when an eviction that was refused is tried again, and, with room in a budget, whose it is.

mod forecast;
mod interceptors;
mod overdue;
#[cfg(test)]
mod samples;

use jiff::Timestamp;
use serde::Serialize;
use usher_api::workloads::Strategy;
use usher_decide::decision::Effect;
use usher_decide::eviction_request::{
    Attempt, BLOCKED_CONDITION, Case, Decision, Refusal, RefusalReason, Target, decide, recorded_refusal,
};
use usher_decide::interceptors::deployment::answers_for;
use usher_decide::snapshot::{Budget, Pod, Request};
use usher_decide::waiting_on::{QUEUED, WaitingOn};

pub(crate) use forecast::several_budgets;
pub use forecast::{forecast, obstacle};
pub use interceptors::InterceptorState;
pub use overdue::{Leader, ManagerView, OverdueStep};

/// Where a request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestState {
    pub wait: RequestWait,
    /// What the manager has to do, whoever else is waited for.
    pub step: Option<ManagerStep>,
    /// When the passing of time alone may change it.
    pub recheck_at: Option<Timestamp>,
}

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestWait {
    On(WaitingOn),
    /// The status tells of a refusal; when it is tried again is known to the manager alone.
    Refused(Refusal),
    /// Nobody stands in the way: the manager has something to do.
    Manager(ManagerStep),
    /// The eviction is next, unless a disruption budget is in the way: they may not be read.
    HiddenBudgets,
    /// Nothing is left to be done.
    Nothing,
}

/// What the manager has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ManagerStep {
    GiveTurn,
    Evict,
    EndRequest,
    /// Write down what is waited for.
    Report,
    /// Have its turn as the interceptor of the workload.
    Intercept,
}

impl ManagerStep {
    /// One word, for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GiveTurn => "GiveTurn",
            Self::Evict => "Evict",
            Self::EndRequest => "EndRequest",
            Self::Report => "Report",
            Self::Intercept => "Intercept",
        }
    }
}

impl RequestState {
    /// Of a pod that is on its way out, whoever asked: its end is all that is waited for.
    pub fn of_terminating(pod: &Pod) -> Option<Self> {
        let wait = RequestWait::On(WaitingOn::termination(pod)?);
        Some(Self { wait, step: None, recheck_at: None })
    }

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
        // Who the pod belongs to, and what the manager was told, is taken as it is said; what its DaemonSet says is in the status.
        let stays = usher_decide::maintenance::pods::stays_by_choice(request);
        let daemon_set = Some(if stays { Strategy::Off } else { Strategy::Default });
        let (interceptors_limit, withdraw_after) = (None, None);
        let case =
            Case { request, pod: target, budgets, attempt, daemon_set, interceptors_limit, withdraw_after };
        let decision = decide(&case, &mut has_room, now);
        let (step, recheck_at) = (step(&decision), decision.recheck_at);
        let wait = match (decision.waiting_on, step) {
            (Some(waiting_on), _) => RequestWait::On(waiting_on),
            (None, Some(ManagerStep::Evict)) => {
                let selecting = selecting(budgets, pod);
                match recorded_refusal(request, &selecting) {
                    // Whether a budget still refuses is seen in the budget itself.
                    Some(refusal) if are_hidden || refusal.reason() != RefusalReason::DisruptionBudget => {
                        RequestWait::Refused(refusal)
                    }
                    _ if are_hidden => RequestWait::HiddenBudgets,
                    // Whose room it is, the manager knows.
                    _ => queued_at(request, &selecting)
                        .map_or(RequestWait::Manager(ManagerStep::Evict), RequestWait::On),
                }
            }
            (None, Some(step)) => RequestWait::Manager(step),
            (None, None) => RequestWait::Nothing,
        };
        Self { wait, step, recheck_at }
    }
}

/// What pods have in common that wait for the same, without the times and figures of each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitCause {
    /// One word, as in the reason of a condition.
    pub reason: &'static str,
    /// Of the interceptor, the budgets or the finalizers.
    pub names: Vec<String>,
    /// What the server said where it refused.
    pub said: Option<String>,
}

impl RequestWait {
    /// Pods with equal causes are told of together.
    pub fn cause(&self) -> WaitCause {
        let (reason, names, said) = match self {
            Self::On(WaitingOn::Refused { refusal, .. }) | Self::Refused(refusal) => {
                (refusal.reason().as_str(), refusal.budgets().to_vec(), Some(refusal.sentence()))
            }
            Self::On(waiting_on) => (waiting_on.reason(), waiting_on.names(), None),
            Self::Manager(step) => (step.as_str(), Vec::new(), None),
            Self::HiddenBudgets => ("HiddenBudgets", Vec::new(), None),
            Self::Nothing => ("Nothing", Vec::new(), None),
        };
        WaitCause { reason, names, said }
    }

    /// Whether nothing moves until somebody does something.
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::On(waiting_on) => waiting_on.is_blocked(),
            Self::Refused(_) => true,
            Self::Manager(_) | Self::HiddenBudgets | Self::Nothing => false,
        }
    }

    /// Its Deployment has its turn, or whoever has it for that one.
    pub fn turn_of_deployment(&self) -> Option<&WaitingOn> {
        match self {
            Self::On(turn @ WaitingOn::Interceptor { class, .. }) if answers_for(class) => Some(turn),
            _ => None,
        }
    }

    /// Whether a disruption budget is what is waited for. Budgets are told apart by their namespaces.
    pub fn is_about_budgets(&self) -> bool {
        match self {
            Self::On(WaitingOn::Budget { .. } | WaitingOn::TurnAtBudget { .. }) => true,
            Self::On(WaitingOn::Refused { refusal, .. }) | Self::Refused(refusal) => {
                refusal.is_about_budgets()
            }
            _ => false,
        }
    }

    /// Since when it is waited for. `deletion_began`: when it was asked for that the pod is deleted. `turn_began` tells when an interceptor
    /// got its turn.
    pub fn since(
        &self,
        request: &Request,
        deletion_began: Option<Timestamp>,
        turn_began: impl FnOnce(&str) -> Option<Timestamp>,
    ) -> Option<Timestamp> {
        let blocked = || {
            let condition = request.condition(BLOCKED_CONDITION).filter(|known| known.status == "True");
            condition.map(|condition| condition.last_transition_time.0)
        };
        match self {
            Self::On(WaitingOn::Interceptor { class, .. }) => turn_began(class),
            Self::On(WaitingOn::Evicted { at }) => Some(*at),
            Self::On(WaitingOn::Termination { .. }) => deletion_began,
            Self::On(WaitingOn::Finalizers { .. }) => request.deleted(),
            Self::On(WaitingOn::PodLookup | WaitingOn::UnknownInterceptor { .. }) => None,
            Self::On(_) | Self::Refused(_) => blocked().or(Some(request.created)),
            Self::Manager(_) | Self::HiddenBudgets | Self::Nothing => None,
        }
    }

    /// The pod should have ended by now.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        matches!(self, Self::On(WaitingOn::Termination { grace_ends, .. }) if *grace_ends < now)
    }
}

fn step(decision: &Decision) -> Option<ManagerStep> {
    decision.effects.iter().find_map(|effect| match effect {
        Effect::Evict => Some(ManagerStep::Evict),
        Effect::Delete(_) | Effect::KeepFinalizers(_) => Some(ManagerStep::EndRequest),
        Effect::WriteStatus(_) if decision.waiting_on.is_some() => Some(ManagerStep::Report),
        Effect::WriteStatus(_) => Some(ManagerStep::GiveTurn),
        Effect::LookUpPod | Effect::Confirm | Effect::RecordEvent(_) | Effect::RecordWithdrawal(_) => None,
    })
}

/// The status says that others go first at the budget.
fn queued_at(request: &Request, selecting: &[&str]) -> Option<WaitingOn> {
    let is_queued = request.condition(BLOCKED_CONDITION).is_some_and(|known| known.reason == QUEUED);
    let [name] = selecting else { return None };
    is_queued.then(|| WaitingOn::TurnAtBudget { name: (*name).to_owned() })
}

/// The names of the budgets that select the pod.
fn selecting<'a>(budgets: &[&'a Budget], pod: Option<&Pod>) -> Vec<&'a str> {
    let selecting = budgets.iter().filter(|budget| pod.is_some_and(|pod| budget.selects(pod)));
    selecting.map(|budget| &*budget.key.name).collect()
}

/// Whether a request may be blocked, for somebody who has not seen its pod: it says so, or nothing can be concluded from it.
pub fn may_be_blocked(request: &Request) -> bool {
    let is_unknown = |class: &str| request.interceptors.iter().all(|one| one.interceptor_class != class);
    request.condition(BLOCKED_CONDITION).is_some_and(|condition| condition.status == "True")
        || request.status.active_interceptor_class.as_deref().is_some_and(is_unknown)
}

#[cfg(test)]
mod tests {
    use super::samples::{NOW, budget, pod, request};
    use super::*;
    use serde_json::{Value, json};

    fn blocked(reason: &str, message: &str) -> Value {
        let since = "2026-01-01T11:55:00Z";
        json!({"conditions": [{
            "type": "EvictionBlocked", "status": "True", "reason": reason, "message": message, "lastTransitionTime": since,
        }]})
    }

    /// What is waited for in one word, whether it is blocked, and what the manager has to do.
    fn in_short(state: &RequestState) -> (&'static str, bool, Option<ManagerStep>) {
        let word = match &state.wait {
            RequestWait::On(waiting_on) => waiting_on.reason(),
            RequestWait::Refused(refusal) => refusal.reason().as_str(),
            RequestWait::Manager(_) => "Manager",
            RequestWait::HiddenBudgets => "HiddenBudgets",
            RequestWait::Nothing => "Nothing",
        };
        (word, state.wait.is_blocked(), state.step)
    }

    #[test]
    fn a_request_waits_for_whoever_has_to_act_next() {
        let (none, plain) = (|| json!([]), || json!({}));
        let one = || json!([{"interceptorClass": "db.example.com", "priority": 1}]);
        let active =
            json!({"activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:59:00Z"});
        let unknown = json!({"activeInterceptorClass": "x.example.com"});
        let (room, full) = (vec![budget("web", 1)], vec![budget("web", 0)]);
        let webhook = || blocked("AdmissionWebhook", "not now");
        let budget_refused = || blocked("DisruptionBudget", "no");
        let (here, leaving) = (Some(pod(None)), Some(pod(Some("2026-01-01T12:00:20Z"))));
        use ManagerStep::{EndRequest, Evict, GiveTurn, Report};
        for (what, request, pod, budgets, wanted) in [
            ("first turn", request(one(), plain()), &here, Some(&room), ("Manager", false, Some(GiveTurn))),
            ("its turn", request(one(), active), &here, Some(&full), ("Interceptor", false, None)),
            ("whose turn?", request(one(), unknown), &here, Some(&room), ("UnknownInterceptor", true, None)),
            ("free to go", request(none(), plain()), &here, Some(&room), ("Manager", false, Some(Evict))),
            (
                "no room",
                request(none(), plain()),
                &here,
                Some(&full),
                ("DisruptionBudget", true, Some(Report)),
            ),
            (
                "known",
                request(none(), budget_refused()),
                &here,
                Some(&full),
                ("DisruptionBudget", true, None),
            ),
            (
                "room again",
                request(none(), budget_refused()),
                &here,
                Some(&room),
                ("Manager", false, Some(Evict)),
            ),
            (
                "refused",
                request(none(), webhook()),
                &here,
                Some(&room),
                ("AdmissionWebhook", true, Some(Evict)),
            ),
            ("hidden", request(none(), plain()), &here, None, ("HiddenBudgets", false, Some(Evict))),
            ("told", request(none(), budget_refused()), &here, None, ("DisruptionBudget", true, Some(Evict))),
            ("leaving", request(none(), plain()), &leaving, Some(&full), ("Terminating", false, None)),
            ("gone", request(none(), plain()), &None, Some(&room), ("Manager", false, Some(EndRequest))),
        ] {
            let budgets: Option<Vec<&Budget>> = budgets.map(|budgets| budgets.iter().collect());
            let state =
                RequestState::of(&request, pod.as_ref(), budgets.as_deref(), None, NOW.parse().unwrap());
            assert_eq!(in_short(&state), wanted, "{what}: {state:?}");
            // Who has not seen the pod misses nobody that says so itself.
            if state.wait.is_blocked() && state.step != Some(Report) {
                assert!(may_be_blocked(&request), "{what}");
            }
        }
    }

    #[test]
    fn since_when_it_is_waited_for_is_told_by_what_is_waited_for() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (deletion, turn) = (at("2026-01-01T11:59:00Z"), at("2026-01-01T11:58:00Z"));
        let mut plain = request(json!([]), json!({}));
        let known = request(json!([]), blocked("DisruptionBudget", "no"));
        let rare = usher_decide::snapshot::RareOfRequest { deleted: Some(at(NOW)), ..Default::default() };
        plain.rare = Some(Box::new(rare));
        let not_evictable =
            || WaitingOn::NotEvictable { pod: usher_decide::waiting_on::Unevictable::MirrorPod };
        let interceptor = WaitingOn::Interceptor {
            class: "a.com".into(),
            progress: None,
            until: at(NOW),
            expected_finish: None,
            message: String::new(),
        };
        let on = RequestWait::On;
        for (wait, request, wanted) in [
            (on(interceptor), &plain, Some(turn)),
            (
                on(WaitingOn::Termination { grace_ends: at(NOW), finalizers: Vec::new() }),
                &plain,
                Some(deletion),
            ),
            (on(WaitingOn::Finalizers { names: Vec::new() }), &plain, Some(at(NOW))),
            (on(not_evictable()), &plain, Some(plain.created)),
            (on(not_evictable()), &known, Some(at("2026-01-01T11:55:00Z"))),
            (on(WaitingOn::PodLookup), &known, None),
            (RequestWait::Manager(ManagerStep::Evict), &known, None),
        ] {
            let since = wait.since(request, Some(deletion), |class| (class == "a.com").then_some(turn));
            assert_eq!(since, wanted, "{wait:?}");
        }
    }

    #[test]
    fn a_pod_that_terminates_is_overdue_after_its_grace() {
        let (request, pod) = (request(json!([]), json!({})), pod(Some(NOW)));
        let state = RequestState::of(&request, Some(&pod), Some(&[]), None, NOW.parse().unwrap());
        let at = |text: &str| state.wait.is_overdue(text.parse().unwrap());
        assert!(!at(NOW) && at("2026-01-01T12:00:01Z"));
        assert!(!state.wait.is_about_budgets());
        assert_eq!(RequestState::of_terminating(&pod), Some(state), "the same without a request");
        assert_eq!(RequestState::of_terminating(&samples::pod(None)), None);
    }
}
