//! Whatever stands in the strings of objects, and whatever the server says: the terminal of the person who reads it only prints.
//!
//! A server that is only data puts hostile text into each string field of each kind in turn, and into all at once, more than the API
//! server would ever let through. Each command is run on it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;
use usher_cli::Environment;
use usher_tests::typed::usher;

/// Moves the cursor, sets the title, breaks lines, and turns the order of letters around.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[1m\r\nWhat to do    rm\t\u{8}\u{7f}\u{85}\u{9b}31m\u{202e}b\u{2066}\u{2028}\0z";

const COMMANDS: [&str; 22] = [
    "maintenance list",
    "maintenance list -o wide",
    "maintenance list -o name",
    "maintenance list -o json",
    "maintenance list -o yaml",
    "maintenance describe m",
    "maintenance describe m -o yaml",
    "maintenance drain m --dry-run",
    "maintenance complete m --timeout 1s",
    "requests -A",
    "requests -A -o wide",
    "requests -A -o json",
    "requests -A -o yaml",
    "explain web",
    "explain web -o json",
    "explain node/n1",
    "explain node/n1 -o yaml",
    "drain n1 --dry-run --force",
    "drain n1 --force --delete-emptydir-data --timeout 1s",
    "evict web --wait --timeout 1s",
    "cancel web",
    "uncordon n1",
];

/// The kinds, by the path of their list.
fn objects() -> Vec<(&'static str, Value)> {
    let managed = json!([{"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T11:00:00Z", "fieldsV1": {"f:spec": {"f:unschedulable": {}}, "f:status": {"f:progressTimestamp": {}}}}]);
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": "Because", "message": "told", "lastTransitionTime": "2026-01-01T11:00:00Z"});
    let entry = json!({"podPriority": 1000, "podType": "Default", "podSelector": {"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}});
    vec![
        (
            "/api/v1/nodes",
            json!({
                "metadata": {"name": "n1", "uid": "nu", "resourceVersion": "1", "creationTimestamp": "2026-01-01T10:00:00Z",
                    "labels": {"pool": "blue"}, "annotations": {"nodemaintenance.k8s.io/held-by": "m"}, "managedFields": managed},
                "spec": {"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [condition("Ready")]},
            }),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({
                "metadata": {"name": "web", "namespace": "default", "uid": "pu", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T10:00:00Z", "labels": {"app": "web"}, "managedFields": managed,
                    "annotations": {"interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com": "100/backup"},
                    "finalizers": ["example.com/hold"],
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "ru", "controller": true}]},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                    "nodeSelector": {"pool": "blue"}, "volumes": [{"name": "v", "emptyDir": {}}],
                    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]},
                "status": {"phase": "Running", "message": "m", "reason": "r", "conditions": [condition("Ready")]},
            }),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({
                "metadata": {"name": "b", "namespace": "default", "uid": "bu", "resourceVersion": "1", "managedFields": managed},
                "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                    "conditions": [condition("DisruptionAllowed")]},
            }),
        ),
        (
            "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests",
            json!({
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": "pu", "namespace": "default", "uid": "eu", "resourceVersion": "1",
                    "creationTimestamp": "2026-01-01T11:00:00Z", "managedFields": managed,
                    "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_admin.usher.dev",
                        "requester.evictionrequest.coordination.k8s.io/name_other.example.com"]},
                "spec": {"podRef": {"name": "web", "uid": "pu"}, "progressDeadlineSeconds": 1800,
                    "interceptors": [{"interceptorClass": "db.example.com", "priority": 100, "role": "backup"}]},
                "status": {"activeInterceptorClass": "db.example.com", "message": "half done", "progressTimestamp": "2026-01-01T11:30:00Z",
                    "expectedInterceptorFinishTime": "2026-01-01T13:00:00Z", "conditions": [condition("Blocked")]},
            }),
        ),
        (
            "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances",
            json!({
                "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
                "metadata": {"name": "m", "uid": "mu", "resourceVersion": "1", "creationTimestamp": "2026-01-01T11:00:00Z",
                    "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"], "managedFields": managed},
                "spec": {"stage": "Drain", "reason": "new disks", "drainPlan": [entry.clone()],
                    "drainLimit": {"maxNodes": 1, "topologyKey": "zone"},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["blue"]}]}]}},
                "status": {"nodes": 1, "stageStatuses": [{"name": "Drain", "startTimestamp": "2026-01-01T11:00:00Z"}],
                    "drainStatus": {"drainMessage": "waits", "reachedDrainTargets": [entry.clone()], "podsEvicting": 1},
                    "nodeStatuses": [{"nodeRef": {"name": "n1"}, "drainTargets": [entry], "drainMessage": "waits", "podsEvicting": 1}],
                    "conditions": [condition("Drained")]},
            }),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({
                "metadata": {"name": "e", "namespace": "default", "uid": "vu"}, "type": "Warning", "reason": "Blocked", "message": "told",
                "involvedObject": {"kind": "EvictionRequest", "name": "pu", "uid": "eu"}, "reportingComponent": "usher",
                "reportingInstance": "usher-1", "action": "Evict", "eventTime": "2026-01-01T11:30:00.000000Z",
                "source": {"component": "usher", "host": "n1"},
            }),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/usher-system/leases",
            json!({
                "metadata": {"name": "usher-manager", "namespace": "usher-system", "uid": "lu"},
                "spec": {"holderIdentity": "usher-1", "renewTime": "2026-01-01T11:00:00.000000Z"},
            }),
        ),
    ]
}

