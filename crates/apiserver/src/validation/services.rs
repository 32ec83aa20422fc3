//! Rules of services.

use serde_json::Value;

use super::fields::{int_at, list_at, str_at};
use super::{metadata, names};
use crate::error::FieldError;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(crate) fn service(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let ty = match str_at(spec, "type") {
        "" => "ClusterIP",
        ty => ty,
    };
    let ports = list_at(spec, "ports");
    let headless = str_at(spec, "clusterIP") == "None";
    if ports.is_empty() && !headless && ty != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match ty {
        "LoadBalancer" | "NodePort" if headless => {
            let message = format!("may not be set to 'None' for {ty} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", "None", message));
        }
        "ExternalName" => {
            if !list_at(spec, "clusterIPs").is_empty() {
                let message = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden("spec.clusterIPs", message));
            }
            if str_at(spec, "externalName").is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            }
        }
        _ => {}
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let here = format!("spec.ports[{index}]");
        self::port(port, ports.len() > 1, &mut seen, &here, &mut errors);
    }
    errors.extend(metadata::labels(&spec["selector"], "spec.selector"));
    if let Some(affinity) = spec["sessionAffinity"].as_str()
        && !matches!(affinity, "ClientIP" | "None")
    {
        errors.push(FieldError::not_supported("spec.sessionAffinity", affinity, &["ClientIP", "None"]));
    }
    if !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported("spec.type", ty, &TYPES));
    }
    for (index, port) in ports.iter().enumerate() {
        if ty == "ClusterIP" && int_at(port, "nodePort").is_some_and(|n| n != 0) {
            let message = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(format!("spec.ports[{index}].nodePort"), message));
        }
    }
    errors
}

fn port<'a>(
    port: &'a Value,
    name_required: bool,
    seen: &mut Vec<&'a str>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let name = str_at(port, "name");
    if name.is_empty() {
        if name_required {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
    } else {
        for message in names::dns_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, message));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        seen.push(name);
    }
    let number = int_at(port, "port").unwrap_or(0);
    for message in names::port_number(number) {
        errors.push(FieldError::invalid(format!("{path}.port"), number, message));
    }
    if let Some(protocol) = port["protocol"].as_str()
        && !PROTOCOLS.contains(&protocol)
    {
        errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &PROTOCOLS));
    }
    match &port["targetPort"] {
        Value::Number(target) => {
            let target = target.as_i64().unwrap_or(0);
            for message in names::port_number(target) {
                errors.push(FieldError::invalid(format!("{path}.targetPort"), target, message));
            }
        }
        Value::String(target) => {
            for message in names::port_name(target) {
                errors.push(FieldError::invalid(format!("{path}.targetPort"), target.as_str(), message));
            }
        }
        _ => {}
    }
}

/// The cluster IP stays, as long as the service has one.
pub(crate) fn update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (before, after) = (str_at(&old["spec"], "clusterIP"), str_at(&new["spec"], "clusterIP"));
    let external = |service: &Value| service["spec"]["type"] == "ExternalName";
    if !before.is_empty() && before != after && !external(old) && !external(new) {
        let message = "may not change once set";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", after, message));
    }
    errors
}
