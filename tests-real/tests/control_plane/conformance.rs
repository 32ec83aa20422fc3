//! The recorded answers of the conformance corpus are what the real API server answers.
//!
//! `USHER_RECORD=1` writes the recordings instead. `USHER_TOPICS=a,b` leaves out all other topics.

use usher_tests::TestCluster;
use usher_tests::corpus::{self, differences, recorded, run, topic};
use usher_tests_real::RealCluster as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recordings_are_what_the_real_api_server_answers() {
    let topics = topic::selected(&corpus::folder()).unwrap();
    let cluster = TestCluster::real().await.unwrap();
    let server = cluster.get("/version").await.unwrap().body["gitVersion"].as_str().unwrap().to_owned();
    let answers = run::run(&cluster, &topics).await.unwrap();
    let unsent = answers.values().flatten().filter(|(_, steps)| steps.iter().any(|step| step.status == 0));
    let unsent: Vec<_> = unsent.map(|(case, steps)| (case, &steps[steps.len() - 1].body)).collect();
    assert!(unsent.is_empty(), "cases that could not be run to their end: {unsent:#?}");
    if std::env::var_os("USHER_RECORD").is_some_and(|value| value == "1") {
        recorded::save(&corpus::folder(), &topics, &server, &answers).unwrap();
        return;
    }
    let expected = recorded::load(&corpus::folder(), &topics).unwrap();
    let verdict = differences::judge(&topics, &expected, &answers, &[]);
    assert!(verdict.is_good(), "{}", verdict.report());
}
