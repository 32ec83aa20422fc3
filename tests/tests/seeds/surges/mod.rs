//! Deployments that surge under faults, crashes, people who scale, roll out and back and call maintenances off, autoscalers, tools that
//! set replicas and limits back, pods that take minutes to start, go down or never get ready, and interceptors of others between ours,
//! over many seeds: ready pods never fall below what is wanted, everything ends, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

mod actors;
mod apps;

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join, try_join, try_join5};
use serde_json::{Value, json};
use tokio::select;
use tokio::time::{Instant, sleep};
use usher_api::names::{
    DELETION_COST_BEFORE_ANNOTATION, EVICTION_REQUEST_STRATEGY_ANNOTATION, HAND_OVER_ANNOTATION,
    SURGE_ANNOTATION, SURGE_LABEL,
};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::chaos::{Process, Run, manager_faults};
use usher_tests::living::{DEPLOYMENTS, Living, PODS};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::answer_inside;
use usher_tests::seeds::{self, Named, Trace};

use self::actors::{Actor, is_ready};
use self::apps::{
    AUTOSCALED, App, DOWN, LOADED, REDUCED, REPLACED, RESET, ROLLED_OUT, SCALED, SLOW, STEADY, UNREADY,
    Variant, refuse_marks,
};

const TROUBLE: Duration = Duration::from_secs(600);
/// So much of what was written is shown where pods are missing.
const HISTORY: usize = 200;
async fn manager(run: Run) {
    let time = run.clock.clone();
    let clock = Clock::from_fn(move || time.now());
    run_all(run.client, clock, &BundledInterceptor::ALL).await;
}

/// What requests wait for, and what there is of their Deployments.
async fn waits(living: &Living) -> Result<String> {
    let mut lines = Vec::new();
    for request in living.get(REQUESTS).await?["items"].as_array().into_iter().flatten() {
        let (of, status) = (&request["spec"]["podRef"]["name"], &request["status"]);
        let completed = &status["activeInterceptorCompleted"];
        lines.push(format!("{of} {} {completed}: {}", status["activeInterceptorClass"], status["message"]));
    }
    for deployment in living.get(DEPLOYMENTS).await?["items"].as_array().into_iter().flatten() {
        let meta = &deployment["metadata"];
        lines.push(format!(
            "{} {} of {}: {}",
            meta["name"], meta["annotations"], deployment["spec"]["replicas"], deployment["status"]
        ));
    }
    for pod in living.get(PODS).await?["items"].as_array().into_iter().flatten() {
        let meta = &pod["metadata"];
        lines.push(format!(
            "{} on {} {} ready {} {} {}",
            meta["name"],
            pod["spec"]["nodeName"],
            pod["status"]["phase"],
            is_ready(pod),
            meta["annotations"]["controller.kubernetes.io/pod-deletion-cost"],
            meta["deletionTimestamp"]
        ));
    }
    Ok(lines.join("\n"))
}

/// The last that was written of its Deployment, ReplicaSets, pods and their requests: who wrote, and what somebody decides by.
fn history(living: &Living, app: &App) -> String {
    let mut lines = Vec::new();
    for resource in [
        "apps/deployments",
        "apps/replicasets",
        "pods",
        "evictionrequest.coordination.k8s.io/evictionrequests",
    ] {
        let Ok((events, _)) = living.cluster.store().events_after(resource, 0, usize::MAX) else { continue };
        for event in events {
            let object: Value = serde_json::from_str(event.object.text()).unwrap_or_default();
            let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
            let name = meta["name"].as_str().filter(|name| name.starts_with(app.name));
            if name.is_none() && meta["labels"]["app"] != app.name {
                continue;
            }
            let managers = meta["managedFields"].as_array().into_iter().flatten();
            let by = managers.map(|it| (it["time"].as_str(), it["manager"].as_str())).max();
            let line = format!(
                "{by:?} {:?} {resource} {} {} {} replicas {} node {} deleted {} status {status}",
                event.kind,
                meta["name"],
                spec["podRef"]["name"],
                meta["annotations"],
                spec["replicas"],
                spec["nodeName"],
                meta["deletionTimestamp"]
            );
            lines.push((event.object.revision, line));
        }
    }
    lines.sort_unstable();
    let last = lines.into_iter().rev().take(HISTORY).rev();
    last.map(|(revision, line)| format!("{revision} {line}")).collect::<Vec<_>>().join("\n")
}

