//! Pods that are moved in the background: evicted, refused with a promise, and counted. On the embedded cluster, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::faults::{Fault, Matcher, Refusal, Rule, When};
use embedded_apiserver::in_process;
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use usher_apply::Clock;
use usher_controllers::descheduler::Options;
use usher_descheduler::{Policy, requester};
use usher_tests::descheduler::{deschedule, named};
use usher_tests::living::{DEPLOYMENTS, Living, NODES, PODS, bare_pod, workload};
use usher_tests::requests::REQUESTS;

const URL: &str = "https://migration.example.internal/evict";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook that refuses evictions with these words, and remembers whose, and with which grace period.
struct Migration {
    living: Living,
    asked: Arc<Mutex<Vec<String>>>,
    graces: Arc<Mutex<Vec<Value>>>,
}

impl Migration {
    /// With pods on a node with a taint, all of which are moved in the background.
    async fn new(pods: &[&str], words: &'static str) -> Self {
        let living = Living::start(1, 2).await.unwrap();
        living.install_crds().await.unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let graces = Arc::new(Mutex::new(Vec::new()));
        let of_evictions = graces.clone();
        let answer = move |review: Value| {
            of_evictions
                .lock()
                .push(review["request"]["object"]["deleteOptions"]["gracePeriodSeconds"].clone());
            heard.lock().push(review["request"]["name"].as_str().unwrap_or_default().to_owned());
            let uid = review["request"]["uid"].clone();
            let status = json!({"code": 429, "reason": "TooManyRequests", "message": words});
            let response = json!({"uid": uid, "allowed": false, "status": status});
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            async move { Ok::<_, String>(answer) }
        };
        living.cluster.endpoints().register_url(URL, in_process(answer));
        let hook = json!({
            "name": "migration.example.com", "clientConfig": {"url": URL}, "sideEffects": "NoneOnDryRun",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"]}],
            "admissionReviewVersions": ["v1"],
        });
        living.create(HOOKS, &json!({"metadata": {"name": "migration"}, "webhooks": [hook]})).await.unwrap();
        for name in pods {
            let mut pod = bare_pod(name, "n1");
            pod["metadata"]["annotations"] = json!({
                "descheduler.alpha.kubernetes.io/evict": "true",
                "descheduler.alpha.kubernetes.io/request-evict-only": "",
            });
            living.create(PODS, &pod).await.unwrap();
        }
        let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
        living.patch(&format!("{NODES}/n1"), &taints).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        Self { living, asked, graces }
    }

    /// A cycle every 30 seconds, by a policy with these lines at the top.
    fn deschedule(&self, lines: &str) -> JoinSet<()> {
        self.run(lines, Some(SignedDuration::from_secs(30)))
    }

    /// One cycle, by a process that ends then.
    async fn deschedule_once(&self, lines: &str) {
        self.run(lines, None).join_all().await;
    }

    fn run(&self, lines: &str, interval: Option<SignedDuration>) -> JoinSet<()> {
        let policy = format!(
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{lines}\nprofiles:\n- name: p\n  \
             pluginConfig: [{{name: RemovePodsViolatingNodeTaints}}, \
             {{name: RemoveFailedPods, args: {{minPodLifetimeSeconds: 0}}}}]\n  plugins:\n    \
             deschedule: {{enabled: [RemovePodsViolatingNodeTaints, RemoveFailedPods]}}\n"
        );
        let options = Options {
            interval,
            on_change: false,
            dry_run: false,
            knows_requests: true,
            requester: requester::Options::default(),
            name: named("default"),
        };
        let cluster = &self.living.cluster;
        let client = kube::Client::new(cluster.client("descheduler"), "default");
        let (now, timers) = (cluster.clone(), cluster.clone());
        let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
        let mut work = JoinSet::new();
        work.spawn(deschedule(client, clock, options, Policy::read(&policy).unwrap()));
        work
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// A pod that is asked by a request, of which nobody takes care.
    async fn add_pod(&self, name: &str) {
        let mut pod = bare_pod(name, "n1");
        pod["metadata"]["annotations"] = json!({"descheduler.alpha.kubernetes.io/evict": "true"});
        self.living.create(PODS, &pod).await.unwrap();
    }

    /// The pods with requests of the descheduler.
    async fn requested(&self) -> Vec<String> {
        let requests = self.living.get(REQUESTS).await.unwrap();
        let requests = requests["items"].as_array().unwrap().iter();
        let ours = requests.filter(|it| it["metadata"]["finalizers"][0].is_string());
        let mut pods: Vec<String> =
            ours.map(|it| it["spec"]["podRef"]["name"].as_str().unwrap().to_owned()).collect();
        pods.sort();
        pods
    }

    async fn mark(&self, pod: &str, value: Value) {
        let name = "descheduler.alpha.kubernetes.io/eviction-in-progress";
        let patch = json!({"metadata": {"annotations": {name: value}}});
        self.living.patch(&format!("{PODS}/{pod}"), &patch).await.unwrap();
    }
}

/// The specification's test EvacuationInBackground.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_moved_in_the_background_is_evicted_once_and_waited_for() {
    let scene = Migration::new(&["vm"], "Eviction triggered evacuation of VM default/vm").await;
    let _descheduler = scene.deschedule("");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.asked(), ["vm"]);
    scene.mark("vm", json!("")).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.asked(), ["vm"], "nobody asks twice");
    let pod = scene.living.get(&format!("{PODS}/vm")).await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    scene.living.delete(&format!("{PODS}/vm")).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.asked(), ["vm"]);
}

