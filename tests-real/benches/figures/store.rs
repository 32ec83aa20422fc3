//! The embedded API server with 150,000 pods: held, listed, watched and patched. Its creates and status patches are compared with
//! those of kube-apiserver and etcd in the same run, through the same client.

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use embedded_apiserver::{Cluster, ClusterService, Options};
use futures::stream::{self, StreamExt as _};
use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tower::ServiceExt as _;
use usher_tests::TestCluster;
use usher_tests::cluster::ADMIN;
use usher_tests_real::RealCluster as _;

use crate::process_memory::of_this_process;
use crate::report::{Figure, Report};

/// What a pod weighs as the server stores it, managed fields and all.
const STORED_BYTES: usize = 2800;
const PODS: usize = 150_000;
const NAMESPACES: usize = 100;
/// Requests to each cluster over the wire, for the comparison.
const COMPARED: usize = 3000;
const CONNECTIONS: usize = 32;
const WATCHERS: usize = 25;

pub async fn measure(report: &mut Report) -> Result<()> {
    alone(report.size().of(PODS), report).await?;
    compared(report).await
}

/// In the process, without sockets: what the store itself can do.
async fn alone(pods: usize, report: &mut Report) -> Result<()> {
    let cluster = Cluster::new(Options { housekeeping: false, ..Options::default() });
    let service = cluster.service();
    let before = resident_mib()?;
    for namespace in 0..NAMESPACES {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(namespace)}});
        call(&service, Method::POST, "/api/v1/namespaces", "application/json", &body).await?;
    }
    let padding = padding(&service).await?;
    let started = Instant::now();
    for index in 0..pods {
        let path = format!("/api/v1/namespaces/{}/pods", namespace_of(index));
        call(&service, Method::POST, &path, "application/json", &pod(index, padding)).await?;
    }
    println!("{pods} pods created in process: {:.0}/s on one thread", rate(pods, started.elapsed()));
    let held = resident_mib()?;
    let stored = stored_size(&cluster);
    println!("a pod weighs {stored} bytes as stored");
    println!("{:.0} MiB more than before", held - before);
    report.add(Figure::measured("memory with all pods held, whole process", held, "MiB").at_most(600.0));

    let started = Instant::now();
    let bytes = read(&service, "/api/v1/pods").await?;
    let took = started.elapsed().as_secs_f64();
    let name = format!("full list of {:.0} MB", bytes as f64 / 1e6);
    report.add(Figure::measured(name, took, "s").at_most(2.0));

    // What the event log holds at once, so that every watcher can start from its beginning.
    let patches = 6000.min(pods);
    let revision = cluster.store().revision();
    let started = Instant::now();
    for index in 0..patches {
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", namespace_of(index), name_of(index));
        call(&service, Method::PATCH, &path, "application/merge-patch+json", &running()).await?;
    }
    let patched = rate(patches, started.elapsed());
    report.add(Figure::measured("status patches in process, one thread", patched, "/s").at_least(5000.0));

    let started = Instant::now();
    let watchers = (0..WATCHERS).map(|_| tokio::spawn(drain(service.clone(), revision, patches)));
    for watcher in futures::future::join_all(watchers).await {
        watcher??;
    }
    let fanned = rate(patches * WATCHERS, started.elapsed());
    let name = format!("watch events to {WATCHERS} watchers");
    report.add(Figure::measured(name, fanned, "/s").at_least(100_000.0));
    let after = resident_mib()?;
    println!("memory after the list, the patches and the watches: {after:.0} MiB");
    Ok(())
}

