//! The memory of the manager's controllers with all nodes, pods and requests of a large cluster, and the time until they have looked
//! at all of them. The embedded cluster is another process, so that only the controllers are measured.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use embedded_apiserver::{Cluster, Options};
use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tower::ServiceExt as _;
use usher_api::names::MANAGER_NAMESPACE;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::metrics::Metrics;
use usher_controllers::{Context, Controller, Controllers};
use usher_tests::crds;
use usher_tests::living::{DAEMON_SETS, NODES, node, workload};
use usher_tests::requests::DRAIN;

use usher_tests::counted::counted;

use crate::process_memory::{Cgroup, of_this_process};
use crate::report::{Figure, Report};

const NAMESPACES: usize = 100;
const PODS: usize = 150_000;
const NODE_COUNT: usize = 5000;
/// On each node is a pod of each of them, which nobody asks to leave.
const DAEMON_SET_COUNT: usize = 10;
/// What a pod weighs as the server stores it, managed fields and all.
const STORED_BYTES: usize = 2800;
const PATIENCE: Duration = Duration::from_secs(300);
/// Megabytes.
const STEADY_AIM: f64 = 300.0;
/// Megabytes: nine tenths of the memory limit of deploy/base/deployment.yaml, beyond which the kernel kills the manager.
const PEAK_AIM: f64 = 483.0;
const GROUP: &str = "evictionrequest.coordination.k8s.io";

/// The controllers of one cluster.
struct Measured {
    /// Seconds until the controllers have looked at everything.
    caught_up: f64,
    /// Megabytes of resident memory then.
    steady: f64,
    /// Megabytes at most.
    peak: f64,
    peak_is_of: &'static str,
}

/// Measures clusters of growing size, as a table to plan with; the largest is judged.
pub async fn measure(report: &mut Report) -> Result<()> {
    let mut largest = None;
    for share in report.size().pick(&[100, 10, 1][..], &[100, 10]) {
        let (nodes, pods) = (NODE_COUNT / share, PODS / share);
        let measured = in_processes(pods, nodes).await?;
        println!(
            "{nodes} nodes, {pods} pods with requests, {} pods of DaemonSets: known after {:.1} s, {:.0} MB then, \
             {:.0} MB at most ({})",
            nodes * DAEMON_SET_COUNT,
            measured.caught_up,
            measured.steady,
            measured.peak,
            measured.peak_is_of
        );
        largest = Some(measured);
    }
    let Measured { caught_up, steady, peak, peak_is_of } = largest.context("no sizes")?;
    report.add(Figure::measured("until the controllers have looked at all", caught_up, "s").at_most(30.0));
    report.add(Figure::measured("memory of all controllers then, RSS", steady, "MB").at_most(STEADY_AIM));
    let name = format!("peak memory of all controllers, {peak_is_of}");
    report.add(Figure::measured(name, peak, "MB").at_most(PEAK_AIM));
    Ok(())
}

/// Starts the server and the controllers, each as a process, and reads what the controllers have measured.
async fn in_processes(pods: usize, nodes: usize) -> Result<Measured> {
    let program = std::env::current_exe()?;
    let mut server = Command::new(&program)
        .args(["part", "serve", &pods.to_string(), &nodes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let out = server.stdout.take().context("no output of the server")?;
    let url = BufReader::new(out).lines().next_line().await?.context("the server did not start")?;
    let cgroup = Cgroup::new("usher-figures");
    let output = command_in(cgroup.as_ref().ok(), &program)
        .args(["part", "control", &url])
        // The manager runs with this setting: deploy/base/deployment.yaml.
        .env("MIMALLOC_PURGE_DELAY", "0")
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    server.kill().await?;
    ensure!(output.status.success(), "the controllers failed");
    let figures: Value = serde_json::from_slice(&output.stdout)?;
    let waiting = &figures["waiting"];
    ensure!(*waiting == pods, "{waiting} of {pods} requests wait for their interceptor");
    // Admission learns once which nodes are held, and a second time if a watch was late.
    let writes = figures["writes"].as_u64().context("no count of the writes")?;
    ensure!(writes <= 2, "the controllers wrote {writes} times");
    let figure = |name: &str| figures[name].as_f64().with_context(|| format!("no figure {name}"));
    let (peak, peak_is_of) = match &cgroup {
        Ok(cgroup) => (cgroup.peak()? / 1e6, "cgroup"),
        Err(why) => {
            println!(
                "no cgroup can be created, so the peak is VmHWM, without page cache and sockets: {why:#}"
            );
            (figure("peak")?, "VmHWM")
        }
    };
    Ok(Measured { caught_up: figure("caught_up")?, steady: figure("memory")?, peak, peak_is_of })
}

/// A command for a program that joins the control group before it starts, so that all of its memory is counted.
fn command_in(cgroup: Option<&Cgroup>, program: &Path) -> Command {
    let Some(cgroup) = cgroup else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", "echo 0 > \"$1\" && shift && exec \"$@\"", "sh"]).arg(cgroup.members()).arg(program);
    command
}

