//! Defaults that depend on other fields.

use serde_json::{Map, Value, json};

use super::image::is_latest;

type Fields = Map<String, Value>;

/// Applies the rules of the definition, if it has any. Whether something may have changed.
pub(super) fn apply(fields: &mut Fields, definition: &str) -> bool {
    match definition {
        "io.k8s.api.core.v1.Pod" => pod(fields),
        "io.k8s.api.core.v1.PodSpec" => pod_spec(fields),
        "io.k8s.api.core.v1.PodStatus" => return pod_addresses(fields),
        "io.k8s.api.core.v1.NodeSpec" => pod_ranges(fields),
        "io.k8s.api.core.v1.Container" | "io.k8s.api.core.v1.EphemeralContainer" => {
            pull_policy(fields, "image", "imagePullPolicy");
        }
        "io.k8s.api.core.v1.ImageVolumeSource" => pull_policy(fields, "reference", "pullPolicy"),
        "io.k8s.api.core.v1.Volume" => volume(fields),
        "io.k8s.api.core.v1.ServiceSpec" => service(fields),
        "io.k8s.api.core.v1.ServicePort" => target_port(fields),
        "io.k8s.api.core.v1.Namespace" => namespace(fields),
        "io.k8s.api.core.v1.NodeStatus" if !fields.contains_key("allocatable") => {
            copy(fields, "capacity", "allocatable");
        }
        "io.k8s.api.core.v1.LimitRangeItem" => limit_range(fields),
        "io.k8s.api.core.v1.ReplicationController" => replication_controller(fields),
        "io.k8s.api.apps.v1.DeploymentStrategy" => {
            rolling_update(fields, &[("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())]);
        }
        "io.k8s.api.apps.v1.DaemonSetUpdateStrategy" => {
            rolling_update(fields, &[("maxUnavailable", 1.into()), ("maxSurge", 0.into())]);
        }
        "io.k8s.api.apps.v1.StatefulSetSpec" => {
            for claim in list(fields, "volumeClaimTemplates") {
                set(claim, "apiVersion", "v1".into());
                set(claim, "kind", "PersistentVolumeClaim".into());
            }
        }
        "io.k8s.api.apps.v1.StatefulSetUpdateStrategy" => stateful_set_strategy(fields),
        "io.k8s.api.batch.v1.Job" => job(fields),
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec" => autoscaler(fields),
        "io.k8s.api.networking.v1.NetworkPolicySpec" => network_policy(fields),
        "io.k8s.api.rbac.v1.Subject" => subject(fields),
        "io.k8s.api.admissionregistration.v1.MutatingWebhook" => {
            set(fields, "reinvocationPolicy", "Never".into());
        }
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" => {
            custom_resource(fields);
        }
        _ => return false,
    }
    true
}

/// Sets a field that is absent.
fn set(fields: &mut Fields, name: &str, value: Value) {
    if matches!(fields.get(name), None | Some(Value::Null)) {
        fields.insert(name.to_string(), value);
    }
}

fn copy(fields: &mut Fields, from: &str, to: &str) {
    if let Some(value) = fields.get(from).cloned() {
        fields.insert(to.to_string(), value);
    }
}

fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn object<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    fields.get_mut(name)?.as_object_mut()
}

fn list<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Requests follow limits, and on the host's network the ports are the host's. Only pods do this: a template
/// stays as it was written.
fn pod(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else { return };
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for containers in ["containers", "initContainers"] {
        for container in list(spec, containers) {
            if let Some(resources) = object(container, "resources")
                && let Some(Value::Object(limits)) = resources.get("limits").cloned()
            {
                set(resources, "requests", json!({}));
                let Some(requests) = object(resources, "requests") else { continue };
                limits.into_iter().for_each(|(name, limit)| set(requests, &name, limit));
            }
            if host_network {
                for port in list(container, "ports") {
                    if port.get("hostPort").is_none_or(|p| *p == 0) {
                        copy(port, "containerPort", "hostPort");
                    }
                }
            }
        }
    }
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".to_string(), 1.into());
    }
    set(spec, "enableServiceLinks", true.into());
}

