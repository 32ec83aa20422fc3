//! The simulated cluster in virtual time: controllers create 150,000 pods on 5,000 nodes from nothing, and then an hour passes in which
//! only heartbeats are written.

use anyhow::{Result, ensure};
use bytes::Bytes;
use cluster_simulator as life;
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::{Cluster, ClusterService, Options};
use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt as _;

use crate::process_memory::of_this_process;
use crate::report::{Figure, Report};

const PODS: usize = 150_000;
const PODS_PER_NODE: usize = 30;
/// Virtual time that the start may take.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Writes of each kind on the otherwise empty server.
const COMPARED: usize = 2000;
const HOUR: Duration = Duration::from_secs(3600);
/// Seconds: thirty times faster than real time. No read writes anything, so 5,000 kubelets write 1,860,000 heartbeats in an hour, each a
/// request with its rights, field owners, validation and watch event. That costs 1.4 times the same request on an empty server, and its
/// profile has no step to remove. An earlier aim of 5 s was from a time when heartbeats were written only once somebody read them.
const IDLE_HOUR_AIM: f64 = 120.0;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NAMESPACES: usize = 50;
const ZONES: usize = 3;

/// Needs a paused runtime.
pub async fn measure(report: &mut Report) -> Result<()> {
    let pods = report.size().of(PODS);
    let nodes = pods / PODS_PER_NODE;
    let bare = bare_writes().await?;
    let cluster = fresh();
    let service = cluster.service();
    let started = Instant::now();
    let cpu = cpu_seconds()?;
    let _life = life::start(
        &cluster,
        life::Options {
            without_events: true,
            node_heartbeats: true,
            node_leases: true,
            ..life::Options::default()
        },
    );
    let workloads = populate(&service, nodes, pods).await?;
    settle(&service, &workloads).await?;
    let (took, cpu) = (started.elapsed(), cpu_seconds()? - cpu);
    let virtual_seconds = cluster.now().as_second() - START;
    println!(
        "{nodes} nodes, {pods} pods of {} workloads, without events: {virtual_seconds} s of cluster time",
        workloads.len()
    );
    check(&service, nodes, pods).await?;
    report.add(Figure::measured("from nothing to all pods running", took.as_secs_f64(), "s").at_most(240.0));
    let per_pod = cpu * 1e6 / pods as f64;
    println!("CPU time: {cpu:.0} s, {per_pod:.0} us for a pod; its bare writes take {bare:.0} us");
    let name = "CPU per pod, against its bare create, bind and status";
    report.add(Figure::ratio(name, per_pod / bare).at_most(3.0));
    let peak = of_this_process("VmHWM")? / 1_048_576.0;
    report.add(Figure::measured("peak memory, whole process", peak, "MiB").at_most(2048.0));
    idle_hour(&cluster, nodes, report).await
}

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600;

fn fresh() -> Cluster {
    let start = Timestamp::from_second(START).unwrap_or_default();
    let clock = Arc::new(TokioClock::starting_at(start));
    Cluster::new(Options { clock, seed: Some(1), ..Options::default() })
}

/// Microseconds of the three writes of a pod on an otherwise empty server: no simulation can need less.
async fn bare_writes() -> Result<f64> {
    let cluster = Cluster::new(Options { housekeeping: false, ..Options::default() });
    let service = cluster.service();
    let pods = "/api/v1/namespaces/default/pods";
    let cpu = cpu_seconds()?;
    for index in 0..COMPARED {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let template = template(&format!("app-{}", index % 10));
        (pod["metadata"], pod["spec"]) = (template["metadata"].clone(), template["spec"].clone());
        let name = format!("pod-{index}");
        pod["metadata"]["name"] = name.clone().into();
        send(&service, Method::POST, pods, &pod).await?;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        send(&service, Method::POST, &format!("{pods}/{name}/binding"), &binding).await?;
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2026-01-01T00:00:00Z",
            "conditions": (["Initialized", "ContainersReady", "Ready"].map(condition)),
            "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        }});
        send(&service, Method::PATCH, &format!("{pods}/{name}/status"), &status).await?;
    }
    Ok((cpu_seconds()? - cpu) * 1e6 / COMPARED as f64)
}