/// The paths of all strings in an object.
fn strings(value: &Value, path: &str, into: &mut Vec<String>) {
    let below = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::String(_) => into.push(path.to_string()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(at, one)| strings(one, &below(&at.to_string()), into))
        }
        Value::Object(fields) => fields.iter().for_each(|(name, one)| strings(one, &below(name), into)),
        _ => {}
    }
}

/// Where lists of this kind are without a namespace, and its objects with one.
fn is_at(path: &str, list: &str) -> bool {
    let (group, plural) = (list.split("/namespaces/").next().unwrap(), list.rsplit('/').next().unwrap());
    let rest = path.strip_prefix(group).unwrap_or_default();
    let mut parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    list == path || parts.first() == Some(&plural)
}

fn answer(
    objects: &[(&'static str, Value)],
    method: &Method,
    path: &str,
    query: &str,
) -> (StatusCode, Option<Value>) {
    let Some((list, object)) = objects.iter().find(|(list, _)| is_at(path, list)) else {
        let status = json!({"kind": "Status", "code": 404, "reason": HOSTILE, "message": HOSTILE, "details": {"name": HOSTILE}});
        return (StatusCode::NOT_FOUND, Some(status));
    };
    if query.contains("watch=true") {
        return (StatusCode::OK, None);
    }
    let plural = list.rsplit('/').next().unwrap();
    let is_list = path.ends_with(plural);
    match *method {
        // A request of the same name is there already.
        Method::POST if list.ends_with("evictionrequests") => {
            let status =
                json!({"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": HOSTILE});
            (StatusCode::CONFLICT, Some(status))
        }
        Method::POST => {
            let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": HOSTILE});
            (StatusCode::FORBIDDEN, Some(status))
        }
        Method::GET if is_list => {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": [object]});
            (StatusCode::OK, Some(list))
        }
        _ => (StatusCode::OK, Some(object.clone())),
    }
}

/// A cluster that is only these objects.
fn cluster(objects: Vec<(&'static str, Value)>) -> Client {
    let objects = Arc::new(objects);
    let service = service_fn(move |request: http::Request<Body>| {
        let objects = objects.clone();
        async move {
            let (method, path) = (request.method(), request.uri().path());
            let (code, body) = answer(&objects, method, path, request.uri().query().unwrap_or_default());
            let body = match body {
                Some(body) => Full::new(Bytes::from(serde_json::to_vec(&body).unwrap())).boxed_unsync(),
                // Nothing happens to what is watched.
                None => StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>())
                    .boxed_unsync(),
            };
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

/// Nothing but text, line breaks, and colours if they are wanted.
fn is_harmless(text: &str, colours: bool) -> bool {
    let text = match colours {
        true => ["\u{1b}[1m", "\u{1b}[33m", "\u{1b}[0m"]
            .iter()
            .fold(text.to_string(), |text, ours| text.replace(ours, "")),
        false => text.to_string(),
    };
    let is_bidi =
        |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    !text.contains(|c: char| c != '\n' && (c.is_control() || is_bidi(c)))
}

/// How many texts show it, escaped.
async fn run(objects: Vec<(&'static str, Value)>, colours: &[bool], what: &str) -> usize {
    let mut shown = 0;
    for &colours in colours {
        let clock = Arc::new(|| "2026-01-01T12:00:00Z".parse().unwrap());
        let cluster = Some(cluster(objects.clone()));
        let environment = Environment { colours, clock, cluster, ..Environment::plain() };
        for command in COMMANDS {
            let printed = usher(command, &environment).await.unwrap();
            let error = printed.error();
            for text in [&printed.out, &printed.err, &error] {
                assert!(is_harmless(text, colours), "{what}, {command}: {text:?}");
                // A line that others began would pass for one of ours.
                assert!(!text.contains("\nWhat to do    rm"), "{what}, {command}: {text}");
                shown += usize::from(text.contains("^[[2J"));
            }
            if command.ends_with("json") && printed.ending.is_ok() {
                serde_json::from_str::<Value>(&printed.out)
                    .unwrap_or_else(|why| panic!("{what}, {command}: {why}"));
            }
        }
    }
    shown
}

#[tokio::test(start_paused = true)]
async fn the_strings_of_no_object_reach_the_terminal_raw() {
    let base = objects();
    assert_eq!(run(base.clone(), &[false, true], "as they are").await, 0);
    let (mut fields, mut shown) = (0, 0);
    for (at, (list, object)) in base.iter().enumerate() {
        let mut paths = Vec::new();
        strings(object, "", &mut paths);
        for path in &paths {
            let mut hostile = base.clone();
            *hostile[at].1.pointer_mut(path).unwrap() = HOSTILE.into();
            fields += 1;
            let seen = run(hostile, &[fields % 2 == 0], &format!("{list}: {path}")).await;
            shown += usize::from(seen > 0);
        }
    }
    assert!(fields > 100, "{fields} fields were tried");
    // Those that are not shown as text are labels, kinds and the like.
    assert!(shown > 25, "{shown} of {fields} fields are shown, escaped");
}

#[tokio::test(start_paused = true)]
async fn what_is_printed_as_json_or_yaml_is_exact_and_harmless() {
    let mut objects = objects();
    objects[4].1["spec"]["reason"] = HOSTILE.into();
    objects[3].1["status"]["message"] = HOSTILE.into();
    let environment = Environment { cluster: Some(cluster(objects.clone())), ..Environment::plain() };
    for (command, at) in [("maintenance list", 4), ("requests", 3)] {
        let json = usher(&format!("{command} -o json"), &environment).await.unwrap();
        let read: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(read["items"][0], objects[at].1);
        let yaml = usher(&format!("{command} -o yaml"), &environment).await.unwrap();
        assert!(is_harmless(&yaml.out, false), "{}", yaml.out);
        let read: Value = serde_saphyr::from_str(&yaml.out).unwrap();
        assert_eq!(read["items"][0], objects[at].1);
    }
    let explained = usher("explain web -o json", &environment).await.unwrap();
    let read: Value = serde_json::from_str(&explained.out).unwrap();
    assert_eq!(read["request"]["message"], HOSTILE, "{}", explained.out);
}
