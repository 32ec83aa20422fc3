//! What a sandbox begins with: nodes in three zones, and one workload of each common sort.

use serde_json::{Value, json};

const ZONES: u16 = 3;

/// Node number `number`, counted from 1. Its kubelet says the rest.
pub fn node(number: u16) -> Value {
    let name = format!("node-{number}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "sandbox",
            "topology.kubernetes.io/zone": format!("zone-{}", (number - 1) % ZONES + 1),
        }},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.37.1",
                "containerRuntimeVersion": "simulated://1", "osImage": "simulated", "kernelVersion": "simulated",
                "kubeProxyVersion": "", "bootID": "", "machineID": "", "systemUUID": "",
            },
        },
    })
}

fn template(app: &str, image: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{
            "name": app, "image": image, "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
        }]},
    })
}

fn workload(kind: &str, app: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": app}});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app, "namespace": "shop"}, "spec": spec})
}

/// A web deployment with a budget, a stateful set, a daemon set, and a single replica that nothing protects.
pub fn workloads() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        workload(
            "Deployment",
            "web",
            json!({"replicas": 6, "template": template("web", "shop/web:1", "500m")}),
        ),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }),
        workload(
            "StatefulSet",
            "db",
            json!({"replicas": 3, "serviceName": "db", "template": template("db", "shop/db:1", "1")}),
        ),
        workload("DaemonSet", "agent", json!({"template": template("agent", "shop/agent:1", "100m")})),
        workload(
            "Deployment",
            "cron",
            json!({"replicas": 1, "template": template("cron", "shop/cron:1", "100m")}),
        ),
    ]
}
