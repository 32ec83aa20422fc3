//! Maintenances on real kubelets: pods that serve real traffic, daemons and static pods leave and come back, and no request fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use usher_apply::Clock;
use usher_cli::Environment;
use usher_node_agent::agent::{self, Beside, Options};
use usher_node_agent::folder::Folder;
use usher_node_agent::kubelet::KubeletConfig;
use usher_testbed::RealNodes;
use usher_testbed::real_nodes::{self, IMAGE};
use usher_tests::TestCluster;
use usher_tests::scenario::ClusterUnderTest;
use usher_tests::scenario::beside::{self, Controllers};
use usher_tests::typed::usher;
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

const NODES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);

struct Scene {
    kubectl: Kubectl,
    real: RealNodes,
    plane: TestCluster,
    _usher: beside::Usher,
    _agents: JoinSet<()>,
}

impl Scene {
    /// A real control plane with real nodes, and Usher beside it.
    async fn start() -> Self {
        let plane = TestCluster::real_living_with(real_nodes::users(NODES)).await.unwrap();
        let token = |user: &str| Ok(plane.token(user).unwrap().to_owned());
        let real = RealNodes::start(NODES, plane.url(), plane.ca_pem(), token).await.unwrap().unwrap();
        let kubectl = Kubectl::new(&plane).await.unwrap();
        let reached = ClusterUnderTest::of(&plane).unwrap();
        let usher = usher_tests_real::usher::start(Controllers::All, &plane, &reached).await.unwrap();
        let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/");
        for file in ["node-agent/role", "node-agent/policies", "workloads/daemonset-policies"] {
            let text = std::fs::read_to_string(format!("{deploy}{file}.yaml")).unwrap();
            kubectl.ok_with("apply --server-side -f -", &text).await.unwrap();
        }
        let mut scene = Self { kubectl, real, plane, _usher: usher, _agents: JoinSet::new() };
        for node in scene.real.names() {
            scene.until(&format!("get node {node} -o json"), is_ready).await;
            scene.start_agent(&node).await;
        }
        scene
    }

    /// With the rights of its service account, by a token that is bound to the node.
    async fn start_agent(&mut self, node: &str) {
        let bound = format!("--bound-object-kind=Node --bound-object-name={node}");
        let token =
            self.kubectl.ok(&format!("create token usher-node-agent -n usher-system {bound}")).await.unwrap();
        let client = self.plane.client_with(token.trim()).await.unwrap();
        self.is_held_to(node, token.trim()).await;
        let config = KubeletConfig::read(&self.real.kubelet_config(node)).unwrap();
        let options = Options {
            node: node.to_owned(),
            folder: Some(Folder::new(self.real.manifests(node))),
            has_url: false,
            folder_name: config.static_pod_path.clone(),
            version: "test".into(),
            warnings: Vec::new(),
        };
        let agent =
            agent::run_until(client, Clock::system(), options, Beside::nothing(), std::future::pending());
        self._agents.spawn(agent);
    }

    /// What its role allows and is not about its own node, the policies refuse.
    async fn is_held_to(&self, node: &str, token: &str) {
        let other = self.real.names().into_iter().find(|it| it != node).unwrap();
        let maintenance = |name: &str, of: &str| {
            json!({
                "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
                "metadata": {"name": name},
                "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [of]}]},
                ]}},
            })
            .to_string()
        };
        let mark = r#"{"metadata":{"annotations":{"nodemaintenance.k8s.io/node-agent":"{}"}}}"#;
        let own_label = r#"{"metadata":{"labels":{"pool":"mine"}}}"#;
        let foreign = maintenance(&format!("shutdown-{other}"), &other);
        let disguised = maintenance(&format!("shutdown-{node}"), &other);
        for (command, input) in [
            (format!("patch node {other} --type=merge --dry-run=server -p {mark}"), String::new()),
            (format!("patch node {node} --type=merge --dry-run=server -p {own_label}"), String::new()),
            (format!("delete node {node} --dry-run=server"), String::new()),
            ("create --dry-run=server -f -".to_owned(), foreign),
            ("create --dry-run=server -f -".to_owned(), disguised),
        ] {
            let command = format!("--token={token} {command}");
            let deadline = Instant::now() + PATIENCE;
            // A policy holds when the API server has learned of it.
            loop {
                let said = self.kubectl.run_with(&command, &input).await.unwrap();
                if said.err.contains("ValidatingAdmissionPolicy 'usher-node-agent-") {
                    break;
                }
                assert!(Instant::now() < deadline, "{command}: {} {}", said.out, said.err);
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    }

    async fn get(&self, command: &str) -> Value {
        let said = self.kubectl.ok(&format!("{command} --ignore-not-found")).await.unwrap();
        serde_json::from_str(&said).unwrap_or_default()
    }

    async fn until(&self, command: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(command).await;
            if wanted(&seen) {
                return seen;
            }
            if Instant::now() > deadline {
                let logs: Vec<String> =
                    self.real.names().iter().map(|node| tail(&self.real.kubelet_log(node))).collect();
                panic!("{command} stays {seen:#}\n{}", logs.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn maintain(&self, name: &str, node: &str) {
        self.apply(&json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
            "spec": {"stage": "Drain", "reason": "kernel update", "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
            ]}},
        }))
        .await;
        self.until(&format!("get nodemaintenance {name} -o json"), |it| has_condition(it, "Drained")).await;
    }

    /// Without --ignore-daemonsets.
    async fn usher_drains(&self, name: &str, node: &str) {
        let kubeconfig = self.plane.kubeconfig().display();
        let line = format!("drain {node} --name {name} --timeout 2m --kubeconfig {kubeconfig}");
        let ended = usher(&line, &Environment::plain()).await.unwrap();
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.out.contains(&format!("{node} drained: ")), "{ended:?}");
        assert!(!ended.out.contains("pod stays") && !ended.out.contains("pods stay"), "{ended:?}");
        println!("{}", ended.out);
    }

    async fn apply(&self, object: &Value) {
        self.kubectl.ok_with("apply -f -", &object.to_string()).await.unwrap();
    }
}