async fn surges_in_trouble(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start(seed, 14).await?;
    if let Some(trace) = trace {
        living.cluster.faults().trace_to(trace);
    }
    living.install_crds().await?;
    living.install_policies(&["policies.yaml", "workloads/deployment-limits.yaml"]).await?;
    let webhook = kube::Client::new(living.cluster.service(), "default");
    for (path, configuration) in answer_inside(&living.cluster, webhook, &BundledInterceptor::ALL) {
        living.create(&path, &configuration).await?;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut choice = random.fork();
    // One that Deployments with a surge do not take from their namespace, one that they do, or none.
    let of_namespace = choice.choice([None, Some("MaxUnavailable"), Some("HandOver")]).flatten();
    let annotations = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: of_namespace});
    living.patch("/api/v1/namespaces/default", &json!({"metadata": {"annotations": annotations}})).await?;
    if choice.bool() {
        refuse_marks(&living).await?;
    }
    let mut hand_over = Vec::new();
    // It goes on for an hour, so that not every seed has it.
    let slow = (choice.u8(..4) == 0).then_some(&SLOW);
    let others = [&ROLLED_OUT, &SCALED, &UNREADY, &REDUCED, &LOADED, &DOWN];
    for app in STEADY.iter().chain(others).chain(slow) {
        let variant = Variant::choose(app, &mut choice);
        app.create(&living, &variant).await?;
        let hands_over = variant.hands_over || of_namespace == Some("HandOver");
        hand_over.extend(hands_over.then_some(app.name));
    }
    // They are handed over once they were set back twice.
    for app in [&RESET, &REPLACED] {
        app.create(&living, &Variant::default()).await?;
    }
    for (app, most) in AUTOSCALED {
        app.scale_within(most, &living, &mut choice).await?;
    }
    let begun = living.cluster.now();
    let meters: Vec<_> = STEADY
        .iter()
        .chain([&ROLLED_OUT, &UNREADY, &REDUCED, &LOADED])
        .chain(slow)
        .map(|app| (app, living.meter(app.name)))
        .collect();

    living.cluster.faults().set(manager_faults());
    let mut process = Process::new(&living.cluster, "manager", manager);
    let end = Instant::now() + TROUBLE;
    let load = Cell::new(3);
    let mut actor = || Actor::new(&living, &mut random, end);
    let people = try_join5(
        actor().administrates(),
        actor().uses(),
        actor().sets_back(),
        actor().fails_probes(),
        actor().takes_down(),
    );
    let for_ever = try_join(actor().scales_by_load(&load), actor().intercepts());
    let limits = async {
        while Instant::now() < end {
            for app in &STEADY {
                let deployment = living.get(&app.path()).await?;
                let found = deployment["spec"]["replicas"].as_u64();
                // A manager that believes to lead counts what another one takes back as set back by somebody, and hands over then.
                let record = deployment["metadata"]["labels"][SURGE_LABEL].as_str();
                let pods = living.pods(app.name).await?;
                let is_handed = |pod: &Value| !pod["metadata"]["annotations"][HAND_OVER_ANNOTATION].is_null();
                let hands_over =
                    record.is_some_and(|record| !record.ends_with("-0")) || pods.iter().any(is_handed);
                if hands_over && !hand_over.contains(&app.name) {
                    hand_over.push(app.name);
                }
                let is_within =
                    found.is_some_and(|found| (app.replicas..=app.replicas + app.surge).contains(&found));
                ensure!(is_within, "{} has {found:?} replicas", app.name);
                let there = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
                // Two managers that both believe to lead, and hear late of each other's pods, may hand over for different pods.
                let managers = if hand_over.contains(&app.name) { 2 } else { 1 };
                let most = app.replicas + managers * app.surge;
                ensure!(
                    there as u64 <= most,
                    "{} has {there} of {most} pods:\n{}",
                    app.name,
                    history(&living, app)
                );
            }
            for (app, meter) in &meters {
                is_as_available_as_wanted(&living, app, meter.minimum_since(begun))?;
            }
            sleep(Duration::from_secs(1)).await;
        }
        anyhow::Ok(())
    };
    let trouble = async {
        let upheaval = process.upheaval(end, Duration::from_secs(30));
        let (done, ()) = join(try_join(people, limits), upheaval).await;
        let (((), scaled, (), (), ()), ()) = done?;
        living.cluster.faults().set(Vec::new());
        anyhow::Ok(scaled)
    };
    let later = slow.map(|_| Duration::from_secs(random.u64(900..=1800)));
    let all = async {
        let scaled = trouble.await?;
        drain(&living, later).await?;
        let steady =
            STEADY.iter().chain([&ROLLED_OUT, &RESET, &REPLACED, &UNREADY, &REDUCED, &DOWN]).chain(slow);
        let steady = steady.map(|app| (app, app.replicas));
        is_as_before(&living, steady.chain([(&SCALED, scaled), (&LOADED, load.get())])).await
    };
    select! {
        ended = all => ended?,
        ended = for_ever => bail!("who goes on for ever ended: {ended:?}"),
    }
    for (app, meter) in meters {
        is_as_available_as_wanted(&living, app, Some(meter.minimum_since(begun).context("nobody counted")?))?;
    }
    Ok(())
}

