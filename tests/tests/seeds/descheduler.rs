//! A descheduler under faults and kills, over many seeds: beside nodes that are tainted and freed, pods that come back under their name,
//! a Deployment that surges for its pods, interceptors that take their time or never answer, others who ask as well, and policies of the
//! cluster that refuse some requests, or for a while that any is withdrawn. No limit is exceeded, nobody is asked again within its
//! cool-down, and no request is left.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use embedded_apiserver::faults::{Matcher, Rule};
use futures::future::join4;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::{DESCHEDULER_REQUESTER, REQUESTER_FINALIZER_PREFIX};
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::descheduler::Options;
use usher_controllers::run_all;
use usher_descheduler::{Policy, requester};
use usher_tests::chaos::{Process, Run, manager_faults};
use usher_tests::descheduler::{deschedule, named};
use usher_tests::living::{DEPLOYMENTS, Living, NODES, PODS, bare_pod, template, workload};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::answer_inside;
use usher_tests::seeds::{self, Named, Trace};

const TROUBLE: Duration = Duration::from_secs(2400);
const INTERVAL: SignedDuration = SignedDuration::from_secs(60);
const TTL: SignedDuration = SignedDuration::from_mins(8);
const COOL_DOWN: SignedDuration = SignedDuration::from_mins(12);
/// A withdrawal takes at most this, with all its tries, and where it is refused for two minutes.
const SLOW: SignedDuration = SignedDuration::from_mins(4);
/// Requests of others that are this old are known to everybody.
const KNOWN: SignedDuration = SignedDuration::from_mins(2);
const PER_NODE: usize = 2;
const PER_NAMESPACE: usize = 4;
const NODES_COUNT: usize = 4;
const OTHER: &str = "other.example.com";

const POLICY: &str = "
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsEvacuationsPerNode: 2
maxNoOfPodsEvacuationsPerNamespace: 4
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: true}
  - name: RemovePodsViolatingNodeTaints
  - name: RemoveDuplicates
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingNodeTaints]
    balance:
      enabled: [RemoveDuplicates]
";

/// Some pods cannot be asked to leave.
async fn refuse_some(living: &Living) -> Result<()> {
    let all_but_some = "!object.spec.podRef.name.matches('^p[0-9]*[05]$')";
    living.refuse_unless("some", requests_when("CREATE"), all_but_some).await
}

/// No request of the descheduler can be withdrawn.
async fn freeze(living: &Living) -> Result<()> {
    let ours = format!("{REQUESTER_FINALIZER_PREFIX}{DESCHEDULER_REQUESTER}");
    let has = |object: &str| {
        format!("(has({object}.metadata.finalizers) && '{ours}' in {object}.metadata.finalizers)")
    };
    let keeps = format!("!{} || {}", has("oldObject"), has("object"));
    living.refuse_unless(FROZEN, requests_when("UPDATE"), &keeps).await
}

const FROZEN: &str = "frozen";

fn requests_when(operation: &str) -> Value {
    json!({
        "apiGroups": ["evictionrequest.coordination.k8s.io"], "apiVersions": ["*"], "operations": [operation],
        "resources": ["evictionrequests"],
    })
}

async fn manager(run: Run) {
    let time = run.clock.clone();
    run_all(run.client, Clock::from_fn(move || time.now()), &BundledInterceptor::ALL).await;
}

async fn descheduler(run: Run) {
    let time = run.clock.clone();
    let options = Options {
        interval: Some(INTERVAL),
        on_change: true,
        dry_run: false,
        knows_requests: true,
        requester: requester::Options {
            time_to_live: Some(TTL),
            cool_down: COOL_DOWN,
            ..requester::Options::default()
        },
        name: named("default"),
    };
    let clock = Clock::from_fn(move || time.now());
    deschedule(run.client, clock, options, Policy::read(POLICY).unwrap()).await;
}

/// Those of the manager, for the descheduler as well.
fn faults() -> Vec<Rule> {
    let of_manager = manager_faults();
    let client = |rule: &Rule| Rule { on: Matcher::any().client("descheduler-1"), ..rule.clone() };
    let of_descheduler: Vec<Rule> = of_manager.iter().take(of_manager.len() / 2).map(client).collect();
    of_manager.into_iter().chain(of_descheduler).collect()
}

