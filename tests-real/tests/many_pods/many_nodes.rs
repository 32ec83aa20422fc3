//! A maintenance of many nodes with six Deployments each, DaemonSets and StatefulSets on the real control plane, while `usher manager` is
//! killed again and again and somebody with kubectl gets in its way: all pods leave within their budgets, those that run alone without an
//! outage, and all nodes are given back as they were. 12 nodes, and 50 with `make soak`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::common::Scene;
use crate::common::calls::{client_of, create_all, left, list, until_left};

/// The nodes that are emptied: as many as USHER_NODES says.
static OLD: LazyLock<usize> = LazyLock::new(|| {
    let wanted = std::env::var("USHER_NODES").ok();
    wanted.map_or(12, |text| text.parse().unwrap())
});

/// Those that take their pods.
fn new_nodes() -> usize {
    *OLD / 2
}

fn all_nodes() -> usize {
    *OLD + new_nodes()
}

fn apps() -> usize {
    4 * *OLD
}

/// The first applications have a budget.
fn with_budget() -> usize {
    2 * *OLD
}

/// Deployments of one replica, with a budget that allows no disruption.
fn singles() -> usize {
    2 * *OLD
}

const REPLICAS: usize = 5;
/// So many of them may be down for reasons of their nodes.
const LATE: usize = 2;
const DAEMONS: usize = 5;
/// StatefulSets that opted in, and their pods.
const SETS: usize = 4;
const MEMBERS: usize = 5;
/// So many pods of an application with a budget may be missing at a time. An eviction whose caller is killed on the way can
/// leave its mark in the budget without a deletion, and the disruption controller forgets it after two minutes only.
const MAY_MISS: usize = 1;
const KILLS: usize = 6;
const SEED: u64 = 6;
/// Alone the whole drain takes a fraction of this; other work on the machine makes it several times as long.
const PATIENCE: Duration = Duration::from_secs(600);

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
/// In full: newer API servers have a kind of the same name in another group.
const REQUEST: &str = "evictionrequests.evictionrequest.coordination.k8s.io";
const HELD_BY: &str = "nodemaintenance.k8s.io/held-by";

