//! What the scenarios start from: a cluster, kubectl on it, and hands that play kubelet and controllers.

use serde_json::{Value, json};
use usher_tests::{Answer, TestCluster};
use usher_tests_real::kubectl::Kubectl;

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

pub struct Scene {
    pub cluster: TestCluster,
    pub kubectl: Kubectl,
}

impl Scene {
    pub async fn on(cluster: TestCluster) -> Self {
        let kubectl = Kubectl::new(&cluster).await.unwrap();
        Self { cluster, kubectl }
    }

    /// Removes what a scenario leaves behind, for the next one on the same cluster.
    pub async fn clear(&self) {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let events = "/api/v1/namespaces/default/events";
        for path in [PODS, MAPS, BUDGETS, DEPLOYMENTS, SETS, events, "/api/v1/nodes"] {
            let cleared = self.cluster.delete_with(path, json!({"gracePeriodSeconds": 0})).await.unwrap();
            assert_eq!(cleared.status, 200, "{}", cleared.body);
        }
        // One by one: only so do their instances go with them.
        for definition in self.cluster.get(definitions).await.unwrap().body["items"].as_array().unwrap() {
            let path = format!("{definitions}/{}", definition["metadata"]["name"].as_str().unwrap());
            self.cluster.delete(&path).await.unwrap();
            self.cluster.until_gone(&path).await.unwrap();
        }
    }

    /// A ready node; the taint of new nodes is gone, as the node controller would see to.
    pub async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        self.cluster.created("/api/v1/nodes", &node).await.unwrap();
        let path = format!("/api/v1/nodes/{name}");
        self.cluster.merge_patch(&path, &json!({"spec": {"taints": null}})).await.unwrap();
        let status = json!({
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {
                "kubeletVersion": "v1.37.1", "osImage": "Test OS", "kernelVersion": "6.1", "architecture": "amd64",
                "containerRuntimeVersion": "fake://1", "operatingSystem": "linux", "machineID": "", "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "",
            },
        });
        self.status(&path, status).await;
    }

    /// A running pod of an application.
    pub async fn pod(&self, name: &str, node: &str, owners: Value) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "nginx:1"}]},
        });
        self.cluster.created(PODS, &pod).await.unwrap();
        self.status(&format!("{PODS}/{name}"), running()).await;
    }

    pub async fn status(&self, path: &str, status: Value) {
        let patched =
            self.cluster.merge_patch(&format!("{path}/status"), &json!({"status": status})).await.unwrap();
        assert_eq!(patched.status, 200, "{}", patched.body);
    }

    /// The ReplicaSet of the application, as owner references of its pods.
    pub async fn replica_set(&self) -> Value {
        let set = json!({"metadata": {"name": "web"}, "spec": workload()});
        let set = self.cluster.created(SETS, &set).await.unwrap();
        json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }])
    }

    pub async fn map(&self, name: &str, labels: Value) {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}});
        self.cluster.created(MAPS, &map).await.unwrap();
    }

    /// What a kubelet does with a pod that is to end.
    pub async fn finish(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        self.cluster.until(&path, deleting).await.unwrap();
        self.cluster.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.unwrap();
    }

    pub async fn ok(&self, line: &str) -> String {
        self.kubectl.ok(line).await.unwrap()
    }

    pub async fn apply(&self, object: &Value, options: &str) -> String {
        self.kubectl.ok_with(&format!("apply -f - {options}"), &object.to_string()).await.unwrap()
    }
}

pub fn workload() -> Value {
    json!({
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        },
    })
}

pub fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "c", "image": "nginx:1", "imageID": "", "ready": true, "restartCount": 3,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    })
}

pub fn deleting(answer: &Answer) -> bool {
    answer.body["metadata"]["deletionTimestamp"].is_string()
}

pub fn eviction_request(uid: &str) -> Value {
    json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid, "namespace": "default"}, "spec": {"podRef": {"name": "web-1", "uid": uid}},
    })
}

pub const UID: &str = "00000000-0000-4000-8000-000000000001";

/// Every fragment is in the text, spaces counted once.
pub fn says(text: &str, fragments: &[&str]) {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for fragment in fragments {
        assert!(squeezed.contains(fragment), "no {fragment:?} in:\n{text}");
    }
}