/// The same requests over TLS on loopback, from the same client, to both.
async fn compared(report: &mut Report) -> Result<()> {
    let mut figures = Vec::new();
    for real in [false, true] {
        let cluster = if real { TestCluster::real().await? } else { TestCluster::embedded().await? };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
        send(&cluster, Method::POST, "/api/v1/namespaces", "application/json", &namespace).await?;
        let creates = throughput(
            |index| {
                let path = "/api/v1/namespaces/bench/pods".to_string();
                (Method::POST, path, "application/json", pod(index, 900))
            },
            &cluster,
        )
        .await?;
        let patches = throughput(
            |index| {
                let path = format!("/api/v1/namespaces/bench/pods/{}/status", name_of(index));
                (Method::PATCH, path, "application/merge-patch+json", running())
            },
            &cluster,
        )
        .await?;
        println!(
            "{}: {creates:.0} creates/s, {patches:.0} status patches/s over {CONNECTIONS} connections",
            cluster.name()
        );
        figures.push((creates, patches));
    }
    let [(our_creates, our_patches), (their_creates, their_patches)] = figures[..] else {
        bail!("two clusters")
    };
    for (what, ours, theirs) in
        [("creates", our_creates, their_creates), ("status patches", our_patches, their_patches)]
    {
        let name = format!("{what} per second, against kube-apiserver and etcd");
        report.add(Figure::ratio(name, ours / theirs).at_least(10.0));
    }
    Ok(())
}

async fn throughput(
    request: impl Fn(usize) -> (Method, String, &'static str, Value),
    cluster: &TestCluster,
) -> Result<f64> {
    let started = Instant::now();
    let mut answers = stream::iter(0..COMPARED)
        .map(|index| {
            let (method, path, content_type, body) = request(index);
            async move { send(cluster, method, &path, content_type, &body).await }
        })
        .buffer_unordered(CONNECTIONS);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(rate(COMPARED, started.elapsed()))
}

async fn send(
    cluster: &TestCluster,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<()> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .body(kube::client::Body::from(body.to_string().into_bytes()))?;
    // The answer is read but not looked into: the servers are measured, not the client.
    let response = cluster.client(ADMIN)?.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    Ok(())
}

async fn call(
    service: &ClusterService,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<()> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::USER_AGENT, "bench/1")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let Ok(response) = service.clone().oneshot(request).await;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// Reads an answer frame by frame and throws it away; gives its size.
async fn read(service: &ClusterService, path: &str) -> Result<usize> {
    let request = http::Request::get(path).body(Full::new(Bytes::new()))?;
    let Ok(response) = service.clone().oneshot(request).await;
    let mut body = response.into_body();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        size += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(size)
}

/// Watches all pods from a revision on until so many events came.
async fn drain(service: ClusterService, revision: u64, events: usize) -> Result<()> {
    let path = format!("/api/v1/pods?watch=1&resourceVersion={revision}");
    let request = http::Request::get(path).body(Full::new(Bytes::new()))?;
    let Ok(response) = service.oneshot(request).await;
    let mut body = response.into_body();
    let mut seen = 0;
    while seen < events {
        let Some(frame) = body.frame().await else { bail!("the watch ended after {seen} events") };
        seen += frame?.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
    }
    ensure!(seen == events, "{seen} events instead of {events}");
    Ok(())
}

fn namespace_of(index: usize) -> String {
    format!("team-{:02}", index % NAMESPACES)
}

fn name_of(index: usize) -> String {
    format!("web-{index:06}")
}

/// An ordinary pod; the padding is an annotation.
fn pod(index: usize, padding: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name_of(index), "labels": {"app": format!("app-{}", index % 500), "pod-template-hash": "6b59d9cb88"},
            "annotations": {"padding": "x".repeat(padding)},
        },
        "spec": {
            "nodeName": format!("node-{:04}", index % 5000),
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.2.3",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "ports": [{"containerPort": 8080}],
            }],
        },
    })
}

fn running() -> Value {
    json!({"status": {
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }})
}

/// How much padding makes a pod weigh what it should: tried on one that is deleted again.
async fn padding(service: &ClusterService) -> Result<usize> {
    let path = "/api/v1/namespaces/team-00/pods";
    call(service, Method::POST, path, "application/json", &pod(999_999, 0)).await?;
    let bare = read(service, &format!("{path}/{}", name_of(999_999))).await?;
    let options = json!({"gracePeriodSeconds": 0});
    let name = name_of(999_999);
    call(service, Method::DELETE, &format!("{path}/{name}"), "application/json", &options).await?;
    Ok(STORED_BYTES.saturating_sub(bare))
}

fn stored_size(cluster: &Cluster) -> usize {
    let objects = cluster.store().list("pods", None).objects;
    objects.iter().map(|object| object.text().len()).sum::<usize>() / objects.len().max(1)
}

fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn resident_mib() -> Result<f64> {
    Ok(of_this_process("VmRSS")? / 1_048_576.0)
}
