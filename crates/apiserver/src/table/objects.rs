//! Rows of the other kinds: nodes, services, configuration, policies, access.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::age::{age, since};
use super::cells::{
    condition, first_three, int, labels, list, name, scalar, selector_or_none, text, text_or,
};

pub(crate) fn name_and_creation(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["metadata"]["creationTimestamp"]).into()]
}

pub(crate) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

pub(crate) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(object, "Ready") {
        Some("True") => "Ready".to_string(),
        Some(_) => "NotReady".to_string(),
        None => "Unknown".to_string(),
    };
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = &object["status"]["nodeInfo"];
    let address = |ty: &str| -> Value {
        let found = list(&object["status"]["addresses"]).iter().find(|a| a["type"] == ty);
        found.map_or("<none>", |a| text(&a["address"])).into()
    };
    let architecture = text(&info["architecture"]);
    let mut kernel = text_or(&info["kernelVersion"], "<unknown>").to_string();
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    vec![
        name(object),
        status.into(),
        node_roles(object).into(),
        age(object, now),
        text(&info["kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(&info["osImage"], "<unknown>").into(),
        kernel.into(),
        text_or(&info["containerRuntimeVersion"], "<unknown>").into(),
    ]
}

fn node_roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role);
        } else if key == "kubernetes.io/role" {
            roles.insert(text(value));
        }
    }
    roles.remove("");
    if roles.is_empty() { "<none>".to_string() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

pub(crate) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["status"]["phase"]).into(), age(object, now)]
}

pub(crate) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let ports: Vec<String> = list(&spec["ports"])
        .iter()
        .map(|port| {
            let protocol = text_or(&port["protocol"], "TCP");
            match int(&port["nodePort"]) {
                0 => format!("{}/{protocol}", int(&port["port"])),
                node_port => format!("{}:{node_port}/{protocol}", int(&port["port"])),
            }
        })
        .collect();
    let cluster_ip = match list(&spec["clusterIPs"]).first() {
        Some(ip) => text(ip),
        None => text_or(&spec["clusterIP"], "<none>"),
    };
    vec![
        name(object),
        text_or(&spec["type"], "ClusterIP").into(),
        cluster_ip.into(),
        external_ip(object).into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        age(object, now),
        labels(&spec["selector"]).into(),
    ]
}

fn external_ip(service: &Value) -> String {
    let external: Vec<&str> = list(&service["spec"]["externalIPs"]).iter().map(text).collect();
    match text_or(&service["spec"]["type"], "ClusterIP") {
        "ExternalName" => text(&service["spec"]["externalName"]).to_string(),
        "LoadBalancer" => {
            let balanced = load_balancer(service);
            let all: Vec<&str> = balanced.iter().map(String::as_str).chain(external).collect();
            if all.is_empty() { "<pending>".to_string() } else { all.join(",") }
        }
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_string(),
        "ClusterIP" | "NodePort" => external.join(","),
        _ => "<unknown>".to_string(),
    }
}

fn load_balancer(object: &Value) -> BTreeSet<String> {
    list(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|entry| text_or(&entry["ip"], text(&entry["hostname"])).to_string())
        .filter(|address| !address.is_empty())
        .collect()
}

pub(crate) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let hosts: Vec<String> =
        list(&spec["rules"]).iter().map(|r| text(&r["host"]).to_string()).filter(|h| !h.is_empty()).collect();
    let hosts: Value = if hosts.is_empty() { "*".into() } else { first_three(&hosts) };
    let addresses: Vec<String> = load_balancer(object).into_iter().collect();
    vec![
        name(object),
        text_or(&spec["ingressClassName"], "<none>").into(),
        hosts,
        addresses.join(",").into(),
        if list(&spec["tls"]).is_empty() { "80".into() } else { "80, 443".into() },
        age(object, now),
    ]
}

pub(crate) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(&object["ports"])
        .iter()
        .map(|port| match port["port"].as_i64() {
            Some(number) => number.to_string(),
            None => text_or(&port["name"], "*").to_string(),
        })
        .collect();
    let endpoints: Vec<String> = list(&object["endpoints"])
        .iter()
        .flat_map(|e| list(&e["addresses"]))
        .map(|address| text(address).to_string())
        .collect();
    vec![
        name(object),
        text(&object["addressType"]).into(),
        first_three(&ports),
        first_three(&endpoints),
        age(object, now),
    ]
}

