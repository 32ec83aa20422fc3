//! `x-kubernetes-validations`: compiled once per version, run at every level of an object.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use super::cel_scope::unbound;
use super::cel_value::{Environment, with_environment};
use super::correlate::{old_field, old_item};
use crate::error::{FieldError, FieldErrorKind};
use crate::schema::{CelRule, ListType, Node, NodeId, SchemaRef, SchemaSet, Type};

/// Longer results of a `messageExpression` are not used.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Programs {
    rules: HashMap<NodeId, Vec<CompiledRule>>,
    /// For every node whether it or anything below it has rules.
    reaches_rules: Vec<bool>,
}

#[derive(Debug)]
pub(crate) struct CompiledRule {
    rule: CelRule,
    program: Result<Program, String>,
    pub uses_old_self: bool,
    message: Option<Result<Program, String>>,
}

impl CompiledRule {
    pub(crate) fn compile(rule: &CelRule) -> CompiledRule {
        let program = compile(&rule.rule);
        let uses_old_self = program.as_ref().is_ok_and(|p| p.references().has_variable("oldSelf"));
        let expression = rule.message_expression.trim();
        CompiledRule {
            rule: rule.clone(),
            program,
            uses_old_self,
            message: (!expression.is_empty()).then(|| compile(expression)),
        }
    }

    pub(crate) fn rule_error(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }

    pub(crate) fn message_error(&self) -> Option<&str> {
        self.message.as_ref()?.as_ref().err().map(String::as_str)
    }
}

/// Syntax, and that nothing but `self` and `oldSelf` is referred to.
fn compile(source: &str) -> Result<Program, String> {
    let program = Program::compile(source).map_err(|error| format!("compilation failed: {error}"))?;
    let declared = |name: &str| matches!(name, "self" | "oldSelf") || TYPES.contains(&name);
    let unbound = unbound(program.expression(), &declared).map(str::to_string);
    match unbound {
        Some(name) => {
            let column = source.find(&name).unwrap_or(0);
            Err(format!(
                "compilation failed: ERROR: <input>:1:{}: undeclared reference to '{name}' (in container '')\n \
                 | {source}\n | {}^",
                column + 1,
                ".".repeat(column)
            ))
        }
        None => Ok(program),
    }
}

/// Names of types and namespaces of functions, which are no variables although they look like some.
pub(crate) const TYPES: [&str; 16] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional",
    "math",
    "sets",
    "ip",
    "cidr",
    "format",
];

impl Programs {
    pub(crate) fn compile(set: &SchemaSet) -> Programs {
        let mut programs = Programs::default();
        for (index, node) in set.nodes.iter().enumerate() {
            let own: Vec<CompiledRule> =
                node.rules.iter().flat_map(|r| &r.cel).map(CompiledRule::compile).collect();
            // Children are added to the arena before their parents.
            let below = node.properties.values().chain(&node.additional).chain(&node.items);
            let reaches = !own.is_empty()
                || below
                    .into_iter()
                    .any(|id| programs.reaches_rules.get(id.0 as usize).copied().unwrap_or(false));
            if !own.is_empty() {
                programs.rules.insert(NodeId(index as u32), own);
            }
            programs.reaches_rules.push(reaches);
        }
        programs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Runs all rules on an object, and its transition rules where there is an old one.
    pub(crate) fn validate(&self, root: SchemaRef<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let place = CheckedValue {
            value: new,
            old,
            unchanged: Unchanged::new(new, old),
            path: String::new(),
            is_resource: true,
        };
        self.validate_at(root, place)
    }

    /// Runs the rules of one subtree, as for a default value: `path` is where errors are reported.
    pub(crate) fn validate_value(&self, schema: SchemaRef<'_>, value: &Value, path: &str) -> Vec<FieldError> {
        let place = CheckedValue {
            value,
            old: None,
            unchanged: Unchanged { current: None, parent: None },
            path: path.to_string(),
            is_resource: false,
        };
        self.validate_at(schema, place)
    }

    fn validate_at(&self, schema: SchemaRef<'_>, place: CheckedValue<'_>) -> Vec<FieldError> {
        with_environment(|environment| {
            let mut errors = Vec::new();
            Run { programs: self, environment }.walk(schema, place, &mut errors);
            errors
        })
    }
}

/// What ratcheting compares: this value with its old one, else the nearest ancestor that has an old one.
#[derive(Clone, Copy)]
struct Unchanged<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Unchanged<'a> {
    fn new(value: &'a Value, old: Option<&'a Value>) -> Self {
        Self { current: old.map(|old| (value, old)), parent: None }
    }

