//! The conformance corpus on the embedded cluster, which must answer as the real API server did when it was recorded.
//!
//! `USHER_TOPICS=a,b` leaves out all other topics.

use usher_tests::TestCluster;
use usher_tests::corpus::{self, differences, recorded, run, topic};

#[test]
fn every_case_is_recorded_and_nothing_else() {
    let topics = topic::load(&corpus::folder()).unwrap();
    let recorded = recorded::load(&corpus::folder(), &topics).unwrap();
    for topic in &topics {
        let mut cases: Vec<_> = topic.cases.iter().map(|case| (&case.name, case.steps.len())).collect();
        cases.sort_unstable();
        let answered: Vec<_> =
            recorded[&topic.name].iter().map(|(case, steps)| (case, steps.len())).collect();
        assert_eq!(answered, cases, "{}: run `make record`", topic.name);
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
    let topics = topic::selected(&corpus::folder()).unwrap();
    let cluster = TestCluster::embedded().await.unwrap();
    let started = std::time::Instant::now();
    let answers = run::run(&cluster, &topics).await.unwrap();
    eprintln!("the embedded API server answered in {:?}", started.elapsed());
    let expected = recorded::load(&corpus::folder(), &topics).unwrap();
    let excuses = differences::load(&corpus::folder()).unwrap();
    let mut verdict = differences::judge(&topics, &expected, &answers, &excuses);
    if std::env::var_os(topic::ONLY).is_some() {
        // Excuses for what was left out were not needed, but may still be.
        verdict.stale.clear();
    }
    assert!(verdict.is_good(), "{}", verdict.report());
}