/// Core and `events.k8s.io` events, which differ in the names of their fields.
pub(crate) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |a: &'static str, b: &'static str| if object[a].is_null() { &object[b] } else { &object[a] };
    let mut first = since(either("firstTimestamp", "deprecatedFirstTimestamp"), now);
    if first == "<unknown>" {
        first = since(&object["eventTime"], now);
    }
    let mut last = since(either("lastTimestamp", "deprecatedLastTimestamp"), now);
    if last == "<unknown>" {
        last.clone_from(&first);
    }
    let mut count = int(either("count", "deprecatedCount")).max(1);
    let series = &object["series"];
    if series.is_object() {
        last = since(&series["lastObservedTime"], now);
        count = int(&series["count"]);
    }
    let about = either("involvedObject", "regarding");
    let kind = text(&about["kind"]).to_lowercase();
    let target = match text(&about["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("source", "deprecatedSource");
    let reporter = text_or(&object["reportingComponent"], text(&object["reportingController"]));
    let component = text_or(&source["component"], reporter);
    let instance = text_or(&source["host"], text(&object["reportingInstance"]));
    let source = if instance.is_empty() { component.to_string() } else { format!("{component}, {instance}") };
    vec![
        last.into(),
        text(&object["type"]).into(),
        text(&object["reason"]).into(),
        target.into(),
        text(&about["fieldPath"]).into(),
        source.into(),
        text(either("message", "note")).trim().into(),
        first.into(),
        count.into(),
        name(object),
    ]
}

pub(crate) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let size = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    vec![name(object), (size("data") + size("binaryData")).into(), age(object, now)]
}

pub(crate) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let size = object["data"].as_object().map_or(0, serde_json::Map::len);
    vec![name(object), text(&object["type"]).into(), size.into(), age(object, now)]
}

fn access_modes(modes: &Value) -> Value {
    let short: Vec<&str> = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
        .into_iter()
        .zip(["RWO", "ROX", "RWX", "RWOP"])
        .filter(|(mode, _)| list(modes).iter().any(|m| m == mode))
        .map(|(_, short)| short)
        .collect();
    short.join(",").into()
}

/// The phase of a volume or claim that is not being deleted.
fn volume_phase(object: &Value) -> Value {
    match object["metadata"]["deletionTimestamp"].is_string() {
        true => "Terminating".into(),
        false => text(&object["status"]["phase"]).into(),
    }
}

pub(crate) fn persistent_volume_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let volume = text(&spec["volumeName"]);
    let bound = !volume.is_empty();
    let storage = &status["capacity"]["storage"];
    vec![
        name(object),
        volume_phase(object),
        volume.into(),
        match (bound, storage) {
            (false, _) => "".into(),
            (true, Value::Null) => "0".into(),
            (true, storage) => scalar(storage).into(),
        },
        if bound { access_modes(&status["accessModes"]) } else { "".into() },
        text(&spec["storageClassName"]).into(),
        text_or(&spec["volumeAttributesClassName"], "<unset>").into(),
        age(object, now),
        text_or(&spec["volumeMode"], "<unset>").into(),
    ]
}

pub(crate) fn persistent_volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    };
    let capacity = &spec["capacity"]["storage"];
    vec![
        name(object),
        if capacity.is_null() { "0".into() } else { scalar(capacity).into() },
        access_modes(&spec["accessModes"]),
        text(&spec["persistentVolumeReclaimPolicy"]).into(),
        volume_phase(object),
        claim.into(),
        text(&spec["storageClassName"]).into(),
        text_or(&spec["volumeAttributesClassName"], "<unset>").into(),
        text(&object["status"]["reason"]).into(),
        age(object, now),
        text_or(&spec["volumeMode"], "<unset>").into(),
    ]
}

pub(crate) fn pod_disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |field: &str| -> Value {
        match &object["spec"][field] {
            Value::Null => "N/A".into(),
            value => scalar(value).into(),
        }
    };
    vec![
        name(object),
        bound("minAvailable"),
        bound("maxUnavailable"),
        int(&object["status"]["disruptionsAllowed"]).into(),
        age(object, now),
    ]
}

