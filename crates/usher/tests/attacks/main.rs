//! Twenty users of few rights and strangers on the network try all they can think of, at random, beside the maintenances of an
//! administrator: these take no more than twice as long, the manager stays small and ready, and nobody learns anything.
//!
//! `USHER_ATTACK_SECONDS` says how long (20), `USHER_ATTACK_SEED` which way. The strict choice of `deploy/` is installed, and
//! interceptors have a limit: what the specification leaves open holds up drains, as docs/threat-model.md says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

#[path = "../common/mod.rs"]
mod common;
mod moves;
mod stranger;
mod tally;
mod users;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use common::Scene;
use common::calls::{client_of, list};
use common::manager::{Manager, page};
use moves::{Call, MAINTENANCES, REQUESTS, World, attempt};
use stranger::Stranger;
use tally::{Move, Tally};
use users::{
    BUDGETS, EDGE, IN_ENVIRONMENTS, IN_NODE_LABELS, IN_SECRETS, MARKERS, NAMESPACES, RACK, SHOP, User,
};

const STRANGERS: u64 = 2;
const BASELINE_ROUNDS: usize = 3;
/// For the noise of a machine on which everything runs, and for pods of tenants that are not there without attackers.
const SLACK: Duration = Duration::from_secs(10);
/// Of all interceptors of a pod together.
const INTERCEPTORS_LIMIT: &str = "--interceptors-time-limit=3s";
const PATIENCE: Duration = Duration::from_secs(180);
const RESIDENT_MAX_KIB: u64 = 400 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[derive(Debug)]
struct Answer {
    code: u16,
    /// The body and the warnings.
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// By the administrator, or as a user.
async fn send(client: &Client, user: Option<&str>, call: Call) -> Answer {
    let kind = match (&call.method, &call.body) {
        (&Method::PATCH, Value::Array(_)) => "application/json-patch+json",
        (&Method::PATCH, _) => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder().method(call.method).uri(call.path).header("content-type", kind);
    if let Some(user) = user {
        request = request.header("impersonate-user", user);
    }
    let body = if call.body.is_null() { Vec::new() } else { call.body.to_string().into_bytes() };
    let answer = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let warnings: Vec<String> = answer
        .headers()
        .get_all("warning")
        .iter()
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    Answer { code, text: String::from_utf8_lossy(&body).into_owned() + &warnings.join("\n") }
}

async fn admin(client: &Client, method: Method, path: &str, body: Value) -> Answer {
    send(client, None, Call { method, path: path.to_owned(), body }).await
}

fn node(like: &Value, name: &str, pool: &str, number: usize) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": like["metadata"], "spec": {
        "podCIDR": format!("10.200.{number}.0/24"), "podCIDRs": [format!("10.200.{number}.0/24")],
    }, "status": like["status"]});
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        node["metadata"].as_object_mut().unwrap().remove(field);
    }
    node["metadata"]["name"] = name.into();
    node["metadata"]["labels"] = json!({
        "kubernetes.io/hostname": name, "pool": pool, "example.com/tier": pool,
    });
    // The edge has a user of its own, who reads it.
    if name != EDGE {
        node["metadata"]["labels"]["example.com/plan"] = IN_NODE_LABELS.into();
    }
    node
}

