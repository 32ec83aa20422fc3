//! A real control plane with real nodes in a network of their own, and what runs there before Usher comes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use usher_testbed::RealNodes;
use usher_testbed::real_nodes::{self, IMAGE};
use usher_tests::TestCluster;
use usher_tests_real::RealCluster as _;
use usher_tests_real::kubectl::Kubectl;

use crate::{Way, image};

pub const MANAGER: &str = "app.kubernetes.io/name=usher,app.kubernetes.io/component=manager";
const NODES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(120);

pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().unwrap()
}

pub fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == kind && it["status"] == "True")
}

pub fn is_ready(object: &Value) -> bool {
    has_condition(object, "Ready")
}

pub struct Scene {
    pub kubectl: Kubectl,
    pub real: RealNodes,
    plane: TestCluster,
    folder: PathBuf,
    /// With kubectl and helm.
    path: std::ffi::OsString,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in self.real.logs() {
                eprintln!("{}:\n{}", log.display(), tail(&log));
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

impl Scene {
    pub async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("usher-installed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let archive = image::archive(&folder);
        let plane = TestCluster::real_living_with(real_nodes::users(NODES)).await.unwrap();
        let token = |user: &str| Ok(plane.token(user).unwrap().to_owned());
        let real = RealNodes::start(NODES, plane.url(), plane.ca_pem(), token).await.unwrap().unwrap();
        let kubectl = Kubectl::new(&plane).await.unwrap();
        let programs =
            [usher_testbed::kubectl_path().await.unwrap(), usher_testbed::helm_path().await.unwrap()];
        let folders = programs.iter().map(|program| program.parent().unwrap().to_path_buf());
        let machine = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&machine))).unwrap();
        let scene = Self { kubectl, real, plane, folder, path };
        let version = image::name_of(env!("CARGO_PKG_VERSION"));
        for node in scene.real.names() {
            scene.until(&format!("get node {node} -o json"), is_ready).await;
            scene.real.import_image(&node, &archive).unwrap();
            scene.real.tag_image(&node, &version, &image::name_of(image::NEXT)).unwrap();
        }
        scene
    }

    /// A Deployment, a DaemonSet and static pods.
    pub async fn workloads(&mut self) {
        let template = |name: &str| {
            json!({
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec()},
            })
        };
        for (kind, name) in [("Deployment", "web"), ("DaemonSet", "logs")] {
            let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
            object["spec"] = template(name);
            if kind == "Deployment" {
                object["spec"]["replicas"] = 2.into();
            }
            self.apply(&object).await;
        }
        for node in self.real.names() {
            let manifest = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy", "namespace": "default"}, "spec": pod_spec(),
            });
            std::fs::write(self.real.manifests(&node).join("proxy.yaml"), manifest.to_string()).unwrap();
            self.until(&format!("get pod proxy-{node} -n default -o json"), is_ready).await;
        }
        self.until("get deployment web -n default -o json", |it| it["status"]["availableReplicas"] == 2)
            .await;
        self.until("get daemonset logs -n default -o json", |it| it["status"]["numberReady"] == NODES).await;
    }

    pub async fn without_workloads(&self) {
        self.kubectl
            .ok("delete deployment/web daemonset/logs pod/db -n default --grace-period=1")
            .await
            .unwrap();
    }

    /// Without a controller, on a node.
    pub async fn pod(&self, name: &str, node: &str, annotations: Value) {
        let mut spec = pod_spec();
        spec["nodeName"] = node.into();
        let meta = json!({"name": name, "namespace": "default", "labels": {"app": name}, "annotations": annotations});
        self.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})).await;
        self.until(&format!("get pod {name} -n default -o json"), is_ready).await;
    }

    /// Such a one, kept by a budget.
    pub async fn guarded_pod(&self, node: &str) {
        self.pod("guarded", node, Value::Null).await;
        self.apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guarded", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }))
        .await;
    }

    /// The manager that acts, and its node.
    pub async fn leader(&self) -> (String, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lease = self.get("get lease usher-manager -n usher-system -o json").await;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
            let pods = self.get(&format!("get pods -n usher-system -l {MANAGER} -o json")).await;
            let mut pods = pods["items"].as_array().cloned().unwrap_or_default().into_iter();
            let found = pods.find(|pod| holder.starts_with(pod["metadata"]["name"].as_str().unwrap()));
            if let Some(node) = found.and_then(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned)) {
                return (holder, node);
            }
            assert!(Instant::now() < deadline, "nobody leads: {lease:#}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// The other of two nodes.
    pub fn other_than(&self, node: &str) -> String {
        self.real.names().into_iter().find(|name| name != node).unwrap()
    }

    pub async fn rolled_out(&self, workload: &str) {
        let command = format!("rollout status {workload} -n usher-system --timeout={}s", PATIENCE.as_secs());
        let said = self.kubectl.run(&command).await.unwrap();
        if said.code != 0 {
            let pods = self.kubectl.run("describe pods -n usher-system").await.unwrap();
            let logs = format!("logs -n usher-system {workload} --tail=20");
            let logs = self.kubectl.run(&logs).await.unwrap();
            panic!("{command}: {said:?}\n{}\n{}{}", pods.out, logs.out, logs.err);
        }
    }

    /// What kustomize installs, with this tag of the image.
    pub fn kustomization(&self, tag: &str) -> PathBuf {
        let folder = self.folder.join("kustomization");
        std::fs::create_dir_all(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        // It takes relative paths only.
        let up = "../".repeat(folder.components().count() - 1);
        let base = format!("{up}{}", deploy().display().to_string().trim_start_matches('/'));
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [&base], "components": [format!("{base}/node-agent")], "images": [{"name": "usher", "newTag": tag}],
        });
        std::fs::write(folder.join("kustomization.yaml"), text.to_string()).unwrap();
        folder
    }

    /// A program of the path, as an administrator would run it.
    pub async fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", &self.path).env("KUBECONFIG", self.plane.kubeconfig());
        command.env("KUBECACHEDIR", self.folder.join("cache")).kill_on_drop(true);
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.folder.join("helm"));
        }
        let ended = tokio::time::timeout(2 * PATIENCE, command.output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{program} {arguments:?} does not end")).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }

    pub async fn get(&self, command: &str) -> Value {
        let said = self.kubectl.ok(&format!("{command} --ignore-not-found")).await.unwrap();
        serde_json::from_str(&said).unwrap_or_default()
    }

    pub async fn until(&self, command: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(command).await;
            if wanted(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{command} stays {seen:#}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    pub async fn apply(&self, object: &Value) {
        self.kubectl.ok_with("apply -f -", &object.to_string()).await.unwrap();
    }

    pub fn told(&self, way: Way, what: &str, begun: Instant) {
        println!("{way:?}: {what} after {:.0} s", begun.elapsed().as_secs_f64());
    }
}

fn pod_spec() -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never"}],
    })
}
