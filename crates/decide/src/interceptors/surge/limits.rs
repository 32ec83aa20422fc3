//! An autoscaler over a Deployment writes its replicas, so that its limits are raised instead, and set back afterwards.

use super::super::Effect;
use super::Case;
use super::size::resize;
use super::state::SurgeState;
use crate::snapshot::{Autoscaler, Deployment, RaisedLimits, Surge};

/// What an autoscaler has made of its raised limits is remembered on the Deployment too, in case the autoscaler goes.
pub(super) fn remember(case: &Case<'_>) -> Option<Effect> {
    let raised = case.autoscaler?.raised.as_ref().filter(|raised| raised.by > 0)?;
    remembered(case.deployment, raised)
}

fn remembered(deployment: &Deployment, raised: &RaisedLimits) -> Option<Effect> {
    let reverted = deployment.surge.as_ref().map_or(0, |surge| surge.reverted);
    let held = Surge { by: raised.by, replicas: raised.min_replicas, reverted };
    let is_grown = deployment.replicas == raised.min_replicas && deployment.surge.as_ref() != Some(&held);
    is_grown.then(|| resize(deployment, deployment.replicas, Some(held)))
}

/// The largest number of an autoscaler goes back when it is not in the way any more.
pub(super) fn release_limit(case: &Case<'_>, state: &SurgeState<'_>) -> Option<Effect> {
    let autoscaler = case.autoscaler?;
    autoscaler.raised.as_ref().filter(|raised| raised.by == 0)?;
    let (_, most) = own_limits(autoscaler);
    // Once nobody is asked to leave, what it has above is the autoscaler's to take back, such as what it made of the load meanwhile.
    let is_over = case.deployment.replicas <= most || case.requests.is_empty();
    (state.size.by == 0 && is_over).then(|| restored(autoscaler))
}

/// The limits as their owner wants them.
pub fn restored(autoscaler: &Autoscaler) -> Effect {
    let (min_replicas, max_replicas) = own_limits(autoscaler);
    Effect::Limit { autoscaler: Box::new(autoscaler.clone()), min_replicas, max_replicas, raised: None }
}

/// An autoscaler that was given another target meanwhile: what it has made of its limits is its former Deployment's, and then the limits
/// go back.
pub fn left_behind(autoscaler: &Autoscaler, deployment: Option<&Deployment>) -> Vec<Effect> {
    let raised = autoscaler.raised.as_ref().filter(|raised| raised.by > 0);
    let grown = deployment.zip(raised).and_then(|(deployment, raised)| {
        // It may be about to write what it has not written yet, and nobody would take that back.
        let is_to_grow = deployment.replicas.checked_add(raised.by) == Some(raised.min_replicas);
        let replicas = if is_to_grow { raised.min_replicas } else { deployment.replicas };
        remembered(&Deployment { replicas, ..deployment.clone() }, raised)
    });
    grown.into_iter().chain([restored(autoscaler)]).collect()
}

/// What was written is taken back, and what somebody else has written since counts. So do limits that a record makes no sense of, such as
/// one that was edited by hand.
fn own_limits(autoscaler: &Autoscaler) -> (u32, u32) {
    let Autoscaler { min_replicas: min, max_replicas: max, raised, .. } = autoscaler;
    let raised = raised.clone().unwrap_or_default();
    let back = |is: u32, written: u32, by: u32| is.checked_sub(by).filter(|_| is == written).unwrap_or(is);
    let least = back(*min, raised.min_replicas, raised.min_by);
    let most = back(*max, raised.max_replicas, raised.max_by);
    if least <= most && most > 0 { (least, most) } else { (*min, *max) }
}

/// Larger limits. An autoscaler that is about to bring the Deployment within its own by itself is waited for: else what it has for now,
/// or what is heard late of it, would count as wanted.
pub(super) fn raise_limits(autoscaler: &Autoscaler, state: &SurgeState<'_>, by: u32) -> Option<Effect> {
    let total = state.size.wanted.saturating_add(by);
    let (least, most) = own_limits(autoscaler);
    if !(least..=most).contains(&state.size.wanted) {
        return None;
    }
    let raised = RaisedLimits {
        by,
        min_by: total - least,
        min_replicas: total,
        max_by: total.saturating_sub(most),
        max_replicas: most.max(total),
        of: autoscaler.deployment.as_deref().unwrap_or_default().to_owned(),
    };
    Some(Effect::Limit {
        autoscaler: Box::new(autoscaler.clone()),
        min_replicas: total,
        max_replicas: raised.max_replicas,
        raised: Some(raised),
    })
}

/// What an autoscaler has made of its limits is the Deployment's before the limits are as they were.
pub(super) fn lower_limits(
    case: &Case<'_>,
    autoscaler: &Autoscaler,
    raised: &RaisedLimits,
) -> Option<Effect> {
    let deployment = case.deployment;
    if remember(case).is_some() {
        // That comes first.
        return None;
    }
    let (least, most) = own_limits(autoscaler);
    // The largest number stays for as long as there are more: the autoscaler would cut them off by itself.
    let is_needed = deployment.replicas > most;
    let kept = RaisedLimits { by: 0, min_by: 0, min_replicas: least, ..raised.clone() };
    Some(Effect::Limit {
        autoscaler: Box::new(autoscaler.clone()),
        min_replicas: least,
        max_replicas: if is_needed { autoscaler.max_replicas } else { most },
        raised: is_needed.then_some(kept),
    })
}
