//! Each right that `deploy/` gives to the manager is needed: one after the other is taken away, and something fails. On the embedded
//! cluster, in virtual time, with the roles as they are checked in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::User;
use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use usher_api::names::EVICTION_REQUEST_STRATEGY_ANNOTATION;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::descheduler::Options;
use usher_controllers::leader::Election;
use usher_controllers::run_all;
use usher_descheduler::{Policy, requester};
use usher_tests::descheduler::{deschedule, named};
use usher_tests::living::{
    BUDGETS, DAEMON_SETS, DEPLOYMENTS, Living, NODES, PODS, STATEFUL_SETS, bare_pod, workload,
};
use usher_tests::maintenances::{MAINTENANCES, is_drained, of_label};
use usher_tests::manifests;
use usher_tests::rights::{Right, Roles};
use usher_tests::scenario::beside::answer_inside;
use usher_webhook::configurations::{NAMESPACE, SECRET, manager_user};
use usher_webhook::{Keeper, ServingCertificate};

/// Beside those of the interceptors.
const ROLES: [&str; 4] =
    ["base/cluster-role.yaml", "base/role.yaml", "base/certificates-role.yaml", "descheduler/role.yaml"];
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/usher-system/leases/usher-manager";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// Pods below a priority class that is made late leave nodes that are broken, if their claims are known and not of one storage class.
const POLICY: &str = "
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args:
      priorityThreshold: {name: late}
      podProtections:
        extraEnabled: [PodsWithPVC]
        config: {PodsWithPVC: {protectedStorageClasses: [{name: gold}]}}
  - name: RemovePodsViolatingNodeTaints
    args: {includedTaints: [broken]}
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingNodeTaints]
";
/// How long, in virtual time, what the manager does may take.
const SOON: Duration = Duration::from_secs(60);
/// By then an eviction that is refused is tried again minutes later only.
const LONG: Duration = Duration::from_secs(900);

/// What fails first without a right. An event that is not counted again, or a right that another goal needs before, shows as that.
const NEEDED: [(&str, &str); 59] = [
    ("daemonsets list", "what a request waits for is told"),
    ("daemonsets watch", "a daemon stays"),
    ("namespaces list", "what a request waits for is told"),
    ("namespaces watch", "a namespace opts out"),
    ("statefulsets list", "a StatefulSet is answered for"),
    ("statefulsets watch", "a StatefulSet is answered for"),
    ("deployments list", "a Deployment surges"),
    ("deployments watch", "a Deployment surges"),
    ("deployments patch", "a Deployment surges"),
    ("replicasets list", "a Deployment surges"),
    ("replicasets watch", "a Deployment surges"),
    ("horizontalpodautoscalers list", "a Deployment surges"),
    ("horizontalpodautoscalers watch", "a Deployment surges"),
    ("horizontalpodautoscalers patch", "a Deployment surges through its autoscaler"),
    ("replicasets get", "a Deployment hands over a pod"),
    ("pods create", "a Deployment hands over a pod"),
    ("pods patch", "the surge is taken back with the pod"),
    ("pods delete", "a daemon is taken off its node"),
    ("configmaps create", "a daemon is kept off its node"),
    ("configmaps get", "a daemon is kept off its node"),
    ("configmaps update", "a daemon is kept off its node"),
    ("pods get", "a request is admitted"),
    ("pods list", "what a request waits for is told"),
    ("pods watch", "the request is removed"),
    ("pods/eviction create", "the pod is evicted as soon as its budget allows it"),
    ("events create", "an event tells of it"),
    ("events patch", "the event is counted again"),
    ("poddisruptionbudgets list", "what a request waits for is told"),
    ("poddisruptionbudgets watch", "the pod is evicted as soon as its budget allows it"),
    ("evictionrequests get", "the pod is evicted as soon as its budget allows it"),
    ("evictionrequests list", "what a request waits for is told"),
    ("evictionrequests watch", "what a request waits for is told"),
    ("evictionrequests create", "a maintenance requests evictions"),
    ("evictionrequests patch", "the request is removed"),
    ("evictionrequests delete", "the request is removed"),
    ("evictionrequests/status patch", "what a request waits for is told"),
    ("nodes list", "a maintenance cordons its node"),
    ("nodes watch", "a maintenance cordons its node"),
    ("nodes patch", "a maintenance cordons its node"),
    ("nodes/status patch", "the node tells of its maintenance"),
    ("nodemaintenances list", "the event is counted again"),
    ("nodemaintenances watch", "a maintenance cordons its node"),
    ("nodemaintenances patch", "a maintenance cordons its node"),
    ("nodemaintenances/status patch", "a maintenance joins requests"),
    ("subjectaccessreviews create", "a request is admitted"),
    ("leases create", "a replica leads"),
    ("leases get", "a replica leads"),
    ("leases update", "the lease is renewed"),
    ("mutatingwebhookconfigurations get", "API servers trust the webhook"),
    ("mutatingwebhookconfigurations patch", "API servers trust the webhook"),
    ("validatingwebhookconfigurations get", "API servers trust the webhook"),
    ("validatingwebhookconfigurations patch", "API servers trust the webhook"),
    ("priorityclasses list", "a pod is descheduled"),
    ("priorityclasses watch", "a pod is descheduled"),
    ("persistentvolumeclaims list", "a pod is descheduled"),
    ("persistentvolumeclaims watch", "a pod with a claim is descheduled"),
    ("secrets create", "certificates are made"),
    ("secrets get", "certificates are made"),
    ("secrets update", "certificates are made anew"),
];

