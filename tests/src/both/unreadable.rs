//! Nobody can write a value into an object that keeps the manager from reading it, or the objects beside it: every field of every
//! kind that is watched gets values that our types might not like, and whatever the API server takes must be read.

use std::time::{Duration, Instant};

use crate::cluster::ADMIN;
use crate::hostile::{LAST_SECOND, places, values};
use crate::{Request, TestCluster, crds};
use http::Method;
use serde_json::{Value, json};
use usher_api::lenient::Lenient;
use usher_api::names::{EVICTION_REQUEST_STRATEGY_ANNOTATION, SURGE_ANNOTATION, SURGE_LABEL};
use usher_api::{EvictionRequest, NodeMaintenance};
use usher_apply::Clock;
use usher_decide::snapshot::{
    Autoscaler, AutoscalerOnWire, Budget, BudgetOnWire, DaemonSet, DaemonSetOnWire, Deployment,
    DeploymentOnWire, Maintenance, Namespace, NamespaceOnWire, Node, NodeOnWire, Pod, PodOnWire, ReplicaSet,
    ReplicaSetOnWire, Request as EvictionRequestView, RequestOnWire, StatefulSet, StatefulSetOnWire,
};

struct Kind {
    name: &'static str,
    /// Where it is created.
    path: &'static str,
    object: Value,
    status: Value,
    /// Whether what the server answers can be read.
    reads: fn(&str) -> bool,
}

/// Each of the types that this kind is read with.
fn reads<W, T>(text: &str) -> bool
where
    W: serde::de::DeserializeOwned,
    T: From<W>,
{
    let read: Lenient<W> = serde_json::from_str(text).unwrap();
    read.read().map(T::from).is_ok()
}

