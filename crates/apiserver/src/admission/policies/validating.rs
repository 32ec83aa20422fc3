//! ValidatingAdmissionPolicy: expressions that must hold.

use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};

use super::policy::{Binding, Invocation, Policy, is_exempt, namespace_object, shown_name};
use crate::admission::cel::{Declared, Expression, Inputs, Scope, Type};
use crate::admission::request::{Operation, Request};
use crate::attributes::Attributes;
use crate::auth::forbidden::forbidden_because;
use crate::error::{ApiError, ApiResult};

/// Longer results of a `messageExpression` are not used.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// All validating policies that have a binding, compiled.
#[derive(Debug, Default)]
pub(crate) struct ValidatingPolicies {
    policies: Vec<ValidatingPolicy>,
}

#[derive(Debug)]
struct ValidatingPolicy {
    policy: Policy,
    validations: Vec<Validation>,
    audit_annotations: Vec<Expression>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: &'static str,
}

/// A validation that did not hold, or could not be evaluated.
struct Failed {
    message: String,
    reason: &'static str,
}

impl ValidatingPolicies {
    pub(crate) fn compile(policies: &[Value], bindings: &[Value]) -> Self {
        let mut policies: Vec<_> =
            policies.iter().filter_map(|policy| ValidatingPolicy::compile(policy, bindings)).collect();
        policies.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
        Self { policies }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether any rule names such a request. If not, `validate` would do nothing.
    pub(crate) fn any_match(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.policies.iter().any(|own| own.policy.may_match(attributes, operation)) && !is_exempt(attributes)
    }

    /// Evaluates all policies that the request is for; the first that denies it decides the error.
    pub(crate) fn validate(
        &self,
        request: &Request<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        if self.policies.is_empty() || is_exempt(request.attributes) {
            return Ok(());
        }
        let mut denied = None;
        for own in &self.policies {
            own.validate(request, object, warnings, &mut denied);
        }
        denied.map_or(Ok(()), Err)
    }
}

impl ValidatingPolicy {
    fn compile(policy: &Value, bindings: &[Value]) -> Option<Self> {
        let spec = &policy["spec"];
        let (policy, declared) = Policy::compile(policy, bindings)?;
        let list = |name: &str| spec[name].as_array().into_iter().flatten();
        let validations = list("validations").map(|v| Validation::compile(v, &declared)).collect();
        let audit_annotations = list("auditAnnotations")
            .map(|a| {
                let expression = a["valueExpression"].as_str().unwrap_or_default();
                Expression::compile(expression, &declared, &[Type::String, Type::Null])
            })
            .collect();
        Some(Self { policy, validations, audit_annotations })
    }

    fn validate(
        &self,
        request: &Request<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
        denied: &mut Option<ApiError>,
    ) {
        let name = &self.policy.name;
        let mut deny = |binding: Option<&Binding>, message: &str, reason: &'static str| {
            let by = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
            let message = format!("ValidatingAdmissionPolicy '{name}'{by} denied request: {message}");
            denied.get_or_insert_with(|| refusal(request, object, &message, reason));
        };
        for asked in self.policy.asked(request, object) {
            let invocation = match asked {
                Ok(invocation) => invocation,
                Err(problem) if self.policy.fail_closed => {
                    deny(problem.binding, &problem.message, "Invalid");
                    continue;
                }
                Err(problem) => {
                    tracing::warn!(policy = name, "ignored: {}", problem.message);
                    continue;
                }
            };
            let binding = invocation.binding;
            for failed in self.evaluate(&invocation, request, object) {
                for action in &binding.actions {
                    match action.as_str() {
                        "Deny" => deny(Some(binding), &failed.message, failed.reason),
                        "Warn" => warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{}': {}",
                            binding.name, failed.message
                        )),
                        // There is no audit log here.
                        _ => {
                            tracing::info!(policy = name, binding = binding.name, "audit: {}", failed.message)
                        }
                    }
                }
            }
        }
    }

    fn evaluate(&self, invocation: &Invocation<'_>, request: &Request<'_>, object: &Value) -> Vec<Failed> {
        let namespace = namespace_object(request);
        let inputs = Inputs {
            request,
            object,
            params: invocation.params.as_ref(),
            namespace: namespace.as_ref(),
            version: invocation.version.as_deref(),
            variables: &self.policy.variables,
        };
        let failure = |message| Failed { message, reason: "Invalid" };
        match self.policy.conditions.hold(&inputs) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(problem) if self.policy.fail_closed => return vec![failure(problem)],
            Err(_) => return Vec::new(),
        }
        let validations = self.validations.iter();
        let all: Vec<&Expression> = validations
            .flat_map(|v| std::iter::once(&v.expression).chain(&v.message_expression))
            .chain(&self.audit_annotations)
            .collect();
        inputs.scope(&all, |scope| {
            let failed =
                self.validations.iter().filter_map(|validation| match scope.holds(&validation.expression) {
                    Ok(true) => None,
                    Ok(false) => {
                        Some(Failed { message: validation.message(scope), reason: validation.reason })
                    }
                    Err(problem) => self.policy.fail_closed.then(|| failure(problem)),
                });
            let mut failed: Vec<Failed> = failed.collect();
            let annotations = self.audit_annotations.iter().filter_map(|a| scope.evaluate(a).err());
            failed.extend(annotations.filter(|_| self.policy.fail_closed).map(failure));
            failed
        })
    }
}

impl Validation {
    fn compile(validation: &Value, declared: &Declared) -> Self {
        let text = |field: &str| validation[field].as_str().unwrap_or_default();
        // Messages are not for asking rights.
        let of_message = Declared { authorizer: false, ..declared.clone() };
        Self {
            expression: Expression::compile(text("expression"), declared, &[Type::Bool]),
            message: text("message").trim().to_string(),
            message_expression: (!text("messageExpression").trim().is_empty())
                .then(|| Expression::compile(text("messageExpression"), &of_message, &[Type::String])),
            reason: match text("reason") {
                "Forbidden" => "Forbidden",
                "Unauthorized" => "Unauthorized",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                _ => "Invalid",
            },
        }
    }

    fn message(&self, scope: &Scope<'_>) -> String {
        let computed = match self.message_expression.as_ref().map(|expression| scope.evaluate(expression)) {
            Some(Ok(Cel::String(text))) => text.trim().to_string(),
            _ => String::new(),
        };
        let usable = !computed.is_empty() && computed.len() <= MAX_MESSAGE_BYTES && !computed.contains('\n');
        match (usable, self.message.is_empty()) {
            (true, _) => computed,
            (false, false) => self.message.clone(),
            (false, true) => format!("failed expression: {}", self.expression.source.trim()),
        }
    }
}

fn refusal(request: &Request<'_>, object: &Value, message: &str, reason: &'static str) -> ApiError {
    let a = request.attributes;
    let shown = if object.is_null() { request.old.unwrap_or(object) } else { object };
    let mut error = forbidden_because(&a.group, &a.resource, shown_name(request, shown), message);
    error.reason = reason;
    error.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    error.details["causes"] = json!([{"message": message}]);
    error
}
