//! One object that our types cannot read does not keep a person from seeing and doing everything else. On the real API server
//! alone: the embedded one refuses such times.

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use usher_cli::Environment;
use usher_tests::typed::{Printed, usher};
use usher_tests::{Request, TestCluster};
use usher_tests_real::RealCluster as _;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

struct Scene {
    cluster: TestCluster,
    client: Client,
}

impl Scene {
    async fn new(cluster: TestCluster) -> Self {
        let client = cluster.client("admin").unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for (_, definition) in usher_api::crd::crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
            let name = definition.name_any();
            await_condition(definitions.clone(), &name, conditions::is_crd_established()).await.unwrap();
        }
        Self { cluster, client }
    }

    async fn send(&self, request: Request) -> Value {
        let answer = self.cluster.send("admin", request.clone()).await.unwrap();
        assert!((200..300).contains(&answer.status), "{request:?}: {answer:?}");
        answer.body
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        self.send(Request::with_json(Method::POST, path, object)).await
    }

    async fn patch(&self, path: &str, kind: &str, patch: &Value) {
        let mut request = Request::with_json(Method::PATCH, path, patch);
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
        request.headers.push(("content-type".into(), format!("application/{kind}+json")));
        self.send(request).await;
    }

    /// What a tenant can do to any object he may change.
    async fn spoil(&self, path: &str) {
        // With nothing else changed the server would keep the time that was there.
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields/0/time", "value": "9999-12-31T23:59:59Z"},
            {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
        ]);
        self.patch(&format!("{path}?fieldManager=tenant"), "json-patch", &patch).await;
        let read = self.send(Request::new(Method::GET, path)).await;
        let mut entries = read["metadata"]["managedFields"].as_array().unwrap().iter();
        assert!(entries.any(|entry| entry["time"] == "9999-12-31T23:59:59Z"), "{path}: {read}");
    }

    async fn usher(&self, line: &str) -> Printed {
        let environment = Environment { cluster: Some(self.client.clone()), ..Environment::plain() };
        usher(line, &environment).await.unwrap()
    }

    async fn maintenance(&self, name: &str, node: &str) {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let selector = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        self.create(MAINTENANCES, &json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
            "spec": {"stage": "Drain", "nodeSelector": selector},
        }))
        .await;
    }

    /// All commands work for everybody, with one hostile object of each kind.
    async fn survives(&self) {
        for node in ["n1", "n2"] {
            self.create(NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"pool": "blue"}}}))
                .await;
        }
        let pod = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
        };
        self.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
            .await;
        for name in ["web", "spoiled"] {
            let uid = self.create(PODS, &pod(name)).await["metadata"]["uid"].clone();
            self.create(REQUESTS, &json!({
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": uid, "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_a.example.com"]},
                "spec": {"podRef": {"name": name, "uid": uid}},
            }))
            .await;
            if name == "spoiled" {
                self.spoil(&format!("{PODS}/spoiled")).await;
                self.spoil(&format!("{REQUESTS}/{}", uid.as_str().unwrap())).await;
            }
        }
        self.create(
            BUDGETS,
            &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}}}),
        )
        .await;
        self.spoil(&format!("{BUDGETS}/b")).await;
        self.spoil(&format!("{NODES}/n2")).await;
        self.maintenance("good", "n1").await;
        self.maintenance("spoiled", "n2").await;
        self.spoil(&format!("{MAINTENANCES}/spoiled")).await;
        self.maintenance("odd", "n2").await;
        let never = "9999-12-31T23:59:59Z";
        let status = json!({"status": {"stageStatuses": [{"name": "Drain", "startTimestamp": never}],
            "drainStatus": {"expectedFinishTime": never}}});
        self.patch(&format!("{MAINTENANCES}/odd/status"), "merge-patch", &status).await;

        let listed = self.usher("maintenance list").await;
        for name in ["good", "spoiled", "odd"] {
            assert!(listed.out.contains(&format!("\n{name} ")), "{listed:?}");
        }
        assert_eq!(listed.err, "", "times that nobody can tell are read as late ones");
        for (line, code, part) in [
            ("requests", 0, "web"),
            ("requests", 0, "spoiled"),
            ("explain web", 0, "Budgets       b "),
            ("explain spoiled", 0, "a.example.com"),
            ("explain node/n1", 0, "n1"),
            ("explain node/n2", 0, "n2"),
            ("maintenance describe spoiled", 0, "n2"),
            ("maintenance describe odd", 0, "n2"),
            ("maintenance describe good", 0, "n1"),
            ("maintenance list -o json", 0, never),
            ("drain n1 n2 --name both --dry-run --force", 0, "Dry run: 2 nodes with 2 pods"),
            ("drain n2 --name second --force --wait=false", 0, "maintenance second created"),
            ("evict spoiled", 0, "already requested by a.example.com"),
            ("cancel spoiled --requester a.example.com", 0, "withdrawn"),
            ("cordon n1 n2", 0, "node/n2: cordoned"),
            ("maintenance complete spoiled --wait=false", 0, "maintenance spoiled moved to stage Complete"),
            ("maintenance cancel odd --wait=false", 0, "maintenance odd is being deleted"),
        ] {
            let printed = self.usher(line).await;
            assert!(printed.code() == code && printed.out.contains(part), "{line}: {printed:?}");
        }
    }
}

#[tokio::test]
async fn a_time_in_the_year_9999_stops_no_command_on_the_real_server() {
    Scene::new(TestCluster::real().await.unwrap()).await.survives().await;
}
