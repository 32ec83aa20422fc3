//! Whether the manager has had time to act and did not.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use usher_api::workloads::BundledInterceptor;
use usher_decide::eviction_request::Attempt;
use usher_decide::snapshot::Request;
use usher_decide::waiting_on::WaitingOn;

use super::interceptors::silent_since;
use super::{ManagerStep, RequestState, RequestWait};

/// What the manager is to do at once should be done by then.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);
/// A leader that has not said for so long that it is there is none any more.
const LEASE_PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Whether a manager says that it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "lease", rename_all_fields = "camelCase")]
pub enum Leader {
    /// Leases may not be read.
    Unknown,
    /// There is no lease.
    Missing,
    Renewed {
        at: Timestamp,
        /// Where the manager is installed.
        namespace: String,
    },
}

impl Leader {
    /// It said so a moment ago.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        matches!(self, Self::Renewed { at, .. } if now.duration_since(*at) < LEASE_PATIENCE)
    }
}

/// What can be seen from outside of a request and of the manager that is to act on it.
#[derive(Debug, Clone, Copy)]
pub struct ManagerView<'a> {
    pub request: &'a Request,
    /// When anybody last wrote the request, as far as the server tells.
    pub last_write: Option<Timestamp>,
    pub attempt: Option<&'a Attempt>,
    pub leader: &'a Leader,
    /// A disruption budget selects the pod, or they may not be read.
    pub may_have_budget: bool,
}

/// What the manager should have done by now, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverdueStep {
    pub step: ManagerStep,
    pub since: Timestamp,
}

impl RequestState {
    /// Counted from the last change that the manager could see.
    pub fn overdue_step(&self, view: &ManagerView<'_>, now: Timestamp) -> Option<OverdueStep> {
        let Some(step) = self.step else { return overdue_interception(&self.wait, view, now) };
        // Since when a budget is as it is, and who else waits for it, is not known here: then only the lease tells.
        let depends_on_budget =
            view.may_have_budget && matches!(step, ManagerStep::Evict | ManagerStep::Report);
        if depends_on_budget && (*view.leader == Leader::Unknown || view.leader.is_fresh(now)) {
            return None;
        }
        let request = view.request;
        let retry = view.attempt.map(|attempt| attempt.retry_at(&request.pod_uid));
        let since = [Some(request.created), view.last_write, silent_since(request, now), retry];
        let since = since.into_iter().flatten().max()?;
        (now.duration_since(since) >= PATIENCE).then_some(OverdueStep { step, since })
    }
}

