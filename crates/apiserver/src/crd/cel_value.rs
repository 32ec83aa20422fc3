//! JSON values as the CEL rules see them, typed by the schema.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::{Number, Value};

use crate::schema::{SchemaRef, Type};

/// Functions and conversions that every rule shares; building them costs more than most rules.
pub(crate) struct Environment {
    pub context: Context<'static>,
    timestamp: Option<Program>,
    duration: Option<Program>,
}

thread_local! {
    static ENVIRONMENT: RefCell<Environment> = RefCell::new(Environment {
        context: Context::default().with_all(),
        timestamp: Program::compile("timestamp(text)").ok(),
        duration: Program::compile("duration(text)").ok(),
    });
}

pub(crate) fn with_environment<R>(run: impl FnOnce(&Environment) -> R) -> R {
    ENVIRONMENT.with_borrow(|environment| run(environment))
}

impl Environment {
    /// `is_resource` adds what every resource has: apiVersion, kind, and of the metadata the two names.
    pub(crate) fn convert(&self, value: &Value, schema: SchemaRef<'_>, is_resource: bool) -> Cel {
        let node = schema.node();
        match value {
            Value::Null => Cel::Null,
            Value::Bool(b) => Cel::Bool(*b),
            Value::Number(n) => convert_number(n, node.ty),
            Value::String(text) => self.convert_string(text, node.ty, node.format.as_deref()),
            Value::Array(items) => Cel::List(Arc::new(match schema.items() {
                Some(child) => {
                    items.iter().map(|i| self.convert(i, child, child.node().embedded_resource)).collect()
                }
                None => items.iter().map(untyped).collect(),
            })),
            Value::Object(_) if node.properties.is_empty() && node.additional.is_none() && !is_resource => {
                untyped(value)
            }
            Value::Object(fields) => {
                let mut map = HashMap::with_capacity(fields.len());
                for (name, field) in fields {
                    let Some(child) = schema.field(name) else { continue };
                    let Some(key) =
                        (if node.additional.is_some() { Some(name.clone()) } else { escape(name) })
                    else {
                        continue;
                    };
                    map.insert(key_of(&key), self.convert(field, child, child.node().embedded_resource));
                }
                if is_resource {
                    add_type_and_names(fields, &mut map);
                }
                Cel::Map(Map { map: Arc::new(map) })
            }
        }
    }

    fn convert_string(&self, text: &str, ty: Type, format: Option<&str>) -> Cel {
        let plain = || Cel::String(Arc::new(text.to_string()));
        if ty != Type::String {
            return plain();
        }
        match format {
            Some("date-time" | "datetime") => self.call(self.timestamp.as_ref(), text).unwrap_or_else(plain),
            Some("date") => {
                self.call(self.timestamp.as_ref(), &format!("{text}T00:00:00Z")).unwrap_or_else(plain)
            }
            Some("duration") => self.call(self.duration.as_ref(), text).unwrap_or_else(plain),
            Some("byte") => match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(bytes) => Cel::Bytes(Arc::new(bytes)),
                Err(_) => plain(),
            },
            _ => plain(),
        }
    }

    fn call(&self, program: Option<&Program>, text: &str) -> Option<Cel> {
        let mut scope = self.context.new_inner_scope();
        scope.add_variable_from_value("text", Cel::String(Arc::new(text.to_string())));
        program?.execute(&scope).ok()
    }
}

fn add_type_and_names(fields: &serde_json::Map<String, Value>, map: &mut HashMap<Key, Cel>) {
    for name in ["apiVersion", "kind"] {
        if let Some(field) = fields.get(name) {
            map.insert(key_of(name), untyped(field));
        }
    }
    let mut names = HashMap::new();
    for name in ["name", "generateName"] {
        if let Some(value) = fields.get("metadata").and_then(|m| m.get(name)) {
            names.insert(key_of(name), untyped(value));
        }
    }
    map.insert(key_of("metadata"), Cel::Map(Map { map: Arc::new(names) }));
}

fn key_of(name: &str) -> Key {
    Key::String(Arc::new(name.to_string()))
}

fn convert_number(number: &Number, ty: Type) -> Cel {
    let float = number.as_f64().unwrap_or_default();
    match (ty, number.as_i64()) {
        (Type::Number, _) => Cel::Float(float),
        (_, Some(integer)) => Cel::Int(integer),
        (Type::Integer | Type::IntOrString, None) if float.fract() == 0.0 => Cel::Int(float as i64),
        _ => Cel::Float(float),
    }
}

fn untyped(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => convert_number(n, Type::Any),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(untyped).collect())),
        Value::Object(fields) => {
            let map = fields.iter().map(|(name, field)| (key_of(name), untyped(field))).collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

pub(crate) const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A property name as rules write it; none when no identifier can stand for it.
fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    let writable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if first.is_ascii_digit() || !name.chars().all(writable) {
        return None;
    }
    Some(
        name.replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_escaped_as_documented() {
        let cases = [
            ("replicas", Some("replicas")),
            ("my_field", Some("my_field")),
            ("a__b", Some("a__underscores__b")),
            ("foo-bar", Some("foo__dash__bar")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("a b", None),
        ];
        for (name, escaped) in cases {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
