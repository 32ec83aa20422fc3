//! Deployments that surge under faults, crashes, people who scale, roll out and back and call maintenances off, autoscalers, tools that
//! set replicas and limits back, pods that take minutes to start and new ones that never get ready, over many seeds: ready pods never
//! fall below what is wanted, everything ends, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{join, join5};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::{
    DELETION_COST_BEFORE_ANNOTATION, EVICTION_REQUEST_STRATEGY_ANNOTATION, HAND_OVER_ANNOTATION,
    INTERCEPTOR_PRIORITY_ANNOTATION, SURGE_ANNOTATION, SURGE_LABEL,
};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::chaos::{Process, Run, manager_faults};
use usher_tests::living::{DEPLOYMENTS, Living, PODS, template, workload};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_nodes};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::answer_inside;
use usher_tests::seeds::{self, Named, Trace};

/// Seeds that every run of the tests goes through; `make seeds` asks for more.
const FEW: u64 = 4;
const TROUBLE: Duration = Duration::from_secs(600);
/// So much of what was written is shown where pods are missing.
const HISTORY: usize = 200;
const START_DELAY: &str = "testbed.usher.dev/start-delay";
const READY_DELAY: &str = "testbed.usher.dev/ready-delay";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// How many pods its owner wants, by how many it may surge, and how long they take to start.
struct App {
    name: &'static str,
    replicas: u64,
    surge: u64,
    start: &'static str,
    /// A budget that lets nobody evict any.
    is_kept: bool,
}

const fn app(name: &'static str, replicas: u64, surge: u64) -> App {
    App { name, replicas, surge, start: "2s", is_kept: true }
}

/// Nobody changes these, so that they never have fewer ready pods, nor more than the surge allows.
const STEADY: [App; 3] = [app("one", 1, 1), app("three", 3, 1), app("auto", 2, 1)];
/// Rolled out meanwhile.
const ROLLED_OUT: App = app("ten", 10, 3);
/// Somebody scales it.
const SCALED: App = app("scaled", 4, 2);
/// A tool sets it back.
const RESET: App = App { is_kept: false, ..app("reset", 2, 1) };
/// A tool replaces its autoscaler whole.
const REPLACED: App = App { is_kept: false, ..app("replaced", 2, 1) };
/// One by one they take longer than the deadline, and maintenances ask for them in waves that overlap. Only the surge protects them.
const SLOW: App = App { is_kept: false, start: "4m", ..app("slow", 20, 1) };
/// One of its new pods never gets ready, and where that goes another one.
const UNREADY: App = App { is_kept: false, start: "10s", ..app("unready", 8, 3) };

async fn manager(run: Run) {
    let time = run.clock.clone();
    let clock = Clock::from_fn(move || time.now());
    run_all(run.client, clock, &BundledInterceptor::ALL).await;
}

fn path(app: &App) -> String {
    format!("{DEPLOYMENTS}/{}", app.name)
}

async fn create(living: &Living, app: &App, hands_over: bool) -> Result<()> {
    let strategy = json!({"rollingUpdate": {"maxSurge": app.surge, "maxUnavailable": 0}});
    let spec = json!({"replicas": app.replicas, "strategy": strategy});
    let mut deployment = workload("Deployment", app.name, spec);
    if hands_over {
        deployment["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: "HandOver"});
    }
    // There is room on every node.
    deployment["spec"]["template"] = template(app.name, "100m");
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({START_DELAY: app.start});
    living.create(DEPLOYMENTS, &deployment).await?;
    if app.is_kept {
        living.budget(app.name, app.name, json!({"maxUnavailable": 0})).await?;
    }
    living.rolled_out(app.name).await.map(drop)
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
        let ready = pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|it| it["type"] == "Ready" && it["status"] == "True");
        lines.push(format!(
            "{} on {} {} ready {ready} {} {}",
            meta["name"],
            pod["spec"]["nodeName"],
            pod["status"]["phase"],
            meta["annotations"]["controller.kubernetes.io/pod-deletion-cost"],
            meta["deletionTimestamp"]
        ));
    }
    Ok(lines.join("\n"))
}

