//! Short forms of manifests: `deployment: web` with what matters, the rest is filled in.

use super::form::{Node, Nodes};
use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value, json};

/// The label that keeps scenarios on one cluster apart: nodes have it, pods ask for it.
pub const OWN: &str = "usher.dev/scenario";

/// What a requester's finalizer begins with.
const REQUESTER: &str = "requester.evictionrequest.coordination.k8s.io/name_";

/// What the annotation begins with by which an interceptor registers on a pod.
const INTERCEPTOR: &str = "interceptor.evictionrequest.coordination.k8s.io/priority_";

const KINDS: [(&str, &str, &str); 10] = [
    ("deployment", "apps/v1", "Deployment"),
    ("replicaset", "apps/v1", "ReplicaSet"),
    ("statefulset", "apps/v1", "StatefulSet"),
    ("daemonset", "apps/v1", "DaemonSet"),
    ("job", "batch/v1", "Job"),
    ("pod", "v1", "Pod"),
    ("budget", "policy/v1", "PodDisruptionBudget"),
    ("request", "evictionrequest.coordination.k8s.io/v1alpha1", "EvictionRequest"),
    ("maintenance", "nodemaintenance.k8s.io/v1alpha1", "NodeMaintenance"),
    ("node", "v1", "Node"),
];

/// How a pod takes its time or ends, and the annotation that both clusters read.
const TIMES: [(&str, &str); 5] = [
    ("starts", "cluster-simulator.dev/start-delay"),
    ("readies", "cluster-simulator.dev/ready-delay"),
    ("exits", "cluster-simulator.dev/exit-code"),
    ("runs", "cluster-simulator.dev/run-time"),
    ("ends", "cluster-simulator.dev/terminate-delay"),
];

/// The whole manifest. What has a `kind` already is one.
///
/// # Errors
/// It is no short form, or has a field that its form does not know.
pub fn expand(object: &Value, scenario: &str) -> Result<Value> {
    let Value::Object(fields) = object else { bail!("an object is a map, not {object}") };
    let mut fields = fields.clone();
    let mut manifest =
        if fields.contains_key("kind") { object.clone() } else { long_form(&mut fields, scenario)? };
    keep_apart(&mut manifest, scenario);
    Ok(manifest)
}

fn long_form(fields: &mut Map<String, Value>, scenario: &str) -> Result<Value> {
    let known = KINDS.iter().find(|(word, ..)| fields.contains_key(*word));
    let Some((word, version, kind)) = known else {
        let words: Vec<_> = KINDS.iter().map(|(word, ..)| *word).collect();
        bail!("an object has a `kind`, or is one of {}: {}", words.join(", "), Value::Object(fields.clone()));
    };
    let name = fields.remove(*word).unwrap_or_default();
    let name = name.as_str().ok_or_else(|| anyhow!("{word}: a name is wanted"))?.to_owned();
    if *kind == "Node" {
        fields.insert("name".to_owned(), name.into());
        let node: Node = serde_json::from_value(Value::Object(std::mem::take(fields)))?;
        return Ok(self::node(&node, 0, scenario));
    }
    let mut manifest = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {}});
    match *kind {
        "PodDisruptionBudget" => {
            let selected = fields.remove("select").unwrap_or_else(|| json!({"app": name}));
            manifest["spec"]["selector"] = json!({"matchLabels": selected});
            for (short, long) in
                [("min", "minAvailable"), ("max", "maxUnavailable"), ("policy", "unhealthyPodEvictionPolicy")]
            {
                if let Some(value) = fields.remove(short) {
                    manifest["spec"][long] = value;
                }
            }
        }
        "Pod" => merge(&mut manifest, pod(fields, &name)),
        "EvictionRequest" => merge(&mut manifest, request(fields, &name)),
        "NodeMaintenance" => merge(&mut manifest, maintenance(fields, &name, scenario)?),
        _ => {
            let template = pod(fields, &name);
            if *kind == "Job" {
                manifest["spec"]["template"] = template;
                manifest["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
            } else {
                manifest["spec"]["selector"] = json!({"matchLabels": {"app": name}});
                manifest["spec"]["template"] = template;
            }
            if let Some(replicas) = fields.remove("replicas") {
                manifest["spec"]["replicas"] = replicas;
            }
            if *kind == "StatefulSet" {
                manifest["spec"]["serviceName"] = name.clone().into();
            }
        }
    }
    for part in ["spec", "metadata"] {
        if let Some(more) = fields.remove(part) {
            merge(&mut manifest[part], more);
        }
    }
    match fields.keys().next() {
        Some(unknown) => {
            bail!("{word} {name}: `{unknown}` is no field of the short form; use `spec`, `metadata` or `pod`")
        }
        None => Ok(manifest),
    }
}