/// The old name of the service account follows the new one.
fn pod_spec(fields: &mut Fields) {
    if text(fields, "serviceAccountName").is_empty() {
        copy(fields, "serviceAccount", "serviceAccountName");
    }
    if !text(fields, "serviceAccountName").is_empty() {
        copy(fields, "serviceAccountName", "serviceAccount");
    }
}

/// The one address is the first of the list, and where they differ the one counts.
fn pod_addresses(fields: &mut Fields) -> bool {
    let ip = text(fields, "podIP").to_string();
    let first = fields.get("podIPs").and_then(|ips| ips[0]["ip"].as_str()).map(str::to_string);
    match first {
        Some(first) if ip.is_empty() => fields.insert("podIP".to_string(), first.into()),
        Some(first) if first == ip => return false,
        _ if ip.is_empty() => return false,
        _ => fields.insert("podIPs".to_string(), json!([{"ip": ip}])),
    };
    true
}

/// The same of a node's ranges of pod addresses.
fn pod_ranges(fields: &mut Fields) {
    let range = text(fields, "podCIDR").to_string();
    let first = fields.get("podCIDRs").and_then(|ranges| ranges[0].as_str()).map(str::to_string);
    match first {
        Some(first) if range.is_empty() => fields.insert("podCIDR".to_string(), first.into()),
        Some(first) if first == range => None,
        _ if range.is_empty() => None,
        _ => fields.insert("podCIDRs".to_string(), json!([range])),
    };
}

fn pull_policy(fields: &mut Fields, image: &str, policy: &str) {
    if text(fields, policy).is_empty() {
        let default = if is_latest(text(fields, image)) { "Always" } else { "IfNotPresent" };
        fields.insert(policy.to_string(), default.into());
    }
}

/// A volume of no kind is an empty directory.
fn volume(fields: &mut Fields) {
    if fields.keys().all(|name| name == "name") {
        fields.insert("emptyDir".to_string(), json!({}));
    }
}

fn service(fields: &mut Fields) {
    match text(fields, "sessionAffinity") {
        "None" => {
            fields.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = fields.get("sessionAffinityConfig").map(|c| &c["clientIP"]["timeoutSeconds"]);
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                fields.insert("sessionAffinityConfig".to_string(), config);
            }
        }
        _ => {}
    }
    let kind = text(fields, "type").to_string();
    let external_ips = fields.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let external =
        matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_ips);
    if external {
        set(fields, "externalTrafficPolicy", "Cluster".into());
    }
    if kind != "ExternalName" {
        set(fields, "internalTrafficPolicy", "Cluster".into());
    }
    if kind == "LoadBalancer" {
        set(fields, "allocateLoadBalancerNodePorts", true.into());
    }
}

fn target_port(fields: &mut Fields) {
    if fields.get("targetPort").is_none_or(|port| port.is_null() || *port == 0 || *port == "") {
        copy(fields, "port", "targetPort");
    }
}

/// A namespace can be selected by its name.
fn namespace(fields: &mut Fields) {
    let Some(metadata) = object(fields, "metadata") else { return };
    let name = text(metadata, "name").to_string();
    if !name.is_empty() {
        set(metadata, "labels", json!({}));
        if let Some(labels) = object(metadata, "labels") {
            labels.insert("kubernetes.io/metadata.name".to_string(), name.into());
        }
    }
}

fn limit_range(fields: &mut Fields) {
    if text(fields, "type") != "Container" {
        return;
    }
    for (to, sources) in [("default", &["max"][..]), ("defaultRequest", &["default", "min"][..])] {
        set(fields, to, json!({}));
        for source in sources {
            let Some(Value::Object(values)) = fields.get(*source).cloned() else { continue };
            let Some(target) = object(fields, to) else { continue };
            values.into_iter().for_each(|(name, value)| set(target, &name, value));
        }
    }
}

