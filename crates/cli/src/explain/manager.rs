//! What a request tells of the manager: when it last wrote, and what it has not done although it could.

use jiff::Timestamp;
use serde::Serialize;
use usher_api::EvictionRequest;
use usher_api::names::FIELD_MANAGER;
use usher_decide::eviction_request::{Attempt, SelectingBudget};
use usher_decide::snapshot::Request;
use usher_forecast::request_state::{Leader, ManagerStep};

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