/// Cordoned by somebody else before the maintenance, and to stay so.
fn cordoned_before() -> String {
    format!("node-{:04}", *OLD)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes long: make test-long"]
async fn nodes_are_emptied_while_the_manager_is_killed_and_kubectl_interferes() {
    let installed: [&[&str]; 4] = [
        &["-f", "deploy/crds"],
        &["-k", "deploy/base"],
        &["-f", "deploy/webhooks.yaml"],
        &["-k", "deploy/workloads"],
    ];
    let scene = Scene::alone(all_nodes(), &installed).await;
    let client = client_of(&scene).await;
    fill(&scene, &client).await;
    scene.kubectl(&["cordon", &cordoned_before()], None).await;
    let pods_before = left(&client, PODS).await;
    let budgets = Watch::start(&client, ("policy", "PodDisruptionBudget"), |budget| {
        // A surge makes more pods expected, and so desired, than are wanted: what counts is what its owner wants.
        let least = if budget["spec"]["minAvailable"] == 1 { 1 } else { REPLICAS - MAY_MISS };
        budget["status"]["currentHealthy"].as_u64() < Some(least as u64)
    });
    let singles = Watch::start(&client, ("apps", "Deployment"), |deployment| {
        deployment["spec"]["template"]["metadata"]["labels"]["tier"] == "single"
            && deployment["status"]["availableReplicas"].as_u64().unwrap_or(0) == 0
    });
    let sets = GivenOver::start(&client);

    let begun = Instant::now();
    // Alone, so that a new one need not wait for the lease of the one that was killed; and one line for every eviction would be too much.
    let arguments = ["--leader-elect=false", "--log-level=warn"];
    let mut manager = scene.manager_process(&arguments, None).await;
    scene.kubectl(&["create", "-f", "-"], Some(&maintenance())).await;
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut moments: Vec<usize> = (0..KILLS).map(|_| random.usize(pods_before / 3..pods_before)).collect();
    moments.sort_unstable_by(|a, b| b.cmp(a));
    let mut struck = Vec::new();
    for (at, moment) in moments.into_iter().enumerate() {
        until(&client, MAINTENANCES, |all| pods_left(&all[0]).is_some_and(|left| left <= moment)).await;
        interfere(&scene, &client, at).await;
        manager.process.kill().await.unwrap();
        struck.push(on_old_nodes(&client).await);
        manager = scene.manager_at(manager.webhook, &arguments, None).await;
    }
    until(&client, MAINTENANCES, |all| all.iter().all(is_drained)).await;
    println!(
        "killed with {struck:?} of {pods_before} pods left; drained after {:.1?}; {} changes of budgets seen",
        begun.elapsed(),
        budgets.verdict().0
    );
    assert_eq!(on_old_nodes(&client).await, 0, "drained, daemons included, and not a moment before");
    until(&client, NODES, |nodes| nodes.iter().filter(|node| is_old(node)).all(is_cordoned)).await;

    // The hardware is changed; the nodes are given back as they were.
    scene.kubectl(&["patch", "nodemaintenance", "racks", "--type=merge", "-p", COMPLETE], None).await;
    until(&client, NODES, |nodes| {
        nodes.iter().all(|node| {
            is_cordoned(node) == (node["metadata"]["name"] == cordoned_before())
                && node["metadata"]["annotations"][HELD_BY].is_null()
        })
    })
    .await;
    scene.kubectl(&["delete", "nodemaintenance", "racks", "--timeout=60s"], None).await;
    until_left(&client, REQUESTS, 0, PATIENCE).await;
    until(&client, DEPLOYMENTS, |all| all.iter().all(is_whole)).await;
    until(&client, DAEMON_SETS, |all| all.iter().all(|set| set["status"]["numberReady"] == all_nodes()))
        .await;
    let (seen, broken) = sets.0.lock().unwrap().clone();
    assert!(seen >= SETS, "the watch of the StatefulSets saw {seen} pods go only");
    assert!(broken.is_empty(), "more than one pod of a StatefulSet was given over at a time: {broken:#?}");
    let (seen, broken) = budgets.verdict();
    assert!(seen > *OLD, "the watch of the budgets saw {seen} changes only");
    assert!(broken.is_empty(), "budgets were overdrawn: {broken:#?}");
    let (seen, broken) = singles.verdict();
    assert!(seen > 2 * *OLD, "the watch of the Deployments saw {seen} changes only");
    // On a busy machine a node of kwok may be late to tell that it is there, and its pods are not ready until it does.
    assert!(broken.len() <= LATE, "applications that run alone were down: {broken:#?}");
    let surged: Vec<Value> = list(&client, DEPLOYMENTS).await;
    let is_marked =
        |it: &Value| !it["metadata"]["annotations"]["evictionrequest.coordination.k8s.io/surge"].is_null();
    assert!(!surged.iter().any(is_marked), "a surge was left behind");
    assert!(manager.process.try_wait().unwrap().is_none(), "the last one still runs");
    manager.process.kill().await.unwrap();
    scene.plane.stop().await.unwrap();
}

const COMPLETE: &str = r#"{"spec": {"stage": "Complete"}}"#;

/// Fills the old nodes with applications that have budgets, and leaves the new ones empty.
async fn fill(scene: &Scene, client: &Client) {
    let name = |number: usize| format!("node-{number:04}");
    let old: Vec<String> = (1..=*OLD).map(name).collect();
    let new: Vec<String> = (*OLD + 1..=all_nodes()).map(name).collect();
    let with = |before: &[&'static str], names: &[String], after: &[&'static str]| {
        let strings = before.iter().map(|text| (*text).to_owned());
        strings.chain(names.iter().cloned()).chain(after.iter().map(|text| (*text).to_owned())).collect()
    };
    let run = async |arguments: Vec<String>| {
        scene.kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), None).await;
    };
    run(with(&["label", "nodes"], &old, &["pool=old"])).await;
    run(with(&["cordon"], &new, &[])).await;
    create_all(client, DEPLOYMENTS, (0..apps()).map(deployment)).await;
    create_all(client, DEPLOYMENTS, (0..singles()).map(single)).await;
    create_all(client, BUDGETS, (0..with_budget()).map(budget)).await;
    create_all(client, BUDGETS, (0..singles()).map(budget_of_single)).await;
    create_all(client, DAEMON_SETS, (0..DAEMONS).map(daemon_set)).await;
    create_all(client, STATEFUL_SETS, (0..SETS).map(stateful_set)).await;
    until(client, STATEFUL_SETS, |all| all.iter().all(|set| set["status"]["availableReplicas"] == MEMBERS))
        .await;
    until(client, DAEMON_SETS, |all| all.iter().all(|set| set["status"]["numberReady"] == all_nodes())).await;
    until(client, DEPLOYMENTS, |all| all.iter().all(is_whole)).await;
    let counted = |budget: &Value| {
        let allowed = if budget["spec"]["minAvailable"] == 1 { 0 } else { MAY_MISS };
        budget["status"]["disruptionsAllowed"] == allowed && budget["status"]["currentHealthy"] != 0
    };
    until(client, BUDGETS, |all| all.iter().all(counted)).await;
    run(with(&["uncordon"], &new, &[])).await;
}

