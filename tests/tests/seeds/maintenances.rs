//! Maintenances under faults and crashes, over many seeds: everything ends, nothing is left behind, no budget is broken, and
//! targets never go back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::EVICTION_REQUEST_STRATEGY_ANNOTATION;
use usher_api::{NodeMaintenance, PodType};
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_decide::maintenance::plan::PodClass;
use usher_decide::maintenance::written::Written;
use usher_tests::budget_watch::{BudgetWatch, Watched};
use usher_tests::chaos::{Process, Run, manager_faults};
use usher_tests::interference::hands_everywhere;
use usher_tests::living::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, Living, NODES, STATEFUL_SETS, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::{WITHOUT_SURGES, answer_inside};
use usher_tests::seeds::{self, Named, Trace};

const TROUBLE: Duration = Duration::from_secs(600);
/// No maintenance is larger.
const MEBIBYTE: usize = 1 << 20;

async fn manager(run: Run) {
    let time = run.clock.clone();
    let clock = Clock::from_fn(move || time.now());
    run_all(run.client, clock, &WITHOUT_SURGES).await;
}

/// A plan of forty entries with selectors, the last of which selects the pods of the deployment: more than a node lists, and
/// multiplied out with another of these, sixteen hundred.
fn plan(of: &str) -> Value {
    let entry = |number| {
        let last = if number == 39 { vec!["web".to_owned()] } else { vec![] };
        let apps: Vec<String> = last.into_iter().chain([format!("{of}-{number}")]).collect();
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]});
        json!({"podPriority": 0, "podType": "Default", "podSelector": selector})
    };
    (0..40).map(entry).collect()
}

/// Which of these pods are targeted on which node, as its status says.
fn targets(maintenance: &Value) -> Result<BTreeSet<(&'static str, usize)>> {
    let bytes = maintenance.to_string().len();
    ensure!(bytes < MEBIBYTE, "{bytes} bytes");
    let maintenance: NodeMaintenance = serde_json::from_value(maintenance.clone())?;
    let status = maintenance.status.unwrap_or_default();
    let complete = status.conditions.iter().find(|condition| condition.type_ == "StatusComplete");
    ensure!(complete.is_none(), "{complete:?}");
    let written = Written::read(&status);
    let pod = |kind, priority, app: &str| PodClass {
        kind,
        priority,
        labels: Arc::new([("app".to_owned(), app.to_owned())].into()),
    };
    let pods = [
        pod(PodType::Default, 0, "web"),
        pod(PodType::Default, 0, "another"),
        pod(PodType::Default, 2_000_000_000, "another"),
        pod(PodType::DaemonSet, 0, "another"),
        pod(PodType::Static, 0, "another"),
    ];
    let mut targeted = BTreeSet::new();
    for node in ["n1", "n2", "n3", "n4"] {
        let selects = |pod: &PodClass| written.get(node).is_some_and(|targets| targets.selects(pod));
        targeted.extend((0..pods.len()).filter(|at| selects(&pods[*at])).map(|at| (node, at)));
    }
    Ok(targeted)
}