fn template_labels(fields: &Fields) -> Option<Value> {
    fields.get("spec")?.get("template")?.get("metadata")?.get("labels").filter(|l| l.is_object()).cloned()
}

/// An object without labels takes those of its pods.
fn labels_from_template(fields: &mut Fields, labels: Value) {
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
        metadata["labels"] = labels;
    }
}

fn replication_controller(fields: &mut Fields) {
    let Some(labels) = template_labels(fields) else { return };
    if let Some(spec) = object(fields, "spec")
        && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        spec.insert("selector".to_string(), labels.clone());
    }
    labels_from_template(fields, labels);
}

fn rolling_update(fields: &mut Fields, defaults: &[(&str, Value)]) {
    if text(fields, "type") != "RollingUpdate" {
        return;
    }
    set(fields, "rollingUpdate", json!({}));
    if let Some(rolling) = object(fields, "rollingUpdate") {
        defaults.iter().for_each(|(name, value)| set(rolling, name, value.clone()));
    }
}

/// The parameters are only made up where the strategy itself was left out.
fn stateful_set_strategy(fields: &mut Fields) {
    if text(fields, "type").is_empty() {
        fields.insert("type".to_string(), "RollingUpdate".into());
        set(fields, "rollingUpdate", json!({}));
    }
    if text(fields, "type") == "RollingUpdate"
        && let Some(rolling) = object(fields, "rollingUpdate")
    {
        set(rolling, "partition", 0.into());
        set(rolling, "maxUnavailable", 1.into());
    }
}

fn job(fields: &mut Fields) {
    if let Some(labels) = template_labels(fields) {
        labels_from_template(fields, labels);
    }
    let Some(spec) = object(fields, "spec") else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.insert("completions".to_string(), 1.into());
    }
    set(spec, "parallelism", 1.into());
    let per_index = spec.contains_key("backoffLimitPerIndex");
    set(spec, "backoffLimit", if per_index { i32::MAX } else { 6 }.into());
    set(spec, "completionMode", "NonIndexed".into());
    set(spec, "suspend", false.into());
    let failure_policy = spec.contains_key("podFailurePolicy");
    let replacement = if failure_policy { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", replacement.into());
    set(spec, "manualSelector", false.into());
}

fn autoscaler(fields: &mut Fields) {
    if fields.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        fields.insert("metrics".to_string(), json!([metric]));
    }
    let Some(behavior) = object(fields, "behavior") else { return };
    set(behavior, "scaleUp", json!({}));
    set(behavior, "scaleDown", json!({}));
    if let Some(up) = object(behavior, "scaleUp") {
        set(up, "stabilizationWindowSeconds", 0.into());
        set(up, "selectPolicy", "Max".into());
        set(
            up,
            "policies",
            json!([
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ]),
        );
    }
    if let Some(down) = object(behavior, "scaleDown") {
        set(down, "selectPolicy", "Max".into());
        set(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn network_policy(fields: &mut Fields) {
    if fields.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let egress = fields.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        fields.insert("policyTypes".to_string(), types);
    }
}

fn subject(fields: &mut Fields) {
    if matches!(text(fields, "kind"), "User" | "Group") && text(fields, "apiGroup").is_empty() {
        fields.insert("apiGroup".to_string(), "rbac.authorization.k8s.io".into());
    }
}

fn custom_resource(fields: &mut Fields) {
    let Some(spec) = object(fields, "spec") else { return };
    set(spec, "conversion", json!({"strategy": "None"}));
    let stored: Vec<Value> = spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .take(1)
        .collect();
    if let Some(names) = object(spec, "names") {
        let kind = text(names, "kind").to_string();
        if text(names, "singular").is_empty() {
            names.insert("singular".to_string(), kind.to_lowercase().into());
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names.insert("listKind".to_string(), format!("{kind}List").into());
        }
    }
    if let Some(status) = object(fields, "status")
        && status.get("storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && !stored.is_empty()
    {
        status.insert("storedVersions".to_string(), stored.into());
    }
}
