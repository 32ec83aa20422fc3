//! Rules of pod specs, in pods and in the templates of workloads.

use serde_json::Value;

use super::fields::{int_at, list_at, str_at};
use super::{NEGATIVE, Quantity, metadata, names, nodes};
use crate::error::FieldError;

/// The template of a workload.
pub(crate) fn template(template: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = metadata::labels(&template["metadata"]["labels"], &format!("{path}.labels"));
    errors
        .extend(metadata::annotations(&template["metadata"]["annotations"], &format!("{path}.annotations")));
    errors.extend(spec(&template["spec"], &format!("{path}.spec")));
    errors
}

pub(crate) fn spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = volumes(spec, path, &mut errors);
    let containers = list_at(spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let here = format!("{path}.containers[{index}]");
        self::container(container, &volumes, &mut seen, &here, &mut errors);
    }
    for (index, container) in list_at(spec, "initContainers").iter().enumerate() {
        let here = format!("{path}.initContainers[{index}]");
        self::container(container, &volumes, &mut seen, &here, &mut errors);
        if let Some(policy) = container["restartPolicy"].as_str()
            && !matches!(policy, "Always" | "OnFailure" | "Never")
        {
            let here = format!("{here}.restartPolicy");
            errors.push(FieldError::not_supported(here, policy, &["Always", "Never", "OnFailure"]));
        }
    }
    if let Some(policy) = spec["restartPolicy"].as_str()
        && !matches!(policy, "Always" | "OnFailure" | "Never")
    {
        let here = format!("{path}.restartPolicy");
        errors.push(FieldError::not_supported(here, policy, &["Always", "OnFailure", "Never"]));
    }
    if let Some(policy) = spec["dnsPolicy"].as_str()
        && !matches!(policy, "ClusterFirstWithHostNet" | "ClusterFirst" | "Default" | "None")
    {
        let accepted = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
        errors.push(FieldError::not_supported(format!("{path}.dnsPolicy"), policy, &accepted));
    }
    errors.extend(metadata::labels(&spec["nodeSelector"], &format!("{path}.nodeSelector")));
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let name = str_at(spec, field);
        if !name.is_empty() {
            for message in names::dns_subdomain(name) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), name, message));
            }
        }
    }
    if let Some(deadline) = int_at(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let message = names::in_range(1, i64::from(i32::MAX));
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), deadline, message));
    }
    for field in ["hostname", "subdomain"] {
        let name = str_at(spec, field);
        if !name.is_empty() {
            for message in names::dns_label(name) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), name, message));
            }
        }
    }
    errors.extend(tolerations(list_at(spec, "tolerations"), &format!("{path}.tolerations")));
    errors
}

fn volumes<'a>(spec: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for (index, volume) in list_at(spec, "volumes").iter().enumerate() {
        let name = str_at(volume, "name");
        let here = format!("{path}.volumes[{index}]");
        let problems = names::dns_label(name);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        } else if !problems.is_empty() {
            for message in problems {
                errors.push(FieldError::invalid(format!("{here}.name"), name, message));
            }
        } else if known.contains(&name) {
            errors.push(FieldError::duplicate(format!("{here}.name"), name));
        } else {
            known.push(name);
        }
        let sources = volume.as_object().map_or(0, |fields| fields.len().saturating_sub(1));
        if sources > 1 {
            let second = volume.as_object().and_then(|f| f.keys().filter(|k| *k != "name").nth(1));
            let here = format!("{here}.{}", second.map_or("", String::as_str));
            errors.push(FieldError::forbidden(here, "may not specify more than 1 volume type"));
        }
    }
    known
}

fn container<'a>(
    container: &'a Value,
    volumes: &[&str],
    seen: &mut Vec<&'a str>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let name = str_at(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        for message in names::dns_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, message));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        seen.push(name);
    }
    let image = str_at(container, "image");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let message = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(format!("{path}.image"), image, message));
    }
    for (field, accepted) in [
        ("imagePullPolicy", &["Always", "IfNotPresent", "Never"][..]),
        ("terminationMessagePolicy", &["FallbackToLogsOnError", "File"][..]),
    ] {
        if let Some(value) = container[field].as_str()
            && !accepted.contains(&value)
        {
            errors.push(FieldError::not_supported(format!("{path}.{field}"), value, accepted));
        }
    }
    ports(list_at(container, "ports"), &format!("{path}.ports"), errors);
    for (index, variable) in list_at(container, "env").iter().enumerate() {
        let name = str_at(variable, "name");
        let here = format!("{path}.env[{index}]");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        } else {
            for message in names::env_var_name(name) {
                errors.push(FieldError::invalid(format!("{here}.name"), name, message));
            }
        }
        if !str_at(variable, "value").is_empty() && variable["valueFrom"].is_object() {
            let message = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{here}.valueFrom"), "", message));
        }
    }
    mounts(list_at(container, "volumeMounts"), volumes, &format!("{path}.volumeMounts"), errors);
    resources(&container["resources"], &format!("{path}.resources"), errors);
}