/// What people do while a maintenance is under way.
async fn interfere(scene: &Scene, client: &Client, at: usize) {
    match at {
        // Against the cordon.
        0 => drop(scene.kubectl(&["uncordon", "node-0003"], None).await),
        // Against the requests: one is robbed of its requester.
        1 => {
            if let Some(request) = list(client, REQUESTS).await.first() {
                let name = request["metadata"]["name"].as_str().unwrap();
                let patch = r#"{"metadata": {"finalizers": null}}"#;
                // It may be gone by now.
                let _ = scene.try_kubectl(&["patch", REQUEST, name, "--type=merge", "-p", patch], None).await;
            }
        }
        // The old way, on a node of the maintenance.
        2 => {
            let drain =
                ["drain", "node-0004", "--ignore-daemonsets", "--pod-selector=tier=web", "--timeout=120s"];
            drop(scene.kubectl(&drain, None).await);
        }
        // A pod that comes late, past the scheduler.
        3 => {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"},
                "spec": {"nodeName": "node-0005", "containers": [{"name": "c", "image": "i:1"}]},
            });
            scene.kubectl(&["create", "-f", "-"], Some(&pod)).await;
        }
        _ => {}
    }
}

fn maintenance() -> Value {
    let term = json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["old"]}]});
    json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": "racks"},
        "spec": {
            "stage": "Drain", "reason": "new racks", "drainLimit": {"maxNodes": "50%"},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
    })
}

fn deployment(at: usize) -> Value {
    let app = format!("app-{at:02}");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app, "tier": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

fn single(at: usize) -> Value {
    let app = format!("single-{at:02}");
    let mut deployment = deployment(at);
    deployment["metadata"]["name"] = app.clone().into();
    deployment["spec"]["replicas"] = 1.into();
    deployment["spec"]["selector"]["matchLabels"]["app"] = app.clone().into();
    deployment["spec"]["template"]["metadata"]["labels"] = json!({"app": app, "tier": "single"});
    deployment
}

fn budget_of_single(at: usize) -> Value {
    let app = format!("single-{at:02}");
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    })
}

fn daemon_set(at: usize) -> Value {
    let app = format!("daemon-{at}");
    let template = json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i:1"}]},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}, "template": template},
    })
}

fn stateful_set(at: usize) -> Value {
    let app = format!("db-{at}");
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": app, "annotations": {
            "evictionrequest.coordination.k8s.io/eviction-request-strategy": "MaxUnavailable",
        }},
        "spec": {
            "replicas": MEMBERS, "serviceName": app, "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app, "tier": "data"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
    })
}

fn budget(at: usize) -> Value {
    let app = format!("app-{at:02}");
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
        "spec": {"maxUnavailable": MAY_MISS, "selector": {"matchLabels": {"app": app}}},
    })
}

fn is_whole(deployment: &Value) -> bool {
    let is_single = deployment["spec"]["template"]["metadata"]["labels"]["tier"] == "single";
    let wanted = if is_single { 1 } else { REPLICAS };
    deployment["spec"]["replicas"] == wanted
        && deployment["status"]["availableReplicas"] == wanted
        && deployment["status"]["replicas"] == wanted
}

fn is_drained(maintenance: &Value) -> bool {
    let conditions = maintenance["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Drained" && c["status"] == "True"))
}

/// How many pods the maintenance knows to be left.
fn pods_left(maintenance: &Value) -> Option<usize> {
    let drain = &maintenance["status"]["drainStatus"];
    let count = |name: &str| drain[name].as_u64().and_then(|count| usize::try_from(count).ok());
    Some(count("podsPendingEviction")? + count("podsEvicting")?)
}

fn is_old(node: &Value) -> bool {
    node["metadata"]["labels"]["pool"] == "old"
}

fn is_cordoned(node: &Value) -> bool {
    node["spec"]["unschedulable"] == true
}