fn roles() -> Roles {
    let of_interceptors = manifests::of_workloads(&["-role.yaml"]).unwrap();
    let of_interceptors = of_interceptors.iter().map(String::as_str);
    Roles::of(&ROLES.into_iter().chain(of_interceptors).collect::<Vec<_>>()).unwrap()
}

struct Scene {
    living: Living,
    /// With the rights of the manager.
    client: kube::Client,
    manager: JoinSet<()>,
}

impl Scene {
    async fn new(missing: Option<&Right>) -> Self {
        let living = Living::start(1, 2).await.unwrap();
        living.install_crds().await.unwrap();
        roles().install(&living, missing).await.unwrap();
        let account = User {
            name: manager_user(NAMESPACE),
            groups: vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        };
        let client = kube::Client::new(living.cluster.service_as(account), "default");
        for (path, configuration) in answer_inside(&living.cluster, client.clone(), &BundledInterceptor::ALL)
        {
            living.create(&path, &configuration).await.unwrap();
        }
        let mut scene = Self { living, client, manager: JoinSet::new() };
        scene.start_manager(&BundledInterceptor::ALL);
        scene
    }

    fn start_manager(&mut self, chosen: &'static [BundledInterceptor]) {
        let (now, timers, time) =
            (self.living.cluster.clone(), self.living.cluster.clone(), self.living.cluster.clone());
        let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
        let (client, certificate) = (self.client.clone(), Arc::new(ServingCertificate::default()));
        let keeper = Keeper::new(client.clone(), NAMESPACE, SECRET, vec!["usher".to_owned()], certificate)
            .with_clock(Clock::from_fn(move || time.now()));
        self.manager = JoinSet::new();
        self.manager.spawn(keeper.run(std::future::pending()));
        self.manager.spawn({
            let (client, clock) = (client.clone(), clock.clone());
            async move {
                let (_stop, stopping) = watch::channel(false);
                let election =
                    Election::new(client.clone(), NAMESPACE, "usher-descheduler", "me", clock.clone());
                let options = Options {
                    interval: Some(SignedDuration::from_secs(20)),
                    on_change: false,
                    dry_run: false,
                    knows_requests: true,
                    requester: requester::Options::default(),
                    name: named(NAMESPACE),
                };
                let policy = Policy::read(POLICY).unwrap();
                let work = || deschedule(client.clone(), clock.clone(), options.clone(), policy.clone());
                election.run(stopping, work).await;
            }
        });
        self.manager.spawn(async move {
            let (_stop, stopping) = watch::channel(false);
            let election = Election::new(client.clone(), NAMESPACE, "usher-manager", "me", clock.clone());
            election.run(stopping, || run_all(client.clone(), clock.clone(), chosen)).await;
        });
    }

