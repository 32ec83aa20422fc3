//! A cluster with the definitions installed, the webhook serving on loopback, and callers with different rights.

use crate::{Answer, Request, TestCluster, crds};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use usher_api::gateway::GatewayMode;
use usher_api::names::{INTERCEPTOR_ANNOTATION_PREFIX, REQUESTER_FINALIZER_PREFIX};
use usher_webhook::configurations::{self, NAMESPACE, SECRET, Target};
use usher_webhook::{Admission, Clock, GatewayOptions, Keeper, ServingCertificate};

pub const ADMIN: &str = "admin";
/// May delete pods.
pub const EDITOR: &str = "editor";
/// May not.
pub const VIEWER: &str = "viewer";
/// May delete the one pod called `named`.
pub const NOBODY: &str = "nobody";

pub const SHOP: &str = "shop";
pub const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// The present time, and a distance from it that tests set.
#[derive(Clone, Default)]
pub struct ShiftedClock(Arc<AtomicI64>);

impl ShiftedClock {
    pub fn shift_to(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let shift = self.0.clone();
        Clock::from_fn(move || Timestamp::now() + SignedDuration::from_secs(shift.load(Ordering::SeqCst)))
    }
}

/// A webhook server of the test's own.
pub struct Webhook {
    pub base: String,
    pub clock: ShiftedClock,
    pub enabled: Arc<AtomicBool>,
    pub certificate: Arc<ServingCertificate>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Webhook {
    pub async fn start(cluster: &TestCluster) -> Self {
        Self::start_with(cluster, GatewayOptions::default()).await
    }

    /// With this gateway.
    pub async fn start_with(cluster: &TestCluster, gateway: GatewayOptions) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("https://{}", listener.local_addr().unwrap());
        let clock = ShiftedClock::default();
        let enabled = Arc::new(AtomicBool::new(true));
        let admission = Admission::new(cluster.client(ADMIN).unwrap())
            .with_clock(clock.clock())
            .with_gate(enabled.clone())
            .with_gateway(gateway);
        let certificate = Arc::new(ServingCertificate::default());
        let (stop, stopped) = oneshot::channel();
        let served = certificate.clone();
        let serving = tokio::spawn(async move {
            let until = async { stopped.await.unwrap_or_default() };
            usher_webhook::serve(listener, Arc::new(admission), served, until).await.unwrap();
        });
        Self { base, clock, enabled, certificate, stop, serving }
    }

    pub fn keeper(&self, cluster: &TestCluster, clock: &ShiftedClock) -> Keeper {
        keeper(cluster, clock, &self.certificate)
    }

    /// Ends the server; nobody answers at its port then.
    pub async fn end(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
    }
}

pub fn keeper(cluster: &TestCluster, clock: &ShiftedClock, certificate: &Arc<ServingCertificate>) -> Keeper {
    let names = vec!["127.0.0.1".to_owned()];
    let client = cluster.client(ADMIN).unwrap();
    Keeper::new(client, NAMESPACE, SECRET, names, certificate.clone()).with_clock(clock.clock())
}

pub struct Scene {
    pub cluster: TestCluster,
}

impl Scene {
    /// Definitions, namespaces and rights; nothing checks anything yet.
    pub async fn new(cluster: TestCluster) -> Self {
        crds::install(&cluster).await.unwrap();
        for namespace in [SHOP, NAMESPACE] {
            cluster.created("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.unwrap();
        }
        let scene = Self { cluster };
        scene.allow_requests_to_all().await;
        scene.allow_one_pod_to_nobody().await;
        scene
    }

    /// Rights on eviction requests, so that only those on pods make the difference.
    async fn allow_requests_to_all(&self) {
        let group = "rbac.authorization.k8s.io";
        let role = json!({"metadata": {"name": "requests"}, "rules": [{
            "apiGroups": ["evictionrequest.coordination.k8s.io"], "verbs": ["*"],
            "resources": ["evictionrequests", "evictionrequests/status"],
        }]});
        let binding = json!({
            "metadata": {"name": "requests"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "requests"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "testers"}],
        });
        self.cluster.created(&format!("/apis/{group}/v1/clusterroles"), &role).await.unwrap();
        self.cluster.created(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).await.unwrap();
    }

