//! The scenarios of eviction requests on both clusters, with Usher beside them: definitions, webhook and controller. How
//! they end on the real one is recorded, and on the embedded one they have to end the same way.
//!
//! `USHER_SCENARIO=a,b` leaves out all others, `USHER_RECORD=1` writes the recordings anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod beside;
mod guide;

use futures::StreamExt;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use usher_cluster::clock::TokioClock;
use usher_cluster::{Cluster, Options, life};
use usher_tests::TestCluster;
use usher_tests::scenario::recorded::{self, Recorded};
use usher_tests::scenario::{self, ClusterUnderTest, Failure, Report, Scenario};

/// Newer API servers have a kind of the same name in another group.
const GROUP: &str = "evictionrequest.coordination.k8s.io";
const TOPIC: &str = "eviction-requests";
/// Rewrites the recordings instead of checking them.
const RECORD: &str = "USHER_RECORD";
/// So many scenarios run side by side on the real cluster, where most of the time is waiting.
const SIDE_BY_SIDE: usize = 8;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios-requests")
}

fn all() -> Vec<Scenario> {
    scenario::load(&folder()).unwrap()
}

fn selected() -> Vec<Scenario> {
    let selected = scenario::select(all());
    assert!(!selected.is_empty(), "no scenario is called so");
    selected
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

fn assert_none(wrong: &[String], of: usize) {
    assert!(wrong.is_empty(), "{} of {of} scenarios failed\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_as_specified_on_the_real_cluster_and_end_as_recorded() {
    if usher_testbed::skip_real("scenarios of eviction requests on the real cluster") {
        return;
    }
    let (left_out, scenarios): (Vec<_>, Vec<_>) =
        selected().into_iter().partition(|scenario| scenario.embedded_only.is_some());
    for scenario in &left_out {
        let reason = scenario.embedded_only.as_deref().unwrap_or_default();
        // Past the harness, which swallows what tests that pass have said.
        let line = format!("NOT RUN ON THE REAL CLUSTER: {}: {reason}\n", scenario.name);
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    let plane = TestCluster::real_living().await.unwrap();
    let cluster = Arc::new(ClusterUnderTest::of(&plane).unwrap().preferring(GROUP));
    let _usher = beside::real(&plane, &cluster).await;
    let started = Instant::now();
    let runs: Vec<_> = futures::stream::iter(&scenarios)
        .map(|scenario| (scenario, cluster.clone()))
        .map(|(scenario, cluster)| async move { (scenario, scenario::run(scenario, &cluster).await) })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    eprintln!("{} scenarios on the real cluster in {:.0?}", runs.len(), started.elapsed());
    let record = std::env::var_os(RECORD).is_some_and(|value| value == "1");
    let mut recorded = recorded::load(&folder(), TOPIC).unwrap();
    let judge = |(scenario, run): &(&Scenario, Result<Report, Failure>)| {
        judged(scenario, run, (!record).then_some(&recorded))
    };
    let wrong: Vec<String> = runs.iter().filter_map(judge).collect();
    if record {
        for (scenario, run) in &runs {
            if let Ok(report) = run {
                recorded.insert(scenario.name.clone(), report.outcome.clone());
            }
        }
        let all = all();
        recorded.retain(|name, _| {
            all.iter().any(|scenario| scenario.embedded_only.is_none() && scenario.name == *name)
        });
        recorded::save(&folder(), TOPIC, &recorded).unwrap();
    }
    assert_none(&wrong, runs.len());
}

/// Plays on a cluster of its own, in virtual time.
fn on_the_embedded_cluster(scenario: &Scenario) -> Result<Report, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let start = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let clock = Arc::new(TokioClock::starting_at(start));
        let cluster = Cluster::new(Options { clock, seed: Some(1), ..Options::default() });
        let life = life::start(&cluster, life::Options::default());
        let reached = Arc::new(ClusterUnderTest::embedded(&cluster, life).preferring(GROUP));
        let _usher = beside::embedded(&cluster, &reached).await;
        scenario::run(scenario, &reached).await
    })
}

#[test]
fn requests_go_as_specified_on_the_embedded_cluster_and_end_as_recorded() {
    let scenarios = selected();
    let recorded = recorded::load(&folder(), TOPIC).unwrap();
    let started = Instant::now();
    let judge = |scenario: &Scenario| {
        let run = on_the_embedded_cluster(scenario);
        judged(scenario, &run, scenario.embedded_only.is_none().then_some(&recorded))
    };
    let wrong: Vec<String> = scenarios.iter().filter_map(judge).collect();
    eprintln!("{} scenarios on the embedded cluster in {:.1?}", scenarios.len(), started.elapsed());
    assert_none(&wrong, scenarios.len());
}

#[test]
fn every_scenario_of_requests_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    let scenarios = all();
    let run = scenarios.iter().filter(|scenario| scenario.embedded_only.is_none());
    let run: BTreeSet<&str> = run.map(|scenario| scenario.name.as_str()).collect();
    let recorded = recorded::load(&folder(), TOPIC).unwrap();
    let recorded: BTreeSet<&str> = recorded.keys().map(String::as_str).collect();
    assert_eq!(run, recorded, "record anew with {RECORD}=1");
}
