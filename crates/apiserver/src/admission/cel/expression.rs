//! One expression, compiled: what it says, what it may not say, and which variables it reads.

use std::collections::BTreeSet;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::adapt::{adapt, may_be_optional};
use super::scope::is_function;
use super::types::{Type, type_of};
use crate::crd::unbound;

/// Which names an expression may use, beside `object`, `oldObject`, `request` and `namespaceObject`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Declared {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
    /// `Object{}` and `JSONPatch{}`.
    pub(crate) patch_types: bool,
    /// Variables of the policy so far: name, type, and whether they may hold optional values.
    pub(crate) variables: Vec<(String, Type, bool)>,
}

impl Declared {
    fn has(&self, name: &str) -> bool {
        match name {
            "object" | "oldObject" | "request" | "namespaceObject" => true,
            "params" => self.params,
            "authorizer" | "authorizer.requestResource" => self.authorizer,
            _ if name.starts_with("variables.") => self.variable(name).is_some(),
            _ => crate::crd::TYPES.contains(&name) || matches!(name, "jsonpatch" | "base64"),
        }
    }

    fn variable(&self, name: &str) -> Option<&(String, Type, bool)> {
        let name = name.strip_prefix("variables.")?;
        self.variables.iter().rev().find(|(declared, ..)| declared == name)
    }

    fn type_of(&self, name: &str) -> Type {
        match name {
            "object" | "oldObject" | "params" => Type::Dyn,
            _ => self.variable(name).map_or(Type::Unknown, |(_, ty, _)| ty.clone()),
        }
    }

    fn is_optional(&self, name: &str) -> bool {
        self.variable(name).is_some_and(|(_, _, optional)| *optional)
    }
}

pub(crate) struct Expression {
    pub(crate) source: String,
    pub(super) code: Result<IdedExpr, String>,
    ty: Type,
    optional: bool,
    /// Names of variables that it reads, as the interpreter knows them.
    reads: BTreeSet<String>,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

/// A variable of a policy.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) expression: Expression,
}

impl Expression {
    /// Compiles an expression that must evaluate to one of these types; none: to anything.
    pub(crate) fn compile(source: &str, declared: &Declared, wanted: &[Type]) -> Self {
        let parsed = Parser::new()
            .enable_optional_syntax(true)
            .parse(source)
            .map_err(|error| format!("compilation failed: {error}").replace("\n| ", "\n | "));
        let (ty, optional) = match &parsed {
            Ok(parsed) => (
                type_of(parsed, &|name| declared.type_of(name)),
                may_be_optional(parsed, &|name| declared.is_optional(name)),
            ),
            Err(_) => (Type::Unknown, false),
        };
        let code = parsed.and_then(|parsed| {
            check_calls(source, &parsed, declared)?;
            let adapted = adapt(parsed, &|name| declared.is_optional(name));
            match unbound(&adapted, &|name| declared.has(name)) {
                Some(name) => Err(undeclared(source, name)),
                None => check_type(&ty, wanted).map(|()| adapted),
            }
        });
        let reads = code.as_ref().map(reads).unwrap_or_default();
        Self { source: source.to_string(), code, ty, optional, reads }
    }

    /// Why it cannot run.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.code.as_ref().err().map(String::as_str)
    }

    /// How later expressions see a variable of this expression.
    pub(crate) fn declare(&self, name: &str, declared: &mut Declared) {
        declared.variables.push((name.to_string(), self.ty.clone(), self.optional));
    }

    pub(super) fn reads(&self, name: &str) -> bool {
        self.reads.contains(name)
    }
}

/// Functions, types and fields of `variables` must exist.
fn check_calls(source: &str, parsed: &IdedExpr, declared: &Declared) -> Result<(), String> {
    let mut problem = None;
    walk(parsed, &mut |node| {
        problem = problem.take().or_else(|| match &node.expr {
            Expr::Call(call) if !is_function(call) => Some(undeclared_call(source, &call.func_name)),
            Expr::Struct(literal) if !declared.patch_types || !is_patch_type(&literal.type_name) => {
                Some(undeclared_call(source, &literal.type_name))
            }
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(name) if name == "variables" && declared.variables.is_empty() => {
                    Some(undeclared(source, name))
                }
                Expr::Ident(name)
                    if name == "variables"
                        && declared.variable(&format!("variables.{}", select.field)).is_none() =>
                {
                    let at = source.find(&format!("variables.{}", select.field)).unwrap_or(0);
                    let problem = format!("undefined field '{}'", select.field);
                    Some(located(source, at + "variables".len(), &problem))
                }
                _ => None,
            },
            _ => None,
        });
    });
    problem.map_or(Ok(()), Err)
}

fn is_patch_type(name: &str) -> bool {
    matches!(name, "Object" | "JSONPatch") || name.starts_with("Object.")
}

fn check_type(ty: &Type, wanted: &[Type]) -> Result<(), String> {
    match wanted {
        [] => Ok(()),
        _ if wanted.iter().any(|wanted| ty.may_be(wanted)) => Ok(()),
        [one] => Err(format!("must evaluate to {one} but got {ty}")),
        many => {
            let many: Vec<String> = many.iter().map(ToString::to_string).collect();
            Err(format!("must evaluate to one of [{}] but got {ty}", many.join(" ")))
        }
    }
}

fn undeclared(source: &str, name: &str) -> String {
    let at = source.find(name).unwrap_or(0);
    located(source, at, &format!("undeclared reference to '{name}' (in container '')"))
}

/// Of functions and types the compiler points at what opens their arguments.
fn undeclared_call(source: &str, name: &str) -> String {
    let at = source.find(name).unwrap_or(0) + name.len();
    located(source, at, &format!("undeclared reference to '{name}' (in container '')"))
}

/// A problem in the words of the compiler, which shows the line and points at the place.
fn located(source: &str, at: usize, problem: &str) -> String {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let shown = source.lines().nth(line).unwrap_or_default();
    let (line, number) = (line + 1, column + 1);
    format!(
        "compilation failed: ERROR: <input>:{line}:{number}: {problem}\n | {shown}\n | {}^",
        ".".repeat(column)
    )
}

/// Names that the adapted expression reads, those that macros bind among them.
fn reads(code: &IdedExpr) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    walk(code, &mut |node| {
        if let Expr::Ident(name) = &node.expr {
            names.insert(name.clone());
        }
    });
    names
}

fn walk<'a>(expression: &'a IdedExpr, visit: &mut dyn FnMut(&'a IdedExpr)) {
    visit(expression);
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => walk(&select.operand, visit),
        Expr::List(list) => list.elements.iter().for_each(|e| walk(e, visit)),
        Expr::Call(call) => call.target.iter().map(|t| &**t).chain(&call.args).for_each(|e| walk(e, visit)),
        Expr::Map(map) => map.entries.iter().for_each(|e| walk_entry(&e.expr, visit)),
        Expr::Struct(fields) => fields.entries.iter().for_each(|e| walk_entry(&e.expr, visit)),
        Expr::Comprehension(loops) => {
            [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result]
                .into_iter()
                .for_each(|e| walk(e, visit));
        }
    }
}

fn walk_entry<'a>(entry: &'a EntryExpr, visit: &mut dyn FnMut(&'a IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => walk(&field.value, visit),
        EntryExpr::MapEntry(entry) => {
            walk(&entry.key, visit);
            walk(&entry.value, visit);
        }
    }
}

/// A failure in the words of the API server.
pub(super) fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".to_string(),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", shown(index)),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn shown(value: &Cel) -> String {
    match value {
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
