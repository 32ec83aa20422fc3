//! Traces of `usher manager`: the real exporter, a collector on loopback and an embedded cluster.
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_simulator::{self as life, Life, Times};
use embedded_apiserver::{Cluster, Options, Serving, User};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "secret";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";

/// A collector that keeps what it gets.
struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, spans) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = spans.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let kept = kept.clone();
                    async move {
                        assert_eq!(request.uri().path(), "/v1/traces");
                        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let batch = ExportTraceServiceRequest::decode(body).unwrap();
                        let scopes =
                            batch.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                        kept.lock().extend(scopes.flat_map(|scope| scope.spans));
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, spans }
    }
}

/// An embedded cluster with a node, in real time.
struct Scene {
    client: kube::Client,
    kubeconfig: PathBuf,
    _serving: Serving,
    _life: Life,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Scene {
    async fn start(name: &str) -> Self {
        let administrator =
            User { name: "test".into(), uid: String::new(), groups: vec!["system:masters".into()] };
        let tokens = HashMap::from([(TOKEN.to_owned(), administrator)]);
        let cluster = Cluster::new(Options { tokens, ..Options::default() });
        let times = Times {
            start: Duration::from_millis(50),
            run: Duration::from_secs(3600),
            terminate: Duration::from_millis(50),
        };
        let life = life::start(&cluster, life::Options { times, ..life::Options::default() });
        let serving = cluster.serve_https().await.unwrap();
        let kubeconfig = std::env::temp_dir().join(format!("usher-{name}-{}.kubeconfig", std::process::id()));
        std::fs::write(&kubeconfig, serving.kubeconfig_for(TOKEN)).unwrap();
        let client = kube::Client::new(cluster.service(), "default");
        let scene = Self { client, kubeconfig, _serving: serving, _life: life };
        for (_, definition) in usher_api::crd::crds() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            scene.create(path, &serde_json::to_value(definition).unwrap()).await;
        }
        let size = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"capacity": size, "allocatable": size},
        });
        scene.create("/api/v1/nodes", &node).await;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "usher-system"}});
        scene.create("/api/v1/namespaces", &namespace).await;
        scene
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let request = Request::post(path).header("content-type", "application/json");
        self.client.request(request.body(object.to_string().into_bytes()).unwrap()).await.unwrap()
    }

    async fn until(&self, path: &str, wanted: impl Fn(Option<&Value>) -> bool) {
        let begun = Instant::now();
        loop {
            let request = Request::get(path).body(Vec::new()).unwrap();
            let found: Option<Value> = self.client.request(request).await.ok();
            if wanted(found.as_ref()) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} stays {found:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn manager(&self, collector: SocketAddr) -> Child {
        let mut command = Command::new(usher_tests_real::binaries::usher().unwrap());
        command.args(["manager", "--leader-elect=false", "--kubeconfig"]).arg(&self.kubeconfig);
        for flag in ["--metrics-address", "--health-address", "--webhook-address"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        command.args(["--otlp-endpoint", &format!("http://{collector}")]);
        command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    /// A pod runs, is asked to leave, and does.
    async fn evict_a_pod(&self) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        });
        let uid = self.create(PODS, &pod).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let path = format!("{PODS}/web");
        self.until(&path, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Running")).await;
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": uid,
                "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
            },
            "spec": {"podRef": {"name": "web", "uid": uid}},
        });
        self.create(REQUESTS, &request).await;
        self.until(&path, |pod| pod.is_none()).await;
    }

    /// A maintenance does, and says so in its status.
    async fn cordon_the_node(&self) {
        let maintenance = json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
            "spec": {"stage": "Cordon", "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            ]}},
        });
        let path = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
        self.create(path, &maintenance).await;
        let says_so = |it: &Value| it["status"]["nodeStatuses"][0]["drainMessage"] == "Cordoned";
        self.until(&format!("{path}/m"), |it| it.is_some_and(says_so)).await;
    }
}

/// As a kubelet ends it; what it logged, and how long that took.
async fn end(manager: Child) -> (Output, Duration) {
    let pid = manager.id().unwrap().to_string();
    let begun = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let output = tokio::time::timeout(PATIENCE, manager.wait_with_output()).await.unwrap().unwrap();
    (output, begun.elapsed())
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    Some(format!("{:?}", found.value.as_ref()?.value.as_ref()?))
}

#[tokio::test]
async fn the_spans_of_an_eviction_arrive_at_the_latest_when_the_manager_ends() {
    let (scene, collector) = (Scene::start("traces").await, Collector::start().await);
    let manager = scene.manager(collector.address);
    scene.evict_a_pod().await;
    scene.cordon_the_node().await;
    let (output, _) = end(manager).await;
    assert!(output.status.success(), "{output:?}");
    let spans = collector.spans.lock();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    let evict = spans.iter().find(|span| span.name == "evict Pod");
    let evict = evict.unwrap_or_else(|| panic!("no eviction is among {names:?}"));
    assert!(attribute(evict, "k8s.pod.name").is_some_and(|name| name.contains("\"web\"")), "{evict:?}");
    assert!(attribute(evict, "usher.answer").is_some_and(|it| it.contains("\"Accepted\"")), "{evict:?}");
    let parent = spans.iter().find(|span| span.span_id == evict.parent_span_id).unwrap();
    assert_eq!((parent.name.as_str(), &parent.trace_id), ("reconcile EvictionRequest", &evict.trace_id));
    let write = spans.iter().find(|span| span.name == "write status of NodeMaintenance");
    let write = write.unwrap_or_else(|| panic!("no write of a status is among {names:?}"));
    assert!(attribute(write, "usher.maintenance").is_some_and(|name| name.contains("\"m\"")), "{write:?}");
    let parent = spans.iter().find(|span| span.span_id == write.parent_span_id).unwrap();
    assert_eq!(parent.name, "reconcile NodeMaintenance");
}

#[tokio::test]
async fn a_collector_that_is_away_is_told_of_once_and_holds_nobody_up() {
    let scene = Scene::start("no-collector").await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let manager = scene.manager(nobody);
    scene.evict_a_pod().await;
    let (output, took) = end(manager).await;
    assert!(output.status.success(), "{output:?}");
    assert!(took < Duration::from_secs(10), "it took {took:?} to end");
    let log = String::from_utf8(output.stderr).unwrap();
    let told = log.lines().filter(|line| line.contains("the collector of traces cannot be reached")).count();
    assert_eq!(told, 1, "{log}");
}