/// What is seen of the descheduler's requests, a look every two seconds.
#[derive(Default)]
struct Watched {
    /// Since when its requests are there, by the UID of the pod.
    ours: BTreeMap<String, Timestamp>,
    /// Since when there are requests of others for a pod, and the node of the pod.
    others: BTreeMap<String, (Timestamp, String)>,
    /// When its requests for pods that stayed were withdrawn, for whatever reason.
    withdrawn: BTreeMap<String, Timestamp>,
    asked: usize,
    again: usize,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What is looked at of pods and requests all the time.
#[derive(Deserialize)]
struct Seen {
    metadata: SeenMetadata,
    spec: SeenSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenMetadata {
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    finalizers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    #[serde(default)]
    node_name: String,
}

#[derive(Deserialize)]
struct SeenList {
    items: Vec<Seen>,
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

impl Watched {
    async fn observe(&mut self, living: &Living) -> Result<()> {
        let now = living.cluster.now();
        let requests: SeenList = living.read(REQUESTS).await?;
        let pods: SeenList = living.read(PODS).await?;
        let node_of: BTreeMap<String, String> = pods
            .items
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(|pod| (pod.metadata.uid, pod.spec.node_name))
            .collect();
        let (mut ours, mut others) = (BTreeSet::new(), BTreeSet::new());
        for Seen { metadata: request, .. } in requests.items {
            let has = |name: &str| {
                let finalizer = format!("{REQUESTER_FINALIZER_PREFIX}{name}");
                request.finalizers.contains(&finalizer)
            };
            if has(DESCHEDULER_REQUESTER) {
                ours.insert(request.name);
            } else if has(OTHER) {
                others.insert(request.name);
            }
        }
        for uid in &ours {
            if self.ours.contains_key(uid) {
                continue;
            }
            self.asked += 1;
            self.ours.insert(uid.clone(), now);
            if let Some(withdrawn) = self.withdrawn.remove(uid) {
                self.again += 1;
                // The cool-down begins before the withdrawal, which may be slow.
                let earliest = withdrawn + COOL_DOWN - SLOW;
                ensure!(now >= earliest, "{uid} was withdrawn at {withdrawn} and asked again at {now}");
            }
        }
        let ended: Vec<String> = self.ours.keys().filter(|uid| !ours.contains(*uid)).cloned().collect();
        for uid in ended {
            self.ours.remove(&uid);
            if node_of.contains_key(&uid) {
                self.withdrawn.insert(uid, now);
            }
        }
        self.others.retain(|uid, _| others.contains(uid));
        for uid in others {
            let node = node_of.get(&uid).cloned().unwrap_or_default();
            self.others.entry(uid).or_insert((now, node));
        }
        self.within_limits(&node_of, now)
    }