/// The specification's test EvacuationLimitReached.
#[tokio::test(start_paused = true)]
async fn pods_that_are_moved_in_the_background_count_against_limits_also_after_a_restart() {
    let scene = Migration::new(&["a", "b", "c"], "Eviction triggered evacuation").await;
    scene.mark("b", json!("")).await;
    let first = scene.deschedule("maxNoOfPodsEvacuationsPerNode: 2");
    sleep(Duration::from_secs(100)).await;
    let asked = scene.asked();
    assert!(asked == ["a"] || asked == ["c"], "b is under way already, and one more may be: {asked:?}");
    scene.mark(&asked[0], json!("")).await;
    drop(first);
    let _second = scene.deschedule("maxNoOfPodsEvacuationsPerNode: 2");
    sleep(Duration::from_secs(100)).await;
    assert_eq!(scene.asked(), asked);
    // One is moved: the next may be asked.
    scene.living.delete(&format!("{PODS}/b")).await.unwrap();
    sleep(Duration::from_secs(100)).await;
    assert_eq!(scene.asked().len(), 2);
}

/// The specification's test EvacuationTTL.
#[tokio::test(start_paused = true)]
async fn a_promise_that_nobody_keeps_is_given_up_and_the_pod_is_left_alone_for_a_while() {
    let scene = Migration::new(&["a", "b"], "Eviction triggered evacuation").await;
    let _descheduler = scene.deschedule("maxNoOfPodsEvacuationsPerNode: 1");
    sleep(Duration::from_secs(590)).await;
    let first = scene.asked();
    assert_eq!(first.len(), 1, "the promise counts: {first:?}");
    sleep(Duration::from_secs(60)).await;
    let asked = scene.asked();
    assert_eq!(asked.len(), 2, "nobody marked the pod for ten minutes: {asked:?}");
    assert_ne!(asked[0], asked[1], "the other one has its turn first");
}

