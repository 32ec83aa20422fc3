//! Callers with few rights try everything, over many seeds: the manager never touches a node on behalf of somebody who may not
//! delete it, and never lets go of one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use embedded_apiserver::User;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::{ServiceBuilder, ServiceExt as _};
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_tests::living::{Living, NODES, PODS, bare_pod, node};
use usher_tests::maintenances::{MAINTENANCES, of_label};
use usher_tests::requests::REQUESTS;
use usher_tests::scenario::beside::{WITHOUT_SURGES, answer_inside, manager};
use usher_tests::seeds::{self, Named, Trace};

const STEPS: usize = 60;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// May write maintenances, and delete no node.
const NONE: &str = "none";
/// May delete [`ITS_OWN`].
const SOME: &str = "some";
const ITS_OWN: [&str; 3] = ["n1", "n2", "late-1"];
/// May delete all nodes, and maintains [`AT_TIMES`] now and then.
const ALL: &str = "all";
const AT_TIMES: [&str; 2] = ["n3", "n4"];
/// Those of the administrator, who drains them all the time.
const HELD: [&str; 2] = ["n5", "n6"];
const NAMES: [&str; 9] = ["n1", "n2", "n3", "n4", "n5", "n6", "late-1", "late-2", "late-3"];
/// What callers with few rights create, and what they meet.
const THEIRS: [&str; 3] = ["a", "b", "c"];
const OBJECTS: [&str; 5] = ["a", "b", "c", "admin", ALL];
const FINALIZER: &str = "nodemaintenance.k8s.io/maintenance-completion";

struct World {
    living: Living,
    /// The nodes that the manager has written to.
    touched: Arc<Mutex<Vec<String>>>,
    trace: Trace,
}

impl World {
    fn random(&self, bound: usize) -> usize {
        usize::try_from(self.living.cluster.faults().random(bound as u64)).unwrap()
    }