/// The process of the server: it prints its address, and ends when its input ends.
pub async fn serve(pods: usize, nodes: usize) -> Result<()> {
    let cluster = Cluster::new(Options { housekeeping: false, ..Options::default() });
    fill(&cluster, pods, nodes).await?;
    let serving = cluster.serve_http().await?;
    println!("{}", serving.url());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Objects as the server makes them, through its API. The first pod says how much is missing from the weight of the others.
async fn fill(cluster: &Cluster, pods: usize, nodes: usize) -> Result<()> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in crds::definitions()? {
        send(cluster, Method::POST, definitions, &definition).await?;
    }
    for name in (0..NAMESPACES).map(namespace).chain([MANAGER_NAMESPACE.to_string()]) {
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        send(cluster, Method::POST, "/api/v1/namespaces", &home).await?;
    }
    for number in 0..nodes {
        send(cluster, Method::POST, NODES, &node(&node_name(number))).await?;
    }
    let mut pod = pattern();
    let first = make_running(cluster, "default", &pod).await?;
    ask_to_leave(cluster, "default", &first).await?;
    let missing = STORED_BYTES.saturating_sub(first.to_string().len());
    pod["metadata"]["annotations"]["padding"] = "x".repeat(missing).into();
    for number in 1..pods {
        let namespace = namespace(number % NAMESPACES);
        pod["metadata"]["name"] = format!("web-{number:06}").into();
        pod["metadata"]["labels"]["app"] = format!("app-{}", number % 500).into();
        pod["spec"]["nodeName"] = node_name(number % nodes).into();
        let made = make_running(cluster, &namespace, &pod).await?;
        ask_to_leave(cluster, &namespace, &made).await?;
    }
    fill_daemons(cluster, &mut pod, nodes).await
}

fn namespace(number: usize) -> String {
    format!("team-{number:02}")
}

fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// The pod as the server has it then.
async fn make_running(cluster: &Cluster, namespace: &str, pod: &Value) -> Result<Value> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let made = send(cluster, Method::POST, &pods, pod).await?;
    let running = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    send(cluster, Method::PATCH, &format!("{pods}/{}", path_of(&made, "/status")), &running).await
}

async fn ask_to_leave(cluster: &Cluster, namespace: &str, pod: &Value) -> Result<()> {
    let requests = format!("/apis/{GROUP}/v1alpha1/namespaces/{namespace}/evictionrequests");
    let uid = &pod["metadata"]["uid"];
    let request = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "EvictionRequest",
        "metadata": {"name": uid, "finalizers": [DRAIN]},
        "spec": {
            "podRef": {"name": pod["metadata"]["name"], "uid": uid},
            "interceptors": [{"interceptorClass": "backup.shop.example", "priority": 11000}],
        },
    });
    let request = send(cluster, Method::POST, &requests, &request).await?;
    // It is the interceptor's turn, so nothing is to be done.
    let turn = json!({"status": {
        "activeInterceptorClass": "backup.shop.example", "progressTimestamp": request["metadata"]["creationTimestamp"],
        "message": "half of the data is copied",
    }});
    send(cluster, Method::PATCH, &format!("{requests}/{}", path_of(&request, "/status")), &turn).await?;
    Ok(())
}