/// A request for the pod of this name, `by` these requesters.
fn request(fields: &mut Map<String, Value>, pod: &str) -> Value {
    let by = fields.remove("by").unwrap_or_default();
    let by = by.as_array().into_iter().flatten().filter_map(Value::as_str);
    let finalizers: Vec<String> = by.map(|requester| format!("{REQUESTER}{requester}")).collect();
    let uid = format!("{{uid:pod/{pod}}}");
    json!({
        "metadata": {"name": uid, "finalizers": finalizers},
        "spec": {"podRef": {"name": format!("{{name:pod/{pod}}}"), "uid": uid}},
    })
}

/// A maintenance of `nodes`, or of those with the labels of `select`; always of the scenario's own only.
fn maintenance(fields: &mut Map<String, Value>, name: &str, scenario: &str) -> Result<Value> {
    let is_one_of = |key: &str, values: Vec<Value>| json!({"key": key, "operator": "In", "values": values});
    let mut wanted = vec![is_one_of(OWN, vec![scenario.into()])];
    if let Some(Value::Array(nodes)) = fields.remove("nodes") {
        let nodes = nodes.iter().filter_map(Value::as_str).map(|node| node_name(scenario, node).into());
        wanted.push(is_one_of("kubernetes.io/hostname", nodes.collect()));
    } else if let Some(Value::Object(labels)) = fields.remove("select") {
        wanted.extend(labels.into_iter().map(|(key, value)| is_one_of(&key, vec![value])));
    } else {
        bail!("maintenance {name}: it has `nodes`, a list, or `select`, labels");
    }
    let mut spec = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": wanted}]}});
    for (short, long) in [("stage", "stage"), ("plan", "drainPlan"), ("limit", "drainLimit")] {
        if let Some(value) = fields.remove(short) {
            spec[long] = value;
        }
    }
    Ok(json!({"metadata": {"name": node_name(scenario, name), "labels": {OWN: scenario}}, "spec": spec}))
}

/// What pods say in their short form, alone or in a template.
fn pod(fields: &mut Map<String, Value>, name: &str) -> Value {
    let mut pod = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": fields.remove("image").unwrap_or_else(|| "i:1".into())}]},
    });
    for (short, annotation) in TIMES {
        if let Some(time) = fields.remove(short) {
            pod["metadata"]["annotations"][annotation] = time;
        }
    }
    if let Some(Value::Object(interceptors)) = fields.remove("interceptors") {
        for (class, priority) in interceptors {
            pod["metadata"]["annotations"][format!("{INTERCEPTOR}{class}")] = priority;
        }
    }
    if let Some(cpu) = fields.remove("cpu") {
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    }
    if let Some(grace) = fields.remove("grace") {
        pod["spec"]["terminationGracePeriodSeconds"] = grace;
    }
    if let Some(labels) = fields.remove("labels") {
        merge(&mut pod["metadata"]["labels"], labels);
    }
    if let Some(more) = fields.remove("pod") {
        merge(&mut pod["spec"], more);
    }
    pod
}

/// Maps are merged, all else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Pods go to the nodes of their own scenario only.
fn keep_apart(manifest: &mut Value, scenario: &str) {
    let spec = if manifest["kind"] == "Pod" {
        Some(&mut manifest["spec"])
    } else {
        manifest.pointer_mut("/spec/template/spec")
    };
    if let Some(spec) = spec {
        spec["nodeSelector"][OWN] = scenario.into();
    }
}

/// All nodes of a scenario.
#[must_use]
pub fn nodes(nodes: &Nodes) -> Vec<Node> {
    match nodes {
        Nodes::Count(count) => {
            (1..=*count).map(|number| Node { name: format!("n{number}"), ..Node::default() }).collect()
        }
        Nodes::Each(nodes) => nodes.clone(),
    }
}