    async fn allow_one_pod_to_nobody(&self) {
        let group = "rbac.authorization.k8s.io";
        let role = json!({"metadata": {"name": "named"}, "rules": [
            {"apiGroups": [""], "verbs": ["delete"], "resources": ["pods"], "resourceNames": ["named"]},
        ]});
        let binding = json!({
            "metadata": {"name": "named"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "named"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": NOBODY}],
        });
        let roles = format!("/apis/{group}/v1/namespaces/{SHOP}");
        self.cluster.created(&format!("{roles}/roles"), &role).await.unwrap();
        self.cluster.created(&format!("{roles}/rolebindings"), &binding).await.unwrap();
    }

    /// Registers the configurations of `deploy/webhooks.yaml` for a server on loopback.
    pub async fn register(&self, webhook: &Webhook) {
        self.register_with(webhook, GatewayMode::Off).await;
    }

    /// With the gateway in this mode where namespaces do not say otherwise.
    pub async fn register_with(&self, webhook: &Webhook, gateway: GatewayMode) {
        let target = Target::Url { base: webhook.base.clone(), ca_bundle: None };
        for (kind, configuration) in [
            ("mutating", configurations::mutating(&target)),
            ("validating", configurations::validating(&target, NAMESPACE, gateway)),
        ] {
            let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations");
            self.cluster.created(&path, &configuration).await.unwrap();
        }
    }

    /// An API server learns of configurations in its own time.
    pub async fn until_asked(&self) {
        let missing = self.request_for("missing", "0");
        let dry = format!("{}?dryRun=All", requests());
        self.until(
            || self.send(ADMIN, Method::POST, &dry, &missing),
            |answer| says(answer, "there is no pod missing"),
        )
        .await;
        let broken = pod("probe", json!([["a.io", "x"]]));
        let dry = format!("{}?dryRun=All", pods(SHOP));
        self.until(|| self.send(ADMIN, Method::POST, &dry, &broken), |answer| answer.status == 422).await;
    }

    pub async fn until<F: Future<Output = Answer>>(
        &self,
        ask: impl Fn() -> F,
        wanted: impl Fn(&Answer) -> bool,
    ) {
        let mut last = None;
        for _ in 0..500 {
            let answer = ask().await;
            if wanted(&answer) {
                return;
            }
            last = Some(answer);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} cluster: stays at {last:?}", self.cluster.name());
    }

    pub async fn send(&self, user: &str, method: Method, path: &str, body: &Value) -> Answer {
        let mut request = Request::with_json(method.clone(), path, body);
        if method == Method::PATCH {
            request.headers = vec![("content-type".to_owned(), "application/merge-patch+json".to_owned())];
        }
        if method == Method::DELETE {
            request = Request::new(method, path);
        }
        self.cluster.send(user, request).await.unwrap()
    }

    /// Creates a pod and gives back its UID.
    pub async fn pod(&self, name: &str, interceptors: Value) -> String {
        let created = self.cluster.created(&pods(SHOP), &pod(name, interceptors)).await.unwrap();
        created["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub async fn set_phase(&self, name: &str, phase: &str) {
        let path = format!("{}/{name}/status", pods(SHOP));
        let answer = self.cluster.merge_patch(&path, &json!({"status": {"phase": phase}})).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub fn request_for(&self, pod: &str, uid: &str) -> Value {
        json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": [format!("{REQUESTER_FINALIZER_PREFIX}drainer.example.com")]},
            "spec": {"podRef": {"name": pod, "uid": uid}},
        })
    }

    /// Creates a pod with these interceptors and a request for it, and gives back the path of the request.
    pub async fn requested(&self, name: &str, interceptors: Value) -> String {
        let uid = self.pod(name, interceptors).await;
        self.cluster.created(&requests(), &self.request_for(name, &uid)).await.unwrap();
        format!("{}/{uid}", requests())
    }
}

pub fn requests() -> String {
    format!("/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/{SHOP}/evictionrequests")
}

pub fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Interceptors as pairs of class and value.
pub fn pod(name: &str, interceptors: Value) -> Value {
    let mut annotations = json!({});
    for entry in interceptors.as_array().unwrap() {
        annotations[format!("{INTERCEPTOR_ANNOTATION_PREFIX}{}", entry[0].as_str().unwrap())] =
            entry[1].clone();
    }
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

pub fn says(answer: &Answer, part: &str) -> bool {
    answer.body["message"].as_str().unwrap_or_default().contains(part)
}

/// The status and a part of the message.
#[track_caller]
pub fn expect(what: &str, answer: &Answer, status: u16, part: &str) {
    assert_eq!(answer.status, status, "{what}: {} {:?}", answer.body, answer.warnings());
    assert!(part.is_empty() || says(answer, part), "{what}: {}", answer.body["message"]);
}
