//! `usher manager` on the real control plane, as its service account: installed, switched off and on, killed.
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::sleep;

use crate::common::Scene;
use crate::common::manager::{Manager, PATIENCE};

/// In full: newer API servers have a kind of the same name in another group.
const REQUEST: &str = "evictionrequests.evictionrequest.coordination.k8s.io";
const ON: &str = "EvictionRequestAPI=true";
const OFF: &str = "EvictionRequestAPI=false,DeclarativeNodeMaintenance=false";

impl Scene {
    async fn create(&self, object: &Value) {
        self.kubectl(&["create", "-f", "-"], Some(object)).await;
    }

    async fn until(&self, what: &str, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let object = self.get(kind, name).await;
            if wanted(&object) {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {kind} {name} stays {object:#}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A running pod of its own application.
    async fn pod(&self, name: &str) {
        self.pod_with(name, json!({})).await;
    }

    async fn pod_with(&self, name: &str, annotations: Value) {
        self.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }))
        .await;
        self.until("runs", "pod", name, |pod| pod["status"]["phase"] == "Running").await;
    }

    /// A budget that lets nobody go, seen by the disruption controller.
    async fn closed_budget(&self, app: &str) {
        self.create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}},
        }))
        .await;
        let is_seen = |budget: &Value| budget["status"]["observedGeneration"] == 1;
        self.until("is observed", "poddisruptionbudget", app, is_seen).await;
    }

    /// Asks for the eviction of a pod; the name of the request.
    async fn request(&self, pod: &str) -> String {
        let uid = self.get("pod", pod).await["metadata"]["uid"].as_str().unwrap().to_owned();
        self.create(&json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {
                "name": uid,
                "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
            },
            "spec": {"podRef": {"name": pod, "uid": uid}},
        }))
        .await;
        uid
    }

    async fn gone(&self, kind: &str, name: &str) {
        self.until("is gone", kind, name, Value::is_null).await;
    }

    async fn manager(&self, gates: &str) -> Manager {
        self.manager_with(gates, false).await
    }
}

