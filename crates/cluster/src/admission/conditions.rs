//! `matchConditions` of a webhook: CEL expressions that must all be true for it to be called.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{self, Context, ExecutionError, Program};
use serde_json::Value;

use super::request::Request;
use super::review::Review;

thread_local! {
    /// Registering all functions takes far longer than evaluating; scopes for each request hang below this one.
    static FUNCTIONS: Context<'static> = Context::default().with_all();
}

/// The conditions of one webhook, in the order written.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    list: Vec<Condition>,
}

struct Condition {
    expression: String,
    program: Result<Program, String>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.expression)
    }
}

impl Conditions {
    /// What does not compile is an error of each request that it would be asked about.
    pub(super) fn compile(list: &Value) -> Self {
        let expressions = list.as_array().into_iter().flatten();
        let list = expressions
            .map(|condition| {
                let expression = condition["expression"].as_str().unwrap_or_default().to_string();
                let program = Program::compile(&expression)
                    .map_err(|problem| problem.to_string())
                    .and_then(without_authorizer)
                    .map_err(|problem| format!("compilation error: {problem}"));
                Condition { expression, program }
            })
            .collect();
        Self { list }
    }

    /// Whether all hold. One that is false decides, even if others fail; otherwise the errors are told.
    pub(super) fn hold(&self, request: &Request<'_>, object: &Value) -> Result<bool, String> {
        if self.list.is_empty() {
            return Ok(true);
        }
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            self.bind(&mut scope, request, object);
            let mut problems = Vec::new();
            for condition in &self.list {
                match condition.evaluate(&scope) {
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
        })
    }

    /// Binds those variables that any expression names; converting a large object costs more than evaluating.
    fn bind(&self, scope: &mut Context<'_>, request: &Request<'_>, object: &Value) {
        let names = |variable: &str| {
            self.list.iter().any(|c| c.program.as_ref().is_ok_and(|p| p.references().has_variable(variable)))
        };
        if names("object") {
            scope.add_variable_from_value("object", to_cel(object));
        }
        if names("oldObject") {
            scope.add_variable_from_value("oldObject", request.old.map_or(cel::Value::Null, to_cel));
        }
        if names("request") {
            scope.add_variable_from_value("request", to_cel(&Review::condition_request(request, object)));
        }
    }
}

impl Condition {
    fn evaluate(&self, scope: &Context<'_>) -> Result<bool, String> {
        let expression = &self.expression;
        let program = self.program.as_ref().map_err(Clone::clone)?;
        match program.execute(scope) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!(
                "expression '{expression}' resulted in error: must evaluate to bool, not {}",
                other.type_of()
            )),
            Err(problem) => {
                let problem = match problem {
                    ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                    other => other.to_string(),
                };
                Err(format!("expression '{expression}' resulted in error: {problem}"))
            }
        }
    }
}

fn without_authorizer(program: Program) -> Result<Program, String> {
    if program.references().has_variable("authorizer") {
        return Err("the variable 'authorizer' is not available in this cluster".to_string());
    }
    Ok(program)
}

/// Objects become maps with their keys as they are, as expressions on untyped objects expect.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => number
            .as_i64()
            .map(cel::Value::Int)
            .or_else(|| number.as_u64().map(cel::Value::UInt))
            .unwrap_or_else(|| cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(list) => cel::Value::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let map: HashMap<Key, cel::Value> =
                fields.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), to_cel(v))).collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}