async fn fill_daemons(cluster: &Cluster, pod: &mut Value, nodes: usize) -> Result<()> {
    for set in 0..DAEMON_SET_COUNT {
        let name = format!("agent-{set}");
        let made = send(cluster, Method::POST, DAEMON_SETS, &workload("DaemonSet", &name, json!({}))).await?;
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "controller": true, "uid": made["metadata"]["uid"],
        }]);
        pod["metadata"]["labels"] =
            json!({"app": name, "controller-revision-hash": "6b59d9cb88", "pod-template-generation": "1"});
        for number in 0..nodes {
            pod["metadata"]["name"] = format!("{name}-{number:05}").into();
            pod["spec"]["nodeName"] = node_name(number).into();
            make_running(cluster, "default", pod).await?;
        }
    }
    Ok(())
}

fn pattern() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-000000", "annotations": {"padding": ""}, "labels": {"app": "app-0", "pod-template-hash": "6b59d9cb88"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6b59d9cb88", "controller": true,
                "uid": "00000000-0000-4000-8000-000000000000",
            }],
        },
        "spec": {
            "nodeName": "node-0000",
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.2.3",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "ports": [{"containerPort": 8080}],
            }],
        },
    })
}

fn path_of(object: &Value, below: &str) -> String {
    format!("{}{below}", object["metadata"]["name"].as_str().unwrap_or_default())
}

async fn send(cluster: &Cluster, method: Method, path: &str, body: &Value) -> Result<Value> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content)
        .header(header::USER_AGENT, "bench/1")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let Ok(response) = cluster.service().oneshot(request).await;
    let status = response.status();
    let Ok(body) = response.into_body().collect().await;
    let body = body.to_bytes();
    ensure!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}

/// The measured process: all controllers with their metrics, as in the manager. It prints its figures.
pub async fn control(url: &str) -> Result<()> {
    let mut config = kube::Config::new(url.parse()?);
    config.default_retry = false;
    let (client, calls) = counted(kube::Client::try_from(config)?);
    let metrics = Metrics::new(Clock::system());
    let synced = Arc::new(AtomicBool::new(false));
    let tell = synced.clone();
    let on_synced = Arc::new(move |controller| {
        if controller == Controller::EvictionRequests {
            tell.store(true, Ordering::Release);
        }
    });
    let context = Context { metrics: metrics.clone(), ..Context::new(client, Clock::system()) };
    let begun = Instant::now();
    let all = Controllers::with(&BundledInterceptor::ALL);
    let controllers = tokio::spawn(all.run_until(&context, on_synced));
    until(begun, || synced.load(Ordering::Acquire)).await?;
    // It has caught up when it has seen to all of them once, and nobody waits any more.
    let value = |name: &str| value_of(&metrics.text().unwrap_or_default(), name);
    let waiting = "evictionrequest_controller_active_interceptor{interceptor=\"backup.shop.example\"}";
    let depth = "workqueue_depth{name=\"evictionrequests\"}";
    let worked = "workqueue_work_duration_seconds_count{name=\"evictionrequests\"}";
    until(begun, || value(depth) == Some(0.0) && value(worked) >= value(waiting)).await?;
    let caught_up = begun.elapsed();
    let figures = json!({
        "caught_up": caught_up.as_secs_f64(),
        "memory": of_this_process("VmRSS")? / 1e6, "peak": of_this_process("VmHWM")? / 1e6,
        "waiting": value(waiting).unwrap_or_default() as usize,
        "writes": calls.writes.load(Ordering::Relaxed),
    });
    println!("{figures}");
    controllers.abort();
    Ok(())
}

async fn until(begun: Instant, is_so: impl Fn() -> bool) -> Result<()> {
    while !is_so() {
        ensure!(begun.elapsed() < PATIENCE, "the controller does not catch up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The value of one series in the text of the metrics.
fn value_of(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}