/// Bundled interceptors are the manager's: without a leader nothing comes of their turn.
fn overdue_interception(wait: &RequestWait, view: &ManagerView<'_>, now: Timestamp) -> Option<OverdueStep> {
    let RequestWait::On(WaitingOn::Interceptor { class, .. }) = wait else { return None };
    let since = match view.leader {
        Leader::Unknown => return None,
        Leader::Missing => view.request.created,
        Leader::Renewed { at, .. } => *at,
    };
    let is_gone = !view.leader.is_fresh(now) && now.duration_since(since) >= LEASE_PATIENCE;
    let is_overdue = BundledInterceptor::has_class(class) && is_gone;
    is_overdue.then_some(OverdueStep { step: ManagerStep::Intercept, since })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{NOW, budget, pod, request};
    use super::*;
    use serde_json::{Value, json};
    use usher_decide::snapshot::Budget;

    /// The request was made at 11:50; it is noon.
    const CREATED: &str = "2026-01-01T11:50:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn renewed(time: &str) -> Leader {
        Leader::Renewed { at: at(time), namespace: "usher-system".into() }
    }

    fn of(
        request: &Request,
        leader: &Leader,
        budgets: &[Budget],
        written: Option<&str>,
    ) -> Option<(ManagerStep, String)> {
        let budgets: Vec<&Budget> = budgets.iter().collect();
        let state = RequestState::of(request, Some(&pod(None)), Some(&budgets), None, at(NOW));
        let last_write = written.map(at);
        let may_have_budget = !budgets.is_empty();
        let view = ManagerView { request, last_write, attempt: None, leader, may_have_budget };
        state.overdue_step(&view, at(NOW)).map(|overdue| (overdue.step, overdue.since.to_string()))
    }

    fn turn_of(class: &str, progress: &str) -> Request {
        let interceptors =
            json!([{"interceptorClass": class, "priority": 2}, {"interceptorClass": "z.com", "priority": 1}]);
        request(interceptors, json!({"activeInterceptorClass": class, "progressTimestamp": progress}))
    }

    #[test]
    fn what_is_to_be_done_at_once_is_overdue_after_a_moment() {
        let first = request(json!([{"interceptorClass": "a.com", "priority": 1}]), json!({}));
        let due = |since: &str| Some((ManagerStep::GiveTurn, since.to_owned()));
        for leader in [Leader::Unknown, Leader::Missing, renewed(NOW)] {
            assert_eq!(of(&first, &leader, &[], None), due(CREATED), "{leader:?}");
        }
        let written = |time: &str| of(&first, &Leader::Unknown, &[], Some(time));
        assert_eq!(written("2026-01-01T11:59:50Z"), due("2026-01-01T11:59:50Z"));
        assert_eq!(written("2026-01-01T11:59:51Z"), None, "it is about to act");
        let silent = turn_of("a.com", "2026-01-01T11:29:00Z");
        assert_eq!(of(&silent, &Leader::Unknown, &[], None), due("2026-01-01T11:59:00Z"));
        let silent = turn_of("a.com", "2026-01-01T11:29:55Z");
        assert_eq!(of(&silent, &Leader::Unknown, &[], None), None, "it is silent since five seconds");
    }

    #[test]
    fn where_a_budget_decides_only_the_lease_tells() {
        let free = request(json!([]), json!({}));
        let due = Some((ManagerStep::Evict, CREATED.to_owned()));
        assert_eq!(of(&free, &renewed(NOW), &[], None), due);
        let budgets = [budget("web", 1)];
        for leader in [Leader::Unknown, renewed("2026-01-01T11:59:01Z")] {
            assert_eq!(of(&free, &leader, &budgets, None), None, "{leader:?}");
        }
        for leader in [Leader::Missing, renewed("2026-01-01T11:59:00Z")] {
            assert_eq!(of(&free, &leader, &budgets, None), due, "{leader:?}");
        }
    }

    #[test]
    fn the_turn_of_a_bundled_interceptor_needs_a_leader() {
        let (bundled, foreign) =
            (turn_of("deployment.apps.k8s.io", CREATED), turn_of("db.example.com", CREATED));
        let due = |since: &str| Some((ManagerStep::Intercept, since.to_owned()));
        assert_eq!(of(&bundled, &Leader::Missing, &[], None), due(CREATED));
        let long_ago = "2026-01-01T11:55:00Z";
        assert_eq!(of(&bundled, &renewed(long_ago), &[], None), due(long_ago));
        assert_eq!(of(&bundled, &renewed("2026-01-01T11:59:01Z"), &[], None), None);
        assert_eq!(of(&bundled, &Leader::Unknown, &[], None), None);
        assert_eq!(of(&foreign, &Leader::Missing, &[], None), None);
    }

    #[test]
    fn an_eviction_that_is_tried_again_later_is_not_overdue() {
        let condition: Value = json!({
            "type": "EvictionBlocked", "status": "True", "reason": "AdmissionWebhook", "message": "not now",
            "lastTransitionTime": CREATED,
        });
        let request = request(json!([]), json!({"failedAPIEvictionCounter": 8, "conditions": [condition]}));
        let leader = Leader::Unknown;
        let overdue = |attempted: &str| {
            let attempt = Attempt::remembered(&request, Vec::new(), at(attempted));
            let pod = pod(None);
            let state = RequestState::of(&request, Some(&pod), Some(&[]), attempt.as_ref(), at(NOW));
            let attempt = attempt.as_ref();
            let view = ManagerView {
                request: &request,
                last_write: None,
                attempt,
                leader: &leader,
                may_have_budget: false,
            };
            state.overdue_step(&view, at(NOW)).map(|overdue| overdue.step)
        };
        // It pauses for two minutes and up to a tenth more.
        assert_eq!(overdue("2026-01-01T11:59:00Z"), None);
        assert_eq!(overdue("2026-01-01T11:57:00Z"), Some(ManagerStep::Evict));
    }
}
