//! One webhook of a configuration, and whether a request concerns it.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::cel::{Declared, Inputs};
use super::conditions::Conditions;
use super::request::{Operation, Request};
use super::review::Version;
use super::rules::Rule;
use super::selection::Selectors;
use crate::attributes::Attributes;
use crate::auth::forbidden::forbidden_because;
use crate::error::ApiResult;

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) timeout: Duration,
    /// Failures to call it fail the request.
    pub(super) fail_closed: bool,
    pub(super) side_effects: Option<String>,
    pub(super) version: Option<Version>,
    /// To be called again if a later webhook changed the object.
    pub(super) reinvoke: bool,
    rules: Vec<Rule>,
    selectors: Selectors,
    conditions: Conditions,
}

/// Where a webhook listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// With a path, without a query. For a service, the URL under which errors name it.
    pub(super) url: String,
    /// Namespace and name.
    pub(super) service: Option<(String, String)>,
    /// Certificates in PEM, empty if none are given.
    pub(super) ca_bundle: Vec<u8>,
}

impl Hook {
    pub(super) fn parse(webhook: &Value) -> Self {
        let text = |name: &str| webhook.get(name).and_then(Value::as_str);
        Self {
            name: text("name").unwrap_or_default().to_string(),
            target: Target::parse(&webhook["clientConfig"]),
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10)),
            fail_closed: text("failurePolicy") != Some("Ignore"),
            side_effects: text("sideEffects").map(str::to_string),
            version: Version::choose(&webhook["admissionReviewVersions"]),
            reinvoke: text("reinvocationPolicy") == Some("IfNeeded"),
            rules: Rule::parse_list(&webhook["rules"]),
            selectors: Selectors::parse(webhook),
            conditions: Conditions::compile(
                &webhook["matchConditions"],
                &Declared { authorizer: true, ..Declared::default() },
            ),
        }
    }

    /// Whether its rules name such a request. Cheap, and enough to rule out most.
    pub(super) fn rules_match(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes, operation))
    }

    /// Whether the webhook is to be called for the request.
    pub(super) fn concerns(&self, request: &Request<'_>, object: &Value) -> ApiResult<bool> {
        if !self.rules_match(request.attributes, request.operation) {
            return Ok(false);
        }
        if !self.selectors.select(request, object)? {
            return Ok(false);
        }
        let inputs = Inputs { request, object, params: None, namespace: None, version: None, variables: &[] };
        match self.conditions.hold(&inputs) {
            Ok(hold) => Ok(hold),
            Err(_) if !self.fail_closed => Ok(false),
            Err(problem) => {
                let a = request.attributes;
                Err(forbidden_because(&a.group, &a.resource, request.name(object), &problem))
            }
        }
    }
}

impl Target {
    fn parse(config: &Value) -> Self {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_string();
        let ca_bundle = BASE64_STANDARD.decode(text(config, "caBundle")).unwrap_or_default();
        let service = &config["service"];
        if !service.is_object() {
            return Self { url: with_path(&text(config, "url")), service: None, ca_bundle };
        }
        let (namespace, name) = (text(service, "namespace"), text(service, "name"));
        let (port, path) = (service["port"].as_u64().unwrap_or(443), text(service, "path"));
        let url = with_path(&format!("https://{name}.{namespace}.svc:{port}{path}"));
        Self { url, service: Some((namespace, name)), ca_bundle }
    }
}

/// A URL always has a path, if only `/`.
pub(super) fn with_path(url: &str) -> String {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    if host.contains('/') { url.to_string() } else { format!("{url}/") }
}