    fn one<'a>(&self, of: &[&'a str]) -> &'a str {
        of[self.random(of.len())]
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.send(line()).unwrap_or_default();
        }
    }

    async fn send(&self, user: &str, method: Method, path: &str, body: &Value) -> Result<u16> {
        let content =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .body(Full::new(Bytes::from(text)))?;
        let user = User {
            name: user.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            ..User::default()
        };
        let name = user.name.clone();
        let Ok(response) = self.living.cluster.service_as(user).oneshot(request).await;
        let code = response.status().as_u16();
        let Ok(answer) = response.into_body().collect().await;
        let answer: Value = serde_json::from_slice(&answer.to_bytes()).unwrap_or_default();
        self.tell(|| format!("{name} {method} {path} {body}: {code} {}", answer["message"]));
        Ok(code)
    }

    fn requirement(&self, key: &str) -> Value {
        let operator = self.one(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
        let values: Vec<&str> = match operator {
            "Exists" | "DoesNotExist" => vec![],
            "Gt" | "Lt" => vec![self.one(&["0", "5"])],
            _ if key == "kubernetes.io/hostname" => (0..=self.random(3)).map(|_| self.one(&NAMES)).collect(),
            _ => vec![self.one(&["admin", "blue", "red"])],
        };
        json!({"key": key, "operator": operator, "values": values})
    }

    fn selector(&self) -> Value {
        let term = |_| {
            let mut term = json!({});
            let kind = self.random(10);
            if kind < 7 {
                let operator = if self.random(4) == 0 { "NotIn" } else { "In" };
                let names = if self.random(8) == 0 { &NAMES[..] } else { &ITS_OWN[..] };
                term["matchFields"] =
                    json!([{"key": "metadata.name", "operator": operator, "values": [self.one(names)]}]);
            }
            if (5..=8).contains(&kind) {
                let key = self.one(&["pool", "zone", "size", "kubernetes.io/hostname"]);
                term["matchExpressions"] = json!([self.requirement(key)]);
            }
            term
        };
        let terms: Vec<Value> = (0..=self.random(2)).map(term).collect();
        json!({"nodeSelectorTerms": terms})
    }

    /// What a caller with few rights may come up with.
    async fn trespass(&self) -> Result<()> {
        let user = self.one(&[NONE, SOME]);
        let name = self.one(&OBJECTS);
        let stage = self.one(&["Idle", "Cordon", "Drain", "Complete"]);
        let path = format!("{MAINTENANCES}/{name}");
        let (method, path, body) = match self.random(10) {
            0..=2 => {
                let mut object = of_label(self.one(&THEIRS), stage, "x", &["x"]);
                object["spec"]["nodeSelector"] = self.selector();
                (Method::POST, MAINTENANCES.to_owned(), object)
            }
            3 => (Method::PATCH, path, json!({"spec": {"nodeSelector": self.selector()}})),
            4 => (Method::PATCH, path, json!({"spec": {"stage": stage}})),
            5 => {
                let left: &[&str] = if self.random(2) == 0 { &[] } else { &[FINALIZER] };
                (Method::PATCH, path, json!({"metadata": {"finalizers": left}}))
            }
            6 => {
                let owner = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
                    "uid": "0a0a0a0a-0000-0000-0000-000000000000",
                });
                (Method::PATCH, path, json!({"metadata": {"ownerReferences": [owner]}}))
            }
            7 => {
                let target = json!({"podPriority": i32::MAX, "podType": "Static"});
                let forged = json!({"status": {
                    "nodes": 0,
                    "nodeStatuses": [{
                        "nodeRef": {"name": self.one(&NAMES)}, "drainTargets": [target], "podsPendingEviction": 0,
                        "podsEvicting": 0,
                    }],
                }});
                (Method::PATCH, format!("{path}/status"), forged)
            }
            8 => (Method::PATCH, path, json!({"spec": {"drainLimit": {"maxNodes": 1}, "reason": "r"}})),
            _ => (Method::DELETE, path, Value::Null),
        };
        self.send(user, method, &path, &body).await.map(drop)
    }

    /// Nodes come, go and change their labels.
    async fn weather(&self) -> Result<()> {
        let name = self.one(&NAMES);
        let path = format!("{NODES}/{name}");
        let labels = json!({"zone": self.one(&["blue", "red"]), "size": self.one(&["3", "9"])});
        let is_there = self.living.send(Method::GET, &path, &Value::Null).await?.0 == 200;
        if !is_there {
            let mut object = node(name);
            object["metadata"]["labels"]["zone"] = labels["zone"].clone();
            self.living.create(NODES, &object).await?;
            self.living.create(PODS, &held_pod(name)).await?;
        } else if name.starts_with("late") && self.random(3) == 0 {
            self.living
                .send(Method::DELETE, &format!("{PODS}/on-{name}?gracePeriodSeconds=0"), &Value::Null)
                .await?;
            self.living.delete(&path).await?;
        } else {
            self.living.patch(&path, &json!({"metadata": {"labels": labels}})).await?;
        }
        self.tell(|| format!("weather: {name}, there before: {is_there}"));
        Ok(())
    }

    async fn nodes_of_requests(&self) -> Result<BTreeSet<String>> {
        let list = self.living.get(REQUESTS).await?;
        let of = |request: &Value| {
            let pod = request["spec"]["podRef"]["name"].as_str().unwrap_or_default();
            (request["metadata"]["deletionTimestamp"].is_null())
                .then(|| pod.trim_start_matches("on-").to_owned())
        };
        Ok(list["items"].as_array().into_iter().flatten().filter_map(of).collect())
    }

    /// Who may delete all nodes maintains some for a while. `true` while they are held.
    async fn maintain(&self, step: usize) -> Result<bool> {
        let path = format!("{MAINTENANCES}/{ALL}");
        match step % 20 {
            4 => {
                let object = of_label(ALL, "Cordon", "kubernetes.io/hostname", &AT_TIMES);
                ensure!(self.send(ALL, Method::POST, MAINTENANCES, &object).await? == 201, "refused");
                sleep(Duration::from_secs(5)).await;
            }
            9 => {
                let drain = json!({"spec": {"stage": "Drain"}});
                ensure!(self.send(ALL, Method::PATCH, &path, &drain).await? == 200, "refused");
                sleep(Duration::from_secs(5)).await;
            }
            14 => {
                self.check(true).await?;
                ensure!(self.send(ALL, Method::DELETE, &path, &Value::Null).await? == 200, "refused");
                sleep(Duration::from_secs(30)).await;
                ensure!(self.send(ALL, Method::GET, &path, &Value::Null).await? == 404, "it does not end");
                self.touched.lock().retain(|node| !AT_TIMES.contains(&node.as_str()));
            }
            _ => {}
        }
        Ok((4..14).contains(&(step % 20)))
    }

    async fn check(&self, is_maintained: bool) -> Result<()> {
        let at_times = if is_maintained { &AT_TIMES[..] } else { &[] };
        for node in self.touched.lock().drain(..) {
            let node = node.as_str();
            ensure!(ITS_OWN.contains(&node) || at_times.contains(&node), "the manager has written to {node}");
        }
        let requested = self.nodes_of_requests().await?;
        for node in &requested {
            let node = node.as_str();
            let is_right = [&ITS_OWN[..], &HELD[..], at_times].iter().any(|nodes| nodes.contains(&node));
            ensure!(is_right, "evictions are requested on {node}");
        }
        let held = HELD.iter().map(|node| (*node, "admin")).chain(at_times.iter().map(|node| (*node, ALL)));
        for (node, holder) in held {
            ensure!(holder == ALL || requested.contains(node), "the request on {node} was withdrawn");
            let (cordoned, by) = self.living.cordon(node).await?;
            let is_right = cordoned && by.as_deref() == Some(holder);
            ensure!(is_right, "{node} of {holder} is cordoned {cordoned} and held by {by:?}");
        }
        Ok(())
    }
}