fn ports(ports: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let here = format!("{path}[{index}]");
        let name = str_at(port, "name");
        if !name.is_empty() {
            let problems = names::port_name(name);
            if !problems.is_empty() {
                for message in problems {
                    errors.push(FieldError::invalid(format!("{here}.name"), name, message));
                }
            } else if seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{here}.name"), name));
            } else {
                seen.push(name);
            }
        }
        match int_at(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(format!("{here}.containerPort"), "")),
            number => {
                for message in names::port_number(number) {
                    errors.push(FieldError::invalid(format!("{here}.containerPort"), number, message));
                }
            }
        }
        if let Some(number) = int_at(port, "hostPort").filter(|n| *n != 0) {
            for message in names::port_number(number) {
                errors.push(FieldError::invalid(format!("{here}.hostPort"), number, message));
            }
        }
        if let Some(protocol) = port["protocol"].as_str()
            && !matches!(protocol, "SCTP" | "TCP" | "UDP")
        {
            let accepted = ["SCTP", "TCP", "UDP"];
            errors.push(FieldError::not_supported(format!("{here}.protocol"), protocol, &accepted));
        }
    }
}

fn mounts(mounts: &[Value], volumes: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        let here = format!("{path}[{index}]");
        let name = str_at(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        }
        if !volumes.contains(&name) {
            errors.push(FieldError::not_found(format!("{here}.name"), name));
        }
        let mount_path = str_at(mount, "mountPath");
        if mount_path.is_empty() {
            errors.push(FieldError::required(format!("{here}.mountPath"), ""));
        }
        if seen.contains(&mount_path) {
            errors.push(FieldError::invalid(format!("{here}.mountPath"), mount_path, "must be unique"));
        }
        seen.push(mount_path);
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    }
}

fn resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    for bag in ["limits", "requests"] {
        for (name, value) in resources[bag].as_object().into_iter().flatten() {
            let here = format!("{path}.{bag}[{name}]");
            match quantity(value) {
                None => errors.push(FieldError::invalid(
                    here,
                    shown(value),
                    "quantities must match the regular expression \
                     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                )),
                Some(amount) if amount.is_negative() => {
                    errors.push(FieldError::invalid(here, shown(value), NEGATIVE));
                }
                Some(amount) if name.contains('/') && !amount.is_whole() => {
                    errors.push(FieldError::invalid(here, shown(value), "must be an integer"));
                }
                Some(_) => {}
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let Some(limit) = resources["limits"].get(name) else { continue };
        if let (Some(wanted), Some(most)) = (quantity(request), quantity(limit))
            && wanted > most
        {
            let message = format!("must be less than or equal to {name} limit of {}", shown(limit));
            errors.push(FieldError::invalid(format!("{path}.requests"), shown(request), message));
        }
    }
}

fn tolerations(tolerations: &[Value], path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        let here = format!("{path}[{index}]");
        let (key, operator) = (str_at(toleration, "key"), str_at(toleration, "operator"));
        let (value, effect) = (str_at(toleration, "value"), str_at(toleration, "effect"));
        if !key.is_empty() {
            for message in names::qualified_name(key) {
                errors.push(FieldError::invalid(format!("{here}.key"), key, message));
            }
        } else if operator != "Exists" {
            let message =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(format!("{here}.operator"), operator, message));
        }
        if int_at(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(format!("{here}.effect"), effect, message));
        }
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.push(FieldError::invalid(format!("{here}.operator"), value, problems.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let message = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(format!("{here}.operator"), value, message));
                }
            }
            other => {
                let accepted = ["Equal", "Exists"];
                errors.push(FieldError::not_supported(format!("{here}.operator"), other, &accepted));
            }
        }
        if !effect.is_empty() {
            errors.extend(nodes::taint_effect(effect, &format!("{here}.effect")));
        }
    }
    errors
}
