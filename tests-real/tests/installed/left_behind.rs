//! Everything that is in the cluster, to be compared with what is there once Usher is gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Way;
use crate::scene::Scene;

/// What comes and goes by itself, or with pods that moved.
const PASSING: [&str; 9] = [
    "events",
    "events.events.k8s.io",
    "pods",
    "replicasets.apps",
    "controllerrevisions.apps",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "componentstatuses",
];
/// What Usher writes into objects of others has one of these in its name.
const GROUPS: [&str; 3] = ["nodemaintenance.k8s.io", "evictionrequest.coordination.k8s.io", "usher"];

#[derive(Debug, PartialEq)]
pub struct Inventory {
    /// By kind, namespace and name.
    objects: BTreeSet<String>,
    /// All of the nodes and workloads that people write, and the kinds of the nodes' conditions.
    contents: Vec<Value>,
}

impl Inventory {
    pub async fn of(scene: &Scene) -> Self {
        let kinds = scene.kubectl.ok("api-resources --verbs=list -o name").await.unwrap();
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !PASSING.contains(kind)).collect();
        let all = scene.get(&format!("get {} -A -o json", kinds.join(","))).await;
        let name = |object: &Value| {
            let meta = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
        };
        let objects = all["items"].as_array().unwrap().iter().map(name).collect();
        let written = scene.get("get nodes,deployments,daemonsets -A -o json").await;
        let contents = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let conditions: BTreeSet<String> = conditions.map(|it| it["type"].to_string()).collect();
            let meta = &object["metadata"];
            json!([
                name(object),
                meta["annotations"],
                meta["labels"],
                meta["finalizers"],
                object["spec"],
                conditions
            ])
        };
        Self { objects, contents: written["items"].as_array().unwrap().iter().map(contents).collect() }
    }

    /// Nothing else is there, and nothing is missing.
    pub async fn is_all_that_is_left(&self, scene: &Scene, way: Way) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let now = Self::of(scene).await;
            if now == *self {
                break;
            }
            if Instant::now() > deadline {
                let more: Vec<_> = now.objects.difference(&self.objects).collect();
                let fewer: Vec<_> = self.objects.difference(&now.objects).collect();
                panic!(
                    "{way:?} left {more:#?}, took {fewer:#?}; before and after: {:#?} {:#?}",
                    self.contents, now.contents
                );
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for node in scene.real.names() {
            let files = std::fs::read_dir(scene.real.manifests(&node)).unwrap();
            let files: Vec<String> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            assert_eq!(files, ["proxy.yaml"], "on {node}");
        }
        let pods = scene.get("get pods -A -o json").await;
        for pod in pods["items"].as_array().unwrap() {
            let meta = json!([
                pod["metadata"]["annotations"],
                pod["metadata"]["finalizers"],
                pod["spec"]["schedulingGates"]
            ]);
            let marks = GROUPS.iter().any(|group| meta.to_string().contains(group));
            assert!(!marks || is_own(pod), "{}: {meta:#}", pod["metadata"]["name"]);
        }
    }
}

/// An interceptor that its owner has named.
fn is_own(pod: &Value) -> bool {
    pod["metadata"]["name"] == "db"
}
