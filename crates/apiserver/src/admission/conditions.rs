//! `matchConditions` of webhooks and policies: expressions that must all be true.

use serde_json::Value;

use super::cel::{Declared, Expression, Inputs, Scope, Type};
use super::request::Request;

/// The conditions of one webhook or policy, in the order written.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) list: Vec<Expression>,
}

impl Conditions {
    /// What does not compile is an error of each request that it would be asked about.
    pub(super) fn compile(list: &Value, declared: &Declared) -> Self {
        let conditions = list.as_array().into_iter().flatten();
        let expressions = conditions.map(|condition| condition["expression"].as_str().unwrap_or_default());
        Self { list: expressions.map(|e| Expression::compile(e, declared, &[Type::Bool])).collect() }
    }

    /// Whether all hold for the request of a webhook.
    pub(super) fn hold(&self, request: &Request<'_>, object: &Value) -> Result<bool, String> {
        if self.list.is_empty() {
            return Ok(true);
        }
        let inputs = Inputs { request, object, params: None, namespace: None, version: None, variables: &[] };
        let all: Vec<&Expression> = self.list.iter().collect();
        inputs.scope(&all, |scope| self.hold_in(scope))
    }

    /// Whether all hold. One that is false decides, even if others fail; otherwise the errors are told.
    pub(super) fn hold_in(&self, scope: &Scope<'_>) -> Result<bool, String> {
        let mut problems = Vec::new();
        for condition in &self.list {
            match scope.holds(condition) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(problem) => problems.push(problem),
            }
        }
        match problems.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}
