//! The variables of one request, and running expressions in them.

use std::collections::HashMap;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::context::VariableResolver;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};
use parking_lot::Mutex;
use serde_json::Value;

use super::adapt::EQUAL;
use super::authorizer;
use super::expression::{Expression, Variable, words};
use super::json::to_cel;
use crate::admission::request::Request;
use crate::admission::review::Review;

thread_local! {
    /// Registering all functions takes far longer than evaluating; scopes for each request hang below this one.
    static FUNCTIONS: Context<'static> = functions();
}

fn functions() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(EQUAL, |left: Cel, right: Cel| -> ResolveResult { Ok(Cel::Bool(left == right)) });
    authorizer::register(&mut context);
    context
}

/// Whether somebody answers to the call's name: it is called without arguments to see.
pub(super) fn is_function(call: &CallExpr) -> bool {
    let name = call.func_name.as_str();
    if name.contains(['_', '@', '?', '!']) || matches!(name, "optMap" | "optFlatMap") {
        return true;
    }
    let known = |name: &str| {
        let probe = CallExpr { func_name: name.to_string(), target: None, args: Vec::new() };
        FUNCTIONS.with(|functions| {
            !matches!(
                functions.resolve(&IdedExpr { id: 0, expr: Expr::Call(probe) }),
                Err(ExecutionError::UndeclaredReference(missing)) if *missing == name
            )
        })
    };
    match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(prefix)) if known(&format!("{prefix}.{name}")) => true,
        _ => known(name),
    }
}

/// What the variables of a request are made from.
pub(in crate::admission) struct Inputs<'a> {
    pub(in crate::admission) request: &'a Request<'a>,
    pub(in crate::admission) object: &'a Value,
    pub(in crate::admission) params: Option<&'a Value>,
    pub(in crate::admission) namespace: Option<&'a Value>,
    /// The version that the object and its resource are shown in, if not that of the request.
    pub(in crate::admission) version: Option<&'a str>,
    pub(in crate::admission) variables: &'a [Variable],
}

impl Inputs<'_> {
    /// Runs expressions on these inputs. `all` names every expression that will run: what none of them reads is not
    /// converted, which would cost more than to evaluate them.
    pub(in crate::admission) fn scope<R>(&self, all: &[&Expression], run: impl FnOnce(&Scope<'_>) -> R) -> R {
        let reads = |name: &str| {
            all.iter().any(|e| e.reads(name)) || self.variables.iter().any(|v| v.expression.reads(name))
        };
        FUNCTIONS.with(|functions| {
            let mut context = functions.new_inner_scope();
            if reads("object") {
                context.add_variable_from_value("object", self.in_version(self.object));
            }
            if reads("oldObject") {
                let old = self.request.old.map_or(Cel::Null, |old| self.in_version(old));
                context.add_variable_from_value("oldObject", old);
            }
            if reads("params") {
                context.add_variable_from_value("params", self.params.map_or(Cel::Null, to_cel));
            }
            if reads("namespaceObject") {
                context.add_variable_from_value("namespaceObject", self.namespace.map_or(Cel::Null, to_cel));
            }
            if reads("request") {
                let mut request = Review::condition_request(self.request, self.object);
                if let Some(version) = self.version {
                    request["kind"]["version"] = version.into();
                    request["resource"]["version"] = version.into();
                }
                context.add_variable_from_value("request", to_cel(&request));
            }
            let Request { user, attributes, lookup, .. } = self.request;
            if reads("authorizer") {
                context.add_variable_from_value("authorizer", authorizer::authorizer(lookup.rbac(), user));
            }
            if reads("authorizer.requestResource") {
                let resource = authorizer::request_resource(lookup.rbac(), user, attributes);
                context.add_variable_from_value("authorizer.requestResource", resource);
            }
            run(&Scope { context, variables: self.variables, known: Mutex::default() })
        })
    }

    fn in_version(&self, object: &Value) -> Cel {
        match (self.version, object.get("apiVersion").and_then(Value::as_str)) {
            (Some(version), Some(own)) => {
                let mut object = object.clone();
                let group = own.split_once('/').map(|(group, _)| format!("{group}/")).unwrap_or_default();
                object["apiVersion"] = format!("{group}{version}").into();
                to_cel(&object)
            }
            _ => to_cel(object),
        }
    }
}

/// The variables of one request.
pub(in crate::admission) struct Scope<'a> {
    context: Context<'a>,
    variables: &'a [Variable],
    /// What the policy's variables came to, those that somebody read.
    known: Mutex<HashMap<String, Result<Cel, String>>>,
}

impl Scope<'_> {
    /// The value of an expression; an error says whose it is.
    pub(in crate::admission) fn evaluate(&self, expression: &Expression) -> Result<Cel, String> {
        let code = expression.code.as_ref().map_err(|problem| format!("compilation error: {problem}"))?;
        self.run(code)
            .map_err(|problem| format!("expression '{}' resulted in error: {problem}", expression.source))
    }

    /// The value of an expression that must be true or false.
    pub(in crate::admission) fn holds(&self, expression: &Expression) -> Result<bool, String> {
        match self.evaluate(expression)? {
            Cel::Bool(holds) => Ok(holds),
            other => Err(format!(
                "expression '{}' resulted in error: must evaluate to bool, not {}",
                expression.source,
                other.type_of()
            )),
        }
    }

    fn run(&self, code: &IdedExpr) -> Result<Cel, String> {
        let variables = Variables { scope: self };
        let mut context = self.context.new_inner_scope();
        context.set_variable_resolver(&variables);
        Cel::resolve(code, &context).map_err(|error| {
            match &error {
                ExecutionError::UndeclaredReference(name) => {
                    self.known.lock().get(name.as_str()).and_then(|known| known.clone().err())
                }
                _ => None,
            }
            .unwrap_or_else(|| words(&error))
        })
    }
}

/// Finds the policy's variables when somebody reads them, each once.
struct Variables<'a> {
    scope: &'a Scope<'a>,
}

impl VariableResolver for Variables<'_> {
    fn resolve(&self, name: &str) -> Option<Cel> {
        let own = name.strip_prefix("variables.")?;
        if let Some(known) = self.scope.known.lock().get(name) {
            return known.clone().ok();
        }
        let variable = self.scope.variables.iter().find(|variable| variable.name == own)?;
        let value = match &variable.expression.code {
            Ok(code) => self
                .scope
                .run(code)
                .map_err(|problem| format!("composited variable {own:?} fails to evaluate: {problem}")),
            Err(problem) => Err(format!("composited variable {own:?} fails to compile: {problem}")),
        };
        self.scope.known.lock().insert(name.to_string(), value.clone());
        value.ok()
    }
}