/// The specification's upgrade test, step by step, then a leader that is killed.
#[tokio::test]
async fn it_acts_as_its_service_account_can_be_switched_off_and_on_and_survives_a_kill() {
    let scene = Scene::start(2, &[&["-k", "deploy"]]).await;

    // Steps 1 and 2: the feature is on. Step 3: pod A leaves, and its request is collected.
    let manager = scene.manager(ON).await;
    manager.until_leads().await;
    scene.pod("a").await;
    let a = scene.request("a").await;
    scene.gone("pod", "a").await;
    scene.gone(REQUEST, &a).await;

    // Step 4: the budget of pod B lets nobody go.
    scene.pod("b").await;
    scene.closed_budget("b").await;
    let b = scene.request("b").await;
    let counter = |request: &Value| request["status"]["failedAPIEvictionCounter"].as_i64().unwrap_or(0);
    scene.until("is refused", REQUEST, &b, |request| counter(request) > 0).await;
    // An interceptor has its turn with another pod.
    let interceptor = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    scene.pod_with("d", json!({interceptor: "100"})).await;
    let d = scene.request("d").await;
    let has_turn = |request: &Value| request["status"]["activeInterceptorClass"] == "db.example.com";
    scene.until("has its turn", REQUEST, &d, has_turn).await;
    for name in [
        "evictionrequest_controller_evictions{result=\"accepted\",reason=\"Accepted\"} 1\n",
        "evictionrequest_controller_evictions{result=\"refused\",reason=\"DisruptionBudget\"} ",
        "evictionrequest_controller_active_requester{requester=\"drain.example.com\"} 2\n",
        "evictionrequest_controller_active_interceptor{interceptor=\"db.example.com\"} 1\n",
        "evictionrequest_controller_pod_interceptors{interceptors=\"0\"} 1\n",
        "evictionrequest_controller_pod_removal_seconds_count 1\n",
        "evictionrequest_controller_blocked_seconds_total{reason=\"DisruptionBudget\"} ",
        "workqueue_depth{name=\"evictionrequests\"} ",
        "workqueue_adds_total{name=\"evictionrequests\"} ",
        "workqueue_queue_duration_seconds_count{name=\"evictionrequests\"} ",
        "workqueue_work_duration_seconds_count{name=\"evictionrequests\"} ",
        "workqueue_unfinished_work_seconds{name=\"evictionrequests\"} ",
        "workqueue_retries_total{name=\"evictionrequests\"} ",
    ] {
        let text = manager.metrics();
        assert!(text.contains(name), "{name:?} is not in:\n{text}");
    }
    let writers = "-o=jsonpath={.items[*].source.component}";
    let writers = scene.kubectl(&["get", "events", writers], None).await;
    assert!(writers.split(' ').any(|writer| writer == "usher"), "it may write events, as {writers}");

    // Step 5: off. The lease is free at once.
    manager.end().await;
    let lease =
        scene.kubectl(&["get", "lease", "usher-manager", "-n", "usher-system", "-o", "json"], None).await;
    let lease: Value = serde_json::from_str(&lease).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "{lease}");
    let manager = scene.manager(OFF).await;

    // Step 6: without its budget pod B runs on, and the request is kept. Another request is not acted on either.
    scene.kubectl(&["delete", "poddisruptionbudget", "b"], None).await;
    // What is asked for meanwhile has its interceptors, for the time when it is on again.
    scene.kubectl(&["create", "deployment", "shop", "--image=i:1"], None).await;
    scene.until("runs", "deployment", "shop", |deployment| deployment["status"]["readyReplicas"] == 1).await;
    let pods = ["get", "pods", "-l", "app=shop", "-o=jsonpath={.items[0].metadata.name}"];
    let shop = scene.kubectl(&pods, None).await;
    let request = scene.request(&shop).await;
    let interceptors = scene.get(REQUEST, &request).await["spec"]["interceptors"].to_string();
    assert!(interceptors.contains("deployment.apps.k8s.io"), "{interceptors}");
    // By now a manager that acts would have evicted pod B: it has seen the budget go before it saw this request.
    let pod = scene.get("pod", "b").await;
    assert!(pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    assert!(!scene.get(REQUEST, &b).await.is_null());
    assert!(
        manager.page(manager.health, "/healthz").is_some_and(|(code, _)| code == 200) && !manager.leads()
    );
    scene.kubectl(&["delete", "deployment", "shop", "--cascade=foreground"], None).await;
    manager.end().await;

    // Steps 7 and 8: on again, in two replicas. Pod B leaves, and its request is collected.
    let mut first = scene.manager(ON).await;
    first.until_leads().await;
    let second = scene.manager(ON).await;
    scene.gone("pod", "b").await;
    scene.gone(REQUEST, &b).await;

    // A node is emptied by a maintenance, and uncordoned.
    scene.kubectl(&["delete", "pod", "d", "--wait=false"], None).await;
    scene.pod("e").await;
    let node = scene.get("pod", "e").await["spec"]["nodeName"].as_str().unwrap().to_owned();
    scene
        .create(&json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": "kernel"},
            "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]},
            ]}]}},
        }))
        .await;
    let is_drained = |maintenance: &Value| {
        let conditions = maintenance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Drained" && c["status"] == "True")
    };
    scene.until("is drained", "nodemaintenance", "kernel", is_drained).await;
    scene.gone("pod", "e").await;
    for name in [
        "nodemaintenance_controller_maintenances{stage=\"Drain\"} 1\n",
        "nodemaintenance_controller_nodes{state=\"drained\"} 1\n",
        "nodemaintenance_controller_pods{state=\"pending\"} 0\n",
        "nodemaintenance_controller_pods{state=\"evicting\"} 0\n",
        "nodemaintenance_controller_stage_duration_seconds_count{stage=\"Cordon\"} 1\n",
        "nodemaintenance_controller_blocked_seconds_total{cause=\"Pods\"} ",
        "workqueue_adds_total{name=\"nodemaintenances\"} ",
    ] {
        let text = first.metrics();
        assert!(text.contains(name), "{name:?} is not in:\n{text}");
    }
    assert_eq!(scene.get("node", &node).await["spec"]["unschedulable"], true);
    scene.kubectl(&["delete", "nodemaintenance", "kernel", "--timeout=60s"], None).await;
    scene.until("is free", "node", &node, |node| node["spec"]["unschedulable"].is_null()).await;

    // The leader is killed while a request waits for a budget. The other one finishes it.
    scene.pod("c").await;
    scene.closed_budget("c").await;
    let c = scene.request("c").await;
    scene.until("is refused", REQUEST, &c, |request| counter(request) > 0).await;
    assert!(first.leads() && !second.leads(), "one of two acts");
    first.process.kill().await.unwrap();
    scene.lead_webhook_to(&second).await;
    scene.kubectl(&["delete", "poddisruptionbudget", "c"], None).await;
    second.until_leads().await;
    scene.gone("pod", "c").await;
    scene.gone(REQUEST, &c).await;
    second.end().await;
    scene.plane.stop().await.unwrap();
}

