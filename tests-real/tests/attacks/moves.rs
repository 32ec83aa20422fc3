//! What users try: pure, from what there is in the cluster and a source of randomness.

use fastrand::Rng;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_api::names::{EVICTION_REQUEST_STRATEGY_ANNOTATION, MAINTENANCE_SCHEDULING_GATE, SURGE_ANNOTATION};
use usher_tests::hostile::{LAST_SECOND, nested, places, values};

use super::tally::Move;
use super::users::{BUDGETS, EDGE, NAMESPACES, RACK, SHOP, User};

pub const REQUESTS: &str = "/apis/evictionrequest.coordination.k8s.io/v1alpha1";
pub const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

/// What an attacker has found out of the names and shapes of objects, by whatever way.
#[derive(Debug, Default)]
pub struct World {
    pub pods: Vec<Value>,
    pub requests: Vec<Value>,
    pub maintenances: Vec<Value>,
    pub budgets: Vec<Value>,
    pub nodes: Vec<Value>,
    /// DaemonSets and StatefulSets.
    pub workloads: Vec<Value>,
}

#[derive(Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

fn call(method: Method, path: String, body: Value) -> Call {
    Call { method, path, body }
}

fn patch(path: String, body: Value) -> Call {
    call(Method::PATCH, path, body)
}

/// Where an object is.
pub fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"]["name"]);
    let namespace = text(&object["metadata"]["namespace"]);
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => format!("/api/v1/namespaces/{namespace}/pods/{name}"),
        "Node" => format!("/api/v1/nodes/{name}"),
        "PodDisruptionBudget" => {
            format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}")
        }
        "Namespace" => format!("/api/v1/namespaces/{name}"),
        kind @ ("DaemonSet" | "StatefulSet") => {
            format!("/apis/apps/v1/namespaces/{namespace}/{}s/{name}", kind.to_lowercase())
        }
        "EvictionRequest" => format!("{REQUESTS}/namespaces/{namespace}/evictionrequests/{name}"),
        _ => format!("{MAINTENANCES}/{name}"),
    }
}

/// One of them, of his own namespace rather than another.
fn one<'a>(random: &mut Rng, user: &User, all: &'a [Value]) -> Option<&'a Value> {
    let own: Vec<&Value> =
        all.iter().filter(|object| object["metadata"]["namespace"] == user.namespace).collect();
    if !own.is_empty() && random.u8(..10) < 8 {
        return random.choice(own);
    }
    random.choice(all)
}

fn condition(kind: &str, letters: usize) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "R", "message": "x".repeat(letters),
        "lastTransitionTime": Timestamp::now().to_string(),
    })
}

fn namespace(random: &mut Rng, user: &User) -> &'static str {
    if !user.namespace.is_empty() && random.u8(..10) < 8 {
        return user.namespace;
    }
    random.choice(NAMESPACES).unwrap_or(SHOP)
}

/// An autoscaler of nothing that says that its limits were raised for the administrator's Deployment, or for what does not exist.
fn autoscaler(random: &mut Rng, user: &User) -> Call {
    let namespace = namespace(random, user);
    let name = format!("a{}", random.u8(..3));
    let numbers = [0, 1, 3, 8, 9, 40, u32::MAX];
    let mut number = || random.choice(numbers).unwrap_or(0);
    let record = json!({
        "by": number(), "minBy": number(), "minReplicas": number(), "maxBy": number(), "maxReplicas": number(), "of": "web",
    });
    let record = random.choice([record.to_string(), "nonsense".to_owned(), Value::Null.to_string()]);
    let annotations = json!({SURGE_ANNOTATION: record});
    let path = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "annotations": if random.u8(..4) == 0 { Value::Null } else { annotations.clone() }},
        "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nosuch"}},
    });
    match random.u8(..3) {
        0 => call(Method::POST, path, object),
        1 => call(Method::DELETE, format!("{path}/{name}"), Value::Null),
        _ => patch(format!("{path}/{name}"), json!({"metadata": {"annotations": annotations}})),
    }
}

/// A pod of one of a few names, so that they do not become more and more.
fn pod(random: &mut Rng, user: &User) -> (String, Value) {
    let namespace = namespace(random, user);
    let pool = if namespace == BUDGETS { "edge" } else { "rack" };
    let name = format!("{}-{}", user.name, random.u8(..3));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "tenant"}},
        "spec": {"nodeSelector": {"pool": pool}, "containers": [{"name": "c", "image": "i:1"}]},
    });
    (format!("/api/v1/namespaces/{namespace}/pods"), pod)
}

