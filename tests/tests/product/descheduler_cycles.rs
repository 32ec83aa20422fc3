//! The descheduler on the embedded cluster, in virtual time: who is asked where others cannot be, and what outlives its end.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::faults::{Fault, Matcher, Refusal, Rule, When};
use embedded_apiserver::{Cluster, Options as ClusterOptions, ServerBody, in_process};
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;
use usher_api::names::{DESCHEDULER_LEASE, REQUESTER_FINALIZER_PREFIX};
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::Context;
use usher_controllers::descheduler::{CarriedOut, Hooks, Options, run_until};
use usher_controllers::feeds::Feeds;
use usher_controllers::metrics::Metrics;
use usher_descheduler::{Plan, Policy, requester};

const REQUESTS: &str = "/apis/evictionrequest.coordination.k8s.io/v1alpha1";
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

struct Scene {
    cluster: Cluster,
    client: Client,
    metrics: Metrics,
    is_dry: bool,
    on_change: bool,
}

/// Calls `planned` with each plan.
fn on_plan(planned: impl Fn(&Plan) + Send + 'static) -> Hooks {
    Hooks { on_plan: Some(Box::new(planned)), ..Hooks::default() }
}

impl Scene {
    /// Two nodes, of which one has a taint that nobody tolerates.
    async fn new() -> Self {
        let clock = Arc::new(TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap()));
        let cluster = Cluster::new(ClusterOptions { clock, seed: Some(1), ..ClusterOptions::default() });
        let client = Client::new(cluster.client("people"), "default");
        let metrics = Metrics::new(Clock::system());
        let scene = Self { cluster, client, metrics, is_dry: false, on_change: false };
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for (_, crd) in usher_api::crd::crds() {
            scene.send(Method::POST, crds, &serde_json::to_value(crd).unwrap()).await;
        }
        for name in ["n1", "n2"] {
            let size = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"capacity": size, "allocatable": size, "conditions": ready});
            let node = json!({"metadata": {"name": name}, "status": status});
            scene.send(Method::POST, "/api/v1/nodes", &node).await;
            scene
                .send(Method::PATCH, &format!("/api/v1/nodes/{name}/status"), &json!({"status": status}))
                .await;
        }
        let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
        scene.send(Method::PATCH, "/api/v1/nodes/n1", &taints).await;
        scene
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        self.client.request(request.body(body).unwrap()).await.unwrap()
    }

    /// A pod on the node with the taint, which is gone at once when it is evicted.
    async fn add_pod(&self, namespace: &str, name: &str, annotations: Value) {
        let namespaces = json!({"metadata": {"name": namespace}});
        if namespace != "default" && name.ends_with('0') {
            self.send(Method::POST, "/api/v1/namespaces", &namespaces).await;
        }
        let mut pod = json!({
            "metadata": {"name": name, "annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}},
            "spec": {
                "nodeName": "n1", "containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 0,
            },
        });
        if let (Some(all), Value::Object(more)) =
            (pod["metadata"]["annotations"].as_object_mut(), annotations)
        {
            all.extend(more);
        }
        self.send(Method::POST, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
        let running = json!({"status": {"phase": "Running"}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        self.send(Method::PATCH, &path, &running).await;
    }

    /// Nobody may make requests in this namespace.
    fn refuse_requests_in(&self, namespace: &str) {
        let on = Matcher::any().verb("create").resource("evictionrequests").namespace(namespace);
        let fault = Fault::Refuse(Refusal::TooManyRequests { retry_after: 1 });
        self.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
    }

    /// The pods with requests of the descheduler.
    async fn requested(&self) -> Vec<String> {
        let requests = self.send(Method::GET, &format!("{REQUESTS}/evictionrequests"), &Value::Null).await;
        let ours = requests["items"].as_array().unwrap().iter();
        let ours = ours.filter(|it| it["metadata"]["finalizers"][0].is_string());
        let pod = |it: &Value| it["spec"]["podRef"]["name"].as_str().unwrap().to_owned();
        let mut pods: Vec<String> = ours.map(pod).collect();
        pods.sort();
        pods
    }

    /// As a person does who thinks better of it.
    async fn withdraw_all(&self) {
        let requests = self.send(Method::GET, &format!("{REQUESTS}/evictionrequests"), &Value::Null).await;
        for request in requests["items"].as_array().unwrap() {
            let (namespace, name) = (&request["metadata"]["namespace"], &request["metadata"]["name"]);
            let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
            let path = format!("{REQUESTS}/namespaces/{namespace}/evictionrequests/{name}");
            self.send(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await;
            self.send(Method::DELETE, &path, &Value::Null).await;
        }
    }

    /// What is remembered of this kind.
    async fn remembered(&self, key: &str) -> String {
        let path = format!("/api/v1/namespaces/default/configmaps/{DESCHEDULER_LEASE}-cool-downs");
        let map = self.send(Method::GET, &path, &Value::Null).await;
        map["data"][key].as_str().unwrap_or_default().to_owned()
    }

    fn start(&self, limits: &str, interval: Option<SignedDuration>) -> Descheduler {
        self.start_with_hooks(limits, interval, Hooks::default())
    }

    fn start_with_hooks(&self, limits: &str, interval: Option<SignedDuration>, hooks: Hooks) -> Descheduler {
        let policy = format!(
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{limits}\nprofiles:\n- name: p\n  \
             pluginConfig: [{{name: RemovePodsViolatingNodeTaints}}]\n  \
             plugins: {{deschedule: {{enabled: [RemovePodsViolatingNodeTaints]}}}}\n"
        );
        let policies = futures::stream::iter([Policy::read(&policy).unwrap()]);
        let client = Client::new(self.cluster.client("descheduler"), "default");
        self.start_with(client, policies, interval, hooks)
    }

    fn start_with(
        &self,
        client: Client,
        policies: impl Stream<Item = Policy> + Send + 'static,
        interval: Option<SignedDuration>,
        hooks: Hooks,
    ) -> Descheduler {
        let options = Options {
            interval,
            on_change: self.on_change,
            dry_run: self.is_dry,
            knows_requests: true,
            requester: requester::Options::default(),
            name: DeschedulerName { namespace: "default".to_owned(), name: DESCHEDULER_LEASE.to_owned() },
        };
        let (now, timers) = (self.cluster.clone(), self.cluster.clone());
        let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
        let (stop, mut stopping) = watch::channel(false);
        let policies = policies.map(Ok).chain(futures::stream::pending()).boxed();
        let metrics = self.metrics.clone();
        let task = tokio::spawn(async move {
            let stop = async move { drop(stopping.wait_for(|stop| *stop).await) };
            let stop = stop.boxed().shared();
            let context = Context { metrics, stop, ..Context::new(client.clone(), clock) };
            let mut feeds = Feeds::default();
            let running = run_until(&mut feeds, context, options, policies, hooks);
            let _watches = feeds.start(&client);
            running.await
        });
        Descheduler { stop, task }
    }

    async fn run_once(&self, limits: &str) -> CarriedOut {
        self.start(limits, None).task.await.unwrap()
    }
}

struct Descheduler {
    stop: watch::Sender<bool>,
    task: JoinHandle<CarriedOut>,
}

impl Descheduler {
    /// As a SIGTERM does.
    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

const ONE: &str = "maxNoOfPodsToEvictTotal: 1";

/// As in a namespace with a quota of no requests, whose pods come first.
#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_asked_leave_their_places_to_others_in_the_same_cycle() {
    for interval in [None, Some(MINUTE)] {
        let scene = Scene::new().await;
        for number in 0..5 {
            scene.add_pod("aaa", &format!("a{number}"), Value::Null).await;
        }
        for number in 0..3 {
            scene.add_pod("zzz", &format!("z{number}"), Value::Null).await;
        }
        scene.refuse_requests_in("aaa");
        let descheduler = scene.start(ONE, interval);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(scene.requested().await.len(), 1, "one may be asked, and one can be");
        assert!(scene.requested().await[0].starts_with('z'));
        if interval.is_none() {
            assert_eq!(descheduler.task.await.unwrap(), CarriedOut { done: 1, failed: 5 });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_asked_a_cycle_ends_and_says_so() {
    let scene = Scene::new().await;
    for number in 0..3 {
        scene.add_pod("aaa", &format!("a{number}"), Value::Null).await;
    }
    scene.refuse_requests_in("aaa");
    assert_eq!(scene.run_once(ONE).await, CarriedOut { done: 0, failed: 3 });
    // Whom the next run is to try later.
    assert_eq!(scene.remembered("coolDowns").await.lines().count(), 3);
    assert_eq!(scene.run_once(ONE).await, CarriedOut::default());
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_withdrawn_is_known_after_an_orderly_restart() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    let first = scene.start("", Some(MINUTE * 5));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.requested().await, ["a0"]);
    scene.withdraw_all().await;
    sleep(Duration::from_secs(1)).await;
    first.end().await;
    assert!(scene.remembered("coolDowns").await.starts_with("default/a0/"));
    let _second = scene.start("", Some(MINUTE * 5));
    sleep(Duration::from_secs(3000)).await;
    assert_eq!(scene.requested().await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_withdrawn_is_saved_soon_and_not_only_in_the_next_cycle() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    let first = scene.start("", Some(MINUTE * 5));
    sleep(Duration::from_secs(10)).await;
    scene.withdraw_all().await;
    sleep(Duration::from_secs(10)).await;
    // Killed.
    first.task.abort();
    assert!(scene.remembered("coolDowns").await.starts_with("default/a0/"));
}

#[tokio::test(start_paused = true)]
async fn what_a_person_has_withdrawn_between_two_runs_is_not_asked_for_again() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    scene.run_once("").await;
    assert_eq!(scene.requested().await, ["a0"]);
    scene.withdraw_all().await;
    for _ in 0..2 {
        scene.run_once("").await;
        assert_eq!(scene.requested().await, [] as [&str; 0]);
        sleep(Duration::from_secs(1700)).await;
    }
    sleep(Duration::from_secs(300)).await;
    scene.run_once("").await;
    assert_eq!(scene.requested().await, ["a0"], "the cool-down is over");
}

/// A webhook that promises to move every pod that is evicted.
async fn promise_everything(scene: &Scene) {
    refuse_evictions(scene, |_| async { Some(promise()) }).await;
}

fn promise() -> Value {
    json!({"code": 429, "reason": "TooManyRequests", "message": "Eviction triggered evacuation"})
}

/// A webhook that refuses evictions of pods for which it has a status.
async fn refuse_evictions<F: Future<Output = Option<Value>> + Send + 'static>(
    scene: &Scene,
    refusal: impl Fn(String) -> F + Send + Sync + 'static,
) {
    let answer = move |review: Value| {
        let refusal = refusal(review["request"]["name"].as_str().unwrap_or_default().to_owned());
        async move {
            let status = refusal.await;
            let response =
                json!({"uid": review["request"]["uid"], "allowed": status.is_none(), "status": status});
            let kind =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Ok::<_, String>(kind)
        }
    };
    let url = "https://migration.example.internal/evict";
    scene.cluster.endpoints().register_url(url, in_process(answer));
    let hook = json!({
        "name": "migration.example.com", "clientConfig": {"url": url}, "sideEffects": "NoneOnDryRun",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    scene.send(Method::POST, hooks, &json!({"metadata": {"name": "migration"}, "webhooks": [hook]})).await;
}

/// The next cycle is minutes away.
#[tokio::test(start_paused = true)]
async fn a_promise_to_move_a_pod_in_the_background_is_saved_at_once() {
    let scene = Scene::new().await;
    promise_everything(&scene).await;
    scene.add_pod("default", "vm0", json!({"descheduler.alpha.kubernetes.io/request-evict-only": ""})).await;
    let first = scene.start("", Some(MINUTE * 5));
    sleep(Duration::from_secs(3)).await;
    // Killed.
    first.task.abort();
    let promised = scene.remembered("inBackground").await;
    assert!(promised.starts_with("default/vm0/") && promised.ends_with(" promised\n"), "{promised}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_moved_in_the_background_are_counted_as_they_come_and_go_and_not_only_in_cycles() {
    let scene = Scene::new().await;
    promise_everything(&scene).await;
    let only = "descheduler.alpha.kubernetes.io/request-evict-only";
    let in_progress = "descheduler.alpha.kubernetes.io/eviction-in-progress";
    scene.add_pod("default", "vm0", json!({only: ""})).await;
    let _descheduler = scene.start("", Some(MINUTE * 30));
    sleep(Duration::from_secs(3)).await;
    let counts = |under_way: usize, moved: usize| {
        let text = scene.metrics.text().unwrap();
        let labels =
            "strategy=\"RemovePodsViolatingNodeTaints\",profile=\"p\",namespace=\"default\",node=\"n1\"";
        let result = |result: &str| format!("descheduler_pods_evicted_total{{result=\"{result}\",{labels}}}");
        assert!(text.contains(&format!("pod_evacuations_in_progress {under_way}\n")), "{text}");
        assert!(text.contains(&format!("{} 1\n", result("background"))), "{text}");
        assert_eq!(text.contains(&format!("{} {moved}\n", result("success"))), moved > 0, "{text}");
    };
    counts(1, 0);
    // Somebody else moves another one.
    scene.add_pod("default", "vm1", json!({only: "", in_progress: ""})).await;
    sleep(Duration::from_secs(3)).await;
    counts(2, 0);
    for (name, under_way) in [("vm1", 1), ("vm0", 0)] {
        let path = format!("/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0");
        scene.send(Method::DELETE, &path, &Value::Null).await;
        sleep(Duration::from_secs(3)).await;
        counts(under_way, usize::from(name == "vm0"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_saves_nothing() {
    let scene = Scene { is_dry: true, ..Scene::new().await };
    let only = "descheduler.alpha.kubernetes.io/request-evict-only";
    let in_progress = "descheduler.alpha.kubernetes.io/eviction-in-progress";
    scene.add_pod("default", "vm0", json!({only: "", in_progress: ""})).await;
    let descheduler = scene.start("", Some(MINUTE));
    sleep(Duration::from_secs(90)).await;
    descheduler.end().await;
    scene.run_once("").await;
    let maps = scene.send(Method::GET, "/api/v1/namespaces/default/configmaps", &Value::Null).await;
    assert!(!maps.to_string().contains(DESCHEDULER_LEASE), "{maps}");
}

/// Who deletes a request without taking the requesters off it leaves that to the descheduler.
#[tokio::test(start_paused = true)]
async fn what_the_descheduler_has_withdrawn_itself_is_asked_for_after_the_cool_down() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    scene.run_once("").await;
    sleep(Duration::from_secs(3700)).await;
    scene.run_once("").await;
    let requests = scene.send(Method::GET, &format!("{REQUESTS}/evictionrequests"), &Value::Null).await;
    assert!(!requests.to_string().contains(REQUESTER_FINALIZER_PREFIX), "it took too long: {requests}");
    scene.withdraw_all().await;
    sleep(Duration::from_secs(3700)).await;
    scene.run_once("").await;
    assert_eq!(scene.requested().await, ["a0"]);
}

/// As with a client that may ask only so often.
#[tokio::test(start_paused = true)]
async fn who_ends_after_one_cycle_has_told_everything_however_slowly() {
    let scene = Scene::new().await;
    for number in 0..8 {
        scene.add_pod("default", &format!("a{number}"), Value::Null).await;
    }
    let on = Matcher::any().verb("create").resource("events");
    let fault = Fault::Latency(Duration::from_secs(3));
    scene.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
    scene.run_once("").await;
    let events = scene.send(Method::GET, "/api/v1/namespaces/default/events", &Value::Null).await;
    assert_eq!(events["items"].as_array().unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_cycle_that_goes_on_with_others_keeps_its_limit_also_where_pods_are_gone_at_once() {
    let scene = Scene::new().await;
    refuse_evictions(&scene, |pod| async move {
        let is_even = pod.ends_with(['0', '2', '4', '6', '8']);
        is_even.then(|| json!({"code": 403, "reason": "Forbidden", "message": "not this one"}))
    })
    .await;
    for number in 0..10 {
        let by_eviction = json!({"descheduler.alpha.kubernetes.io/request-evict-only": ""});
        scene.add_pod("default", &format!("p{number}"), by_eviction).await;
    }
    let carried_out = scene.run_once("maxNoOfPodsToEvictTotal: 2").await;
    let pods = scene.send(Method::GET, "/api/v1/namespaces/default/pods", &Value::Null).await;
    assert_eq!(pods["items"].as_array().unwrap().len(), 8, "{carried_out:?}");
    assert_eq!(carried_out.done, 2);
}

#[tokio::test(start_paused = true)]
async fn who_runs_once_does_one_cycle_whatever_changes_meanwhile() {
    let scene = Scene { on_change: true, ..Scene::new().await };
    scene.add_pod("default", "a0", Value::Null).await;
    let on = Matcher::any().verb("create").resource("evictionrequests");
    let fault = Fault::Latency(Duration::from_secs(20));
    scene.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
    let cycles = Arc::new(AtomicUsize::new(0));
    let counted = cycles.clone();
    let hooks = on_plan(move |_: &Plan| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let descheduler = scene.start_with_hooks("", None, hooks);
    sleep(Duration::from_secs(5)).await;
    let taints = json!({"spec": {"taints": [{"key": "another", "effect": "NoSchedule"}]}});
    scene.send(Method::PATCH, "/api/v1/nodes/n1", &taints).await;
    assert_eq!(descheduler.task.await.unwrap(), CarriedOut { done: 1, failed: 0 });
    assert_eq!(cycles.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn who_runs_once_and_panics_ends_and_says_that_it_failed() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    let hooks = on_plan(|_: &Plan| panic!("a defect, as this test wants it"));
    let descheduler = scene.start_with_hooks("", None, hooks);
    let ended = timeout(Duration::from_secs(7200), descheduler.task).await;
    assert_eq!(ended.unwrap().unwrap(), CarriedOut { done: 0, failed: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_run_that_withdraws_nothing_as_it_cannot_remember_says_that_it_failed() {
    let scene = Scene::new().await;
    scene.add_pod("default", "a0", Value::Null).await;
    scene.run_once("").await;
    sleep(Duration::from_secs(3700)).await;
    let on = Matcher::any().verb("update").resource("configmaps");
    let fault = Fault::Refuse(Refusal::Internal);
    scene.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
    assert_eq!(scene.run_once("").await, CarriedOut { done: 0, failed: 1 });
    scene.cluster.faults().stop();
    assert_eq!(scene.run_once("").await, CarriedOut { done: 1, failed: 0 });
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_pod_has_gone_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let client = scene.client.clone();
    refuse_evictions(&scene, move |pod| {
        let client = client.clone();
        async move {
            let path = format!("/api/v1/namespaces/default/pods/{pod}?gracePeriodSeconds=0");
            let _: Value = client.request(Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            Some(promise())
        }
    })
    .await;
    scene.add_pod("default", "vm0", json!({"descheduler.alpha.kubernetes.io/request-evict-only": ""})).await;
    assert_eq!(scene.run_once("").await, CarriedOut { done: 1, failed: 0 });
    assert_eq!(scene.remembered("inBackground").await, "");
    let text = scene.metrics.text().unwrap();
    assert!(text.contains("descheduler_pods_evicted_total{result=\"success\","), "it was moved: {text}");
}

/// A client that is told the real usage of both nodes.
fn measuring(cluster: &Cluster) -> Client {
    let service = cluster.client("descheduler");
    let answer = move |request: Request<Body>| {
        let service = service.clone();
        async move {
            let item =
                |name: &str| json!({"metadata": {"name": name}, "usage": {"cpu": "1", "memory": "1Gi"}});
            let items = match request.uri().path() {
                "/apis/metrics.k8s.io/v1beta1/nodes" => vec![item("n1"), item("n2")],
                "/apis/metrics.k8s.io/v1beta1/pods" => Vec::new(),
                _ => return service.oneshot(request).await,
            };
            Ok(Response::new(ServerBody::new(json!({"items": items}).to_string())))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_comes_while_usage_is_read_for_another_one_has_its_own_usage() {
    let policy = |provider: Value, resource: &str, source: Value| {
        let args = json!({"thresholds": {resource: 20}, "targetThresholds": {resource: 50}, "metricsUtilization": source});
        let policy = json!({
            "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "metricsProviders": [provider],
            "profiles": [{
                "name": "p", "pluginConfig": [{"name": "LowNodeUtilization", "args": args}],
                "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
            }],
        });
        Policy::read(&policy.to_string()).unwrap()
    };
    let scene = Scene::new().await;
    // It takes a while until it is known that there is no token.
    let on = Matcher::any().verb("get").resource("secrets");
    let fault = Fault::Latency(Duration::from_secs(5));
    scene.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
    let token = json!({"secretReference": {"namespace": "default", "name": "token"}});
    let prometheus = json!({"url": "https://p.example.com", "authToken": token});
    let by_query = policy(
        json!({"source": "Prometheus", "prometheus": prometheus}),
        "MetricResource",
        json!({"source": "Prometheus", "prometheus": {"query": "q"}}),
    );
    let kubernetes = json!({"source": "KubernetesMetrics"});
    let measured = policy(kubernetes.clone(), "cpu", kubernetes);
    let policies = futures::stream::iter([by_query]).chain(futures::stream::once(async move {
        sleep(Duration::from_secs(2)).await;
        measured
    }));
    let (plans, mut planned) = tokio::sync::mpsc::unbounded_channel();
    let hooks = on_plan(move |plan: &Plan| drop(plans.send(plan.problems.clone())));
    let _descheduler = scene.start_with(measuring(&scene.cluster), policies, Some(MINUTE), hooks);
    assert_eq!(planned.recv().await.unwrap(), []);
}