/// The status line and the rest of what a scraper with this token gets over HTTPS, which trusts what the Secret says.
async fn scrape(address: SocketAddr, authority: &str, token: Option<&str>) -> String {
    use rustls::pki_types::pem::PemObject as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut roots = rustls::RootCertStore::empty();
    for root in rustls::pki_types::CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = "usher-webhook.usher-system.svc".try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: m\r\n{token}\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    // It does not always say goodbye as TLS wants it.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

/// As in deploy/README.md: the role that is shipped, and the token of a service account.
#[tokio::test]
async fn metrics_are_for_who_may_get_them_by_its_service_accounts_token() {
    let scene = Scene::start(1, &[&["-k", "deploy"]]).await;
    let manager = scene.manager_with(ON, true).await;
    let secret = [
        "get",
        "secret",
        "usher-webhook-certificates",
        "-n",
        "usher-system",
        "-o=go-template={{index .data \"ca.crt\" | base64decode}}",
    ];
    let authority = scene.kubectl(&secret, None).await;
    for account in ["prometheus", "tenant"] {
        scene.kubectl(&["create", "serviceaccount", account], None).await;
    }
    let bind = [
        "create",
        "clusterrolebinding",
        "scraper",
        "--clusterrole=usher-metrics-reader",
        "--serviceaccount=default:prometheus",
    ];
    scene.kubectl(&bind, None).await;
    let prometheus = scene.kubectl(&["create", "token", "prometheus"], None).await;
    let tenant = scene.kubectl(&["create", "token", "tenant"], None).await;
    let forged = format!("{}x", prometheus.trim());
    for (token, wanted) in [
        (Some(prometheus.trim()), "200 OK"),
        (Some(tenant.trim()), "403 Forbidden"),
        (Some(forged.as_str()), "401 Unauthorized"),
        (None, "401 Unauthorized"),
    ] {
        let answer = scrape(manager.metrics, &authority, token).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{wanted}: {answer}");
        assert_eq!(answer.contains("leader_election_master_status"), wanted == "200 OK", "{answer}");
    }
    manager.end().await;
    scene.plane.stop().await.unwrap();
}

/// The script is at its `kubectl wait ... --for=delete`.
async fn waits_for_deletion(script: u32) -> bool {
    let children = ["-o", "args=", "--ppid", &script.to_string()];
    let output = Command::new("ps").args(children).output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).lines().any(|line| line.contains("--for=delete"))
}

