//! What a request and its lease tell of the manager: when it last wrote, and whether it has not acted although it could.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use usher_api::EvictionRequest;
use usher_api::names::FIELD_MANAGER;
use usher_api::workloads::BundledInterceptor;
use usher_decide::eviction_request::{Attempt, Left, Passing, SelectingBudget, Turn, overdue_at, turn};
use usher_decide::request_state::{ManagerStep, RequestState, RequestWait};
use usher_decide::snapshot::Request;
use usher_decide::waiting_on::WaitingOn;

/// What the manager is to do at once should be done by then.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);
/// A leader that has not said for so long that it is there is none any more.
pub const LEASE_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
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
    fn is_fresh(&self, now: Timestamp) -> bool {
        matches!(self, Self::Renewed { at, .. } if now.duration_since(*at) < LEASE_PATIENCE)
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagerFacts {
    /// What it is to do.
    pub due: ManagerStep,
    pub due_since: Timestamp,
    #[serde(flatten)]
    pub leader: Leader,
}

/// The last refusal, at the time at which the manager last wrote the status.
pub fn recorded_attempt(
    full: &EvictionRequest,
    request: &Request,
    budgets: Vec<SelectingBudget>,
) -> Option<Attempt> {
    Attempt::remembered(request, budgets, last_write(full, is_status_of_manager)?)
}

pub fn is_status_of_manager(manager: &str, subresource: &str) -> bool {
    manager == FIELD_MANAGER && subresource == "status"
}

pub fn last_write(full: &EvictionRequest, by: impl Fn(&str, &str) -> bool) -> Option<Timestamp> {
    let writes = full.metadata.managed_fields.iter().flatten().filter(|entry| {
        by(entry.manager.as_deref().unwrap_or_default(), entry.subresource.as_deref().unwrap_or_default())
    });
    writes.filter_map(|entry| entry.time.as_ref().map(|time| time.0)).max()
}

/// What tells of the manager.
pub struct Known<'a> {
    pub full: &'a EvictionRequest,
    pub request: &'a Request,
    pub attempt: Option<&'a Attempt>,
    pub leader: &'a Leader,
}

/// What the manager should have done by now, and since when: counted from the last change that it could see.
pub fn manager(
    state: &RequestState,
    known: &Known<'_>,
    may_have_budget: bool,
    now: Timestamp,
) -> Option<ManagerFacts> {
    let Some(due) = state.step else { return intercepting(state, known, now) };
    // Since when a budget is as it is, and who else waits for it, is not known here: then only the lease tells.
    let depends_on_budget = may_have_budget && matches!(due, ManagerStep::Evict | ManagerStep::Report);
    if depends_on_budget && (*known.leader == Leader::Unknown || known.leader.is_fresh(now)) {
        return None;
    }
    let request = known.request;
    let changed = last_write(known.full, |_, _| true).map_or(request.created, |at| at.max(request.created));
    let silent = matches!(
        turn(request, now),
        Turn::Pass { why: Passing::Silent { .. }, .. } | Turn::Nobody(Left::Silent { .. })
    );
    let retry = known.attempt.map(|attempt| attempt.retry_at(&request.pod_uid));
    let since = [Some(changed), silent.then(|| overdue_at(request)), retry].into_iter().flatten().max()?;
    (now.duration_since(since) >= PATIENCE).then(|| ManagerFacts {
        due,
        due_since: since,
        leader: known.leader.clone(),
    })
}

/// Bundled interceptors are the manager's: without a leader nothing comes of their turn.
fn intercepting(state: &RequestState, known: &Known<'_>, now: Timestamp) -> Option<ManagerFacts> {
    let RequestWait::On(WaitingOn::Interceptor { class, .. }) = &state.wait else { return None };
    let is_bundled = BundledInterceptor::has_class(class);
    let due_since = match known.leader {
        Leader::Unknown => return None,
        Leader::Missing => known.request.created,
        Leader::Renewed { at, .. } => *at,
    };
    let is_gone = !known.leader.is_fresh(now) && now.duration_since(due_since) >= LEASE_PATIENCE;
    let leader = known.leader.clone();
    (is_bundled && is_gone).then_some(ManagerFacts { due: ManagerStep::Intercept, due_since, leader })
}
