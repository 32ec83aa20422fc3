//! Reading a request: what its path names and what its query asks.

use std::collections::HashMap;

use crate::error::{ApiError, ApiResult, FieldError};

/// A path below `/api` or `/apis`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Path {
    Resource(ResourcePath),
    /// Discovery, health, version and whatever else is not an object.
    Other,
}

impl Path {
    pub(crate) fn parse(path: &str) -> Self {
        let parts: Vec<String> =
            path.trim_matches('/').split('/').map(|part| percent_decode(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::Other,
        };
        let mut found = ResourcePath {
            group: group.to_string(),
            version: version.to_string(),
            ..ResourcePath::default()
        };
        let rest = match rest {
            [] => return Self::Other,
            // `namespaces/x` and `namespaces/x/status` are about the namespace itself.
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => rest,
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                found.namespace = Some((*namespace).to_string());
                rest
            }
            rest => rest,
        };
        match rest {
            [resource] => found.resource = (*resource).to_string(),
            [resource, name] => {
                found.resource = (*resource).to_string();
                found.name = Some((*name).to_string());
            }
            [resource, name, subresource] => {
                found.resource = (*resource).to_string();
                found.name = Some((*name).to_string());
                found.subresource = Some((*subresource).to_string());
            }
            _ => return Self::Other,
        }
        Self::Resource(found)
    }
}

/// Undoes percent encoding; bytes that are no UTF-8 become replacement characters.
fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let is_encoded = text.contains('%') || (plus_is_space && text.contains('+'));
    if !is_encoded {
        return text.to_string();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' if plus_is_space => out.push(b' '),
            b'%' => {
                let hex: Vec<u8> = bytes.clone().take(2).collect();
                match std::str::from_utf8(&hex).ok().and_then(|h| u8::from_str_radix(h, 16).ok()) {
                    Some(decoded) if hex.len() == 2 => {
                        out.push(decoded);
                        bytes.nth(1);
                    }
                    _ => out.push(b'%'),
                }
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The query parameters; of a repeated one the first counts, but for `dryRun`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    values: HashMap<String, Vec<String>>,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(percent_decode(key, true)).or_default().push(percent_decode(value, true));
        }
        Self { values }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key)?.first().map(String::as_str).filter(|v| !v.is_empty())
    }

    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }

    /// Any text but the ways to say no counts as set.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|text| !matches!(text, "0" | "f" | "F" | "false" | "FALSE" | "False"))
    }

    pub(crate) fn number(&self, key: &str) -> ApiResult<Option<i64>> {
        match self.get(key) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            }),
        }
    }

    /// `dryRun=All` asks for a dry run; nothing else is known.
    pub(crate) fn dry_run(&self, options_kind: &str) -> ApiResult<bool> {
        dry_run(self.all("dryRun"), options_kind)
    }
}

pub(crate) fn dry_run(values: &[String], options_kind: &str) -> ApiResult<bool> {
    for value in values {
        if value != "All" {
            let list = serde_json::json!(values);
            let error = FieldError::new(
                crate::error::FieldErrorKind::NotSupported,
                "dryRun",
                list,
                "supported values: \"All\"",
            );
            return Err(ApiError::invalid("meta.k8s.io", options_kind, "", &[error]));
        }
    }
    Ok(!values.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_group_namespace_resource_and_subresource() {
        let cases = [
            ("/api/v1/pods", ("", "v1", None, "pods", None, None)),
            ("/api/v1/namespaces", ("", "v1", None, "namespaces", None, None)),
            ("/api/v1/namespaces/a", ("", "v1", None, "namespaces", Some("a"), None)),
            ("/api/v1/namespaces/a/status", ("", "v1", None, "namespaces", Some("a"), Some("status"))),
            ("/api/v1/namespaces/a/pods", ("", "v1", Some("a"), "pods", None, None)),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                ("apps", "v1", Some("a"), "deployments", Some("d"), Some("scale")),
            ),
            (
                "/apis/rbac/v1/clusterroles/system%3Anode",
                ("rbac", "v1", None, "clusterroles", Some("system:node"), None),
            ),
        ];
        for (path, (group, version, namespace, resource, name, subresource)) in cases {
            let want = ResourcePath {
                group: group.into(),
                version: version.into(),
                namespace: namespace.map(Into::into),
                resource: resource.into(),
                name: name.map(Into::into),
                subresource: subresource.map(Into::into),
            };
            assert_eq!(Path::parse(path), Path::Resource(want), "{path}");
        }
        for path in
            ["/", "/version", "/api", "/apis/apps", "/apis/apps/v1", "/api/v1/namespaces/a/pods/b/c/d"]
        {
            assert_eq!(Path::parse(path), Path::Other, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("labelSelector=app%3Dweb%2Ctier+in+(a)&limit=5&watch=true&dryRun=All"));
        assert_eq!(query.get("labelSelector"), Some("app=web,tier in (a)"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert!(query.flag("watch"));
        assert_eq!(query.dry_run("CreateOptions"), Ok(true));
        assert_eq!(Query::parse(Some("dryRun=Some")).dry_run("CreateOptions").unwrap_err().code, 422);
        assert_eq!(Query::parse(Some("limit=x")).number("limit").unwrap_err().code, 400);
        assert_eq!(Query::parse(Some("a=%zz&b=%")).get("a"), Some("%zz"));
    }
}
