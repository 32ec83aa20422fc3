//! Scenarios on both clusters. The real one is the judge: how they end there is recorded, and the embedded one has to come
//! to the same end by the same steps.
//!
//! `USHER_SCENARIO=a,b` leaves out all others, `USHER_RECORD=1` writes the recordings anew.

use super::beside::Controllers;
use super::recorded::{self, Recorded};
use super::{ClusterUnderTest, Failure, Report, Scenario, beside, load, run, select};
use crate::{TestCluster, second_tries};
use anyhow::{Result, ensure};
use cluster_simulator as life;
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::{Cluster, Options};
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Newer API servers have a kind of the same name in another group.
const GROUP: &str = "evictionrequest.coordination.k8s.io";
/// Rewrites the recordings instead of checking them.
const RECORD: &str = "USHER_RECORD";
/// So many scenarios run side by side on the real cluster, where most of the time is waiting.
const SIDE_BY_SIDE: usize = 8;
/// One in so many of all suites may be tried a second time on the real cluster.
const SECOND_TRY_IN: usize = 50;

/// The scenarios of a folder, in folders by topic.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    pub folder: &'static str,
    /// What of Usher runs beside the clusters.
    pub controllers: Option<Controllers>,
}

/// What is recorded, by topic.
type Recordings = BTreeMap<String, Recorded>;

type Run<'a> = (&'a Scenario, Result<Report, Failure>);

impl Suite {
    /// The folder that holds the topics and their recordings.
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

    fn recordings(&self, scenarios: &[Scenario]) -> Result<Recordings> {
        let topics: BTreeSet<&String> = scenarios.iter().map(|scenario| &scenario.topic).collect();
        topics.into_iter().map(|topic| Ok((topic.clone(), recorded::load(&self.folder(), topic)?))).collect()
    }

    /// Plays all that may on one real cluster, side by side, and those that restart Usher or deschedule one by one afterwards.
    ///
    /// # Errors
    /// Some went wrong, or did not end as recorded.
    pub async fn on_the_real_cluster(&self) -> Result<()> {
        let (left_out, scenarios): (Vec<_>, Vec<_>) =
            self.selected()?.into_iter().partition(|scenario| scenario.embedded_only.is_some());
        for scenario in &left_out {
            let reason = scenario.embedded_only.as_deref().unwrap_or_default();
            say(&format!("NOT RUN ON THE REAL CLUSTER: {}: {reason}", scenario.name));
        }
        let plane = TestCluster::real_living().await?;
        let mut cluster = ClusterUnderTest::of(&plane)?;
        if let Some(controllers) = self.controllers {
            cluster = cluster.preferring(GROUP);
            let usher = beside::real(controllers, &plane, &cluster).await?;
            cluster = cluster.with(usher);
        }
        let cluster = Arc::new(cluster);
        let started = Instant::now();
        let (alone, together): (Vec<_>, Vec<_>) =
            scenarios.iter().partition(|scenario| scenario.runs_alone());
        let mut runs: Vec<Run<'_>> = futures::stream::iter(together)
            .map(|scenario| (scenario, cluster.clone()))
            .map(|(scenario, cluster)| async move { (scenario, run(scenario, &cluster).await) })
            .buffer_unordered(SIDE_BY_SIDE)
            .collect()
            .await;
        for scenario in alone {
            runs.push((scenario, run(scenario, &cluster).await));
            cluster.usher.iter().for_each(beside::Usher::end_descheduling);
        }
        eprintln!("{} scenarios on the real cluster in {:.0?}", runs.len(), started.elapsed());
        let record = std::env::var_os(RECORD).is_some_and(|value| value == "1");
        let recordings = self.recordings(&scenarios)?;
        let judge = |(scenario, run): &Run<'_>| judged(scenario, run, (!record).then_some(&recordings));
        let failed: Vec<String> = runs.iter().filter_map(judge).collect();
        second_tries_are_few(&failed, second_tries::tell(&failed)?, of_all_suites()?)?;
        for one in &mut runs {
            if let Some(why) = judge(one) {
                say(&again(one.0, &why));
                one.1 = run(&elsewhere(one.0), &cluster).await;
            }
        }
        say(&format!("{} of {} scenarios needed a second try on the real cluster", failed.len(), runs.len()));
        let wrong: Vec<String> = runs.iter().filter_map(judge).collect();
        if record {
            self.record(&runs, recordings)?;
        }
        none_is(&wrong, runs.len())
    }

