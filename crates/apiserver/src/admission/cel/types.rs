//! What an expression evaluates to, as far as that is plain before it runs. The API server types every expression; here
//! a type is known for what policies are made of, and unknown for the rest, which is then seen when it runs.

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

/// The type of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int,
    UInt,
    Double,
    String,
    Bytes,
    Null,
    /// Only known when it runs, as all parts of objects.
    Dyn,
    /// `Object`, `Object.spec`, `JSONPatch` and the like.
    Named(String),
    List(Box<Type>),
    Map,
    /// What the items of an empty list are: anything that is asked for around it.
    Open,
    /// Any of the types above: not worked out here.
    Unknown,
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::UInt => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Null => f.write_str("null_type"),
            Self::Dyn | Self::Open => f.write_str("dyn"),
            Self::Named(name) => f.write_str(name),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map => f.write_str("map(dyn, dyn)"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Type {
    /// Whether an expression of this type may stand where `wanted` must.
    pub(crate) fn may_be(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Unknown, _) => true,
            (Self::List(own), Self::List(wanted)) => own.may_be(wanted),
            _ => self == wanted,
        }
    }

    /// The type of what may be of either.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (own, other) if own == other => own,
            (Self::Open, other) | (other, Self::Open) => other,
            (Self::List(own), Self::List(other)) => Self::List(Box::new(own.or(*other))),
            (Self::Dyn, _) | (_, Self::Dyn) => Self::Dyn,
            _ => Self::Unknown,
        }
    }
}

const TRUTHS: [&str; 6] = ["startsWith", "endsWith", "contains", "matches", "hasValue", "allowed"];
const TEXTS: [&str; 5] = ["join", "substring", "lowerAscii", "upperAscii", "replace"];

/// The type of an expression before it is adapted; `of_name` says that of a variable.
pub(super) fn type_of(expression: &IdedExpr, of_name: &dyn Fn(&str) -> Type) -> Type {
    let of = |e: &IdedExpr| type_of(e, of_name);
    match &expression.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Type::Bool,
            LiteralValue::Bytes(_) => Type::Bytes,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::Int(_) => Type::Int,
            LiteralValue::Null => Type::Null,
            LiteralValue::String(_) => Type::String,
            LiteralValue::UInt(_) => Type::UInt,
        },
        Expr::Ident(name) => of_name(name),
        Expr::Select(select) if select.test => Type::Bool,
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name == "variables" => of_name(&format!("variables.{}", select.field)),
            _ if of(&select.operand) == Type::Dyn => Type::Dyn,
            _ => Type::Unknown,
        },
        Expr::Struct(literal) => Type::Named(literal.type_name.clone()),
        Expr::Map(_) => Type::Map,
        Expr::List(list) => {
            let mut items = list.elements.iter().map(of);
            let first = items.next().unwrap_or(Type::Open);
            let alike = items.all(|item| item == first);
            Type::List(Box::new(if alike { first } else { Type::Dyn }))
        }
        Expr::Call(call) => call_type(call, &of),
        Expr::Comprehension(_) | Expr::Unspecified => Type::Unknown,
    }
}

fn call_type(call: &CallExpr, of: &dyn Fn(&IdedExpr) -> Type) -> Type {
    match (call.func_name.as_str(), call.args.as_slice()) {
        (
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN,
            _,
        ) => Type::Bool,
        (operators::CONDITIONAL, [_, yes, no]) => of(yes).or(of(no)),
        (operators::INDEX, [list, _]) => match of(list) {
            Type::Dyn => Type::Dyn,
            Type::List(item) => *item,
            _ => Type::Unknown,
        },
        (operators::ADD, [left, right]) => match (of(left), of(right)) {
            (left @ Type::List(_), right @ Type::List(_)) => left.or(right),
            (left, right) if left == right => left,
            _ => Type::Unknown,
        },
        ("size", _) => Type::Int,
        ("string", _) => Type::String,
        (name, _) if TRUTHS.contains(&name) => Type::Bool,
        (name, _) if TEXTS.contains(&name) => Type::String,
        _ => Type::Unknown,
    }
}
