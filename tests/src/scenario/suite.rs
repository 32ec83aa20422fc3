//! Scenarios with Usher beside both clusters. How they end on the real one is recorded, and on the embedded one they have
//! to end the same way.
//!
//! `USHER_SCENARIO=a,b` leaves out all others, `USHER_RECORD=1` writes the recordings anew.

use super::beside::Controllers;
use super::recorded::{self, Recorded};
use super::{ClusterUnderTest, Failure, Report, Scenario, beside, load, run, select};
use crate::TestCluster;
use anyhow::{Result, ensure};
use futures::StreamExt;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use usher_cluster::clock::TokioClock;
use usher_cluster::{Cluster, Options, life};

/// Newer API servers have a kind of the same name in another group.
const GROUP: &str = "evictionrequest.coordination.k8s.io";
/// Rewrites the recordings instead of checking them.
const RECORD: &str = "USHER_RECORD";
/// So many scenarios run side by side on the real cluster, where most of the time is waiting.
const SIDE_BY_SIDE: usize = 8;

/// The scenarios of a topic, with a folder of their own.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    pub folder: &'static str,
    pub topic: &'static str,
    pub controllers: Controllers,
}

type Run<'a> = (&'a Scenario, Result<Report, Failure>);

impl Suite {
    /// The folder that holds the topic and its recording.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(self.folder)
    }

    fn all(&self) -> Result<Vec<Scenario>> {
        load(&self.folder())
    }

    fn selected(&self) -> Result<Vec<Scenario>> {
        let selected = select(self.all()?);
        ensure!(!selected.is_empty(), "no scenario is called so");
        Ok(selected)
    }

    /// Plays all that may on one real cluster, side by side, and those that restart Usher one by one afterwards.
    ///
    /// # Errors
    /// Some went wrong, or did not end as recorded.
    pub async fn on_the_real_cluster(&self) -> Result<()> {
        let (left_out, scenarios): (Vec<_>, Vec<_>) =
            self.selected()?.into_iter().partition(|scenario| scenario.embedded_only.is_some());
        for scenario in &left_out {
            let reason = scenario.embedded_only.as_deref().unwrap_or_default();
            // Past the harness, which swallows what tests that pass have said.
            let line = format!("NOT RUN ON THE REAL CLUSTER: {}: {reason}\n", scenario.name);
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        let plane = TestCluster::real_living().await?;
        let cluster = ClusterUnderTest::of(&plane)?.preferring(GROUP);
        let usher = beside::real(self.controllers, &plane, &cluster).await?;
        let cluster = Arc::new(cluster.with(usher));
        let started = Instant::now();
        let (alone, together): (Vec<_>, Vec<_>) =
            scenarios.iter().partition(|scenario| scenario.restarts_usher());
        let mut runs: Vec<Run<'_>> = futures::stream::iter(together)
            .map(|scenario| (scenario, cluster.clone()))
            .map(|(scenario, cluster)| async move { (scenario, run(scenario, &cluster).await) })
            .buffer_unordered(SIDE_BY_SIDE)
            .collect()
            .await;
        for scenario in alone {
            runs.push((scenario, run(scenario, &cluster).await));
        }
        eprintln!("{} scenarios on the real cluster in {:.0?}", runs.len(), started.elapsed());
        let record = std::env::var_os(RECORD).is_some_and(|value| value == "1");
        let recorded = recorded::load(&self.folder(), self.topic)?;
        let judge = |(scenario, run): &Run<'_>| judged(scenario, run, (!record).then_some(&recorded));
        for one in &mut runs {
            if let Some(why) = judge(one) {
                let _ = std::io::stderr().write_all(format!("{}\n", again(one.0, &why)).as_bytes());
                one.1 = run(&elsewhere(one.0), &cluster).await;
            }
        }
        let wrong: Vec<String> = runs.iter().filter_map(judge).collect();
        if record {
            self.record(&runs, recorded)?;
        }
        none_is(&wrong, runs.len())
    }

    fn record(&self, runs: &[Run<'_>], mut recorded: Recorded) -> Result<()> {
        for (scenario, run) in runs {
            if let Ok(report) = run {
                recorded.insert(scenario.name.clone(), report.outcome.clone());
            }
        }
        let all = self.all()?;
        recorded.retain(|name, _| {
            all.iter().any(|scenario| scenario.embedded_only.is_none() && scenario.name == *name)
        });
        recorded::save(&self.folder(), self.topic, &recorded)
    }

    /// Plays each on a cluster of its own, in virtual time.
    ///
    /// # Errors
    /// Some went wrong, or did not end as on the real cluster.
    pub fn on_the_embedded_cluster(&self) -> Result<()> {
        let scenarios = self.selected()?;
        let recorded = recorded::load(&self.folder(), self.topic)?;
        let started = Instant::now();
        let mut wrong = Vec::new();
        for scenario in &scenarios {
            let run = self.on_an_embedded_cluster(scenario)?;
            wrong.extend(judged(scenario, &run, scenario.embedded_only.is_none().then_some(&recorded)));
        }
        eprintln!("{} scenarios on the embedded cluster in {:.1?}", scenarios.len(), started.elapsed());
        none_is(&wrong, scenarios.len())
    }

    fn on_an_embedded_cluster(&self, scenario: &Scenario) -> Result<Result<Report, Failure>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(async {
            let start = jiff::Timestamp::from_second(1_800_000_000)?;
            let clock = Arc::new(TokioClock::starting_at(start));
            let cluster = Cluster::new(Options { clock, seed: Some(1), ..Options::default() });
            let life = life::start(&cluster, life::Options::default());
            let reached = ClusterUnderTest::embedded(&cluster, life).preferring(GROUP);
            let usher = beside::embedded(self.controllers, &cluster, &reached).await?;
            Ok(run(scenario, &Arc::new(reached.with(usher))).await)
        })
    }

    /// Every scenario that the real cluster runs is recorded, and nothing else.
    ///
    /// # Errors
    /// Some are not, or are recorded and gone.
    pub fn is_recorded(&self) -> Result<()> {
        let all = self.all()?;
        let run = all.iter().filter(|scenario| scenario.embedded_only.is_none());
        let run: BTreeSet<&str> = run.map(|scenario| scenario.name.as_str()).collect();
        let recorded = recorded::load(&self.folder(), self.topic)?;
        let recorded: BTreeSet<&str> = recorded.keys().map(String::as_str).collect();
        ensure!(run == recorded, "{run:?}\nare run, but\n{recorded:?}\nrecorded: {RECORD}=1 does that anew");
        Ok(())
    }
}

