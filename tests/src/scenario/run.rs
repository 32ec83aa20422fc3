//! Running one scenario on one cluster.

use super::form::Scenario;
use super::outcome::Outcome;
use super::reach::ClusterUnderTest;
use super::stage::Stage;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// So many of the last effects are told where a scenario fails.
const TOLD: usize = 40;

/// A scenario that ran to its end.
pub struct Report {
    pub outcome: Outcome,
    /// In the time of the cluster.
    pub took: Duration,
    /// Pods that kwok deleted by mistake: see [`Observer::deleted_by_name`](super::observe::Observer::deleted_by_name).
    pub deleted_by_name: Vec<String>,
}

/// Why a scenario failed, and what had happened.
#[derive(Debug)]
pub struct Failure {
    pub scenario: String,
    pub title: String,
    pub place: String,
    pub why: String,
    pub effects: Vec<String>,
    /// As in [`Report`].
    pub deleted_by_name: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n  {}: {}", self.scenario, self.title, self.place, self.why)?;
        if !self.effects.is_empty() {
            writeln!(f, "  the last effects:")?;
        }
        self.effects.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Plays the scenario in tokio's time: real, or virtual where the runtime is paused. Whatever else is to run beside
/// the cluster has to be started before.
///
/// # Errors
/// Something was not as the scenario wants it.
pub async fn run(scenario: &Scenario, cluster: &Arc<ClusterUnderTest>) -> Result<Report, Failure> {
    let failure = |place: &str, why: &anyhow::Error, effects, deleted_by_name| Failure {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        place: place.to_owned(),
        why: format!("{why:#}"),
        effects,
        deleted_by_name,
    };
    let stage = match Stage::set(scenario, cluster).await {
        Ok(stage) => stage,
        Err(why) => return Err(failure("given", &why, Vec::new(), Vec::new())),
    };
    let mut place = String::new();
    let played = play(scenario, &stage, &mut place).await;
    let took = stage.started.elapsed();
    let deleted = stage.observer.deleted_by_name();
    match played {
        Ok(outcome) => Ok(Report { outcome, took, deleted_by_name: deleted }),
        Err(why) => Err(failure(&place, &why, stage.observer.told(stage.started, TOLD), deleted)),
    }
}

async fn play(scenario: &Scenario, stage: &Stage, place: &mut String) -> Result<Outcome> {
    for (number, step) in scenario.steps.iter().enumerate() {
        *place = format!("step {} ({}) at {:.1?}", number + 1, step.title, stage.started.elapsed());
        let began = Instant::now();
        stage.play(step).await.with_context(|| format!("after {:.1?}", began.elapsed()))?;
        unbroken(stage)?;
    }
    "at the end".clone_into(place);
    let outcome = Outcome::of(stage, scenario.placement).await?;
    unbroken(stage)?;
    Ok(outcome)
}

fn unbroken(stage: &Stage) -> Result<()> {
    let seen = stage.observer.seen.lock();
    if let Some(why) = &seen.blind {
        bail!("nothing is seen any more: {why}");
    }
    if let Some(why) = seen.broken.first() {
        bail!("{why}");
    }
    Ok(())
}
