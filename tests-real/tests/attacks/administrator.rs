//! The administrator: a cluster with something to hide, and maintenances from their creation until the node is given back.

use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;
use usher_api::lenient::value_of;

use super::common::Scene;
use super::common::calls::list;
use super::moves::{Call, MAINTENANCES, REQUESTS, World};
use super::users::{BUDGETS, EDGE, IN_ENVIRONMENTS, IN_NODE_LABELS, IN_SECRETS, NAMESPACES, RACK, SHOP};

/// For the noise of a machine on which everything runs, and for pods of tenants that are not there without attackers.
pub const SLACK: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    /// The body and the warnings.
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        // It may be nested deeper than a value can be read.
        value_of(&self.text)
    }
}

/// A server that refuses without reading the body reads so much of what is left of it, and closes the connection on the rest:
/// the one who still writes may see the reset instead of the answer.
const READ_OF_A_REFUSED_BODY: usize = 256 << 10;

/// By the administrator, or as a user. Code 0 is a refusal that was cut off.
pub async fn send(client: &Client, user: Option<&str>, call: Call) -> Answer {
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
    let is_long = body.len() > READ_OF_A_REFUSED_BODY;
    let answer = match client.send(request.body(Body::from(body)).unwrap()).await {
        Ok(answer) => answer,
        Err(cut_off @ kube::Error::Service(_)) if is_long => {
            return Answer { code: 0, text: cut_off.to_string() };
        }
        Err(error) => panic!("{error:?}"),
    };
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

pub async fn admin(client: &Client, method: Method, path: &str, body: Value) -> Answer {
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
pub async fn furnish(scene: &Scene) {
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
    // Workloads without pods, whose pods tenants claim to have made.
    for namespace in NAMESPACES.into_iter().filter(|name| name.starts_with('t')) {
        let spec = json!({"selector": {"matchLabels": {"app": "tenant"}}, "template": {
            "metadata": {"labels": {"app": "tenant"}},
            "spec": {"nodeSelector": {"pool": "none"}, "containers": [{"name": "c", "image": "i:1"}]},
        }});
        for (kind, name) in [("DaemonSet", "agent"), ("StatefulSet", "db")] {
            let mut workload = json!({
                "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec,
            });
            if kind == "StatefulSet" {
                workload["spec"]["replicas"] = 0.into();
            }
            objects.push(workload);
        }
    }
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

pub async fn look(client: &Client) -> World {
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
        workloads: [
            named("/apis/apps/v1/daemonsets", "DaemonSet").await,
            named("/apis/apps/v1/statefulsets", "StatefulSet").await,
        ]
        .concat(),
    }
}

/// What the administrator went through.
#[derive(Debug)]
pub struct Round {
    pub took: Duration,
    /// Somebody's finalizer kept the ended maintenance until the administrator took it off.
    pub was_kept: bool,
}

/// A maintenance from its creation until its node is given back.
pub async fn round(client: &Client, number: usize) -> Round {
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
            let is_foreign = |finalizer: &Value| finalizer == "example.com/stay";
            assert!(
                finalizers.as_array().is_some_and(|all| all.iter().all(is_foreign)),
                "what is ours is off by now: {finalizers}"
            );
            was_kept = true;
            admin(client, Method::PATCH, &path, json!({"metadata": {"finalizers": null}})).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
    // The next one begins with the application as it was.
    until(client, &format!("/apis/apps/v1/namespaces/{SHOP}/deployments/web"), "is whole", |web| {
        let replicas = web["spec"]["replicas"].as_u64();
        assert!(replicas.is_some_and(|it| (8..=10).contains(&it)), "nobody else scales it: {replicas:?}");
        web["status"]["availableReplicas"] == 8
    })
    .await;
    Round { took, was_kept }
}

pub async fn until(client: &Client, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        let object = admin(client, Method::GET, path, Value::Null).await.json();
        if wanted(&object) {
            return;
        }
        // Who looks for what held it up finds it here.
        if begun.elapsed() > SLACK && !is_told {
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