fn kinds() -> Vec<Kind> {
    let time = "2026-01-01T00:00:00Z";
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time,
    });
    let container = json!({
        "name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80}],
    });
    let entry = json!({"podPriority": 7, "podType": "Default", "podSelector": {"matchLabels": {"a": "b"}}});
    let template =
        |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}});
    vec![
        Kind {
            name: "pods/p",
            path: "/api/v1/namespaces/default/pods",
            object: json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "web"}},
                "spec": {"nodeName": "n", "containers": [container], "terminationGracePeriodSeconds": 30},
            }),
            status: json!({"phase": "Running", "startTime": time, "conditions": [condition]}),
            reads: reads::<PodOnWire, Pod>,
        },
        Kind {
            name: "poddisruptionbudgets/b",
            path: "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            object: json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}},
            }),
            status: json!({
                "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1,
                "observedGeneration": 1, "disruptedPods": {"q": time}, "conditions": [condition],
            }),
            reads: reads::<BudgetOnWire, Budget>,
        },
        Kind {
            name: "nodes/n",
            path: "/api/v1/nodes",
            object: json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"pool": "a"}},
                "spec": {"unschedulable": false, "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": time}]},
            }),
            status: json!({"capacity": {"cpu": "4"}, "conditions": [{
                "type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time,
                "lastHeartbeatTime": time,
            }]}),
            reads: reads::<NodeOnWire, Node>,
        },
        Kind {
            name: "daemonsets/d",
            path: "/apis/apps/v1/namespaces/default/daemonsets",
            object: json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"name": "d", "annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: "Off"}},
                "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template("d")},
            }),
            status: json!({
                "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1,
                "observedGeneration": 1, "conditions": [condition],
            }),
            reads: reads::<DaemonSetOnWire, DaemonSet>,
        },
        Kind {
            name: "statefulsets/s",
            path: "/apis/apps/v1/namespaces/default/statefulsets",
            object: json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "s", "annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: "MaxUnavailable"}},
                "spec": {
                    "replicas": 0, "serviceName": "s", "minReadySeconds": 5, "ordinals": {"start": 3},
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": 1}},
                    "selector": {"matchLabels": {"app": "s"}}, "template": template("s"),
                },
            }),
            status: json!({
                "replicas": 0, "observedGeneration": 1, "updateRevision": "r", "currentRevision": "r", "conditions": [condition],
            }),
            reads: reads::<StatefulSetOnWire, StatefulSet>,
        },
        Kind {
            name: "deployments/w",
            path: "/apis/apps/v1/namespaces/default/deployments",
            object: json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "w", "labels": {SURGE_LABEL: "1-2-0"}},
                "spec": {
                    "replicas": 0, "minReadySeconds": 5, "paused": true,
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
                    "selector": {"matchLabels": {"app": "w"}}, "template": template("w"),
                },
            }),
            status: json!({
                "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time, "lastUpdateTime": time}],
            }),
            reads: reads::<DeploymentOnWire, Deployment>,
        },
        Kind {
            name: "replicasets/r",
            path: "/apis/apps/v1/namespaces/default/replicasets",
            object: json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "r"}}, "template": template("r")},
            }),
            status: json!({"replicas": 0, "observedGeneration": 1, "conditions": [condition]}),
            reads: reads::<ReplicaSetOnWire, ReplicaSet>,
        },
        Kind {
            name: "horizontalpodautoscalers/h",
            path: "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            object: json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "h", "annotations": {SURGE_ANNOTATION: r#"{"by":1,"minBy":1,"minReplicas":1}"#}},
                "spec": {
                    "minReplicas": 1, "maxReplicas": 3,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"},
                },
            }),
            status: json!({"observedGeneration": 1, "currentReplicas": 1, "desiredReplicas": 1}),
            reads: reads::<AutoscalerOnWire, Autoscaler>,
        },
        Kind {
            name: "namespaces/x",
            path: "/api/v1/namespaces",
            object: json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "x", "annotations": {EVICTION_REQUEST_STRATEGY_ANNOTATION: "Off"}},
            }),
            status: json!({"phase": "Active", "conditions": [condition]}),
            reads: reads::<NamespaceOnWire, Namespace>,
        },
        Kind {
            name: "nodemaintenances/m",
            path: "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances",
            object: json!({
                "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
                "spec": {
                    "stage": "Idle", "reason": "r", "drainPlan": [entry],
                    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "pool", "operator": "In", "values": ["a"]},
                    ]}]},
                    "drainLimit": {"maxNodes": 1, "topologyKey": "zone"},
                },
            }),
            status: json!({
                "nodes": 1, "conditions": [condition],
                "stageStatuses": [{"name": "Drain", "startTimestamp": time}],
                "drainStatus": {
                    "planPosition": 1, "podsPendingEviction": 1, "podsEvicting": 1, "nodesDrained": 0,
                    "drainMessage": "m", "expectedFinishTime": time, "reachedDrainTargets": [entry],
                },
                "nodeStatuses": [{
                    "nodeRef": {"name": "n"}, "drainTargets": [entry], "drainMessage": "m",
                    "podsPendingEviction": 1, "podsEvicting": 1,
                }],
            }),
            reads: reads::<NodeMaintenance, Maintenance>,
        },
        Kind {
            name: "evictionrequests/UID",
            path: "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests",
            object: json!({
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": "UID", "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_a.com"]},
                "spec": {
                    "podRef": {"name": "p", "uid": "UID"}, "progressDeadlineSeconds": 600,
                    "interceptors": [{"interceptorClass": "a.com", "priority": 1, "role": "r"}],
                },
            }),
            status: json!({
                "activeInterceptorClass": "a.com", "activeInterceptorCompleted": false,
                "expectedInterceptorFinishTime": time, "progressTimestamp": time,
                "evictionRequestCancellationPolicy": "Allow", "failedAPIEvictionCounter": 1, "message": "m",
                "conditions": [condition],
            }),
            reads: |text| {
                reads::<RequestOnWire, EvictionRequestView>(text)
                    && reads::<EvictionRequest, EvictionRequest>(text)
            },
        },
    ]
}