    /// Whether what is at a path becomes as wanted.
    async fn becomes(&self, within: Duration, path: &str, wanted: impl Fn(&Value) -> bool) -> bool {
        let deadline = Instant::now() + within;
        loop {
            let (code, object) = self.living.send(Method::GET, path, &Value::Null).await.unwrap();
            if wanted(if code == 404 { &Value::Null } else { &object }) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Asks for the eviction of a pod. The path of the request, if it was admitted.
    async fn request(&self, pod: &str) -> Option<String> {
        for _ in 0..20 {
            if let Ok(path) = self.living.request(pod, &json!([])).await {
                return Some(path);
            }
            sleep(Duration::from_secs(1)).await;
        }
        None
    }

    /// What the manager is for, one thing after the other; the first that fails.
    async fn first_failure(&self) -> Option<&'static str> {
        macro_rules! goal {
            ($name:literal, $reached:expr) => {
                if !$reached {
                    return Some($name);
                }
            };
        }
        let living = &self.living;
        let led = |lease: &Value| lease["spec"]["holderIdentity"] == "me";
        goal!("a replica leads", self.becomes(SOON, LEASE, led).await);
        let first = living.get(LEASE).await.unwrap()["spec"]["renewTime"].clone();
        let renewed = |lease: &Value| led(lease) && lease["spec"]["renewTime"] != first;
        goal!("the lease is renewed", self.becomes(SOON, LEASE, renewed).await);

        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let made = |secret: &Value| secret["data"]["tls.crt"].is_string();
        goal!("certificates are made", self.becomes(SOON, &secret, made).await);
        let trusted = |configuration: &Value| {
            let mut hooks = configuration["webhooks"].as_array().unwrap().iter();
            hooks.all(|hook| hook["clientConfig"]["caBundle"].is_string())
        };
        for kind in ["mutating", "validating"] {
            let path = format!("{CONFIGURATIONS}/{kind}webhookconfigurations/usher");
            goal!("API servers trust the webhook", self.becomes(SOON, &path, trusted).await);
        }
        living.patch(&secret, &json!({"data": null})).await.unwrap();
        goal!("certificates are made anew", self.becomes(2 * SOON, &secret, made).await);

        for pod in ["solo", "first", "second"] {
            let node = if pod == "solo" { "n2" } else { "n1" };
            let mut object = bare_pod(pod, node);
            object["metadata"]["labels"]["app"] = pod.into();
            living.create(PODS, &object).await.unwrap();
            living.until(&format!("{PODS}/{pod}"), |pod| pod["status"]["phase"] == "Running").await.unwrap();
        }
        living.budget("solo", "solo", json!({"minAvailable": 1})).await.unwrap();
        let Some(request) = self.request("solo").await else { return Some("a request is admitted") };
        let blocked = |request: &Value| {
            let mut conditions = request["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .any(|condition| condition["type"] == "EvictionBlocked" && condition["status"] == "True")
        };
        goal!("what a request waits for is told", self.becomes(SOON, &request, blocked).await);
        let events = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
        let told = |list: &Value| events(list).iter().any(|event| event["reason"] == "EvictionBlocked");
        goal!("an event tells of it", self.becomes(SOON, EVENTS, told).await);
        sleep(LONG).await;
        living.patch(&format!("{BUDGETS}/solo"), &json!({"spec": {"minAvailable": 0}})).await.unwrap();
        let gone = Value::is_null;
        let pod = format!("{PODS}/solo");
        goal!("the pod is evicted as soon as its budget allows it", self.becomes(SOON, &pod, gone).await);
        goal!("the request is removed", self.becomes(SOON, &request, gone).await);

        let mut agent = workload("DaemonSet", "agent", json!({}));
        agent["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
        let strategy = |value: Value| json!({"annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: value}});
        agent["metadata"]["annotations"] = strategy(json!("Off"))["annotations"].clone();
        living.create(DAEMON_SETS, &agent).await.unwrap();
        let agents = format!("{PODS}?labelSelector=app%3Dagent");
        let runs = |list: &Value| list["items"][0]["status"]["phase"] == "Running";
        let agent = living.until(&agents, runs).await.unwrap()["items"][0]["metadata"].clone();
        let name = agent["name"].as_str().unwrap();
        let Some(request) = self.request(name).await else { return Some("a request is admitted") };
        sleep(SOON).await;
        let stays = |list: &Value| list["items"][0]["metadata"]["uid"] == agent["uid"];
        goal!("a daemon stays", self.becomes(Duration::ZERO, &agents, stays).await);
        // Its DaemonSet is told of the same again, a while later.
        living.patch(&request, &json!({"metadata": {"finalizers": []}})).await.unwrap();
        goal!("the request is removed", self.becomes(SOON, &request, gone).await);
        sleep(LONG).await;
        let Some(_) = self.request(name).await else { return Some("a request is admitted") };
        let again = |list: &Value| {
            let ours = |event: &&Value| event["source"]["component"] == "usher";
            events(list).iter().filter(ours).any(|event| event["count"].as_i64() > Some(1))
        };
        goal!("the event is counted again", self.becomes(SOON, EVENTS, again).await);

        // Somebody else asks for one of the pods already.
        living.budget("all", "first", json!({"minAvailable": 1})).await.unwrap();
        let Some(joined) = self.request("first").await else { return Some("a request is admitted") };
        living
            .create(MAINTENANCES, &of_label("m", "Drain", "kubernetes.io/hostname", &["n1"]))
            .await
            .unwrap();
        let node = format!("{NODES}/n1");
        goal!(
            "a maintenance cordons its node",
            self.becomes(SOON, &node, |node| node["spec"]["unschedulable"] == true).await
        );
        let tells = |node: &Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .any(|condition| condition["type"] == "NodeMaintenance" && condition["status"] == "True")
        };
        goal!("the node tells of its maintenance", self.becomes(SOON, &node, tells).await);
        let joins =
            |request: &Value| request["metadata"]["finalizers"].as_array().is_some_and(|all| all.len() == 2);
        goal!("a maintenance joins requests", self.becomes(SOON, &joined, joins).await);
        let second = format!("{PODS}/second");
        goal!("a maintenance requests evictions", self.becomes(SOON, &second, gone).await);
        living.patch(&format!("{BUDGETS}/all"), &json!({"spec": {"minAvailable": 0}})).await.unwrap();
        let maintenance = format!("{MAINTENANCES}/m");
        goal!("a maintenance is drained", self.becomes(2 * SOON, &maintenance, is_drained).await);
        living.set_stage("m", "Complete").await.unwrap();
        goal!(
            "its node is released",
            self.becomes(SOON, &node, |node| node["spec"]["unschedulable"] != true).await
        );
        let released =
            |maintenance: &Value| maintenance["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        goal!("it can be deleted", self.becomes(SOON, &maintenance, released).await);

        living
            .patch(&format!("{DAEMON_SETS}/agent"), &json!({"metadata": strategy(Value::Null)}))
            .await
            .unwrap();
        let mut db = workload("StatefulSet", "db", json!({"replicas": 1}));
        db["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
        living.create(STATEFUL_SETS, &db).await.unwrap();
        let dbs = format!("{PODS}?labelSelector=app%3Ddb");
        let db = living.until(&dbs, runs).await.unwrap()["items"][0]["metadata"]["uid"].clone();
        let on_n2 = |name: &str| of_label(name, "Drain", "kubernetes.io/hostname", &["n2"]);
        living.create(MAINTENANCES, &on_n2("n")).await.unwrap();
        let left = |list: &Value| list["items"][0]["metadata"]["uid"] != db;
        goal!("a StatefulSet is answered for", self.becomes(SOON, &dbs, left).await);
        let gone_from_node = |list: &Value| list["items"][0]["metadata"]["uid"] != agent["uid"];
        goal!("a daemon is taken off its node", self.becomes(SOON, &agents, gone_from_node).await);
        let waits = |list: &Value| list["items"][0]["spec"]["schedulingGates"][0]["name"].is_string();
        goal!("a daemon is kept off its node", self.becomes(SOON, &agents, waits).await);
        living.set_stage("n", "Complete").await.unwrap();
        goal!("a daemon comes back", self.becomes(SOON, &agents, runs).await);
        let off = json!({"metadata": strategy(json!("Off"))});
        living.patch("/api/v1/namespaces/default", &off).await.unwrap();
        living.create(MAINTENANCES, &on_n2("o")).await.unwrap();
        let drained = self.becomes(2 * SOON, &format!("{MAINTENANCES}/o"), is_drained).await;
        goal!("a namespace opts out", drained && self.becomes(Duration::ZERO, &agents, runs).await);
        let on = json!({"metadata": strategy(Value::Null)});
        living.patch("/api/v1/namespaces/default", &on).await.unwrap();

        living.create(DEPLOYMENTS, &workload("Deployment", "shop", json!({"replicas": 1}))).await.unwrap();
        let shops = format!("{PODS}?labelSelector=app%3Dshop");
        let pod = living.until(&shops, runs).await.unwrap()["items"][0]["metadata"].clone();
        self.request(pod["name"].as_str().unwrap()).await;
        let shop = format!("{DEPLOYMENTS}/shop");
        let has = |replicas: u64| move |shop: &Value| shop["spec"]["replicas"] == replicas;
        goal!("a Deployment surges", self.becomes(SOON, &shop, has(2)).await);
        let replaced = |list: &Value| {
            list["items"]
                .as_array()
                .is_some_and(|pods| pods.len() == 1 && pods[0]["metadata"]["uid"] != pod["uid"])
        };
        let is_back = self.becomes(SOON, &shop, has(1)).await;
        goal!("the surge is taken back with the pod", is_back && self.becomes(SOON, &shops, replaced).await);
        let autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "shop"},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}},
        });
        living.create(AUTOSCALERS, &autoscaler).await.unwrap();
        let pod = living.until(&shops, runs).await.unwrap()["items"][0]["metadata"].clone();
        self.request(pod["name"].as_str().unwrap()).await;
        let raised = |autoscaler: &Value| autoscaler["spec"]["minReplicas"] == 2;
        goal!(
            "a Deployment surges through its autoscaler",
            self.becomes(SOON, &format!("{AUTOSCALERS}/shop"), raised).await
        );
        let mut desk = workload("Deployment", "desk", json!({"replicas": 1}));
        desk["metadata"]["annotations"] = strategy(json!("HandOver"))["annotations"].clone();
        living.create(DEPLOYMENTS, &desk).await.unwrap();
        let desks = format!("{PODS}?labelSelector=app%3Ddesk");
        let pod = living.until(&desks, runs).await.unwrap()["items"][0]["metadata"].clone();
        self.request(pod["name"].as_str().unwrap()).await;
        let replaced = |list: &Value| {
            let pods = list["items"].as_array();
            pods.is_some_and(|pods| pods.len() == 1 && pods[0]["metadata"]["uid"] != pod["uid"])
        };
        let is_replaced = self.becomes(SOON, &desks, replaced).await;
        let desk = living.get(&format!("{DEPLOYMENTS}/desk")).await.unwrap();
        goal!("a Deployment hands over a pod", is_replaced && desk["metadata"]["generation"] == 2);

        let claim = json!({
            "metadata": {"name": "data"},
            "spec": {"storageClassName": "silver", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        living.create(CLAIMS, &claim).await.unwrap();
        let mut pods = Vec::new();
        for name in ["plain", "stored"] {
            let mut set = workload("StatefulSet", name, json!({"replicas": 1}));
            let template = &mut set["spec"]["template"]["spec"];
            template["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
            if name == "stored" {
                template["volumes"] =
                    json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
            }
            living.create(STATEFUL_SETS, &set).await.unwrap();
            let list = format!("{PODS}?labelSelector=app%3D{name}");
            let running = living.until(&list, runs).await.unwrap();
            pods.push((list, running["items"][0]["metadata"]["uid"].clone()));
        }
        let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
        living.patch(&node, &taints).await.unwrap();
        living.create(CLASSES, &json!({"metadata": {"name": "late"}, "value": 1000})).await.unwrap();
        let left = |number: usize| {
            let (path, uid) = &pods[number];
            self.becomes(SOON, path, move |list| list["items"][0]["metadata"]["uid"] != *uid)
        };
        goal!("a pod is descheduled", left(0).await);
        goal!("a pod with a claim is descheduled", left(1).await);
        None
    }
}

/// On a thread and in a time of its own.
fn first_failure(missing: Option<Right>) -> Option<&'static str> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { Scene::new(missing.as_ref()).await.first_failure().await })
}

#[test]
fn every_right_of_the_manager_is_needed() {
    roles().are_all_needed(&NEEDED, first_failure).unwrap();
}

/// The rights and the interceptor of DaemonSets go together, and whatever it had held is let through all the same.
#[tokio::test(start_paused = true)]
async fn a_manager_without_the_interceptor_of_daemon_sets_leaves_no_gate_and_no_held_node() {
    let mut scene = Scene::new(None).await;
    scene.living.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    let agents = format!("{PODS}?labelSelector=app%3Dagent");
    let phases = |list: &Value| -> Vec<Value> {
        let pods = list["items"].as_array().into_iter().flatten();
        pods.map(|pod| pod["status"]["phase"].clone()).collect()
    };
    let run = |list: &Value| phases(list) == ["Running", "Running"];
    assert!(scene.becomes(SOON, &agents, run).await);
    let drain = of_label("m", "Drain", "kubernetes.io/hostname", &["n2"]);
    let mut drains = false;
    for _ in 0..20 {
        // As long as nobody answers for admission.
        drains = drains || scene.living.create(MAINTENANCES, &drain).await.is_ok();
        sleep(Duration::from_secs(1)).await;
    }
    let is_gated = |pod: &Value| pod["spec"]["schedulingGates"][0]["name"].is_string();
    let one_waits = |list: &Value| list["items"].as_array().is_some_and(|all| all.iter().any(is_gated));
    assert!(scene.becomes(SOON, &agents, one_waits).await, "the node is held");
    let map = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/usher-held-nodes");
    assert!(scene.becomes(SOON, &map, |map| map["data"]["n2"].is_string()).await);

    scene.manager.shutdown().await;
    for path in [
        "clusterroles/usher-interceptor-daemonset",
        "clusterrolebindings/usher-interceptor-daemonset",
        "namespaces/usher-system/roles/usher-interceptor-daemonset",
        "namespaces/usher-system/rolebindings/usher-interceptor-daemonset",
    ] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
        let (code, answer) = scene.living.send(Method::DELETE, &path, &Value::Null).await.unwrap();
        assert_eq!(code, 200, "{answer}");
    }
    scene.start_manager(&[BundledInterceptor::StatefulSet]);
    assert!(scene.becomes(SOON, &agents, run).await, "the pod of the held node runs again");
    let is_empty = |map: &Value| map["data"].as_object().is_none_or(serde_json::Map::is_empty);
    assert!(scene.becomes(Duration::ZERO, &map, is_empty).await, "no node is held");
}

/// A drain whose requests somebody refuses, such as a quota or a policy, says who on the pod and on its maintenance.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_eviction_requests_are_refused_says_so() {
    let scene = Scene::new(None).await;
    scene.living.create(DEPLOYMENTS, &workload("Deployment", "shop", json!({"replicas": 1}))).await.unwrap();
    let shops = format!("{PODS}?labelSelector=app%3Dshop");
    let runs = |list: &Value| list["items"][0]["status"]["phase"] == "Running";
    let pod = scene.living.until(&shops, runs).await.unwrap()["items"][0].clone();
    let rule = json!({
        "apiGroups": ["evictionrequest.coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["evictionrequests"],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-requests"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "message": "not in this house"}]},
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-requests"},
        "spec": {"policyName": "no-requests", "validationActions": ["Deny"]},
    });
    let path = "/apis/admissionregistration.k8s.io/v1";
    scene.living.create(&format!("{path}/validatingadmissionpolicies"), &policy).await.unwrap();
    scene.living.create(&format!("{path}/validatingadmissionpolicybindings"), &binding).await.unwrap();
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    let drain = of_label("m", "Drain", "kubernetes.io/hostname", &[node]);
    let mut drains = false;
    for _ in 0..20 {
        // As long as nobody answers for admission.
        drains = drains || scene.living.create(MAINTENANCES, &drain).await.is_ok();
        sleep(Duration::from_secs(1)).await;
    }
    for kind in ["Pod", "NodeMaintenance"] {
        let is_told = |list: &Value| {
            list["items"].as_array().into_iter().flatten().any(|event| {
                event["involvedObject"]["kind"] == kind
                    && event["reason"] == "EvictionRequestNotWritten"
                    && event["message"].as_str().is_some_and(|said| said.contains("not in this house"))
            })
        };
        assert!(scene.becomes(SOON, "/api/v1/events", is_told).await, "{kind}");
    }
}