/// As a controller names itself in what it makes.
fn owner(of: &Value) -> Value {
    let kind = of["kind"].as_str().unwrap_or_default();
    json!({
        "apiVersion": if kind == "Node" { "v1" } else { "apps/v1" }, "kind": kind,
        "name": of["metadata"]["name"], "uid": of["metadata"]["uid"], "controller": true,
    })
}

fn interceptors(random: &mut Rng) -> Value {
    let count = random.choice([1, 15, 16, 100, 300]).unwrap_or(1);
    let annotation = |number: usize| {
        let key = format!("interceptor.evictionrequest.coordination.k8s.io/priority_c{number}.example.com");
        (key, Value::from((1000 - number).to_string()))
    };
    (0..count).map(annotation).collect::<serde_json::Map<_, _>>().into()
}

fn request_for(random: &mut Rng, user: &User, world: &World) -> Option<Call> {
    let pod = one(random, user, &world.pods)?;
    let (name, namespace) = (pod["metadata"]["name"].clone(), pod["metadata"]["namespace"].as_str()?);
    let uid = if random.u8(..10) < 8 { pod["metadata"]["uid"].clone() } else { json!("0-1-2") };
    let requester = random.choice(["tenant.example.com", "nodemaintenance.k8s.io", "Odd_Name"])?;
    let body = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid, "finalizers": [format!("requester.evictionrequest.coordination.k8s.io/name_{requester}")]},
        "spec": {"podRef": {"name": name, "uid": uid}},
    });
    Some(call(Method::POST, format!("{REQUESTS}/namespaces/{namespace}/evictionrequests"), body))
}

fn maintenance(random: &mut Rng) -> Call {
    let name = format!("mine-{}", random.u8(..5));
    let term = match random.u8(..3) {
        0 => {
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [random.choice(RACK)]}]})
        }
        1 => json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["rack"]}]}),
        _ => json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}),
    };
    let body = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": name},
        "spec": {"stage": random.choice(["Idle", "Cordon", "Drain"]), "nodeSelector": {"nodeSelectorTerms": [term]}},
    });
    call(Method::POST, MAINTENANCES.to_owned(), body)
}

/// Any object that he might write. Nodes that are maintained are left to [`Move::RemoveMarks`] and [`Move::Relabel`]: who may patch
/// them stops them in ways that have nothing to do with us.
fn any<'a>(random: &mut Rng, user: &User, world: &'a World) -> Option<&'a Value> {
    if user.name.starts_with("edge") && random.bool() {
        return world.nodes.iter().find(|node| node["metadata"]["name"] == EDGE);
    }
    let all = [&world.pods, &world.requests, &world.maintenances, &world.budgets];
    let filled: Vec<_> = all.into_iter().filter(|all| !all.is_empty()).collect();
    let all = random.choice(filled)?;
    one(random, user, all)
}

fn hostile_value(random: &mut Rng, object: &Value) -> Option<Call> {
    let place = random.choice(places(object))?;
    let value = random.choice(values(object.pointer(&place)?))?;
    let subresource = if place.starts_with("/status") { "/status" } else { "" };
    let body = json!([{"op": "replace", "path": place, "value": value}]);
    Some(patch(path_of(object) + subresource, body))
}

fn status_of(random: &mut Rng, user: &User, world: &World, status: &Value) -> Option<Call> {
    let all = if random.u8(..4) == 0 { &world.maintenances } else { &world.requests };
    let object = one(random, user, all)?;
    Some(patch(path_of(object) + "/status", json!({"status": status})))
}

fn read(random: &mut Rng, user: &User, world: &World) -> Option<Call> {
    let namespace = namespace(random, user);
    let path = match random.u8(..7) {
        0 => format!("/api/v1/namespaces/{namespace}/secrets"),
        1 => "/api/v1/namespaces/usher-system/secrets/usher-webhook-certificates".to_owned(),
        2 => format!("/api/v1/namespaces/{namespace}/events"),
        3 => format!("{REQUESTS}/namespaces/{namespace}/evictionrequests"),
        4 => MAINTENANCES.to_owned(),
        5 => "/api/v1/nodes".to_owned(),
        _ => path_of(any(random, user, world)?),
    };
    Some(call(Method::GET, path, Value::Null))
}