/// The last that was written of its Deployment, ReplicaSets and pods: who wrote, and what somebody decides by.
fn history(living: &Living, app: &App) -> String {
    let mut lines = Vec::new();
    for resource in ["apps/deployments", "apps/replicasets", "pods"] {
        let Ok((events, _)) = living.cluster.store().events_after(resource, 0, usize::MAX) else { continue };
        for event in events {
            let object: Value = serde_json::from_str(event.object.text()).unwrap_or_default();
            let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
            if !meta["name"].as_str().is_some_and(|name| name.starts_with(app.name)) {
                continue;
            }
            let managers = meta["managedFields"].as_array().into_iter().flatten();
            let by = managers.map(|it| (it["time"].as_str(), it["manager"].as_str())).max();
            let line = format!(
                "{by:?} {:?} {resource} {} {} replicas {} node {} deleted {} status {status}",
                event.kind,
                meta["name"],
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
    let living = Living::start(seed, 10).await?;
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
    let mut hand_over = Vec::new();
    // It goes on for an hour, so that not every seed has it.
    let slow = (choice.u8(..4) == 0).then_some(&SLOW);
    for app in STEADY.iter().chain([&ROLLED_OUT, &SCALED, &UNREADY]).chain(slow) {
        let hands_over = choice.bool();
        create(&living, app, hands_over).await?;
        hand_over.extend((hands_over || of_namespace == Some("HandOver")).then_some(app.name));
    }
    // It is handed over once it was set back twice.
    create(&living, &RESET, false).await?;
    create(&living, &REPLACED, false).await?;
    for name in ["auto", REPLACED.name] {
        // Above the Deployment's interceptor, or below it.
        let priority = choice.choice([None, Some("11000")]).flatten();
        let annotations = priority.map(|priority| json!({INTERCEPTOR_PRIORITY_ANNOTATION: priority}));
        let autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"minReplicas": 2, "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
        });
        living.create(AUTOSCALERS, &autoscaler).await?;
    }
    let begun = living.cluster.now();
    let meters: Vec<_> = STEADY
        .iter()
        .chain([&ROLLED_OUT, &UNREADY])
        .chain(slow)
        .map(|app| (app, living.meter(app.name)))
        .collect();

    living.cluster.faults().set(manager_faults());
    let mut process = Process::new(&living.cluster, "manager", manager);
    let end = Instant::now() + TROUBLE;
    let pause = |random: &mut fastrand::Rng, most: u64| Duration::from_secs(random.u64(1..=most));
    let (mut of_admin, mut of_user, mut of_tool) = (random.fork(), random.fork(), random.fork());
    let mut of_probe = random.fork();
    let admin = async {
        living.create(MAINTENANCES, &of_nodes("a", "Drain", &["n1", "n2"])).await?;
        sleep(pause(&mut of_admin, 40)).await;
        // Called off in the middle, and asked for once more.
        living.create(MAINTENANCES, &of_nodes("b", "Drain", &["n3", "n4"])).await?;
        sleep(pause(&mut of_admin, 20)).await;
        living.delete(&format!("{MAINTENANCES}/b")).await?;
        sleep(pause(&mut of_admin, 100)).await;
        living.create(MAINTENANCES, &of_nodes("c", "Drain", &["n4", "n5"])).await?;
        anyhow::Ok(())
    };
    let user = async {
        let mut wanted = SCALED.replicas;
        while Instant::now() < end {
            sleep(pause(&mut of_user, 90)).await;
            wanted = of_user.u64(1..=6);
            living.patch(&path(&SCALED), &json!({"spec": {"replicas": wanted}})).await?;
            if of_user.bool() {
                // Back to one of few templates, with the annotations that its ReplicaSet had from the Deployment, as kubectl does it.
                let version = json!({"version": of_user.u64(..5).to_string()});
                let copied = json!({SURGE_ANNOTATION: r#"{"by":3,"replicas":10}"#});
                let copied = if of_user.bool() { copied } else { json!({}) };
                let change = json!({"metadata": {"annotations": copied}, "spec": {"template": {"metadata": {"annotations": version}}}});
                living.patch(&path(&ROLLED_OUT), &change).await?;
            }
        }
        anyhow::Ok(wanted)
    };
    let tool = async {
        while Instant::now() < end {
            sleep(pause(&mut of_tool, 20)).await;
            if living.get(&path(&RESET)).await?["spec"]["replicas"] != RESET.replicas {
                living.patch(&path(&RESET), &json!({"spec": {"replicas": RESET.replicas}})).await?;
            }
            let autoscaler = format!("{AUTOSCALERS}/{}", REPLACED.name);
            if living.get(&autoscaler).await?["spec"]["minReplicas"] != REPLACED.replicas {
                let whole = json!({
                    "metadata": {"annotations": {SURGE_ANNOTATION: null}},
                    "spec": {"minReplicas": REPLACED.replicas, "maxReplicas": REPLACED.replicas},
                });
                living.patch(&autoscaler, &whole).await?;
            }
        }
        anyhow::Ok(())
    };
    let probe = async {
        while Instant::now() < end {
            let pods = living.pods(UNREADY.name).await?;
            let fails = |pod: &Value| !pod["metadata"]["annotations"][READY_DELAY].is_null();
            let starts = pods.iter().find(|pod| pod["status"]["phase"] == "Pending");
            if let Some(pod) = starts.filter(|_| !pods.iter().any(fails)) {
                let never = json!({"metadata": {"annotations": {READY_DELAY: "240h"}}});
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                living.patch(&format!("{PODS}/{name}"), &never).await?;
            }
            sleep(pause(&mut of_probe, 10)).await;
        }
        anyhow::Ok(())
    };
    let limits = async {
        while Instant::now() < end {
            for app in &STEADY {
                let deployment = living.get(&path(app)).await?;
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
    let people = join5(admin, user, tool, probe, limits);
    let ((admin, user, tool, probe, limits), ()) =
        join(people, process.upheaval(end, Duration::from_secs(30))).await;
    admin?;
    tool?;
    probe?;
    limits?;
    let scaled = user?;
    living.cluster.faults().set(Vec::new());
    let mut asked = vec!["a", "c"];
    if slow.is_some() {
        // Those who are asked now wait when the others have left, and have progress of their own.
        sleep(Duration::from_secs(random.u64(900..=1800))).await;
        living.create(MAINTENANCES, &of_nodes("d", "Drain", &["n3", "n6", "n7"])).await?;
        asked.push("d");
    }
    for name in asked {
        if living.until(&format!("{MAINTENANCES}/{name}"), is_drained).await.is_err() {
            bail!("{name} is not drained:\n{}", waits(&living).await?);
        }
        living.delete(&format!("{MAINTENANCES}/{name}")).await?;
    }
    living.until(REQUESTS, |list| list["items"].as_array().is_none_or(Vec::is_empty)).await?;

    let wanted = STEADY.iter().chain([&ROLLED_OUT, &RESET, &REPLACED, &UNREADY]).chain(slow);
    let wanted = wanted.map(|app| (app, app.replicas));
    for (app, replicas) in wanted.chain([(&SCALED, scaled)]) {
        let is_as_before = |it: &Value| {
            it["spec"]["replicas"] == replicas
                && it["status"]["availableReplicas"].as_u64() >= Some(least(app, replicas))
                && it["metadata"]["labels"][SURGE_LABEL].is_null()
                && it["metadata"]["annotations"][SURGE_ANNOTATION].is_null()
        };
        if living.until(&path(app), is_as_before).await.is_err() {
            let (waits, history) = (waits(&living).await?, history(&living, app));
            bail!("{} is not as it was:\n{waits}\n{history}", app.name);
        }
    }
    let is_as_before = |it: &Value| {
        it["spec"]["minReplicas"] == 2
            && it["spec"]["maxReplicas"] == 2
            && it["metadata"]["annotations"][SURGE_ANNOTATION].is_null()
    };
    for name in ["auto", REPLACED.name] {
        living.until(&format!("{AUTOSCALERS}/{name}"), is_as_before).await.context(name)?;
    }
    let is_marked = |pod: &Value| {
        let annotations = &pod["metadata"]["annotations"];
        [DELETION_COST_BEFORE_ANNOTATION, HAND_OVER_ANNOTATION]
            .iter()
            .any(|mark| !annotations[mark].is_null())
    };
    living.until(PODS, |list| !list["items"].as_array().is_some_and(|all| all.iter().any(is_marked))).await?;
    for (app, meter) in meters {
        is_as_available_as_wanted(&living, app, Some(meter.minimum_since(begun).context("nobody counted")?))?;
    }
    Ok(())
}

/// Where one new pod never gets ready, one pod is evicted after its deadline, and the new one may stay in its place.
fn least(app: &App, replicas: u64) -> u64 {
    if app.name == UNREADY.name { replicas - 1 } else { replicas }
}

/// Nobody may ever have seen fewer ready pods than there should be.
fn is_as_available_as_wanted(living: &Living, app: &App, least_found: Option<usize>) -> Result<()> {
    let found = least_found.unwrap_or(usize::MAX);
    ensure!(
        found as u64 >= least(app, app.replicas),
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
    if let Err(failure) = seeds::run(named, seeds::wanted(FEW).unwrap(), surges_in_trouble) {
        panic!("{failure}");
    }
}