/// The cluster of the administrator: two nodes, an application on them, and what nobody else is to know.
async fn furnish(scene: &Scene) {
    let first = scene.get("node", "node-0001").await;
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let labels = json!({"app": "web"});
    let mut objects: Vec<Value> = NAMESPACES.into_iter().map(namespace).collect();
    objects.extend([
        node(&first, RACK[0], "rack", 1),
        node(&first, RACK[1], "rack", 2),
        node(&first, EDGE, "edge", 3),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plans", "namespace": SHOP}, "stringData": {"plan": IN_SECRETS}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": SHOP},
            "spec": {"replicas": 8, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"pool": "rack"}, "containers": [
                    {"name": "c", "image": "i:1", "env": [{"name": "PLAN", "value": IN_ENVIRONMENTS}]},
                ]},
            }},
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": SHOP},
            "spec": {"maxUnavailable": 2, "selector": {"matchLabels": labels}},
        }),
    ]);
    for number in 0..3 {
        objects.push(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": format!("b{number}"), "namespace": BUDGETS},
            "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "tenant"}}},
        }));
    }
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    scene.kubectl(&["create", "-f", "-"], Some(&objects)).await;
    // A second node for those who ask for the edge.
    scene.kubectl(&["label", "node", "node-0001", "pool=edge"], None).await;
    let available = "--for=jsonpath={.status.availableReplicas}=8";
    scene.kubectl(&["wait", available, "deployment/web", "-n", SHOP, "--timeout=120s"], None).await;
}

async fn look(client: &Client) -> World {
    let named = async |path: &str, kind: &str| -> Vec<Value> {
        let mut all = list(client, path).await;
        for object in &mut all {
            object["kind"] = kind.into();
        }
        all
    };
    let is_ours =
        |pod: &Value| NAMESPACES.contains(&pod["metadata"]["namespace"].as_str().unwrap_or_default());
    World {
        pods: named("/api/v1/pods", "Pod").await.into_iter().filter(is_ours).collect(),
        requests: named(&format!("{REQUESTS}/evictionrequests"), "EvictionRequest").await,
        maintenances: named(MAINTENANCES, "NodeMaintenance").await,
        budgets: named("/apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudget").await,
        nodes: named("/api/v1/nodes", "Node").await,
    }
}

/// What the administrator went through.
#[derive(Debug)]
struct Round {
    took: Duration,
    /// Somebody's finalizer kept the ended maintenance until the administrator took it off.
    was_kept: bool,
}