/// What a scenario's node or maintenance is called in the cluster, where others have an `n1` as well.
#[must_use]
pub fn node_name(scenario: &str, short: &str) -> String {
    format!("{scenario}-{short}")
}

/// A node that kwok plays on the testbed; its zone is its own turn where none is given.
#[must_use]
pub fn node(node: &Node, turn: usize, scenario: &str) -> Value {
    let name = node_name(scenario, &node.name);
    let size = json!({"cpu": node.cpu.unwrap_or(32).to_string(), "memory": "256Gi", "pods": "110"});
    let zone = node.zone.clone().unwrap_or_else(|| format!("zone-{}", turn % 3 + 1));
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, OWN: scenario},
        },
        "spec": {"taints": node.taints},
        "status": {"capacity": size, "allocatable": size},
    });
    merge(&mut manifest["metadata"]["labels"], Value::Object(node.labels.clone()));
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_form_becomes_the_manifest_it_stands_for() {
        let web = json!({"deployment": "web", "replicas": 2, "starts": "1s", "spec": {"minReadySeconds": 3}});
        let web = expand(&web, "s").unwrap();
        assert_eq!(
            (&web["kind"], &web["spec"]["replicas"], &web["spec"]["minReadySeconds"]),
            (&json!("Deployment"), &json!(2), &json!(3))
        );
        let template = &web["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"]["cluster-simulator.dev/start-delay"], "1s");
        assert_eq!(template["spec"]["nodeSelector"][OWN], "s");
        let budget = expand(&json!({"budget": "web", "min": "50%"}), "s").unwrap();
        assert_eq!(
            budget["spec"],
            json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"})
        );
    }

    #[test]
    fn a_request_is_for_a_pod_and_by_requesters() {
        let pod = expand(&json!({"pod": "p", "interceptors": {"a.io": "7/x"}}), "s").unwrap();
        assert_eq!(pod["metadata"]["annotations"], json!({format!("{INTERCEPTOR}a.io"): "7/x"}));
        let request = json!({"request": "p", "by": ["b.io"], "spec": {"progressDeadlineSeconds": 600}});
        let request = expand(&request, "s").unwrap();
        assert_eq!(
            request["metadata"],
            json!({"name": "{uid:pod/p}", "finalizers": [format!("{REQUESTER}b.io")]})
        );
        assert_eq!(
            request["spec"],
            json!({"podRef": {"name": "{name:pod/p}", "uid": "{uid:pod/p}"}, "progressDeadlineSeconds": 600})
        );
    }

    #[test]
    fn a_maintenance_is_of_the_nodes_of_its_scenario_only() {
        let plan = json!([{"podPriority": 5, "podType": "Default"}]);
        let of_nodes =
            json!({"maintenance": "maintenance-a", "nodes": ["n1"], "stage": "Drain", "plan": plan});
        let of_nodes = expand(&of_nodes, "s").unwrap();
        assert_eq!(of_nodes["metadata"], json!({"name": "s-maintenance-a", "labels": {OWN: "s"}}));
        assert_eq!((&of_nodes["spec"]["stage"], &of_nodes["spec"]["drainPlan"]), (&json!("Drain"), &plan));
        let wanted = |maintenance: &Value| {
            let term = &maintenance["spec"]["nodeSelector"]["nodeSelectorTerms"][0];
            term["matchExpressions"].clone()
        };
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        assert_eq!(wanted(&of_nodes), json!([is(OWN, "s"), is("kubernetes.io/hostname", "s-n1")]));
        let by_label = json!({"maintenance": "maintenance-a", "select": {"pool": "blue"}});
        assert_eq!(wanted(&expand(&by_label, "s").unwrap()), json!([is(OWN, "s"), is("pool", "blue")]));
    }

    #[test]
    fn what_is_no_form_is_told() {
        let why = |object| expand(&object, "s").unwrap_err().to_string();
        assert!(why(json!({"deploy": "web"})).contains("one of deployment, replicaset"));
        assert!(why(json!({"pod": "a", "replicas": 2})).contains("`replicas` is no field"));
        assert!(why(json!({"maintenance": "maintenance-a"})).contains("`nodes`, a list, or `select`"));
    }
}