/// A pod that nobody gets rid of while its interceptor reports.
fn held_pod(node: &str) -> Value {
    let mut pod = bare_pod(&format!("on-{node}"), node);
    pod["metadata"]["annotations"] =
        json!({"interceptor.evictionrequest.coordination.k8s.io/priority_hold.example.com": "1"});
    pod
}

async fn allow(living: &Living, user: &str, rules: Value) -> Result<()> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules});
    living.create(&format!("{RBAC}/clusterroles"), &role).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    living.create(&format!("{RBAC}/clusterrolebindings"), &binding).await?;
    Ok(())
}

async fn callers_try_everything(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start(seed, 6).await?;
    living.install_crds().await?;
    living.install_policies(&["policies.yaml"]).await?;
    let everything = json!({
        "apiGroups": ["nodemaintenance.k8s.io"], "resources": ["nodemaintenances", "nodemaintenances/status"],
        "verbs": ["*"],
    });
    let its_own =
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"], "resourceNames": ITS_OWN});
    allow(&living, NONE, json!([everything])).await?;
    allow(&living, SOME, json!([everything, its_own])).await?;
    let all_nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]});
    allow(&living, ALL, json!([everything, all_nodes])).await?;
    for name in &NAMES[..6] {
        living.create(PODS, &held_pod(name)).await?;
    }
    let touched: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = touched.clone();
    let note = move |request: Request<Body>| {
        if request.method() != Method::GET
            && let Some(node) = request.uri().path().strip_prefix("/api/v1/nodes/")
        {
            noted.lock().push(node.trim_end_matches("/status").to_owned());
        }
        request
    };
    let service = ServiceBuilder::new().map_request(note).service(living.cluster.service_as(manager()));
    let client = kube::Client::new(service, "default");
    for (path, configuration) in answer_inside(&living.cluster, client.clone(), &WITHOUT_SURGES) {
        living.create(&path, &configuration).await?;
    }
    let server = living.cluster.clone();
    let clock = Clock::from_fn(move || server.now());
    let mut manager = JoinSet::new();
    manager.spawn(run_all(client, clock, &WITHOUT_SURGES));

    living.create(MAINTENANCES, &of_label("admin", "Drain", "kubernetes.io/hostname", &HELD)).await?;
    let world = World { living, touched, trace };
    for _ in 0..600 {
        if world.nodes_of_requests().await?.len() == HELD.len() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(5)).await;
    world.touched.lock().clear();
    for step in 0..STEPS {
        let is_maintained = world.maintain(step).await?;
        if world.random(4) == 0 {
            world.weather().await?
        } else {
            world.trespass().await?
        }
        sleep(Duration::from_millis(world.random(3000) as u64)).await;
        world.check(is_maintained).await?;
    }
    // Were everything refused, nothing would be proven.
    let mut last = of_label("last", "Drain", "x", &["x"]);
    last["spec"]["nodeSelector"] = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]});
    ensure!(
        world.send(NONE, Method::POST, MAINTENANCES, &last).await? == 403,
        "who may delete no node drains one"
    );
    ensure!(
        world.send(SOME, Method::POST, MAINTENANCES, &last).await? == 201,
        "who may delete the node is refused"
    );
    let is_held = |node: &Value| {
        let held = &node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"];
        held.as_str().is_some_and(|held| held.split(',').any(|name| name == "last"))
    };
    world.living.until(&format!("{NODES}/n1"), is_held).await?;
    world.check(false).await
}

#[test]
fn nobody_acts_on_nodes_that_they_may_not_delete() {
    let named = Named { module: module_path!(), test: "nobody_acts_on_nodes_that_they_may_not_delete" };
    if let Err(failure) = seeds::run(named, seeds::wanted(seeds::FEW).unwrap(), callers_try_everything) {
        panic!("{failure}");
    }
}