/// Its interceptor is on, and its role is missing: requests do not wait without a word.
#[tokio::test(start_paused = true)]
async fn a_manager_without_the_role_of_deployments_says_so_and_goes_on_once_it_has_it() {
    let mut scene = Scene::new(None).await;
    scene.living.create(DEPLOYMENTS, &workload("Deployment", "shop", json!({"replicas": 1}))).await.unwrap();
    let shops = format!("{PODS}?labelSelector=app%3Dshop");
    let runs = |list: &Value| list["items"][0]["status"]["phase"] == "Running";
    let pod = scene.living.until(&shops, runs).await.unwrap()["items"][0]["metadata"].clone();
    scene.manager.shutdown().await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/usher-interceptor-deployment";
    let (code, answer) = scene.living.send(Method::DELETE, role, &Value::Null).await.unwrap();
    assert_eq!(code, 200, "{answer}");
    scene.start_manager(&BundledInterceptor::ALL);
    let request = scene.request(pod["name"].as_str().unwrap()).await.unwrap();
    let says = |part: &'static str| {
        move |request: &Value| request["status"]["message"].as_str().is_some_and(|said| said.contains(part))
    };
    let told = says("may not list deployments and horizontalpodautoscalers and replicasets");
    assert!(scene.becomes(SOON, &request, told).await, "{}", scene.living.get(&request).await.unwrap());
    assert!(scene.becomes(Duration::ZERO, &request, says("deploy/workloads/deployment-role.yaml")).await);

    let (all, kind) = (roles(), "ClusterRole");
    let role = all.named(kind, "usher-interceptor-deployment").unwrap();
    scene.living.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.unwrap();
    let replaced = |list: &Value| {
        list["items"]
            .as_array()
            .is_some_and(|pods| pods.len() == 1 && pods[0]["metadata"]["uid"] != pod["uid"])
    };
    assert!(scene.becomes(LONG, &shops, replaced).await, "{}", scene.living.get(&request).await.unwrap());
}