/// A workload: its path, and the field of its status that counts its ready pods, with how many there must be.
struct Workload {
    path: String,
    ready: &'static str,
    pods: usize,
}

/// Nodes, then deployments large and small, stateful sets of both policies, and daemon sets: so many pods together.
async fn populate(service: &ClusterService, nodes: usize, pods: usize) -> Result<Vec<Workload>> {
    for index in 0..nodes {
        let name = format!("node-{index:04}");
        let labels = json!({
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", index % ZONES),
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        send(service, Method::POST, "/api/v1/nodes", &node).await?;
    }
    for index in 0..NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(index)}});
        send(service, Method::POST, "/api/v1/namespaces", &namespace).await?;
    }
    let mut made = Vec::new();
    for index in 0..2 {
        made.push(make(service, "DaemonSet", index, nodes, json!({})).await?);
    }
    let mut left = pods.saturating_sub(2 * nodes);
    let mut index = 0;
    while left > 0 {
        // Two large ones, then every tenth is a stateful set; every twentieth wants to be spread or apart.
        let (kind, size, extra) = match index {
            0 | 1 => ("Deployment", pods / 30, json!({})),
            _ if index % 20 == 5 => ("StatefulSet", 50, json!({"podManagementPolicy": "Parallel"})),
            _ if index % 20 == 15 => ("StatefulSet", 50, json!({})),
            _ => ("Deployment", 100, json!({})),
        };
        let size = size.min(left);
        made.push(make(service, kind, index, size, extra).await?);
        left -= size;
        index += 1;
    }
    Ok(made)
}

fn namespace(index: usize) -> String {
    format!("team-{:02}", index % NAMESPACES)
}

async fn make(
    service: &ClusterService,
    kind: &str,
    index: usize,
    size: usize,
    extra: Value,
) -> Result<Workload> {
    let name = format!("{}-{index:04}", kind.to_lowercase());
    let mut spec = extra;
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = template(&name);
    let (plural, ready) = match kind {
        "DaemonSet" => ("daemonsets", "numberReady"),
        "StatefulSet" => ("statefulsets", "readyReplicas"),
        _ => ("deployments", "readyReplicas"),
    };
    if kind != "DaemonSet" {
        spec["replicas"] = size.into();
    }
    if kind == "StatefulSet" {
        spec["serviceName"] = name.clone().into();
    }
    let wants = &mut spec["template"]["spec"];
    match index % 20 {
        3 => {
            wants["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": name}},
            }]);
        }
        7 => {
            wants["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname",
            }]}});
        }
        _ => {}
    }
    let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let all = format!("/apis/apps/v1/namespaces/{}/{plural}", namespace(index));
    send(service, Method::POST, &all, &object).await?;
    Ok(Workload { path: format!("{all}/{name}"), ready, pods: size })
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{
            "name": "c", "image": "registry.example.com/shop/web:1.2.3", "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }]},
    })
}