    fn record(&self, runs: &[Run<'_>], mut recordings: Recordings) -> Result<()> {
        for (scenario, run) in runs {
            if let (Some(topic), Ok(report)) = (recordings.get_mut(&scenario.topic), run) {
                topic.insert(scenario.name.clone(), report.outcome.clone());
            }
        }
        let all = self.all()?;
        let is_wanted =
            |name: &str| all.iter().any(|scenario| is_recorded(scenario) && scenario.name == *name);
        for (topic, recorded) in &mut recordings {
            recorded.retain(|name, _| is_wanted(name));
            recorded::save(&self.folder(), topic, recorded)?;
        }
        Ok(())
    }

    /// Plays each on a cluster of its own, in virtual time.
    ///
    /// # Errors
    /// Some went wrong, or did not end as on the real cluster.
    pub fn on_the_embedded_cluster(&self) -> Result<()> {
        let scenarios = self.selected()?;
        let recordings = self.recordings(&scenarios)?;
        let started = Instant::now();
        let mut wrong = Vec::new();
        for scenario in &scenarios {
            let run = self.on_an_embedded_cluster(scenario)?;
            wrong.extend(judged(scenario, &run, is_recorded(scenario).then_some(&recordings)));
        }
        eprintln!("{} scenarios on the embedded cluster in {:.1?}", scenarios.len(), started.elapsed());
        none_is(&wrong, scenarios.len())
    }

    /// Plays one on a cluster of its own, in virtual time.
    ///
    /// # Errors
    /// There is no such cluster.
    pub fn on_an_embedded_cluster(&self, scenario: &Scenario) -> Result<Result<Report, Failure>> {
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

    /// Every scenario that the real cluster runs is recorded, and nothing else.
    ///
    /// # Errors
    /// Some are not, or are recorded and gone.
    pub fn is_recorded(&self) -> Result<()> {
        let all = self.all()?;
        let run = all.iter().filter(|scenario| is_recorded(scenario));
        let run: BTreeSet<&str> = run.map(|scenario| scenario.name.as_str()).collect();
        let recordings = self.recordings(&all)?;
        let recorded: BTreeSet<&str> = recordings.values().flatten().map(|(name, _)| name.as_str()).collect();
        ensure!(run == recorded, "{run:?}\nare run, but\n{recorded:?}\nrecorded: {RECORD}=1 does that anew");
        Ok(())
    }
}

fn is_recorded(scenario: &Scenario) -> bool {
    scenario.embedded_only.is_none()
}

/// Past the harness, which swallows what tests that pass have said.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What is said before a scenario is tried a second time on the real cluster. The kubelets that kwok plays remove pods by
/// their name: on a busy machine they are late now and then, and hit the next pod of the name.
fn again(scenario: &Scenario, why: &str) -> String {
    format!("ONCE MORE ON THE REAL CLUSTER, ALONE: {}: {why}", scenario.name)
}

/// How many scenarios of all suites run on the real cluster.
fn of_all_suites() -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(env!("CARGO_MANIFEST_DIR"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("scenarios") {
            count += load(&entry.path())?.iter().filter(|scenario| is_recorded(scenario)).count();
        }
    }
    Ok(count)
}

/// Where more of all suites need a second try than one in fifty, the machine is not the reason.
fn second_tries_are_few(failed: &[String], tried_again: usize, of: usize) -> Result<()> {
    let allowed = of / SECOND_TRY_IN;
    ensure!(
        tried_again <= allowed,
        "{tried_again} of {of} scenarios failed on the real cluster, with other tests that were tried again, and {allowed} at most are\n{}",
        failed.join("\n")
    );
    Ok(())
}

/// The same scenario in a namespace and on nodes of other names.
fn elsewhere(scenario: &Scenario) -> Scenario {
    Scenario { name: format!("{}-again", scenario.name), ..scenario.clone() }
}

/// What is wrong with a run, as far as the recording knows.
fn judged(
    scenario: &Scenario,
    run: &Result<Report, Failure>,
    recordings: Option<&Recordings>,
) -> Option<String> {
    let report = match run {
        Err(failure) => return Some(failure.to_string()),
        Ok(report) => report,
    };
    let Some(expected) = recordings?.get(&scenario.topic).and_then(|topic| topic.get(&scenario.name)) else {
        return Some(format!("{} is not recorded: {RECORD}=1 does that", scenario.name));
    };
    let differences = expected.differences(&report.outcome);
    let told: String = differences.iter().map(|difference| format!("\n    {difference}")).collect();
    let Scenario { name, title, .. } = scenario;
    (!told.is_empty()).then(|| format!("{name}: {title}\n  ends unlike on the real cluster:{told}"))
}

fn none_is(wrong: &[String], of: usize) -> Result<()> {
    ensure!(wrong.is_empty(), "{} of {of} scenarios failed\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_second_tries_than_one_in_fifty_fail_the_run() {
        let why = ["why".to_owned()];
        for (of, allowed) in [(49, 0), (50, 1), (126, 2), (212, 4)] {
            assert!(second_tries_are_few(&why, allowed, of).is_ok(), "{allowed} of {of}");
            let refused = second_tries_are_few(&why, allowed + 1, of).unwrap_err().to_string();
            assert!(refused.contains(&format!("{} of {of} scenarios failed", allowed + 1)), "{refused}");
            assert!(refused.contains("why"), "{refused}");
        }
        assert!(second_tries_are_few(&[], 0, 0).is_ok());
        assert!(of_all_suites().unwrap() > 200);
    }
}