/// What is said before a scenario is tried a second time on the real cluster. The kubelets that kwok plays remove pods by
/// their name: on a busy machine they are late now and then, and hit the next pod of the name.
#[must_use]
pub fn again(scenario: &Scenario, why: &str) -> String {
    format!("ONCE MORE ON THE REAL CLUSTER, ALONE: {}: {why}", scenario.name)
}

/// The same scenario in a namespace and on nodes of other names.
#[must_use]
pub fn elsewhere(scenario: &Scenario) -> Scenario {
    Scenario { name: format!("{}-again", scenario.name), ..scenario.clone() }
}

/// What is wrong with a run, as far as the recording knows.
fn judged(scenario: &Scenario, run: &Result<Report, Failure>, recorded: Option<&Recorded>) -> Option<String> {
    let report = match run {
        Err(failure) => return Some(failure.to_string()),
        Ok(report) => report,
    };
    let Some(expected) = recorded?.get(&scenario.name) else {
        return Some(format!("{} is not recorded: {RECORD}=1 does that", scenario.name));
    };
    let differences = expected.differences(&report.outcome);
    let told: String = differences.iter().map(|difference| format!("\n    {difference}")).collect();
    (!told.is_empty()).then(|| format!("{}: ends unlike on the real cluster:{told}", scenario.name))
}

fn none_is(wrong: &[String], of: usize) -> Result<()> {
    ensure!(wrong.is_empty(), "{} of {of} scenarios failed\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
