//! How large a Deployment is and why, and what makes it larger and smaller.

use std::sync::Arc;

use usher_api::names::HORIZONTAL_POD_AUTOSCALER_CLASS;
use usher_api::workloads::Strategy;

use super::super::{Effect, is_wanted};
use super::limits::{lower_limits, raise_limits, restored};
use super::state::SurgeState;
use super::{Case, event_on, is_asked, place, place_of_active};
use crate::snapshot::{Deployment, DeploymentUpdate, Request, Surge};

/// How large the Deployment is, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// As its owner wants it.
    pub wanted: u32,
    /// So many more it is to have for now.
    pub by: u32,
    /// How often somebody has set that back.
    pub reverted: u32,
    /// What others have done to it since.
    pub change: Option<Change>,
}

/// Somebody else has written the number that the surge was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// As it was before the surge.
    Reverted,
    /// To another number, which counts from now on.
    Scaled,
}

pub(super) fn size(case: &Case<'_>) -> Size {
    let deployment = case.deployment;
    let record = deployment.surge.clone().unwrap_or_default();
    let plain = Size { wanted: deployment.replicas, by: 0, reverted: record.reverted, change: None };
    if let Some(autoscaler) = case.autoscaler
        && let Some(raised) = autoscaler.raised.as_ref().filter(|raised| raised.by > 0)
    {
        return if autoscaler.min_replicas == raised.min_replicas {
            let has_grown = record.by > 0 && record.replicas == raised.min_replicas;
            if deployment.replicas > raised.min_replicas || raised.by > raised.min_replicas {
                // The load wants more than that.
                plain
            } else if has_grown && deployment.replicas < raised.min_replicas - raised.by {
                // The autoscaler would not go below its limit: a person has scaled it down, who is right.
                Size { change: Some(Change::Scaled), ..plain }
            } else {
                Size { wanted: raised.min_replicas - raised.by, by: raised.by, ..plain }
            }
        } else if autoscaler.min_replicas == raised.min_replicas.saturating_sub(raised.min_by) {
            Size { change: Some(Change::Reverted), ..plain }
        } else {
            Size { change: Some(Change::Scaled), ..plain }
        };
    }
    if record.by == 0 {
        plain
    } else if record.replicas == deployment.replicas && record.by <= deployment.replicas {
        Size { wanted: deployment.replicas - record.by, by: record.by, ..plain }
    } else if case.autoscaler.is_some()
        && (record.replicas.saturating_sub(record.by)..record.replicas).contains(&deployment.replicas)
    {
        // The autoscaler takes back by itself what its limits do not ask for any more.
        let wanted = record.replicas.saturating_sub(record.by);
        Size { wanted, by: deployment.replicas - wanted, ..plain }
    } else if deployment.replicas == record.replicas.saturating_sub(record.by) {
        Size { change: Some(Change::Reverted), ..plain }
    } else {
        Size { change: Some(Change::Scaled), ..plain }
    }
}

/// By so much it may surge. An autoscaler surges also where the Deployment itself would not, as soon as it has its turn.
pub(super) fn max_surge(case: &Case<'_>, update: &DeploymentUpdate, size: &Size) -> u32 {
    let own = update.max_surge.up(size.wanted);
    let is_by_autoscaler = |request: &Arc<Request>| {
        let autoscaler = place(request, HORIZONTAL_POD_AUTOSCALER_CLASS);
        autoscaler.is_some() && place_of_active(request) >= autoscaler && is_wanted(request)
    };
    let is_with_autoscaler = || case.autoscaler.is_some() && case.requests.values().any(is_by_autoscaler);
    if own == 0 && is_with_autoscaler() { 1 } else { own }
}

/// The number of somebody else counts from now on.
pub(super) fn accept(case: &Case<'_>, state: &SurgeState<'_>, change: Change) -> Vec<Effect> {
    let deployment = case.deployment;
    let reverted = match change {
        Change::Reverted => state.size.reverted.saturating_add(1),
        Change::Scaled => state.size.reverted,
    };
    let mut effects = Vec::new();
    let mut record = Surge { by: 0, replicas: 0, reverted };
    if let Some(autoscaler) = case.autoscaler
        && let Some(raised) = &autoscaler.raised
    {
        effects.push(restored(autoscaler));
        if deployment.replicas == raised.min_replicas {
            // It has acted on them already.
            record = Surge { by: raised.by, replicas: deployment.replicas, reverted };
        }
    }
    let record = (record.by > 0 || reverted > 0).then_some(record);
    effects.push(resize(deployment, deployment.replicas, record));
    if change == Change::Reverted && state.size.reverted == 0 && is_asked(state) {
        let then = if case.may_hand_over && case.strategy == Strategy::Default {
            "handed over beside the replicas"
        } else {
            "left to the eviction API and their disruption budgets"
        };
        let name = &deployment.key.name;
        let (what, field) = match case.autoscaler {
            None => (format!("the replicas of Deployment {name}"), "replicas"),
            Some(autoscaler) => {
                let what = format!("the limits of HorizontalPodAutoscaler {}", autoscaler.key.name);
                (format!("{what}, which scales Deployment {name},"), "minReplicas and maxReplicas")
            }
        };
        let message = format!(
            "Somebody else set {what} back while it surged for pods that are about to leave. It is tried once more; then these \
             pods are {then}. A tool that keeps its objects as they are in a repository should ignore {field}"
        );
        effects.push(event_on(deployment, true, "SurgeReverted", message));
    }
    effects
}

pub(super) fn resize(deployment: &Deployment, replicas: u32, surge: Option<Surge>) -> Effect {
    Effect::Resize { deployment: Box::new(deployment.clone()), replicas, surge }
}

/// A larger surge, of what is wanted at all.
pub(super) fn raise(case: &Case<'_>, state: &SurgeState<'_>, by: u32) -> Option<Effect> {
    if state.size.wanted == 0 {
        // Nobody is missed, and a record that leaves nobody counts as somebody else's.
        return None;
    }
    if let Some(autoscaler) = case.autoscaler {
        return raise_limits(autoscaler, state, by);
    }
    let total = state.size.wanted.saturating_add(by);
    let surge = Surge { by, replicas: total, reverted: state.size.reverted };
    Some(resize(case.deployment, total, Some(surge)))
}

/// A smaller surge. What an autoscaler has made of its limits is the Deployment's before the limits are as they were.
pub(super) fn lower(case: &Case<'_>, state: &SurgeState<'_>, by: u32) -> Option<Effect> {
    let deployment = case.deployment;
    let Size { wanted, reverted, .. } = state.size;
    let total = wanted.saturating_add(by);
    if let Some(autoscaler) = case.autoscaler {
        if let Some(raised) = autoscaler.raised.as_ref().filter(|raised| raised.by > 0) {
            return lower_limits(case, autoscaler, raised);
        }
        if !autoscaler.is_observed {
            return None;
        }
    }
    let is_kept = by > 0 || (reverted > 0 && is_asked(state));
    let record = is_kept.then_some(Surge { by, replicas: if by > 0 { total } else { 0 }, reverted });
    // Where nothing is more than wanted, only the record goes.
    let total = if state.size.by == 0 { deployment.replicas } else { total };
    (deployment.replicas != total || deployment.surge != record).then(|| resize(deployment, total, record))
}