#[tokio::test(start_paused = true)]
async fn other_words_are_a_refusal_unless_the_policy_knows_them() {
    let scene = Migration::new(&["a"], "no evictions today").await;
    let strict = scene.deschedule("");
    sleep(Duration::from_secs(500)).await;
    let tries = scene.asked().len();
    assert!((3..=5).contains(&tries), "it is tried later and later: {tries}");
    drop(strict);
    let known = Migration::new(&["a"], "moves: in the night").await;
    let _descheduler = known.deschedule("evictionMessagePrefixes: [\"moves:\"]");
    sleep(Duration::from_secs(500)).await;
    assert_eq!(known.asked(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_of_a_pod_holds_whatever_the_policy_says() {
    let scene = Migration::new(&["a"], "Eviction triggered evacuation").await;
    scene.deschedule_once("gracePeriodSeconds: 0").await;
    assert_eq!(*scene.graces.lock(), [Value::Null]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_failed_is_evicted_as_no_request_for_it_is_taken() {
    let scene = Migration::new(&[], "").await;
    scene.add_pod("a").await;
    sleep(Duration::from_secs(30)).await;
    let failed = json!({"status": {"phase": "Failed"}});
    scene.living.patch(&format!("{PODS}/a/status"), &failed).await.unwrap();
    scene.deschedule_once("").await;
    assert_eq!(scene.asked(), ["a"]);
    assert_eq!(scene.requested().await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_person_withdraws_is_not_made_again_before_the_cool_down_is_over() {
    let scene = Migration::new(&[], "").await;
    scene.add_pod("a").await;
    let _descheduler = scene.deschedule("");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.requested().await, ["a"]);
    let requests = scene.living.get(REQUESTS).await.unwrap();
    let path = format!("{REQUESTS}/{}", requests["items"][0]["metadata"]["name"].as_str().unwrap());
    scene.living.patch(&path, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    scene.living.send(http::Method::DELETE, &path, &Value::Null).await.unwrap();
    sleep(Duration::from_secs(3500)).await;
    assert_eq!(scene.requested().await, [] as [&str; 0]);
    sleep(Duration::from_secs(160)).await;
    assert_eq!(scene.requested().await, ["a"], "and then it is");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_withdrawn_holds_its_own_place_and_nobody_else() {
    for (lines, then) in [("", &["a", "b"][..]), ("maxNoOfPodsEvacuationsPerNode: 1", &["a"])] {
        let scene = Migration::new(&[], "").await;
        scene.add_pod("a").await;
        let _descheduler = scene.deschedule(lines);
        sleep(Duration::from_secs(3500)).await;
        assert_eq!(scene.requested().await, ["a"]);
        let on = Matcher::any().verb("patch").resource("evictionrequests");
        let fault = Fault::Refuse(Refusal::Internal);
        scene.living.cluster.faults().set(vec![Rule { on, when: When::always(), fault }]);
        sleep(Duration::from_secs(200)).await;
        scene.add_pod("b").await;
        sleep(Duration::from_secs(200)).await;
        assert_eq!(scene.requested().await, then, "{lines}");
    }
}

/// As a CronJob does it, with nothing but what is remembered in the cluster.
#[tokio::test(start_paused = true)]
async fn a_descheduler_that_runs_once_again_and_again_asks_once_waits_and_gives_up() {
    let scene = Migration::new(&["a", "b"], "Eviction triggered evacuation").await;
    let one = "maxNoOfPodsEvacuationsPerNode: 1";
    for _ in 0..3 {
        scene.deschedule_once(one).await;
        sleep(Duration::from_secs(60)).await;
    }
    let first = scene.asked();
    assert_eq!(first.len(), 1, "the promise counts: {first:?}");
    scene.mark(&first[0], json!("")).await;
    for _ in 0..3 {
        scene.deschedule_once(one).await;
        sleep(Duration::from_secs(1000)).await;
    }
    assert_eq!(scene.asked(), first, "it is moved, and takes its time");
    sleep(Duration::from_secs(1000)).await;
    scene.deschedule_once(one).await;
    let asked = scene.asked();
    assert_eq!(asked.len(), 2, "it took too long, and the other one has its turn: {asked:?}");
    assert_ne!(asked[0], asked[1]);
}

/// People look at their Deployment or ReplicaSet, whose pods come and go.
#[tokio::test(start_paused = true)]
async fn the_pod_and_its_owner_are_told_why_it_was_asked_to_leave() {
    let scene = Migration::new(&[], "").await;
    let living = &scene.living;
    living.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": null}})).await.unwrap();
    living.patch(&format!("{NODES}/n2"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 2}))).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
    living.patch(&format!("{NODES}/n1"), &taints).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    scene.deschedule_once("").await;
    let events = living.get("/api/v1/namespaces/default/events").await.unwrap();
    let told: Vec<(&str, &str)> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["reason"] == "Descheduled")
        .map(|event| (event["involvedObject"]["kind"].as_str().unwrap(), event["message"].as_str().unwrap()))
        .collect();
    let why = "asked to leave n1: RemovePodsViolatingNodeTaints: does not tolerate the taint broken:NoSchedule of its node";
    assert_eq!(told.iter().filter(|told| **told == ("Pod", why)).count(), 2, "{told:#?}");
    // Of the many pods of an owner one is told, and the others are counted.
    let of_owner: Vec<_> = told.iter().filter(|(kind, _)| *kind == "ReplicaSet").collect();
    assert_eq!(of_owner.len(), 1, "{told:#?}");
    assert!(of_owner[0].1.starts_with("pod web-") && of_owner[0].1.ends_with(why), "{told:#?}");
}

/// The scheduler puts them back, as there is no other room: they come back under other names, and are wanted at once.
#[tokio::test(start_paused = true)]
async fn pods_that_come_back_under_other_names_are_not_evicted_in_a_loop() {
    let living = Living::start(1, 2).await.unwrap();
    living.install_crds().await.unwrap();
    living.patch(&format!("{NODES}/n2"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    let slow = json!({"spec": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}});
    living.patch(&format!("{NODES}/n1"), &slow).await.unwrap();
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 2}))).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let names = async || {
        let pods = living.get(PODS).await.unwrap();
        let names = pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].to_string());
        names.collect::<std::collections::BTreeSet<String>>()
    };
    let first = names().await;
    let policy = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n- name: p\n  \
                  pluginConfig: [{name: RemovePodsViolatingNodeTaints, args: {includePreferNoSchedule: true}}]\n  \
                  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}\n";
    let options = Options {
        interval: Some(SignedDuration::from_secs(30)),
        on_change: false,
        dry_run: false,
        knows_requests: true,
        requester: requester::Options { requests: false, ..requester::Options::default() },
        name: named("default"),
    };
    let client = kube::Client::new(living.cluster.client("descheduler"), "default");
    let (now, timers) = (living.cluster.clone(), living.cluster.clone());
    let clock = Clock::with_timers(move || now.now(), move |at| timers.time_until(at));
    let run = || {
        let mut work = JoinSet::new();
        let policy = Policy::read(policy).unwrap();
        work.spawn(deschedule(client.clone(), clock.clone(), options.clone(), policy));
        work
    };
    let before_a_restart = run();
    sleep(Duration::from_secs(120)).await;
    let second = names().await;
    assert!(second.len() == 2 && second.is_disjoint(&first), "each was evicted once: {second:?}");
    drop(before_a_restart);
    let _after_it = run();
    sleep(Duration::from_secs(3300)).await;
    assert_eq!(names().await, second, "and their replacements were not");
    sleep(Duration::from_secs(400)).await;
    assert!(names().await.is_disjoint(&second), "before the cool-down was over");
}