fn tail(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == kind && it["status"] == "True")
}

fn is_ready(object: &Value) -> bool {
    has_condition(object, "Ready")
}

fn pod_spec(arguments: &[&str]) -> Value {
    json!({
        "terminationGracePeriodSeconds": 10,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "args": arguments}],
    })
}

fn workload(kind: &str, name: &str, arguments: &[&str], replicas: Option<u32>) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(arguments)},
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
        let probe = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1});
        spec["template"]["spec"]["containers"][0]["readinessProbe"] = probe;
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A client that goes to one ready address after the other, and tries nothing twice.
struct Traffic {
    answered: Arc<AtomicU64>,
    failed: Arc<parking_lot::Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl Traffic {
    fn start(client: kube::Client) -> Self {
        let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(parking_lot::Mutex::new(Vec::new())));
        let (known, addresses) = watch::channel(Vec::<String>::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let slices: Api<EndpointSlice> = Api::namespaced(client, "default");
            let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
            loop {
                if let Ok(list) = slices.list(&of_web).await {
                    let endpoints =
                        list.items.into_iter().flat_map(|slice| slice.endpoints.into_iter().flatten());
                    let is_ready = |it: &k8s_openapi::api::discovery::v1::Endpoint| {
                        it.conditions.as_ref().is_some_and(|it| it.ready == Some(true))
                    };
                    let ready = endpoints.filter(is_ready).flat_map(|it| it.addresses).collect();
                    known.send_replace(ready);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let (counted, told) = (answered.clone(), failed.clone());
        tasks.spawn(async move {
            for turn in 0_usize.. {
                let ready = addresses.borrow().clone();
                if let Some(address) = (!ready.is_empty()).then(|| &ready[turn % ready.len()]) {
                    match tokio::time::timeout(Duration::from_secs(5), get(address)).await {
                        Ok(Ok(())) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                        Ok(Err(why)) => told.lock().push(format!("{address}: {why:#}")),
                        Err(_) => told.lock().push(format!("{address}: no answer")),
                    }
                } else if counted.load(Ordering::Relaxed) > 0 {
                    told.lock().push("no pod is ready".to_owned());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { answered, failed, tasks }
    }
}

async fn get(address: &str) -> anyhow::Result<()> {
    let stream = TcpStream::connect((address, 8080)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = http::Request::get("/").header("host", "web").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    anyhow::ensure!(answer.status() == 200, "{}", answer.status());
    answer.into_body().collect().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_maintenance_with_reboots_over_real_nodes_fails_no_request_and_brings_all_pods_back() {
    real_nodes::prepare().unwrap();
    let mut scene = Scene::start().await;
    let serve = ["serve", ":8080", "3s"];
    scene.apply(&workload("Deployment", "web", &serve, Some(2))).await;
    scene.apply(&workload("DaemonSet", "logs", &[], None)).await;
    scene
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}]},
        }))
        .await;
    for node in scene.real.names() {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy", "namespace": "default"}, "spec": pod_spec(&[]),
        });
        std::fs::write(scene.real.manifests(&node).join("proxy.yaml"), manifest.to_string()).unwrap();
    }
    scene.until("get deployment web -n default -o json", |it| it["status"]["availableReplicas"] == 2).await;
    scene.until("get daemonset logs -n default -o json", |it| it["status"]["numberReady"] == NODES).await;
    let mut traffic = Traffic::start(scene.plane.client(usher_tests::cluster::ADMIN).unwrap());
    for node in scene.real.names() {
        let mirror = format!("get pod proxy-{node} -n default -o json");
        scene.until(&mirror, is_ready).await;
        let name = format!("kernel-{node}");
        if node == scene.real.names()[0] {
            scene.maintain(&name, &node).await;
        } else {
            scene.usher_drains(&name, &node).await;
        }
        let left = scene.get(&format!("get pods -A --field-selector spec.nodeName={node} -o json")).await;
        assert_eq!(left, Value::Null, "static pods and daemons have left too");
        assert!(!scene.real.manifests(&node).join("proxy.yaml").exists());
        scene.real.power_off(&node);
        scene.real.power_on(&node).unwrap();
        scene.until(&format!("get node {node} -o json"), is_ready).await;
        assert_eq!(
            scene.get(&mirror).await,
            Value::Null,
            "not before the maintenance ends, also after a reboot"
        );
        scene.kubectl.ok(&format!("delete nodemaintenance {name}")).await.unwrap();
        scene.until(&mirror, is_ready).await;
        scene.until("get daemonset logs -n default -o json", |it| it["status"]["numberReady"] == NODES).await;
        scene
            .until("get deployment web -n default -o json", |it| {
                it["spec"]["replicas"] == 2 && it["status"]["availableReplicas"] == 2
            })
            .await;
    }
    traffic.tasks.abort_all();
    let (answered, failed) = (traffic.answered.load(Ordering::Relaxed), traffic.failed.lock().clone());
    assert!(failed.is_empty(), "{} of {} failed: {:?}", failed.len(), answered, failed.first());
    assert!(answered > 200, "{answered}");
    println!("{answered} requests, none failed");
}
