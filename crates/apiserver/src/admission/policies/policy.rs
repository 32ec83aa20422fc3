//! What both kinds of policies have in common.

use serde_json::Value;

use super::matching::{MatchResources, Matched};
use super::params::{ParamKind, ParamRef};
use crate::admission::cel::{Declared, Expression, Variable};
use crate::admission::conditions::Conditions;
use crate::admission::request::{Operation, Request};
use crate::attributes::Attributes;

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// Failures to evaluate it fail the request.
    pub(super) fail_closed: bool,
    pub(super) bindings: Vec<Binding>,
    pub(super) conditions: Conditions,
    pub(super) variables: Vec<Variable>,
    constraints: MatchResources,
    param_kind: Option<ParamKind>,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    /// Deny, Warn and Audit; only validating policies have them.
    pub(super) actions: Vec<String>,
    resources: Option<MatchResources>,
    params: Option<ParamRef>,
}

/// One evaluation of a policy that a request asks for.
pub(super) struct Invocation<'a> {
    pub(super) binding: &'a Binding,
    pub(super) params: Option<Value>,
    pub(super) version: Option<String>,
}

/// Why a policy cannot be evaluated for a request that it is for.
pub(super) struct Misconfigured<'a> {
    pub(super) binding: Option<&'a Binding>,
    pub(super) message: String,
}

/// What a request asks of one policy.
pub(super) type Asked<'a> = Vec<Result<Invocation<'a>, Misconfigured<'a>>>;

impl Policy {
    /// Reads a policy with those of the bindings that name it; none if no binding does. What the expressions of the
    /// policy may use is declared.
    pub(super) fn compile(policy: &Value, bindings: &[Value]) -> Option<(Self, Declared)> {
        let (name, spec) = (name_of(policy), &policy["spec"]);
        let mut bindings: Vec<Binding> = bindings
            .iter()
            .filter(|binding| binding["spec"]["policyName"] == *name)
            .map(Binding::parse)
            .collect();
        if bindings.is_empty() {
            return None;
        }
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        let param_kind = ParamKind::parse(&spec["paramKind"]);
        let mut declared = Declared { params: param_kind.is_some(), authorizer: true, ..Declared::default() };
        let conditions = Conditions::compile(&spec["matchConditions"], &declared);
        let variables = variables(spec, &mut declared);
        let policy = Self {
            name,
            fail_closed: spec["failurePolicy"] != "Ignore",
            bindings,
            conditions,
            variables,
            constraints: MatchResources::parse(&spec["matchConstraints"]),
            param_kind,
        };
        Some((policy, declared))
    }

    pub(super) fn may_match(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.constraints.may_match(attributes, operation)
    }

    /// How often, and with which parameters, a request asks for the policy.
    pub(super) fn asked<'a>(&'a self, request: &Request<'_>, object: &Value) -> Asked<'a> {
        let version = match self.constraints.matches(request, object) {
            Ok(None) => return Vec::new(),
            Ok(Some(Matched::AsSent)) => None,
            Ok(Some(Matched::InVersion(version))) => Some(version),
            Err(error) => return vec![Err(Misconfigured::policy(&error.message))],
        };
        if let Some(problem) = self.param_kind.as_ref().and_then(|kind| kind.problem(request.lookup)) {
            return vec![Err(Misconfigured::policy(&problem))];
        }
        let mut asked = Vec::new();
        for binding in &self.bindings {
            match binding.resources.as_ref().map(|resources| resources.matches(request, object)) {
                None | Some(Ok(Some(_))) => {}
                Some(Ok(None)) => continue,
                Some(Err(error)) => {
                    asked.push(Err(Misconfigured::binding(binding, &error.message)));
                    continue;
                }
            }
            let collected = match (&self.param_kind, &binding.params) {
                (Some(kind), Some(reference)) => {
                    let namespace = request.attributes.namespace.as_str();
                    reference
                        .collect(kind, namespace, request.lookup)
                        .map(|found| found.into_iter().map(Some).collect())
                }
                _ => Ok(vec![None]),
            };
            match collected {
                Ok(params) => asked.extend(
                    params
                        .into_iter()
                        .map(|params| Ok(Invocation { binding, params, version: version.clone() })),
                ),
                Err(problem) => asked.push(Err(Misconfigured::binding(binding, &problem))),
            }
        }
        asked
    }
}

impl Binding {
    fn parse(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: name_of(binding),
            actions: actions.filter_map(|action| action.as_str().map(str::to_string)).collect(),
            resources: spec
                .get("matchResources")
                .filter(|resources| resources.is_object())
                .map(MatchResources::parse),
            params: ParamRef::parse(&spec["paramRef"]),
        }
    }
}

impl<'a> Misconfigured<'a> {
    fn policy(problem: &str) -> Self {
        Self { binding: None, message: format!("failed to configure policy: {problem}") }
    }

    fn binding(binding: &'a Binding, problem: &str) -> Self {
        Self { binding: Some(binding), message: format!("failed to configure binding: {problem}") }
    }
}

/// The variables of a policy; each may use those before it.
pub(super) fn variables(spec: &Value, declared: &mut Declared) -> Vec<Variable> {
    let variables = spec["variables"].as_array().into_iter().flatten();
    variables
        .map(|variable| {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            let expression = Expression::compile(text("expression"), declared, &[]);
            expression.declare(text("name"), declared);
            Variable { name: text("name").to_string(), expression }
        })
        .collect()
}

pub(super) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_string()
}

/// The namespace of the request as expressions see it; requests about namespaces have none.
pub(super) fn namespace_object(request: &Request<'_>) -> Option<Value> {
    let namespace = request.attributes.namespace.as_str();
    if namespace.is_empty() || request.is_about_namespaces() {
        return None;
    }
    let mut found = request.lookup.namespace(namespace)?;
    if let Some(metadata) = found["metadata"].as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences"));
    }
    Some(found)
}

/// Requests that no policy sees: those on policies, as a broken one must not stop its own repair, and reviews.
pub(super) fn is_exempt(attributes: &Attributes) -> bool {
    match attributes.group.as_str() {
        "admissionregistration.k8s.io" => matches!(
            attributes.resource.as_str(),
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" | "authorization.k8s.io" => true,
        _ => false,
    }
}

/// The object's name as errors name it: it may have none yet.
pub(super) fn shown_name<'a>(request: &'a Request<'_>, object: &'a Value) -> &'a str {
    let generate = object.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default();
    match (request.name(object), generate) {
        ("", "") => "Unknown",
        ("", generate) => generate,
        (name, _) => name,
    }
}