/// How many pods are left on the old nodes. Those that have ended need nothing more than to be removed.
async fn on_old_nodes(client: &Client) -> usize {
    let pods = list(client, PODS).await;
    let has_ended = |pod: &Value| pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    let number = |pod: &Value| pod["spec"]["nodeName"].as_str().and_then(|name| name[5..].parse().ok());
    pods.iter()
        .filter(|pod| !has_ended(pod) && number(pod).is_some_and(|number: usize| number <= *OLD))
        .count()
}

async fn until(client: &Client, path: &str, wanted: impl Fn(&[Value]) -> bool) {
    let begun = Instant::now();
    loop {
        let all = list(client, path).await;
        if wanted(&all) {
            return;
        }
        if begun.elapsed() >= PATIENCE {
            let requests = list(client, REQUESTS).await;
            let waits =
                requests.iter().map(|it| format!("{}: {}", it["spec"]["podRef"]["name"], it["status"]));
            panic!("{path} is not as wanted after {PATIENCE:?}; left are {:#?}", waits.collect::<Vec<_>>());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sees which pods of StatefulSets, which have no budget, are given over to the eviction API: one of a set at a time, as long as they are
/// up. Pods that are down go besides, and on a busy machine kwok takes some down by itself: it ends pods by their names, also the one that
/// came after, and its nodes are late to tell that they are there. So only pods that are given over and still up are told of.
struct GivenOver(Arc<Mutex<(usize, Vec<String>)>>);

impl GivenOver {
    fn start(client: &Client) -> Self {
        let verdict = Arc::<Mutex<(usize, Vec<String>)>>::default();
        let told = verdict.clone();
        let kind =
            GroupVersionKind::gvk("evictionrequest.coordination.k8s.io", "v1alpha1", "EvictionRequest");
        let requests: Api<DynamicObject> =
            Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let events = watcher(requests, watcher::Config::default().labels("tier=data")).default_backoff();
        tokio::spawn(async move {
            // The names of the pods by their UIDs, which are the names of the requests.
            let mut given_over: BTreeMap<String, String> = BTreeMap::new();
            let mut events = Box::pin(events);
            while let Some(event) = futures::StreamExt::next(&mut events).await {
                let (request, is_gone) = match event {
                    Ok(watcher::Event::Apply(it) | watcher::Event::InitApply(it)) => (it, false),
                    Ok(watcher::Event::Delete(it)) => (it, true),
                    _ => continue,
                };
                let uid = request.metadata.name.clone().unwrap_or_default();
                if is_gone {
                    given_over.remove(&uid);
                    continue;
                }
                let pod = request.data["spec"]["podRef"]["name"].as_str().unwrap_or_default().to_owned();
                if request.data["status"]["activeInterceptorCompleted"] != true
                    || given_over.insert(uid.clone(), pod.clone()).is_some()
                {
                    continue;
                }
                told.lock().unwrap().0 += 1;
                let set = |pod: &str| pod.rsplit_once('-').map(|(set, _)| set.to_owned());
                for (other, name) in &given_over {
                    // A request may outlive its pod by as long as no manager runs, so the pod is looked for: one that is still there now
                    // was there when this one was given over.
                    if *other != uid
                        && set(name) == set(&pod)
                        && let Ok(Some(found)) = pods.get_opt(name).await
                        && found.metadata.uid.as_ref() == Some(other)
                        && is_up(&found)
                    {
                        told.lock().unwrap().1.push(format!("{pod} beside {name}"));
                    }
                }
            }
        });
        Self(verdict)
    }
}

fn is_up(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

/// Sees every change of a kind, and which of its objects had a status that they should not have.
struct Watch(Arc<Mutex<(usize, BTreeMap<String, Value>)>>);

impl Watch {
    fn start(client: &Client, (group, kind): (&str, &str), is_wrong: fn(&Value) -> bool) -> Self {
        let seen = Arc::<Mutex<(usize, BTreeMap<String, Value>)>>::default();
        let told = seen.clone();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let objects: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
        let events = watcher(objects, watcher::Config::default()).default_backoff().applied_objects();
        tokio::spawn(async move {
            let mut events = Box::pin(events);
            while let Some(event) = futures::StreamExt::next(&mut events).await {
                let Ok(object) = event else { continue };
                let mut seen = told.lock().unwrap();
                seen.0 += 1;
                if is_wrong(&object.data) {
                    seen.1.insert(object.metadata.name.unwrap_or_default(), object.data["status"].clone());
                }
            }
        });
        Self(seen)
    }

    fn verdict(&self) -> (usize, BTreeMap<String, Value>) {
        self.0.lock().unwrap().clone()
    }
}