/// A manager that raised the limits of an autoscaler was killed, and nobody has recorded on the Deployment that this has acted on them.
async fn grown_and_not_recorded(scene: &Scene) {
    let meta = json!({"name": "web", "namespace": "default"});
    let labels = json!({"app": "web"});
    scene
        .create(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
            "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        }))
        .await;
    scene
        .create(&json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta,
            "spec": {"minReplicas": 3, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))
        .await;
    let record = r#"evictionrequest.coordination.k8s.io/surge={"by":1,"minBy":1,"minReplicas":3,"of":"web"}"#;
    let manager = "--as=system:serviceaccount:usher-system:usher-manager";
    // kubectl reads it first, which the manager does not.
    scene.kubectl(&["annotate", "hpa", "web", record, manager, "--as-group=system:masters"], None).await;
}

/// The commands of deploy/uninstall, with a manager that ends when its Deployment is scaled down.
#[tokio::test]
async fn uninstalling_stops_the_manager_before_its_webhooks_and_leaves_nothing_behind() {
    let scene = Scene::start(2, &[&["-k", "deploy"]]).await;
    let manager = scene.manager(ON).await;
    manager.until_leads().await;
    let interceptor = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    scene.pod_with("a", json!({interceptor: "100"})).await;
    let a = scene.request("a").await;
    let has_turn = |request: &Value| request["status"]["activeInterceptorClass"] == "db.example.com";
    scene.until("has its turn", REQUEST, &a, has_turn).await;
    let nodes = scene.kubectl(&["get", "nodes", "-o=jsonpath={.items[*].metadata.name}"], None).await;
    let nodes: Vec<&str> = nodes.split(' ').collect();
    scene.kubectl(&["cordon", nodes[1]], None).await;
    scene
        .create(&json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "kernel"},
            "spec": {"stage": "Cordon", "nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
            ]}},
        }))
        .await;
    let is_held = |node: &Value| !node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"].is_null();
    for node in &nodes {
        scene.until("is held", "node", node, is_held).await;
    }

    // Its pods are there for as long as its process, which runs beside them.
    let manager_pods = ["-n", "usher-system", "-l", "app.kubernetes.io/component=manager"];
    let of_pods = [&["get", "pods", "-o=name"][..], &manager_pods].concat();
    while scene.kubectl(&of_pods, None).await.is_empty() {
        sleep(Duration::from_millis(100)).await;
    }
    let manager_pods = scene.kubectl(&of_pods, None).await;
    let keep = async |finalizers: &str| {
        let patch = format!(r#"{{"metadata": {{"finalizers": {finalizers}}}}}"#);
        for pod in manager_pods.lines() {
            scene.kubectl(&["patch", pod, "-n", "usher-system", "--type=merge", "-p", &patch], None).await;
        }
    };
    keep(r#"["example.com/process"]"#).await;

    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut path = scene.plane.kubectl().parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let uninstall = Command::new(root.join("deploy/uninstall"))
        .env("PATH", path)
        .env("KUBECONFIG", scene.plane.kubeconfig())
        .env("KUBECACHEDIR", scene.plane.folder().join("kubectl-cache"))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let uninstall_id = uninstall.id().unwrap();
    let stopping = async {
        let namespace =
            ["get", "deployment", "usher-manager", "-n", "usher-system", "-o=jsonpath={.spec.replicas}"];
        while scene.kubectl(&namespace, None).await != "0" {
            sleep(Duration::from_millis(100)).await;
        }
        // The script waits for the manager, which still runs.
        while !waits_for_deletion(uninstall_id).await {
            sleep(Duration::from_millis(100)).await;
        }
        let webhooks = scene.get("validatingwebhookconfiguration", "usher").await;
        manager.end().await;
        grown_and_not_recorded(&scene).await;
        keep("null").await;
        webhooks
    };
    let ended = async { uninstall.wait_with_output().await.unwrap().status };
    let both = async { tokio::join!(stopping, ended) };
    let (webhooks, ended) = tokio::time::timeout(3 * PATIENCE, both).await.unwrap();
    assert!(ended.success(), "{ended}");
    assert!(!webhooks.is_null(), "the webhooks are there as long as the manager is");

    let pod = scene.get("pod", "a").await;
    assert!(pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    let web = scene.get("deployment", "web").await;
    let limits = scene.get("hpa", "web").await;
    assert_eq!((&web["spec"]["replicas"], &limits["spec"]["minReplicas"]), (&json!(2), &json!(2)));
    assert!(!limits["metadata"].to_string().contains("coordination.k8s.io/surge"), "{limits}");
    for (node, is_cordoned) in [(nodes[0], false), (nodes[1], true)] {
        let node = scene.get("node", node).await;
        assert_eq!(node["spec"]["unschedulable"] == true, is_cordoned, "{node:#}");
        let text = node["metadata"]["annotations"].to_string() + &node["status"]["conditions"].to_string();
        assert!(!text.contains("nodemaintenance.k8s.io") && !text.contains("NodeMaintenance"), "{text}");
    }
    let left = "crd,mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,namespaces";
    let left = scene.kubectl(&["get", left, "-o", "name"], None).await;
    assert!(
        !left.contains("usher") && !left.contains("nodemaintenance") && !left.contains("evictionrequest"),
        "{left}"
    );
    scene.plane.stop().await.unwrap();
}