async fn maintenances_in_trouble(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start(seed, 10).await?;
    if let Some(trace) = trace {
        living.cluster.faults().trace_to(trace);
    }
    living.install_crds().await?;
    living.install_policies(&["policies.yaml"]).await?;
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 12}))).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 10, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await?;
    let webhook = kube::Client::new(living.cluster.service(), "default");
    for (path, configuration) in answer_inside(&living.cluster, webhook, &WITHOUT_SURGES) {
        living.create(&path, &configuration).await?;
    }
    living.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await?;
    let mut db = workload("StatefulSet", "db", json!({"replicas": 5}));
    db["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: "MaxUnavailable"});
    living.create(STATEFUL_SETS, &db).await?;
    living.rolled_out("web").await?;
    let is_there = |db: &Value| db["status"]["availableReplicas"] == 5;
    living.until(&format!("{STATEFUL_SETS}/db"), is_there).await?;
    living.patch(&format!("{NODES}/n3"), &json!({"spec": {"unschedulable": true}})).await?;
    let budgets =
        // The StatefulSet has no budget: one at a time is what its interceptor promises.
        BudgetWatch::start(
            &living.cluster,
            &[Watched { app: "web", least: 10 }, Watched { app: "db", least: 4 }],
            SignedDuration::ZERO,
        );

    living.cluster.faults().set(manager_faults());
    let mut process = Process::new(&living.cluster, "manager", manager);
    let end = Instant::now() + TROUBLE;
    let people = async {
        let mut first = of_nodes("a", "Drain", &["n1", "n2"]);
        first["spec"]["drainPlan"] = plan("a");
        living.create(MAINTENANCES, &first).await?;
        sleep(Duration::from_secs(20)).await;
        let mut second = of_nodes("b", "Cordon", &["n2", "n3"]);
        second["spec"]["drainPlan"] = plan("b");
        living.create(MAINTENANCES, &second).await?;
        sleep(Duration::from_secs(20)).await;
        living.set_stage("b", "Drain").await?;
        let mut limited = of_nodes("c", "Drain", &["n1", "n4"]);
        limited["spec"]["drainLimit"] = json!({"maxNodes": 1});
        living.create(MAINTENANCES, &limited).await?;
        let mut before: Vec<BTreeSet<(&str, usize)>> = vec![BTreeSet::new(); 3];
        while Instant::now() < end {
            for (name, before) in ["a", "b", "c"].into_iter().zip(&mut before) {
                let now = targets(&living.maintenance(name).await?)?;
                let lost: Vec<_> = before.difference(&now).collect();
                ensure!(lost.is_empty(), "{name}: targets went back: {lost:?}");
                *before = now;
            }
            sleep(Duration::from_secs(2)).await;
        }
        anyhow::Ok(())
    };
    let (people, ()) = join(people, process.upheaval(end, Duration::from_secs(30))).await;
    people?;
    living.cluster.faults().set(Vec::new());
    for name in ["a", "b", "c"] {
        if let Err(why) = living.until(&format!("{MAINTENANCES}/{name}"), is_drained).await {
            let requests = living.get(REQUESTS).await?;
            let waits = requests["items"].as_array().into_iter().flatten().map(|request| {
                format!(
                    "{} {}: {}",
                    request["spec"]["podRef"]["name"],
                    request["status"]["activeInterceptorClass"],
                    request["status"]["message"]
                )
            });
            return Err(why.context(waits.collect::<Vec<_>>().join("\n")));
        }
    }
    living.set_stage("a", "Complete").await?;
    living.delete(&format!("{MAINTENANCES}/b")).await?;
    living.delete(&format!("{MAINTENANCES}/c")).await?;
    let is_over = |list: &Value| {
        let left = list["items"].as_array().cloned().unwrap_or_default();
        left.len() == 1 && left[0]["metadata"]["finalizers"].is_null()
    };
    living.until(MAINTENANCES, is_over).await?;
    living.until(REQUESTS, |list| list["items"].as_array().is_none_or(Vec::is_empty)).await?;
    for number in 1..=10 {
        let (cordoned, held) = living.cordon(&format!("n{number}")).await?;
        ensure!(
            cordoned == (number == 3) && held.is_none(),
            "n{number}: cordoned {cordoned}, held by {held:?}"
        );
    }
    let agent =
        living.until(&format!("{DAEMON_SETS}/agent"), |agent| agent["status"]["numberReady"] == 10).await;
    agent.context("daemons come back")?;
    living.until(&format!("{STATEFUL_SETS}/db"), is_there).await?;
    let verdict = budgets.verdict();
    ensure!(verdict.overdrawn.is_empty(), "{}", verdict.overdrawn.join("\n"));
    ensure!(verdict.evictions > 0, "nothing was evicted");
    Ok(())
}

#[test]
fn maintenances_end_well_whatever_goes_wrong() {
    let named = Named { module: module_path!(), test: "maintenances_end_well_whatever_goes_wrong" };
    if let Err(failure) = seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), maintenances_in_trouble) {
        panic!("{failure}");
    }
}

#[test]
fn drains_keep_their_order_end_and_leave_nothing_behind_whoever_interferes() {
    let named = Named {
        module: module_path!(),
        test: "drains_keep_their_order_end_and_leave_nothing_behind_whoever_interferes",
    };
    if let Err(failure) = seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), hands_everywhere) {
        panic!("{failure}");
    }
}
