//! The scenarios on both clusters. The real one is the judge: how they end there is recorded, and the embedded cluster
//! has to come to the same end by the same steps.
//!
//! `USHER_SCENARIO=a,b` leaves out all others, `USHER_RECORD=1` writes the recordings anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use usher_cluster::clock::TokioClock;
use usher_cluster::{Cluster, Options, life};
use usher_tests::TestCluster;
use usher_tests::scenario::differences::{self, Excuse};
use usher_tests::scenario::recorded::{self, Recorded};
use usher_tests::scenario::{self, ClusterUnderTest, Failure, Report, Scenario};

/// Rewrites the recordings instead of checking them.
const RECORD: &str = "USHER_RECORD";
/// So many scenarios run side by side on the real cluster, where most of the time is waiting.
const SIDE_BY_SIDE: usize = 8;

fn scenarios() -> Vec<Scenario> {
    let scenarios = scenario::select(scenario::load(&scenario::folder()).unwrap());
    assert!(!scenarios.is_empty(), "no scenario is called so");
    scenarios
}

/// Past the harness, which swallows what tests that pass have said.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

fn recordings(scenarios: &[Scenario]) -> BTreeMap<String, Recorded> {
    let topics: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.topic.as_str()).collect();
    let load = |topic: &str| (topic.to_owned(), recorded::load(&scenario::folder(), topic).unwrap());
    topics.into_iter().map(load).collect()
}