/// Waits for all that was asked for, and asks once more where there are slow pods.
async fn drain(living: &Living, later: Option<Duration>) -> Result<()> {
    let mut asked = vec!["a", "c"];
    if let Some(later) = later {
        // Those who are asked now wait when the others have left, and have progress of their own.
        sleep(later).await;
        living.create(MAINTENANCES, &of_nodes("d", "Drain", &["n3", "n6", "n7"])).await?;
        asked.push("d");
    }
    for name in asked {
        if living.until(&format!("{MAINTENANCES}/{name}"), is_drained).await.is_err() {
            bail!("{name} is not drained:\n{}", waits(living).await?);
        }
        living.delete(&format!("{MAINTENANCES}/{name}")).await?;
    }
    living.until(REQUESTS, |list| list["items"].as_array().is_none_or(Vec::is_empty)).await.map(drop)
}

/// Everything is as its owner wants it, and nothing of ours is left.
async fn is_as_before(living: &Living, wanted: impl Iterator<Item = (&App, u64)>) -> Result<()> {
    for (app, replicas) in wanted {
        let is_as_before = |it: &Value| {
            it["spec"]["replicas"] == replicas
                && it["status"]["availableReplicas"].as_u64() >= Some(app.least_in_the_end(replicas))
                && it["metadata"]["labels"][SURGE_LABEL].is_null()
                && it["metadata"]["annotations"][SURGE_ANNOTATION].is_null()
        };
        if living.until(&app.path(), is_as_before).await.is_err() {
            let (waits, history) = (waits(living).await?, history(living, app));
            bail!("{} is not as it was, with {replicas} replicas:\n{waits}\n{history}", app.name);
        }
    }
    for (app, most) in AUTOSCALED {
        let is_as_before = |it: &Value| {
            it["spec"]["minReplicas"] == app.replicas
                && it["spec"]["maxReplicas"] == most
                && it["metadata"]["annotations"][SURGE_ANNOTATION].is_null()
        };
        living.until(&app.autoscaler(), is_as_before).await.context(app.name)?;
    }
    let is_marked = |pod: &Value| {
        let annotations = &pod["metadata"]["annotations"];
        [DELETION_COST_BEFORE_ANNOTATION, HAND_OVER_ANNOTATION]
            .iter()
            .any(|mark| !annotations[mark].is_null())
    };
    let is_clean = |list: &Value| !list["items"].as_array().is_some_and(|all| all.iter().any(is_marked));
    living.until(PODS, is_clean).await.map(drop)
}

/// Nobody may ever have seen fewer ready pods than there should be.
fn is_as_available_as_wanted(living: &Living, app: &App, least_found: Option<usize>) -> Result<()> {
    let found = least_found.unwrap_or(usize::MAX);
    ensure!(
        found as u64 >= app.least(),
        "{} had only {found} ready pods at {}:\n{}",
        app.name,
        living.cluster.now(),
        history(living, app)
    );
    Ok(())
}

#[test]
fn no_replica_is_lost_whatever_goes_wrong() {
    let named = Named { module: module_path!(), test: "no_replica_is_lost_whatever_goes_wrong" };
    if let Err(failure) = seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), surges_in_trouble) {
        panic!("{failure}");
    }
}