    /// Its requests for pods that are there, and those of others that were there before each of them.
    fn within_limits(&self, node_of: &BTreeMap<String, String>, now: Timestamp) -> Result<()> {
        let here = |uid: &String| node_of.get(uid).cloned();
        let mut on_node: BTreeMap<String, usize> = BTreeMap::new();
        let mut youngest: BTreeMap<String, Timestamp> = BTreeMap::new();
        for (uid, since) in &self.ours {
            let Some(node) = here(uid) else { continue };
            *on_node.entry(node.clone()).or_default() += 1;
            let youngest = youngest.entry(node).or_insert(*since);
            *youngest = (*youngest).max(*since);
        }
        let all: usize = on_node.values().sum();
        ensure!(all <= PER_NAMESPACE, "at {now} {all} pods are asked, {PER_NAMESPACE} may be");
        for (node, count) in on_node {
            let before = |(uid, (since, on)): &(&String, &(Timestamp, String))| {
                *on == node
                    && here(uid).is_some()
                    && youngest.get(&node).is_some_and(|at| *since + KNOWN < *at)
            };
            let others = self.others.iter().filter(before).count();
            ensure!(
                count + others <= PER_NODE.max(others),
                "at {now} {count} pods of {node} are asked and {others} were before, {PER_NODE} may be"
            );
        }
        Ok(())
    }
}

async fn descheduling_in_trouble(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start(seed, NODES_COUNT).await?;
    if let Some(trace) = trace {
        living.cluster.faults().trace_to(trace);
    }
    living.install_crds().await?;
    living.install_policies(&["policies.yaml"]).await?;
    let webhook = kube::Client::new(living.cluster.service(), "default");
    for (path, configuration) in answer_inside(&living.cluster, webhook, &BundledInterceptor::ALL) {
        living.create(&path, &configuration).await?;
    }
    refuse_some(&living).await?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pods = Vec::new();
    for number in 0..24 {
        let node = format!("n{}", 1 + number % NODES_COUNT);
        let mut pod = bare_pod(&format!("p{number}"), &node);
        pod["metadata"]["annotations"] = json!({"descheduler.alpha.kubernetes.io/evict": "true"});
        // Two thirds have an interceptor.
        if random.u8(0..3) > 0 {
            let name = "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com";
            pod["metadata"]["annotations"][name] = "1".into();
        }
        living.create(PODS, &pod).await?;
        pods.push(pod);
    }
    // Its pods come together on nodes without taints, and are duplicates there when the others are free again.
    let mut web = workload("Deployment", "web", json!({"replicas": 8}));
    web["spec"]["template"] = template("web", "100m");
    living.create(DEPLOYMENTS, &web).await?;
    sleep(Duration::from_secs(30)).await;
    living.cluster.faults().set(faults());
    let mut controllers = Process::new(&living.cluster, "manager", manager);
    let mut descheduling = Process::new(&living.cluster, "descheduler", descheduler);
    let end = Instant::now() + TROUBLE;
    let pause = |random: &mut fastrand::Rng, most: u64| Duration::from_secs(random.u64(1..=most));
    let (mut of_admin, mut of_interceptor, mut of_kills) = (random.fork(), random.fork(), random.fork());
    let mut of_owner = random.fork();
    let admin = async {
        while Instant::now() < end {
            sleep(pause(&mut of_admin, 240)).await;
            let node = format!("n{}", of_admin.usize(1..=NODES_COUNT));
            match of_admin.u8(0..6) {
                5 => {
                    freeze(&living).await?;
                    sleep(pause(&mut of_admin, 120)).await;
                    living.refuse_no_more(FROZEN).await?;
                }
                4 => {
                    let requests = living.get(REQUESTS).await?;
                    if let Some(request) = of_admin.choice(items(&requests)) {
                        let path = format!("{REQUESTS}/{}", text(&request["metadata"]["name"]));
                        living.send(http::Method::DELETE, &path, &Value::Null).await?;
                    }
                }
                0 => {
                    let pods = living.get(PODS).await?;
                    let some = of_admin.choice(items(&pods));
                    if let Some(pod) = some {
                        let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
                        let request = json!({
                            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                            "metadata": {"name": uid, "finalizers": [format!("{REQUESTER_FINALIZER_PREFIX}{OTHER}")]},
                            "spec": {"podRef": {"name": name, "uid": uid}},
                        });
                        // It may be asked, or gone, already.
                        living.send(http::Method::POST, REQUESTS, &request).await?;
                    }
                }
                1 => {
                    drop(living.patch(&format!("{NODES}/{node}"), &json!({"spec": {"taints": null}})).await?)
                }
                _ => {
                    let taints = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
                    living.patch(&format!("{NODES}/{node}"), &taints).await?;
                }
            }
        }
        anyhow::Ok(())
    };
    // As a StatefulSet does: another pod under the same name, while the request for the one before may still be there.
    let owner = async {
        while Instant::now() < end {
            sleep(pause(&mut of_owner, 30)).await;
            let there: BTreeSet<String> =
                items(&living.get(PODS).await?).iter().map(|pod| text(&pod["metadata"]["name"])).collect();
            for pod in pods.iter().filter(|pod| !there.contains(&text(&pod["metadata"]["name"]))) {
                living.create(PODS, pod).await?;
            }
        }
        anyhow::Ok(())
    };
    let interceptor = async {
        while Instant::now() < end {
            sleep(pause(&mut of_interceptor, 60)).await;
            let requests = living.get(REQUESTS).await?;
            let some = of_interceptor.choice(items(&requests));
            let Some(request) = some else { continue };
            if request["status"]["activeInterceptorClass"] != "a.example.com" {
                continue;
            }
            let path = format!("{REQUESTS}/{}/status", text(&request["metadata"]["name"]));
            let now = living.cluster.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let report = match of_interceptor.u8(0..4) {
                0 => json!({"status": {"activeInterceptorCompleted": true}}),
                _ => json!({"status": {"progressTimestamp": now}}),
            };
            // It may have changed hands meanwhile.
            living.send(http::Method::PATCH, &path, &report).await?;
        }
        anyhow::Ok(())
    };
    let kills = async {
        descheduling.start(1);
        while Instant::now() < end {
            sleep(pause(&mut of_kills, 400)).await;
            descheduling.kill(1);
            sleep(pause(&mut of_kills, 30)).await;
            descheduling.start(1);
        }
    };
    let mut watched = Watched::default();
    let looking = async {
        while Instant::now() < end {
            watched.observe(&living).await?;
            sleep(Duration::from_secs(2)).await;
        }
        anyhow::Ok(())
    };
    let upheaval = controllers.upheaval(end, Duration::from_secs(300));
    let people = async { futures::future::join3(admin, owner, interceptor).await };
    let ((), (), (administered, owned, intercepted), looked) = join4(upheaval, kills, people, looking).await;
    administered.context("the administrator")?;
    owned.context("the owner of the pods")?;
    intercepted.context("the interceptor")?;
    looked?;
    ensure!(watched.asked > 0, "nobody was ever asked");

    // All nodes are as they should be: whoever is still asked may stay.
    living.cluster.faults().set(Vec::new());
    for number in 1..=NODES_COUNT {
        living.patch(&format!("{NODES}/n{number}"), &json!({"spec": {"taints": null}})).await?;
    }
    let ours = format!("{REQUESTER_FINALIZER_PREFIX}{DESCHEDULER_REQUESTER}");
    let is_without = |list: &Value| {
        let mut items = list["items"].as_array().into_iter().flatten();
        !items.any(|it| it["metadata"]["finalizers"].as_array().into_iter().flatten().any(|one| *one == ours))
    };
    let within = Instant::now() + Duration::from_secs(600);
    living.until(REQUESTS, is_without).await.context("requests of the descheduler that nobody needs")?;
    ensure!(Instant::now() < within, "requests that nobody needs were withdrawn late");
    Ok(())
}

#[test]
fn limits_and_cool_downs_hold_and_no_request_is_left_whatever_happens_to_the_descheduler() {
    let named = Named {
        module: module_path!(),
        test: "limits_and_cool_downs_hold_and_no_request_is_left_whatever_happens_to_the_descheduler",
    };
    seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), descheduling_in_trouble)
        .unwrap_or_else(|why| panic!("{why}"));
}