async fn json_patch(cluster: &TestCluster, path: &str, patch: &Value) -> (u16, Value) {
    let mut request = Request::with_json(Method::PATCH, path, patch);
    request.headers[0].1 = "application/json-patch+json".to_owned();
    let answer = cluster.send(ADMIN, request).await.unwrap();
    (answer.status, answer.body)
}

pub async fn put_values_everywhere(cluster: &TestCluster) {
    crds::install(cluster).await.unwrap();
    let mut uid = String::new();
    for kind in kinds() {
        let with_uid = |value: &Value| -> Value {
            serde_json::from_str(&value.to_string().replace("UID", if uid.is_empty() { "u" } else { &uid }))
                .unwrap()
        };
        let object = with_uid(&kind.object);
        let created = cluster.created(kind.path, &object).await.unwrap();
        if kind.name.starts_with("pods/") {
            uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
        }
        let path = format!("{}/{}", kind.path, created["metadata"]["name"].as_str().unwrap());
        let status =
            cluster.merge_patch(&format!("{path}/status"), &json!({"status": kind.status})).await.unwrap();
        assert_eq!(status.status, 200, "{}: {:#}", kind.name, status.body);
        let (mut tried, mut taken, mut unread) = (0, 0, Vec::new());
        for (subresource, base) in [("", created), ("/status", status.body)] {
            let found = places(&base);
            let is_written_here = |place: &&String| (place.starts_with("/status")) != subresource.is_empty();
            for place in found.iter().filter(is_written_here) {
                for value in values(base.pointer(place).unwrap()) {
                    let patch = json!([{"op": "replace", "path": place, "value": value}]);
                    let (code, body) =
                        json_patch(cluster, &format!("{path}{subresource}?dryRun=All"), &patch).await;
                    tried += 1;
                    if code == 200 {
                        taken += 1;
                        // What is nested too deeply for a value is still text.
                        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                        if !(kind.reads)(&text) {
                            unread.push(format!("{value} at {place}"));
                        }
                    }
                }
            }
        }
        assert!(
            unread.is_empty(),
            "{} took, and nobody can read, {}: {unread:#?}",
            cluster.name(),
            kind.name
        );
        println!("{}: {} took {taken} of {tried} values", cluster.name(), kind.name);
        assert!(taken > 100, "{}: {taken} of {tried} were taken", kind.name);
    }
}

/// Times that cannot be told, in an object of every kind; then a manager starts, and does its work.
pub async fn drain_beside_them(cluster: &TestCluster) {
    let marked = [
        "/api/v1/nodes/n",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b",
        "/api/v1/namespaces/default/pods/p",
        "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances/m",
    ];
    for path in marked {
        let patch =
            json!([{"op": "replace", "path": "/metadata/managedFields/0/time", "value": LAST_SECOND}]);
        let (code, body) = json_patch(cluster, path, &patch).await;
        assert_eq!(code, 200, "{path}: {body:#}");
    }
    let client = cluster.client(ADMIN).unwrap();
    let manager = tokio::spawn(usher_controllers::run_all(
        client,
        Clock::system(),
        &crate::scenario::beside::WITHOUT_SURGES,
    ));
    let stage = json!({"spec": {"stage": "Drain", "drainLimit": null}});
    let staged = cluster.merge_patch(marked[3], &stage).await.unwrap();
    assert_eq!(staged.status, 200, "{:#}", staged.body);
    let start = Instant::now();
    loop {
        let node = cluster.get(marked[0]).await.unwrap().body;
        let pod = cluster.get(marked[2]).await.unwrap();
        let is_leaving = pod.status == 404 || pod.body["metadata"]["deletionTimestamp"].is_string();
        if node["spec"]["unschedulable"] == true && is_leaving {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{:#} {:#}", node["spec"], pod.body["metadata"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    manager.abort();
}
