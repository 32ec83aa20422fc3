//! The scenarios of a folder, and how each is judged. The recordings say how a scenario ended on the real cluster, and the embedded one has to come
//! to the same end by the same steps.

use super::beside::Controllers;
use super::recorded::{self, Recorded, Recording};
use super::{ClusterUnderTest, Failure, Report, Scenario, beside, load, run};
use anyhow::{Context, Result, bail, ensure};
use cluster_simulator as life;
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::{Cluster, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Newer API servers have a kind of the same name in another group.
pub const GROUP: &str = "evictionrequest.coordination.k8s.io";
/// How to record what has changed.
const RECORD: &str = "make record";

/// The scenarios of a folder, in folders by topic.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// The module of its tests, such as `surges`.
    pub name: &'static str,
    pub folder: &'static str,
    /// The controllers of Usher that run with the cluster.
    pub controllers: Option<Controllers>,
}

/// All suites.
pub const SUITES: [Suite; 7] = [
    Suite { name: "cluster", folder: "scenarios", controllers: None },
    Suite { name: "descheduler", folder: "scenarios-descheduler", controllers: Some(Controllers::All) },
    Suite {
        name: "evict_policy",
        folder: "scenarios-evict-policy",
        controllers: Some(Controllers::EvictPolicy),
    },
    Suite { name: "gateway", folder: "scenarios-gateway", controllers: Some(Controllers::Gateway) },
    Suite {
        name: "maintenances",
        folder: "scenarios-maintenances",
        controllers: Some(Controllers::RequestsAndMaintenances),
    },
    Suite { name: "requests", folder: "scenarios-requests", controllers: Some(Controllers::Requests) },
    Suite { name: "surges", folder: "scenarios-surges", controllers: Some(Controllers::All) },
];

/// The recordings of a suite, by topic.
pub type Recordings = BTreeMap<String, Recorded>;

impl Suite {
    /// The folder that holds the topics and their recordings.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    /// # Errors
    /// A file cannot be read.
    pub fn scenarios(&self) -> Result<Vec<Scenario>> {
        load(&self.folder())
    }

    /// # Errors
    /// A file cannot be read.
    pub fn recordings(&self) -> Result<Recordings> {
        let scenarios = self.scenarios()?;
        let topics: BTreeSet<&String> = scenarios.iter().map(|scenario| &scenario.topic).collect();
        topics.into_iter().map(|topic| Ok((topic.clone(), recorded::load(&self.folder(), topic)?))).collect()
    }

    /// The recording of a scenario.
    ///
    /// # Errors
    /// There is none, or it is of an earlier version of the scenario.
    pub fn recording<'a>(recordings: &'a Recordings, scenario: &Scenario) -> Result<&'a Recording> {
        let name = &scenario.name;
        let recording = recordings
            .get(&scenario.topic)
            .and_then(|topic| topic.get(name))
            .with_context(|| format!("{name} has no recording: run `{RECORD}`"))?;
        ensure!(
            recording.is_of(scenario),
            "the recording of {name} is of an earlier version of the scenario: run `{RECORD}`"
        );
        Ok(recording)
    }

    /// Plays a scenario on an embedded cluster of its own, in virtual time, and compares its end with the recording.
    ///
    /// # Errors
    /// It failed, or did not end as on the real cluster.
    pub fn check_embedded(&self, scenario: &Scenario, recordings: &Recordings) -> Result<()> {
        let report = match self.play_embedded(scenario)? {
            Ok(report) => report,
            Err(failure) => bail!("{failure}"),
        };
        if scenario.embedded_only.is_some() {
            return Ok(());
        }
        ends_as_recorded(scenario, &report, Self::recording(recordings, scenario)?)
    }

    /// Plays a scenario on an embedded cluster of its own, in virtual time.
    ///
    /// # Errors
    /// There is no such cluster.
    pub fn play_embedded(&self, scenario: &Scenario) -> Result<Result<Report, Failure>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(async {
            let start = jiff::Timestamp::from_second(1_800_000_000)?;
            let clock = Arc::new(TokioClock::starting_at(start));
            let cluster = Cluster::new(Options { clock, seed: Some(1), ..Options::default() });
            let life = life::start(&cluster, life::Options::default());
            let mut reached = ClusterUnderTest::embedded(&cluster, life);
            if let Some(controllers) = self.controllers {
                reached = reached.preferring(GROUP);
                let usher = beside::embedded(controllers, &cluster, &reached).await?;
                reached = reached.with(usher);
            }
            Ok(run(scenario, &Arc::new(reached)).await)
        })
    }

    /// Every scenario that the real cluster plays is recorded, and nothing else.
    ///
    /// # Errors
    /// Some are not, or are recorded and gone.
    pub fn is_recorded(&self) -> Result<()> {
        let scenarios = self.scenarios()?;
        let played = scenarios.iter().filter(|scenario| scenario.embedded_only.is_none());
        let played: BTreeSet<&str> = played.map(|scenario| scenario.name.as_str()).collect();
        let recordings = self.recordings()?;
        let recorded: BTreeSet<&str> = recordings.values().flatten().map(|(name, _)| name.as_str()).collect();
        let missing: Vec<_> = played.difference(&recorded).collect();
        let gone: Vec<_> = recorded.difference(&played).collect();
        ensure!(
            missing.is_empty() && gone.is_empty(),
            "without a recording: {missing:?}, recorded without a scenario: {gone:?}: run `{RECORD}`"
        );
        Ok(())
    }
}

/// Compares the end of a scenario with the recording.
///
/// # Errors
/// They differ.
pub fn ends_as_recorded(scenario: &Scenario, report: &Report, recording: &Recording) -> Result<()> {
    let differences = recording.outcome.differences(&report.outcome);
    let lines: String = differences.iter().map(|difference| format!("\n    {difference}")).collect();
    let Scenario { name, title, .. } = scenario;
    let server = &recording.server;
    ensure!(lines.is_empty(), "{name}: {title}\n  does not end as it did on {server}:{lines}");
    Ok(())
}
