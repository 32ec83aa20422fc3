//! The conformance corpus on both clusters. The real API server is the judge: its answers are recorded, the
//! recordings are checked against it, and the embedded server is checked against the recordings.
//!
//! `USHER_RECORD=1` writes the recordings anew. `USHER_TOPICS=a,b` leaves out all other topics.

use usher_tests::TestCluster;
use usher_tests::corpus::{self, differences, recorded, run, topic};

/// Rewrites the recordings instead of checking them.
const RECORD: &str = "USHER_RECORD";
/// Only these topics, separated by commas.
const TOPICS: &str = "USHER_TOPICS";

fn topics() -> anyhow::Result<Vec<topic::Topic>> {
    let mut topics = topic::load(&corpus::folder())?;
    if let Ok(only) = std::env::var(TOPICS) {
        topics.retain(|topic| only.split(',').any(|name| name == topic.name));
    }
    Ok(topics)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_are_what_the_real_api_server_answers() {
    if usher_testbed::skip_real("conformance: live answers against the recordings") {
        return;
    }
    let topics = topics().unwrap();
    let cluster = TestCluster::real().await.unwrap();
    let started = std::time::Instant::now();
    let answers = run::run(&cluster, &topics).await.unwrap();
    eprintln!("the real API server answered in {:?}", started.elapsed());
    let unsent = answers.values().flatten().filter(|(_, steps)| steps.iter().any(|step| step.status == 0));
    let unsent: Vec<_> = unsent.map(|(case, steps)| (case, &steps[steps.len() - 1].body)).collect();
    assert!(unsent.is_empty(), "cases that could not be run to their end: {unsent:#?}");
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        recorded::save(&corpus::folder(), &topics, &answers).unwrap();
        return;
    }
    let expected = recorded::load(&corpus::folder(), &topics).unwrap();
    let verdict = differences::judge(&topics, &expected, &answers, &[]);
    assert!(verdict.is_good(), "{}", verdict.report());
}

#[test]
fn every_case_is_recorded_and_nothing_else() {
    let topics = topic::load(&corpus::folder()).unwrap();
    let recorded = recorded::load(&corpus::folder(), &topics).unwrap();
    for topic in &topics {
        let mut cases: Vec<_> = topic.cases.iter().map(|case| (&case.name, case.steps.len())).collect();
        cases.sort_unstable();
        let answered: Vec<_> =
            recorded[&topic.name].iter().map(|(case, steps)| (case, steps.len())).collect();
        assert_eq!(answered, cases, "{}: record anew with {RECORD}=1", topic.name);
    }
}

#[test]
fn the_corpus_has_at_least_three_hundred_requests() {
    let topics = topic::load(&corpus::folder()).unwrap();
    let requests: usize = topics.iter().flat_map(|topic| &topic.cases).map(|case| case.steps.len()).sum();
    assert!(requests >= 300, "{requests}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_api_server_answers_as_recorded() {
    let topics = topics().unwrap();
    let cluster = TestCluster::embedded().await.unwrap();
    let started = std::time::Instant::now();
    let answers = run::run(&cluster, &topics).await.unwrap();
    eprintln!("the embedded API server answered in {:?}", started.elapsed());
    let expected = recorded::load(&corpus::folder(), &topics).unwrap();
    let excuses = differences::load(&corpus::folder()).unwrap();
    let mut verdict = differences::judge(&topics, &expected, &answers, &excuses);
    if std::env::var_os(TOPICS).is_some() {
        // Excuses for what was left out were not needed, but may still be.
        verdict.stale.clear();
    }
    assert!(verdict.is_good(), "{}", verdict.report());
}