/// What is wrong with a run, as far as the recording knows. Excuses that were needed are marked.
fn judged(
    scenario: &Scenario,
    run: &Result<Report, Failure>,
    recorded: Option<&Recorded>,
    excuses: &mut [(Excuse, bool)],
) -> Option<String> {
    let report = match run {
        Err(failure) => return Some(failure.to_string()),
        Ok(report) => report,
    };
    let Some(expected) = recorded?.get(&scenario.name) else {
        return Some(format!("{} is not recorded: {RECORD}=1 does that", scenario.name));
    };
    let mut wrong = Vec::new();
    for difference in expected.differences(&report.outcome) {
        match excuses.iter_mut().find(|(excuse, _)| excuse.excuses(&scenario.name, &difference)) {
            Some((_, needed)) => *needed = true,
            None => wrong.push(format!("\n    {difference}")),
        }
    }
    (!wrong.is_empty()).then(|| {
        format!("{}: {}\n  ends unlike on the real cluster:{}", scenario.name, scenario.title, wrong.concat())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scenarios_hold_on_the_real_cluster_and_end_as_recorded() {
    if usher_testbed::skip_real("scenarios on the real cluster") {
        return;
    }
    let (left_out, scenarios): (Vec<_>, Vec<_>) =
        scenarios().into_iter().partition(|scenario| scenario.embedded_only.is_some());
    for scenario in &left_out {
        let reason = scenario.embedded_only.as_deref().unwrap_or_default();
        say(&format!("NOT RUN ON THE REAL CLUSTER: {}: {reason}", scenario.name));
    }
    let plane = TestCluster::real_living().await.unwrap();
    let cluster = Arc::new(ClusterUnderTest::of(&plane).unwrap());
    let started = std::time::Instant::now();
    let mut runs: Vec<_> = futures::stream::iter(&scenarios)
        .map(|scenario| (scenario, cluster.clone()))
        .map(|(scenario, cluster)| async move {
            let run = scenario::run(scenario, &cluster).await;
            let verdict = match &run {
                Ok(report) => format!("{:.1} s", report.took.as_secs_f64()),
                Err(_) => "FAILED".to_owned(),
            };
            eprintln!("real: {} {verdict}", scenario.name);
            (scenario, run)
        })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    eprintln!("{} scenarios on the real cluster in {:.0?}", runs.len(), started.elapsed());
    let record = std::env::var_os(RECORD).is_some_and(|value| value == "1");
    let mut recordings = recordings(&scenarios);
    for (scenario, run) in &mut runs {
        let wrong = judged(scenario, run, (!record).then(|| &recordings[&scenario.topic]), &mut []);
        if let Some(why) = wrong {
            say(&scenario::suite::again(scenario, &why));
            *run = scenario::run(&scenario::suite::elsewhere(scenario), &cluster).await;
        }
    }
    let wrong: Vec<String> = runs
        .iter()
        .filter_map(|(scenario, run)| {
            judged(scenario, run, (!record).then(|| &recordings[&scenario.topic]), &mut [])
        })
        .collect();
    if record {
        for (scenario, run) in &runs {
            if let (Some(topic), Ok(report)) = (recordings.get_mut(&scenario.topic), run) {
                topic.insert(scenario.name.clone(), report.outcome.clone());
            }
        }
        let all = scenario::load(&scenario::folder()).unwrap();
        for (topic, recorded) in &mut recordings {
            recorded
                .retain(|name, _| all.iter().any(|scenario| is_recorded(scenario) && scenario.name == *name));
            recorded::save(&scenario::folder(), topic, recorded).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{} of {} scenarios failed\n{}", wrong.len(), runs.len(), wrong.join("\n"));
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
        scenario::run(scenario, &Arc::new(ClusterUnderTest::embedded(&cluster, life))).await
    })
}

#[test]
fn the_scenarios_hold_on_the_embedded_cluster_and_end_as_recorded() {
    let scenarios = scenarios();
    let recordings = recordings(&scenarios);
    let started = std::time::Instant::now();
    let excuses = differences::load(&scenario::folder()).unwrap();
    let mut excuses: Vec<(Excuse, bool)> = excuses.into_iter().map(|excuse| (excuse, false)).collect();
    let mut wrong = Vec::new();
    for scenario in &scenarios {
        let run = on_the_embedded_cluster(scenario);
        let judge = (scenario.embedded_only.is_none()).then(|| &recordings[&scenario.topic]);
        match (judged(scenario, &run, judge, &mut excuses), &scenario.differs) {
            (None, None) => {}
            (Some(why), None) => wrong.push(why),
            (Some(why), Some(known)) => {
                say(&format!("THE EMBEDDED CLUSTER DIFFERS: {}: {known}", scenario.name));
                eprintln!("{why}");
            }
            (None, Some(known)) => {
                wrong.push(format!("{}: no longer differs ({known}): take `differs` out", scenario.name));
            }
        }
    }
    for (excuse, needed) in &excuses {
        let Excuse { at, why, .. } = excuse;
        if *needed {
            say(&format!("THE EMBEDDED CLUSTER DIFFERS: {at}: {why}"));
        } else if scenario::is_whole_run() {
            wrong.push(format!("nothing differs at {at} any more: take it out of the differences"));
        }
    }
    eprintln!("{} scenarios on the embedded cluster in {:.1?}", scenarios.len(), started.elapsed());
    assert!(
        wrong.is_empty(),
        "{} of {} scenarios failed\n{}",
        wrong.len(),
        scenarios.len(),
        wrong.join("\n")
    );
}

fn is_recorded(scenario: &Scenario) -> bool {
    scenario.embedded_only.is_none()
}

#[test]
fn every_scenario_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    let scenarios = scenario::load(&scenario::folder()).unwrap();
    let run: BTreeSet<&str> = scenarios
        .iter()
        .filter(|scenario| is_recorded(scenario))
        .map(|scenario| scenario.name.as_str())
        .collect();
    let recordings = recordings(&scenarios);
    let recorded: BTreeSet<&str> =
        recordings.values().flat_map(|recorded| recorded.keys().map(String::as_str)).collect();
    assert_eq!(run, recorded, "record anew with {RECORD}=1");
}

#[test]
fn a_scenario_that_does_not_hold_says_where_and_what_had_happened() {
    let expected = serde_json::json!({
        "title": "A pod is not what it is not",
        "given": {"nodes": 1, "objects": [{"pod": "a"}]},
        "steps": [
            {"expect": "pod/a", "has": {"status": {"phase": "Running"}}},
            {"expect": "pod/a", "has": {"spec": {"nodeName": "n2"}}, "within": "3s"},
        ],
    });
    let scenario = Scenario { name: "wrong".to_owned(), ..serde_json::from_value(expected).unwrap() };
    let failure = on_the_embedded_cluster(&scenario).err().unwrap().to_string();
    for part in [
        "wrong: A pod is not what it is not",
        "step 2 (expect pod/a)",
        "not within 3s: spec.nodeName should be \"n2\", but is \"n1\"",
        "a created",
        "a ready",
    ] {
        assert!(failure.contains(part), "{part} is not in\n{failure}");
    }
}

#[test]
fn what_must_always_hold_is_watched_between_the_steps() {
    let expected = serde_json::json!({
        "title": "A pod is always ready",
        "given": {"nodes": 1, "objects": [{"statefulset": "db", "replicas": 1}]},
        "always": [{"pods": "app=db", "ready": {"atLeast": 1}}],
        "steps": [
            {"expect": "statefulset/db", "has": {"status": {"readyReplicas": 1}}},
            {"delete": "pod/db-0"},
            {"expect": "pod/db-0#2", "has": {"status": {"phase": "Running"}}},
        ],
    });
    let scenario = Scenario { name: "unsteady".to_owned(), ..serde_json::from_value(expected).unwrap() };
    let failure = on_the_embedded_cluster(&scenario).err().unwrap().to_string();
    assert!(failure.contains("pods app=db should always be at least 1 ready, but 0 are"), "{failure}");
}
