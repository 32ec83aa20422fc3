//! Ctrl-C while a drain is followed. The signal is for the whole process, so this test has one of its own.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::json;
use tokio::time::sleep;
use usher_cli::{Ending, Environment, Streams};
use usher_tests::living::{BUDGETS, DEPLOYMENTS, Living, workload};
use usher_tests::maintenances::{MAINTENANCES, start_manager};
use usher_tests::witness::Witness;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: usher_cli::Command,
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_drain_goes_on_and_it_is_said_how_to_watch_and_cancel_it() {
    let living = Living::start(1, 2).await.unwrap();
    living.install_crds().await.unwrap();
    let witness = Witness::of(&living.cluster);
    let _manager = start_manager(&living.cluster, &witness);
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 4}))).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await.unwrap();
    living.rolled_out("web").await.unwrap();

    let server = living.cluster.clone();
    let environment = Environment {
        clock: Arc::new(move || server.now()),
        cluster: Some(witness.client("person")),
        ..Environment::plain()
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { out: &mut out, err: &mut err };
    let line = Line::try_parse_from(["usher", "drain", "n1"]).unwrap();
    let (ending, ()) = tokio::join!(usher_cli::run(line.command, &environment, streams), async {
        sleep(Duration::from_secs(60)).await;
        let signalled = Command::new("kill").args(["-INT", &std::process::id().to_string()]).status();
        assert!(signalled.unwrap().success());
    });
    assert_eq!(ending.unwrap(), Ending::Interrupted);
    assert_eq!(Ending::Interrupted.code(), 130);
    assert_eq!(
        String::from_utf8(err).unwrap(),
        "interrupted; maintenance drain-n1 continues\nwatch: usher maintenance describe drain-n1 --watch\ncancel: usher \
         maintenance cancel drain-n1\n"
    );
    let maintenance = living.get(&format!("{MAINTENANCES}/drain-n1")).await.unwrap();
    assert_eq!(maintenance["spec"]["stage"], "Drain");
    assert!(maintenance["metadata"]["deletionTimestamp"].is_null());
}