    fn child(self, value: &'a Value, old: Option<&'a Value>) -> Self {
        match self.current {
            Some(_) => Self { current: old.map(|old| (value, old)), parent: self.current },
            None => self,
        }
    }

    fn holds(self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }
}

struct CheckedValue<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    unchanged: Unchanged<'a>,
    path: String,
    is_resource: bool,
}

struct Run<'p> {
    programs: &'p Programs,
    environment: &'p Environment,
}

impl Run<'_> {
    fn walk(&self, schema: SchemaRef<'_>, place: CheckedValue<'_>, errors: &mut Vec<FieldError>) {
        let reaches = self.programs.reaches_rules.get(schema.id.0 as usize).copied().unwrap_or(false);
        if place.value.is_null() || !reaches {
            return;
        }
        if let Some(rules) = self.programs.rules.get(&schema.id) {
            self.run_rules(schema, rules, &place, errors);
        }
        match place.value {
            Value::Array(items) => {
                let Some(child) = schema.items() else { return };
                for (index, item) in items.iter().enumerate() {
                    let correlated = old_item(schema, place.old, item);
                    let is_map = matches!(schema.node().list, ListType::Map(_));
                    let next = CheckedValue {
                        value: item,
                        old: correlated.filter(|_| is_map),
                        unchanged: place.unchanged.child(item, correlated),
                        path: format!("{}[{index}]", place.path),
                        is_resource: child.node().embedded_resource,
                    };
                    self.walk(child, next, errors);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let Some(child) = schema.field(name) else { continue };
                    let old = old_field(place.old, name);
                    let path = match (schema.node().properties.contains_key(name), place.path.as_str()) {
                        (true, "") => name.clone(),
                        (true, parent) => format!("{parent}.{name}"),
                        (false, parent) => format!("{parent}[{name}]"),
                    };
                    let next = CheckedValue {
                        value: field,
                        old,
                        unchanged: place.unchanged.child(field, old),
                        path,
                        is_resource: child.node().embedded_resource,
                    };
                    self.walk(child, next, errors);
                }
            }
            _ => {}
        }
    }

    fn run_rules(
        &self,
        schema: SchemaRef<'_>,
        rules: &[CompiledRule],
        place: &CheckedValue<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let old = place.old.filter(|old| !old.is_null());
        let old_cel = if rules.iter().any(|r| r.uses_old_self) {
            old.map(|old| self.environment.convert(old, schema, place.is_resource))
        } else {
            None
        };
        let mut scope = self.environment.context.new_inner_scope();
        scope.add_variable_from_value(
            "self",
            self.environment.convert(place.value, schema, place.is_resource),
        );
        for compiled in rules {
            let optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !optional {
                continue;
            }
            let mut rule_scope = scope.new_inner_scope();
            if let Some(value) = bound_old_self(old_cel.clone(), optional) {
                rule_scope.add_variable_from_value("oldSelf", value);
            }
            errors.extend(evaluate(compiled, schema.node(), place, &rule_scope, &scope, old_cel.as_ref()));
        }
    }
}

fn bound_old_self(old: Option<Cel>, optional: bool) -> Option<Cel> {
    match (old, optional) {
        (Some(old), true) => Some(Cel::Opaque(Arc::new(OptionalValue::of(old)))),
        (None, true) => Some(Cel::Opaque(Arc::new(OptionalValue::none()))),
        (old, false) => old,
    }
}