/// Until each workload says that all its pods are ready.
async fn settle(service: &ClusterService, workloads: &[Workload]) -> Result<()> {
    let begun = tokio::time::Instant::now();
    let mut waiting: Vec<&Workload> = workloads.iter().collect();
    while !waiting.is_empty() {
        ensure!(
            begun.elapsed() < PATIENCE,
            "{} workloads are not ready after {PATIENCE:?}, the first is {}",
            waiting.len(),
            waiting[0].path
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut left = Vec::new();
        for workload in waiting {
            let object = get(service, &workload.path).await?;
            if object["status"][workload.ready].as_u64() != Some(workload.pods as u64) {
                left.push(workload);
            }
        }
        waiting = left;
    }
    Ok(())
}

/// All are there, all run, and no node has more than its share by much.
async fn check(service: &ClusterService, nodes: usize, pods: usize) -> Result<()> {
    let running = get(service, "/api/v1/pods?fieldSelector=status.phase%3DRunning&limit=1").await?;
    let all = get(service, "/api/v1/pods?limit=1").await?;
    let left = all["metadata"]["remainingItemCount"].as_u64().unwrap_or_default() + 1;
    ensure!(left == pods as u64, "{left} pods instead of {pods}");
    ensure!(running["items"].as_array().is_some_and(|items| items.len() == 1), "none runs");
    let there = get(service, "/api/v1/nodes?limit=1").await?;
    let there = there["metadata"]["remainingItemCount"].as_u64().unwrap_or_default() + 1;
    ensure!(there == nodes as u64, "{there} nodes instead of {nodes}");
    Ok(())
}

/// An hour in which only heartbeats are written; afterwards the leases of all nodes are fresh.
async fn idle_hour(cluster: &Cluster, nodes: usize, report: &mut Report) -> Result<()> {
    let bare = bare_heartbeat().await?;
    let service = cluster.service();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let revision = cluster.store().revision();
    let (started, cpu) = (Instant::now(), cpu_seconds()?);
    tokio::time::sleep(HOUR).await;
    let (took, cpu) = (started.elapsed(), cpu_seconds()? - cpu);
    let beats = cluster.store().revision() - revision;
    let per_beat = cpu * 1e6 / beats as f64;
    println!(
        "{beats} heartbeats in the idle hour, {per_beat:.1} us of CPU time each; a bare one takes {bare:.1} us"
    );
    report.add(Figure::measured("an idle hour", took.as_secs_f64(), "s").at_most(IDLE_HOUR_AIM));
    report.add(Figure::ratio("CPU per heartbeat, against its bare write", per_beat / bare).at_most(2.0));
    let started = Instant::now();
    let leases = get(&service, LEASES).await?;
    let took = started.elapsed();
    let now = cluster.now();
    let is_fresh = |lease: &&Value| {
        let renewed = lease["spec"]["renewTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        renewed.is_some_and(|at| (now - at).get_seconds() <= 10)
    };
    let fresh = leases["items"].as_array().into_iter().flatten().filter(is_fresh).count();
    ensure!(fresh == nodes, "{fresh} of {nodes} leases are fresh");
    report.add(Figure::measured("a list of all leases after it", took.as_secs_f64(), "s").at_most(5.0));
    Ok(())
}

/// Microseconds of one renewal of a lease on an otherwise empty server: no simulated kubelet can need less.
async fn bare_heartbeat() -> Result<f64> {
    let cluster = Cluster::new(Options { housekeeping: false, ..Options::default() });
    let service = cluster.service();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node"},
        "spec": {"holderIdentity": "node", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    send(&service, Method::POST, LEASES, &lease).await?;
    let cpu = cpu_seconds()?;
    for index in 0..COMPARED {
        let at =
            Timestamp::from_second(START + 10 * i64::try_from(index)?)?.strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
        let beat = json!({"metadata": {}, "spec": {"holderIdentity": "node", "renewTime": at.to_string()}});
        send(&service, Method::PATCH, &format!("{LEASES}/node"), &beat).await?;
    }
    Ok((cpu_seconds()? - cpu) * 1e6 / COMPARED as f64)
}

async fn get(service: &ClusterService, path: &str) -> Result<Value> {
    send(service, Method::GET, path, &Value::Null).await
}

async fn send(service: &ClusterService, method: Method, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let content =
        if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content)
        .header(header::USER_AGENT, "bench/1")
        .body(Full::new(body))?;
    let Ok(response) = service.clone().oneshot(request).await;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    Ok(serde_json::from_slice(&body)?)
}

/// Processor time of the one thread of this process so far.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: f64 = stat.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(nanos / 1e9)
}
