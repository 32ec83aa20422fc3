//! Scenarios on the real cluster, which is the judge of the embedded one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow};
use http::Method;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, RwLock};
use usher_tests::scenario::recorded::{self, Recording};
use usher_tests::scenario::suite::{GROUP, Recordings, Suite, ends_as_recorded};
use usher_tests::scenario::{ClusterUnderTest, Report, Scenario, run};
use usher_tests::{Request, TestCluster};

use crate::{RealCluster as _, planes, usher};

/// One in this many scenarios may be repeated because kwok deleted a pod by name. More would mean that the machine is not the reason.
const REPEATED_IN: usize = 50;

/// A control plane with what a suite needs.
struct Stage {
    reached: Arc<ClusterUnderTest>,
    /// Held for writing by a scenario that restarts Usher or deschedules, and for reading by the others.
    turns: RwLock<()>,
    /// Such as `v1.37.1`.
    server: String,
    _plane: TestCluster,
}

impl Stage {
    async fn start(suite: Suite) -> Result<Self> {
        let plane = TestCluster::real_living().await?;
        let mut reached = ClusterUnderTest::of(&plane)?;
        if let Some(controllers) = suite.controllers {
            reached = reached.preferring(GROUP);
            let usher = usher::start(controllers, &plane, &reached).await?;
            reached = reached.with(usher);
        }
        let version = reached.send(None, Request::new(Method::GET, "/version")).await?;
        let server = version.body["gitVersion"].as_str().context("the server has no version")?.to_owned();
        Ok(Self { reached: Arc::new(reached), turns: RwLock::default(), server, _plane: plane })
    }
}

/// The control plane of a suite, once the first scenario has started it.
type SharedStage = Arc<OnceCell<Stage>>;

/// Control planes for suites: each starts for the first scenario of its suite, and ends when others need its place.
#[derive(Default)]
pub struct Stages {
    recent: Mutex<VecDeque<(&'static str, SharedStage)>>,
    played: AtomicUsize,
    repeated: Mutex<Vec<String>>,
}

impl Stages {
    fn stage(&self, suite: Suite) -> SharedStage {
        let mut recent = self.recent.lock();
        if let Some((_, stage)) = recent.iter().find(|(name, _)| *name == suite.name) {
            return stage.clone();
        }
        while recent.len() >= planes::LIMIT as usize {
            // The plane ends with the last scenario that plays on it.
            recent.pop_front();
        }
        let stage = SharedStage::default();
        recent.push_back((suite.name, stage.clone()));
        stage
    }

    /// Plays a scenario and compares its end with the recording.
    ///
    /// # Errors
    /// It failed, or did not end as recorded.
    pub async fn check(&self, suite: Suite, scenario: &Scenario, recordings: &Recordings) -> Result<()> {
        let (report, _) = self
            .play(suite, scenario, |report| {
                ends_as_recorded(scenario, report, Suite::recording(recordings, scenario)?)
            })
            .await?;
        ends_as_recorded(scenario, &report, Suite::recording(recordings, scenario)?)
    }

    /// Plays a scenario and writes how it ended into its recording.
    ///
    /// # Errors
    /// It failed, or the recording cannot be written.
    pub async fn record(&self, suite: Suite, scenario: &Scenario) -> Result<()> {
        static FILES: Mutex<()> = Mutex::new(());
        let (report, server) = self.play(suite, scenario, |_| Ok(())).await?;
        let recording = Recording { server, scenario: scenario.fingerprint.clone(), outcome: report.outcome };
        let _alone = FILES.lock();
        let mut recorded = recorded::load(&suite.folder(), &scenario.topic)?;
        let wanted = suite.scenarios()?;
        recorded.retain(|name, _| {
            wanted.iter().any(|scenario| scenario.embedded_only.is_none() && scenario.name == *name)
        });
        recorded.insert(scenario.name.clone(), recording);
        recorded::save(&suite.folder(), &scenario.topic, &recorded)
    }

    /// Plays a scenario, and once more if kwok deleted one of its pods by name.
    async fn play(
        &self,
        suite: Suite,
        scenario: &Scenario,
        is_good: impl Fn(&Report) -> Result<()>,
    ) -> Result<(Report, String)> {
        self.played.fetch_add(1, Ordering::AcqRel);
        let stage = self.stage(suite);
        let stage = stage.get_or_try_init(|| Stage::start(suite)).await?;
        let (why, deleted) = match play_once(stage, scenario).await {
            Ok(report) => match is_good(&report) {
                Ok(()) => return Ok((report, stage.server.clone())),
                Err(why) => (why, report.deleted_by_name),
            },
            Err(failure) => (anyhow!("{failure}"), failure.deleted_by_name),
        };
        if deleted.is_empty() {
            return Err(why);
        }
        eprintln!("{}: kwok deleted {} by name, so this runs once more", scenario.name, deleted.join(", "));
        self.repeated.lock().push(scenario.name.clone());
        // In a namespace and on nodes of other names.
        let again = Scenario { name: format!("{}-again", scenario.name), ..scenario.clone() };
        match play_once(stage, &again).await {
            Ok(report) => Ok((report, stage.server.clone())),
            Err(failure) => Err(anyhow!("{failure}")),
        }
    }

    /// Says how many scenarios were repeated.
    ///
    /// # Errors
    /// They are too many.
    pub fn summary(&self) -> Result<String, String> {
        summary(&self.repeated.lock(), self.played.load(Ordering::Acquire))
    }
}

async fn play_once(stage: &Stage, scenario: &Scenario) -> Result<Report, usher_tests::scenario::Failure> {
    if scenario.runs_alone() {
        let _alone = stage.turns.write().await;
        let report = run(scenario, &stage.reached).await;
        stage.reached.end_descheduling();
        return report;
    }
    let _with_others = stage.turns.read().await;
    run(scenario, &stage.reached).await
}

fn summary(repeated: &[String], played: usize) -> Result<String, String> {
    // A short run may repeat one.
    let allowed = (played / REPEATED_IN).max(1);
    let text = format!(
        "{} of {played} scenarios were repeated because kwok deleted a pod by name; {allowed} may be",
        repeated.len()
    );
    if repeated.len() > allowed { Err(format!("{text}: {}", repeated.join(", "))) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_repetitions_than_one_in_fifty_fail_the_run() {
        let repeated = ["web", "db", "job"].map(str::to_owned);
        for (played, allowed) in [(1, 1), (50, 1), (126, 2)] {
            assert!(summary(&repeated[..allowed], played).is_ok(), "{allowed} of {played}");
            let refused = summary(&repeated[..=allowed], played).unwrap_err();
            assert!(refused.contains(&repeated[allowed]), "{refused}");
        }
    }
}