/// A maintenance from its creation until its node is given back.
async fn round(client: &Client, number: usize) -> Round {
    let name = format!("round-{number}");
    let path = format!("{MAINTENANCES}/{name}");
    let node = RACK[number % 2];
    let mut spec = json!({"stage": "Drain", "reason": "kernel", "nodeSelector": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}});
    let object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name}, "spec": spec,
    });
    let begun = Instant::now();
    let created = admin(client, Method::POST, MAINTENANCES, object).await;
    assert_eq!(created.code, 201, "{}", created.text);
    spec = created.json()["spec"].clone();
    until(client, &path, "is drained", |maintenance| {
        assert_eq!(maintenance["spec"], spec, "nobody else changes a maintenance");
        let conditions = maintenance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Drained" && c["status"] == "True")
    })
    .await;
    let left =
        list(client, &format!("/api/v1/namespaces/{SHOP}/pods?fieldSelector=spec.nodeName={node}")).await;
    let runs = |pod: &&Value| {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        pod["metadata"]["labels"]["app"] == "web" && !["Succeeded", "Failed"].contains(&phase)
    };
    assert_eq!(left.iter().filter(runs).count(), 0, "drained, and not a moment before");
    let completed = admin(client, Method::PATCH, &path, json!({"spec": {"stage": "Complete"}})).await;
    assert_eq!(completed.code, 200, "{}", completed.text);
    until(client, &format!("/api/v1/nodes/{node}"), "is given back", |node| {
        node["spec"]["unschedulable"] != true
            && node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"].is_null()
    })
    .await;
    let took = begun.elapsed();
    let deleted = admin(client, Method::DELETE, &path, Value::Null).await;
    assert_eq!(deleted.code, 200, "{}", deleted.text);
    let mut was_kept = false;
    let begun = Instant::now();
    loop {
        let maintenance = admin(client, Method::GET, &path, Value::Null).await;
        if maintenance.code == 404 {
            break;
        }
        let finalizers = &maintenance.json()["metadata"]["finalizers"];
        if begun.elapsed() > SLACK {
            assert_eq!(*finalizers, json!(["example.com/stay"]), "what is ours is off by now");
            was_kept = true;
            admin(client, Method::PATCH, &path, json!({"metadata": {"finalizers": null}})).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
    // The next one begins with the application as it was.
    until(client, &format!("/apis/apps/v1/namespaces/{SHOP}/deployments/web"), "is whole", |web| {
        web["status"]["availableReplicas"] == 8
    })
    .await;
    Round { took, was_kept }
}

async fn until(client: &Client, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let object = admin(client, Method::GET, path, Value::Null).await.json();
        if wanted(&object) {
            return;
        }
        // Who looks for what held it up finds it here.
        if begun.elapsed() > SLACK / 2 && !is_told {
            is_told = true;
            println!("{path} takes long until it {what}: {}", object["status"]);
            let world = look(client).await;
            for request in &world.requests {
                println!(
                    "{} {} {}",
                    request["metadata"]["finalizers"], request["spec"]["podRef"], request["status"]
                );
            }
            for budget in world.budgets.iter().filter(|budget| budget["metadata"]["namespace"] == SHOP) {
                println!("{}", budget["status"]);
            }
            for pod in &world.pods {
                println!(
                    "{} {} {}",
                    pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"]["conditions"]
                );
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{path} never {what}: {object:#}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// The manager's probes and memory, all the time.
#[derive(Debug, Default)]
struct Pulse {
    asked: usize,
    slowest: Duration,
    unready: Vec<String>,
    resident_kib: u64,
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Until it is told to stop.
fn watch_pulse(manager: &Manager, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Pulse> {
    let (health, pid, stop) = (manager.health, manager.process.id().unwrap(), Arc::clone(stop));
    tokio::task::spawn_blocking(move || {
        let mut pulse = Pulse::default();
        while !stop.load(Ordering::Relaxed) {
            for path in ["/readyz", "/healthz"] {
                let begun = Instant::now();
                let answer = page(health, path);
                pulse.asked += 1;
                pulse.slowest = pulse.slowest.max(begun.elapsed());
                if answer.as_ref().is_none_or(|answer| answer.0 != 200) {
                    pulse.unready.push(format!("{path}: {answer:?}"));
                }
            }
            pulse.resident_kib = resident_kib(pid);
            std::thread::sleep(Duration::from_millis(200));
        }
        pulse
    })
}

struct Attack {
    client: Client,
    tally: Arc<Tally>,
    world: Arc<RwLock<Arc<World>>>,
    stop: Arc<AtomicBool>,
}

impl Attack {
    fn start(self: &Arc<Self>, users: &[User], stranger: &Stranger, seed: u64) -> JoinSet<()> {
        let mut all = JoinSet::new();
        for (number, user) in (1..).zip(users.iter().cloned()) {
            let attack = Arc::clone(self);
            all.spawn(async move { attack.user(&user, Rng::with_seed(seed.wrapping_add(number))).await });
        }
        for number in 0..STRANGERS {
            let (attack, stranger) = (Arc::clone(self), stranger.clone());
            let random = Rng::with_seed(seed.wrapping_sub(number));
            all.spawn(async move { attack.stranger(&stranger, random).await });
        }
        let attack = Arc::clone(self);
        all.spawn(async move {
            while !attack.stop.load(Ordering::Relaxed) {
                let world = Arc::new(look(&attack.client).await);
                *attack.world.write().unwrap() = world;
                sleep(Duration::from_millis(300)).await;
            }
        });
        all
    }

    fn world(&self) -> Arc<World> {
        Arc::clone(&self.world.read().unwrap())
    }

    async fn user(&self, user: &User, mut random: Rng) {
        while !self.stop.load(Ordering::Relaxed) {
            let of = random.choice(Move::OF_USERS).unwrap();
            if let Some(call) = attempt(of, &mut random, user, &self.world()) {
                let what = format!("{} {}", call.method, call.path);
                let said = format!("{what} {}", call.body);
                let answer = send(&self.client, Some(&user.name), call).await;
                self.tally.count(of, answer.code);
                if let Some(marker) = user.learns(&answer.text, &said) {
                    let at = answer.text.find(marker).unwrap_or(0);
                    let around = String::from_utf8_lossy(
                        &answer.text.as_bytes()[at.saturating_sub(200)..answer.text.len().min(at + 100)],
                    )
                    .into_owned();
                    self.tally.leak(&user.name, of, &format!("{marker} by {what}: {} {around}", answer.code));
                }
            }
            sleep(Duration::from_millis(random.u64(10..100))).await;
        }
    }

    async fn stranger(&self, stranger: &Stranger, mut random: Rng) {
        while !self.stop.load(Ordering::Relaxed) {
            let of = random.choice(Move::OF_STRANGERS).unwrap();
            let (code, text) = stranger.attempt(of, &mut random, &self.world()).await;
            self.tally.count(of, code);
            if let Some(marker) = MARKERS.into_iter().find(|marker| text.contains(marker)) {
                self.tally.leak("a stranger", of, &format!("{marker}: {text}"));
            }
            sleep(Duration::from_millis(random.u64(50..300))).await;
        }
    }
}

/// In events of ours, whoever reads them, and in the log.
async fn said_by_the_manager(client: &Client, log: &str) {
    let events = list(client, "/api/v1/events").await;
    let ours: Vec<String> = events
        .iter()
        .filter(|event| event["source"]["component"] == "usher")
        .map(|event| format!("{} {}", event["message"], event["metadata"]["annotations"]))
        .collect();
    println!("{} of {} events are ours; the log has {} letters", ours.len(), events.len(), log.len());
    assert!(!ours.is_empty(), "it tells what it does");
    let never = [IN_SECRETS, IN_ENVIRONMENTS, IN_NODE_LABELS, "PRIVATE KEY"];
    for line in log.lines().chain(ours.iter().map(String::as_str)) {
        assert!(!never.iter().any(|marker| line.contains(marker)), "told: {line}");
        assert!(line.len() < 16 << 10, "long: {line}");
        assert!(!line.contains("panicked"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_users_and_strangers_neither_stop_nor_slow_nor_learn_on_the_real_server() {
    if usher_testbed::skip_real("twenty users of few rights and strangers attack") {
        return;
    }
    let seconds = Duration::from_secs(number("USHER_ATTACK_SECONDS", 20));
    let seed = number("USHER_ATTACK_SEED", Rng::new().u64(..));
    println!("USHER_ATTACK_SEED={seed} USHER_ATTACK_SECONDS={}", seconds.as_secs());
    let strict: &[&str] = &["-f", "deploy/strict/roles.yaml", "-f", "deploy/strict/policies.yaml"];
    let scene = Scene::start(1, &[&["-k", "deploy"], strict]).await;
    let log = scene.plane.folder().join("attacked-manager.log");
    let mut manager = scene.manager_process(&[INTERCEPTORS_LIMIT], Some(&log)).await;
    let client = client_of(&scene).await;
    furnish(&scene).await;
    let users = users::create(&scene).await;
    assert_eq!(users.len(), 20);

    let mut alone = Vec::new();
    for number in 0..BASELINE_ROUNDS {
        alone.push(round(&client, number).await.took);
    }
    let limit = *alone.iter().max().unwrap() * 2 + SLACK;
    println!("alone: {alone:.1?}, so {limit:.1?} at most");

    // Beside those that end, one that stays, of a node which changes its labels. Its name is a bound, so that nobody draws
    // other nodes in by their labels.
    let edge = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": "edge", "annotations": {"nodemaintenance.k8s.io/keep-nodes": "true"}},
        "spec": {"stage": "Cordon", "nodeSelector": {"nodeSelectorTerms": [
            {
                "matchExpressions": [{"key": "example.com/tier", "operator": "In", "values": ["edge"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [EDGE]}],
            },
        ]}},
    });
    let edge = admin(&client, Method::POST, MAINTENANCES, edge).await;
    assert_eq!(edge.code, 201, "{}", edge.text);

    let certificates = [
        "get",
        "secret",
        "usher-webhook-certificates",
        "-n",
        "usher-system",
        "-o=go-template={{index .data \"ca.crt\" | base64decode}}",
    ];
    let authority = scene.kubectl(&certificates, None).await;
    let stranger = Stranger::new(manager.webhook, manager.health, manager.metrics, &authority);
    let stop = Arc::new(AtomicBool::new(false));
    let pulse = watch_pulse(&manager, &stop);
    let attack = Arc::new(Attack {
        client: client.clone(),
        tally: Arc::default(),
        world: Arc::new(RwLock::new(Arc::new(look(&client).await))),
        stop: Arc::clone(&stop),
    });
    let begun = Instant::now();
    let mut attackers = attack.start(&users, &stranger, seed);
    let mut rounds = Vec::new();
    while begun.elapsed() < seconds || rounds.len() < 2 {
        rounds.push(round(&client, BASELINE_ROUNDS + rounds.len()).await);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = attackers.join_next().await {
        ended.unwrap();
    }
    let pulse = pulse.await.unwrap();

    let tally = &attack.tally;
    tally.print();
    let took: Vec<Duration> = rounds.iter().map(|round| round.took).collect();
    println!("attacked for {:.0?}: {} rounds of {took:.1?}", begun.elapsed(), rounds.len());
    println!(
        "{} ended maintenances were kept by a foreign finalizer",
        rounds.iter().filter(|round| round.was_kept).count()
    );
    println!(
        "{} probes, the slowest {:.1?}; {} MiB resident at most",
        pulse.asked,
        pulse.slowest,
        pulse.resident_kib >> 10
    );

    for of in Move::OF_USERS.into_iter().chain(Move::OF_STRANGERS) {
        assert!(tally.tried(of) > 0, "{of:?} was never tried");
    }
    // Some of these are anybody's right. If none got through, the attackers did nothing.
    for of in [
        Move::HostileValue,
        Move::UnreadableTime,
        Move::ForgedOwner,
        Move::HundredInterceptors,
        Move::AskForEviction,
        Move::Delete,
    ] {
        assert!(tally.accepted(of) > 0, "{of:?} was never accepted");
    }
    for of in [Move::SkipInterceptors, Move::Metrics] {
        assert_eq!(tally.accepted(of), 0, "{of:?} is nobody's right here");
    }
    assert!(tally.leaks().is_empty(), "told to who may not know: {:#?}", tally.leaks());
    assert!(
        took.iter().all(|took| *took <= limit),
        "{took:.1?} with attackers, {alone:.1?} without: {limit:.1?} at most"
    );
    assert!(pulse.unready.is_empty(), "of {} probes: {:#?}", pulse.asked, pulse.unready);
    assert!(pulse.resident_kib < RESIDENT_MAX_KIB, "{} MiB are resident", pulse.resident_kib >> 10);
    assert!(manager.process.try_wait().unwrap().is_none(), "it still runs");
    let left: Vec<(Value, Value)> = look(&client)
        .await
        .maintenances
        .into_iter()
        .map(|m| (m["metadata"]["name"].clone(), m["spec"].clone()))
        .collect();
    assert_eq!(
        left,
        [(json!("edge"), edge.json()["spec"].clone())],
        "no maintenance is theirs, and none is changed"
    );
    // It acts as before.
    let label = json!({"metadata": {"labels": {"example.com/tier": "edge"}}});
    let node = format!("/api/v1/nodes/{EDGE}");
    assert_eq!(admin(&client, Method::PATCH, &node, label).await.code, 200);
    until(&client, &node, "is held", |node| {
        node["spec"]["unschedulable"] == true
            && node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"] == "edge"
    })
    .await;
    said_by_the_manager(&client, &std::fs::read_to_string(&log).unwrap()).await;
    manager.end().await;
    scene.plane.stop().await.unwrap();
}