pub(crate) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(&object["spec"]["holderIdentity"]).into(), age(object, now)]
}

/// Addresses with their ports, subset by subset.
pub(crate) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(&object["subsets"]) {
        let addresses = || list(&subset["addresses"]).iter().map(|address| text(&address["ip"]));
        let ports = list(&subset["ports"]);
        if ports.is_empty() {
            all.extend(addresses().map(String::from));
        }
        for port in ports {
            all.extend(addresses().map(|address| format!("{address}:{}", int(&port["port"]))));
        }
    }
    vec![name(object), first_three(&all), age(object, now)]
}

pub(crate) fn pod_template(object: &Value, _now: Timestamp) -> Vec<Value> {
    let template = &object["template"];
    let [containers, images] = super::cells::containers(&template["spec"]);
    vec![name(object), containers, images, super::cells::labels(&template["metadata"]["labels"]).into()]
}

pub(crate) fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text(&object["provisioner"]).into(),
        text_or(&object["reclaimPolicy"], "Delete").into(),
        text_or(&object["volumeBindingMode"], "Immediate").into(),
        (object["allowVolumeExpansion"] == true).into(),
        age(object, now),
    ]
}

pub(crate) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        int(&object["value"]).into(),
        (object["globalDefault"] == true).into(),
        age(object, now),
        text(&object["preemptionPolicy"]).into(),
    ]
}

pub(crate) fn role_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = &object["roleRef"];
    let subjects = |kind: &str| -> Value {
        let all: Vec<String> = list(&object["subjects"])
            .iter()
            .filter(|s| s["kind"] == kind)
            .map(|s| match text(&s["namespace"]) {
                namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                    format!("{namespace}/{}", text(&s["name"]))
                }
                _ => text(&s["name"]).to_string(),
            })
            .collect();
        all.join(", ").into()
    };
    vec![
        name(object),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(crate) fn webhook_configuration(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), list(&object["webhooks"]).len().into(), age(object, now)]
}

pub(crate) fn validating_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    admission_policy(object, "validations", now)
}

pub(crate) fn mutating_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    admission_policy(object, "mutations", now)
}

fn admission_policy(object: &Value, what: &str, now: Timestamp) -> Vec<Value> {
    let kind = &object["spec"]["paramKind"];
    let kind = match kind.is_object() {
        true => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])),
        false => "<unset>".to_string(),
    };
    vec![name(object), list(&object["spec"][what]).len().into(), kind.into(), age(object, now)]
}

pub(crate) fn policy_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = &object["spec"]["paramRef"];
    let shown = match (text(&reference["namespace"]), text(&reference["name"])) {
        _ if !reference.is_object() => "<unset>".to_string(),
        (_, "") => selector_or_none(&reference["selector"]).as_str().unwrap_or_default().to_string(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![name(object), text(&object["spec"]["policyName"]).into(), shown.into(), age(object, now)]
}

pub(crate) fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), selector_or_none(&object["spec"]["podSelector"]), age(object, now)]
}

pub(crate) fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in status["hard"].as_object().into_iter().flatten() {
        let used = match &status["used"][resource] {
            Value::Null => "0".to_string(),
            used => scalar(used),
        };
        let entry = format!("{resource}: {used}/{}", scalar(hard));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
}

pub(crate) fn custom_resource_definition(object: &Value, _now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let versions: Vec<String> = list(&spec["versions"])
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let mark = if version["storage"] == true { "(storage)" } else { "" };
            format!("{}{mark}", text(&version["name"]))
        })
        .collect();
    let short_names: Vec<&str> = list(&spec["names"]["shortNames"]).iter().map(text).collect();
    vec![
        name(object),
        text(&spec["scope"]).into(),
        versions.join(",").into(),
        text(&object["metadata"]["creationTimestamp"]).into(),
        text(&spec["group"]).into(),
        text(&spec["names"]["kind"]).into(),
        short_names.join(",").into(),
        crate::crd::is_established(object).into(),
    ]
}