/// What this user does when it is this move's turn; nothing if there is nothing to do it to.
pub fn attempt(of: Move, random: &mut Rng, user: &User, world: &World) -> Option<Call> {
    let annotated = |object: &Value, name: &str, value: Value| {
        patch(path_of(object), json!({"metadata": {"annotations": {name: value}}}))
    };
    match of {
        Move::HostileValue => {
            let object = any(random, user, world)?;
            hostile_value(random, object)
        }
        Move::UnreadableTime => {
            let object = any(random, user, world)?;
            let time = random.choice([LAST_SECOND, "0000-01-01T00:00:00Z"])?;
            let body = json!([{"op": "replace", "path": "/metadata/managedFields/0/time", "value": time}]);
            Some(patch(path_of(object), body))
        }
        Move::NestedFields => {
            let object = any(random, user, world)?;
            let fields = nested(random.choice([100, 127, 128, 200, 1000])?);
            let body =
                json!([{"op": "replace", "path": "/metadata/managedFields/0/fieldsV1", "value": fields}]);
            Some(patch(path_of(object), body))
        }
        Move::ForgedNodeStatuses => {
            let name = random.choice([RACK[0], RACK[1], EDGE, "nowhere"])?;
            let last = json!({"podPriority": i32::MAX, "podType": "Static"});
            let of_node = json!({
                "nodeRef": {"name": name}, "drainTargets": [last], "drainMessage": "done", "podsPendingEviction": 0, "podsEvicting": 0,
            });
            let status = match random.u8(..4) {
                0 => json!({"nodeStatuses": []}),
                1 => {
                    json!({"nodeStatuses": [of_node], "drainStatus": {"reachedDrainTargets": [last], "nodesDrained": 1}})
                }
                2 => json!({"leftNodes": [name], "nodeStatuses": [of_node]}),
                _ => json!({"nodeStatuses": vec![of_node; 500]}),
            };
            let maintenance = random.choice(&world.maintenances)?;
            Some(patch(path_of(maintenance) + "/status", json!({"status": status})))
        }
        Move::FloodStatus => {
            let letters = random.choice([1, 1024, 32 << 10, 600 << 10])?;
            status_of(random, user, world, &json!({"message": "m".repeat(letters)}))
        }
        Move::Counters => {
            let number = random.choice([i64::from(i32::MAX), 1_000_000_000, 1_000, -1, i64::MAX])?;
            let status = json!({"failedAPIEvictionCounter": number, "nodes": number, "drainStatus": {"planPosition": number}});
            status_of(random, user, world, &status)
        }
        Move::Conditions => {
            let (count, letters) = random.choice([(1, 10), (16, 1024), (17, 1), (300, 1), (8, 32 << 10)])?;
            let mut all: Vec<Value> = (0..count).map(|n| condition(&format!("T{n}"), letters)).collect();
            if let Some(forged) = random.choice([None, Some("Drained"), Some("EvictionBlocked")])? {
                all.push(condition(forged, 1));
            }
            status_of(random, user, world, &json!({"conditions": all}))
        }
        Move::ForeignFinalizer => {
            let all = random.choice([&world.maintenances, &world.pods, &world.requests, &world.requests])?;
            let object = one(random, user, all)?;
            let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            if random.bool() {
                finalizers.clear();
            }
            finalizers.push("example.com/stay".into());
            Some(patch(path_of(object), json!({"metadata": {"finalizers": finalizers}})))
        }
        Move::RemoveFinalizers => {
            let all = random.choice([&world.maintenances, &world.pods, &world.requests])?;
            Some(patch(path_of(one(random, user, all)?), json!({"metadata": {"finalizers": null}})))
        }
        Move::RemoveMarks => {
            let mark = random.choice(["held-by", "was-unschedulable", "phase"])?;
            let node = random.choice(&world.nodes)?;
            Some(annotated(node, &format!("nodemaintenance.k8s.io/{mark}"), Value::Null))
        }
        Move::Relabel => {
            let node = random.choice(&world.nodes)?;
            let tier = random.choice([None, Some("edge"), Some("rack")])?;
            let body = json!({"metadata": {"labels": {"example.com/tier": tier}}});
            Some(patch(path_of(node), body))
        }
        Move::SkipInterceptors => {
            let name = "evictionrequest.coordination.k8s.io/skip-interceptors";
            Some(annotated(one(random, user, &world.requests)?, name, "I say so".into()))
        }
        Move::KeepNodes => {
            let value = random.choice([json!("true"), json!("false"), Value::Null])?;
            Some(annotated(random.choice(&world.maintenances)?, "nodemaintenance.k8s.io/keep-nodes", value))
        }
        Move::ForgedOwner => {
            let (path, mut pod) = pod(random, user);
            let version = random.choice(["evil.example.com/v1", "apps/v1", "extensions/v1beta1"])?;
            let kind = random.choice(["DaemonSet", "StatefulSet"])?;
            let invented = json!({"apiVersion": version, "kind": kind, "name": "agent", "uid": "1-2-3", "controller": true});
            let owner = if random.bool() { invented } else { owner(one(random, user, &world.workloads)?) };
            pod["metadata"]["ownerReferences"] = json!([owner]);
            Some(call(Method::POST, path, pod))
        }
        Move::ForgedMirror => {
            let (path, mut pod) = pod(random, user);
            let node = random.choice(&world.nodes)?;
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h"});
            pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
            if random.bool() {
                pod["metadata"]["ownerReferences"] = json!([owner(node)]);
            }
            Some(call(Method::POST, path, pod))
        }
        Move::ForgedGate => {
            let (path, mut pod) = pod(random, user);
            pod["spec"]["schedulingGates"] = json!([{"name": MAINTENANCE_SCHEDULING_GATE}]);
            let node = random.choice(RACK)?;
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            if random.bool() {
                pod["metadata"]["ownerReferences"] = json!([owner(one(random, user, &world.workloads)?)]);
            }
            Some(call(Method::POST, path, pod))
        }
        Move::ForgedStrategy => {
            let value = random.choice(["Off", "MaxUnavailable", "", "\u{202e}Off"])?;
            let name = EVICTION_REQUEST_STRATEGY_ANNOTATION;
            if random.bool() {
                let (path, mut pod) = pod(random, user);
                pod["metadata"]["annotations"] = json!({name: value});
                return Some(call(Method::POST, path, pod));
            }
            let space = json!({"kind": "Namespace", "metadata": {"name": namespace(random, user)}});
            let workload = one(random, user, &world.workloads)?;
            Some(annotated(random.choice([&space, workload])?, name, value.into()))
        }
        Move::ForgedLimits => Some(autoscaler(random, user)),
        Move::HundredInterceptors => {
            let (path, mut pod) = pod(random, user);
            pod["metadata"]["annotations"] = interceptors(random);
            Some(call(Method::POST, path, pod))
        }
        Move::ReportProgress => {
            let late = random.choice([-3600, -1, 0, 25, 3600, 400_000_000])?;
            let at = Timestamp::now() + SignedDuration::from_secs(late);
            let status = match random.u8(..4) {
                0 => json!({"activeInterceptorClass": "c1.example.com", "activeInterceptorCompleted": false}),
                1 => json!({"activeInterceptorCompleted": true}),
                _ => {
                    json!({"progressTimestamp": at.to_string(), "expectedInterceptorFinishTime": at.to_string()})
                }
            };
            let request = one(random, user, &world.requests)?;
            Some(patch(path_of(request) + "/status", json!({"status": status})))
        }
        Move::AskForEviction => request_for(random, user, world),
        Move::MaintainNodes => {
            if random.bool() {
                return Some(maintenance(random));
            }
            let spec = match random.u8(..3) {
                0 => json!({"stage": "Complete"}),
                1 => json!({"drainPlan": []}),
                _ => json!({"drainPlan": [{"podPriority": -5, "podType": "Default"}]}),
            };
            Some(patch(path_of(random.choice(&world.maintenances)?), json!({"spec": spec})))
        }
        Move::DryRun => {
            let mut call =
                if random.bool() { maintenance(random) } else { request_for(random, user, world)? };
            call.path += "?dryRun=All";
            Some(call)
        }
        Move::Delete => Some(call(Method::DELETE, path_of(any(random, user, world)?), Value::Null)),
        Move::DeleteRequests => {
            let request = one(random, user, &world.requests)?;
            let policy = random.choice(["Foreground", "Orphan", "Background"])?;
            let path = match random.u8(..3) {
                0 => format!("{REQUESTS}/namespaces/{}/evictionrequests", namespace(random, user)),
                _ => path_of(request),
            };
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "gracePeriodSeconds": 0,
            });
            Some(call(Method::DELETE, path, options))
        }
        Move::Read => read(random, user, world),
        // A stranger's.
        _ => None,
    }
}
