//! Everything that is not a resource: discovery in both forms, version, health, and the smallest OpenAPI document
//! that keeps kubectl content.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use crate::error::ApiResult;
use crate::kinds::{Kind, Registry};
use crate::response::{self, ServerResponse};
use crate::rest::errors;
use crate::server::Server;

/// The version of Kubernetes whose behaviour this server follows.
const VERSION: (&str, &str, &str) = ("1", "37", "v1.37.1");

pub(crate) fn answer(
    server: &Arc<Server>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> ApiResult<ServerResponse> {
    if *method != Method::GET && *method != Method::HEAD {
        return Err(errors::method_not_allowed());
    }
    let registry = server.registry();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let document = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Ok(response::text(200, "ok")),
        ["version"] => version(),
        ["openapi", "v2"] => return Ok(openapi(headers)),
        ["api"] | ["apis"] => return Ok(root(&registry, parts[0] == "api", headers)),
        ["api", "v1"] => resources(&registry, "", "v1"),
        ["apis", group] if registry.serves_group(group) => {
            let mut document = group_entry(&registry, group);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        ["apis", group, version] if registry.serves_version(group, version) => {
            resources(&registry, group, version)
        }
        [""] => json!({"paths": paths(&registry)}),
        ["api", ..] => return Err(errors::no_such_path()),
        _ => return Ok(response::text(404, "404 page not found\n")),
    };
    Ok(response::json(200, &document))
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor,
        "minCompatibilityMajor": major, "minCompatibilityMinor": "36", "gitVersion": git,
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn paths(registry: &Registry) -> Vec<String> {
    let mut paths = vec!["/api".to_string(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in groups(registry) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v2", "/readyz", "/version"].map(String::from));
    paths
}

/// Named groups with their versions, the preferred one first.
fn groups(registry: &Registry) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in registry.iter().filter(|kind| !kind.group.is_empty()) {
        let versions = groups.entry(&kind.group).or_default();
        if !versions.contains(&kind.version.as_str()) {
            versions.push(&kind.version);
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
    }
    groups
}

/// Orders versions as Kubernetes does: stable before beta before alpha, then by number, other names last.
pub(crate) fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let rest = &rest[digits..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let (level, number) = match rest.strip_prefix("beta") {
            Some(number) => (2, number),
            None => (1, rest.strip_prefix("alpha")?),
        };
        Some((level, major, number.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

/// `/api` and `/apis`, plain or aggregated.
fn root(registry: &Registry, core: bool, headers: &HeaderMap) -> ServerResponse {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    for range in accept.split(',').filter(|range| range.contains("as=APIGroupDiscoveryList")) {
        for (version, content_type) in [
            ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
        ] {
            if range.split(';').any(|part| part.trim() == format!("v={version}")) {
                let body = aggregated(registry, core, version).to_string();
                return response::bytes(200, content_type, body);
            }
        }
    }
    let document = if core {
        let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or("127.0.0.1:443");
        json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
        })
    } else {
        let groups: Vec<Value> = groups(registry).keys().map(|group| group_entry(registry, group)).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    };
    response::json(200, &document)
}

fn group_entry(registry: &Registry, group: &str) -> Value {
    let versions: Vec<Value> = groups(registry)
        .remove(group)
        .unwrap_or_default()
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

fn kinds_of<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Kind>> {
    registry.iter().filter(move |kind| kind.group == group && kind.version == version)
}

/// `APIResourceList`.
fn resources(registry: &Registry, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    for kind in kinds_of(registry, group, version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": kind.verbs,
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        list.push(entry);
        for subresource in sorted_subresources(kind) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, subresource.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if speaks_another_version(kind, subresource) {
                entry["group"] = subresource.group.into();
                entry["version"] = subresource.version.into();
            }
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    let mut document = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    document
}

/// By name; custom kinds list them in an order of their own.
fn sorted_subresources(kind: &Kind) -> Vec<&crate::kinds::Subresource> {
    let mut list: Vec<_> = kind.subresources.iter().collect();
    if !kind.is_custom() {
        list.sort_by_key(|subresource| subresource.name);
    }
    list
}

fn speaks_another_version(kind: &Kind, subresource: &crate::kinds::Subresource) -> bool {
    !subresource.version.is_empty()
        && (subresource.group, subresource.version) != (&kind.group, &kind.version)
}

/// `APIGroupDiscoveryList`.
fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let items: Vec<Value> = if core {
        vec![json!({"metadata": {}, "versions": [aggregated_version(registry, "", "v1")]})]
    } else {
        groups(registry)
            .into_iter()
            .map(|(group, versions)| {
                let versions: Vec<Value> =
                    versions.iter().map(|version| aggregated_version(registry, group, version)).collect();
                json!({"metadata": {"name": group}, "versions": versions})
            })
            .collect()
    };
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_version(registry: &Registry, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = kinds_of(registry, group, version)
        .map(|kind| {
            // Built-in kinds leave out what goes without saying.
            let (group, version) = if kind.is_custom() { (group, version) } else { ("", "") };
            let own = json!({"group": group, "version": version, "kind": kind.kind});
            let mut entry = json!({
                "resource": kind.plural, "responseKind": own, "singularResource": kind.singular,
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": kind.verbs,
            });
            if !kind.short_names.is_empty() {
                entry["shortNames"] = json!(kind.short_names);
            }
            if !kind.categories.is_empty() {
                entry["categories"] = json!(kind.categories);
            }
            let subresources: Vec<Value> = sorted_subresources(kind)
                .into_iter()
                .map(|subresource| {
                    let (group, version) = if speaks_another_version(kind, subresource) {
                        (subresource.group, subresource.version)
                    } else {
                        (group, version)
                    };
                    json!({
                        "subresource": subresource.name, "verbs": subresource.verbs,
                        "responseKind": {"group": group, "version": version, "kind": subresource.kind},
                    })
                })
                .collect();
            if !subresources.is_empty() {
                entry["subresources"] = subresources.into();
            }
            entry
        })
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

/// An OpenAPI v2 document without any path: enough for kubectl to go on without client-side schema checks.
fn openapi(headers: &HeaderMap) -> ServerResponse {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let (title, version) = ("Kubernetes", VERSION.2);
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if accept.contains("proto-openapi.spec.v2") {
        let mut info = Vec::new();
        put_text(&mut info, 1, title.as_bytes());
        put_text(&mut info, 2, version.as_bytes());
        let mut document = Vec::new();
        put_text(&mut document, 1, b"2.0");
        put_text(&mut document, 2, &info);
        return response::bytes(200, PROTOBUF, document);
    }
    response::json(200, &json!({"swagger": "2.0", "info": {"title": title, "version": version}, "paths": {}}))
}

/// A length-delimited protobuf field; everything here is shorter than 128 bytes.
fn put_text(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rank_stable_beta_alpha_then_others() {
        let mut versions = vec!["v1alpha1", "foo", "v1", "v2beta1", "v10", "v1beta2", "v2"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}