fn evaluate(
    compiled: &CompiledRule,
    node: &Node,
    place: &CheckedValue<'_>,
    scope: &Context<'_>,
    plain_scope: &Context<'_>,
    old: Option<&Cel>,
) -> Option<FieldError> {
    let rule = &compiled.rule;
    let field = || if place.path.is_empty() { "<nil>".to_string() } else { place.path.clone() };
    let program = match &compiled.program {
        Ok(program) => program,
        Err(error) => {
            return Some(FieldError::invalid(
                field(),
                type_name(node.ty),
                format!("rule compile error: {error}"),
            ));
        }
    };
    match program.execute(scope) {
        Ok(Cel::Bool(true)) => None,
        Ok(Cel::Bool(false)) => {
            if !compiled.uses_old_self && place.unchanged.holds() {
                return None;
            }
            let message = match &compiled.message {
                Some(Ok(program)) => {
                    let mut scope = plain_scope.new_inner_scope();
                    if let Some(old) = old {
                        scope.add_variable_from_value("oldSelf", old.clone());
                    }
                    dynamic_message(program, &scope)
                }
                _ => None,
            };
            let message = message.unwrap_or_else(|| static_message(rule));
            Some(failed(rule, field_of(place, rule), shown_value(node, place.value), message))
        }
        Ok(other) => Some(FieldError::invalid(
            field(),
            type_name(node.ty),
            format!("rule evaluated to {}, not bool: {}", other.type_of(), described(rule)),
        )),
        Err(ExecutionError::NoSuchOverload) => Some(FieldError::invalid(
            field(),
            type_name(node.ty),
            format!(
                "'no such overload': call arguments did not match a supported operator, function or macro \
                 signature for rule: {}",
                described(rule)
            ),
        )),
        Err(error) => {
            let text = match &error {
                ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                other => other.to_string(),
            };
            let detail = format!("{text} evaluating rule: {}", described(rule));
            Some(FieldError::invalid(field(), type_name(node.ty), detail))
        }
    }
}

/// The result of `messageExpression`, unless it is unusable.
fn dynamic_message(program: &Program, scope: &Context<'_>) -> Option<String> {
    match program.execute(scope) {
        Ok(Cel::String(text)) => {
            let text = text.trim();
            let usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
            usable.then(|| text.to_string())
        }
        _ => None,
    }
}

fn static_message(rule: &CelRule) -> String {
    if rule.message.is_empty() {
        format!("failed rule: {}", rule.rule.trim())
    } else {
        rule.message.trim().to_string()
    }
}

fn described(rule: &CelRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn field_of(place: &CheckedValue<'_>, rule: &CelRule) -> String {
    let below = rule.field_path.trim().trim_start_matches('.');
    // A field path names properties in quotes and map keys bare, field errors the other way round.
    let below = below.replace("['", ".").replace("']", "");
    match (place.path.as_str(), below.as_str()) {
        ("", "") => "<nil>".to_string(),
        ("", below) => below.to_string(),
        (path, "") => path.to_string(),
        (path, below) => format!("{path}.{below}"),
    }
}

/// Objects and lists are not shown.
fn shown_value(node: &Node, value: &Value) -> Option<Value> {
    (!matches!(node.ty, Type::Object | Type::Array)).then(|| value.clone())
}

fn failed(rule: &CelRule, field: String, value: Option<Value>, detail: String) -> FieldError {
    match rule.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(field, detail),
        "FieldValueRequired" => FieldError::required(field, detail),
        "FieldValueDuplicate" => {
            FieldError { kind: FieldErrorKind::Duplicate, field, value, detail: String::new() }
        }
        _ => FieldError { kind: FieldErrorKind::Invalid, field, value, detail },
    }
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Any | Type::IntOrString => "",
    }
}
