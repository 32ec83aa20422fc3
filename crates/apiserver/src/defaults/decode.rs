//! What decoding into Go structs does to an object of a built-in kind: values of the wrong type are refused,
//! unknown fields and nulls fall away.

use serde_json::{Map, Value};

use super::time;
use crate::error::{ApiError, ApiResult};
use crate::schema::{Node, SchemaRef, Type};

/// Refuses the object, as 400, if a value cannot be read into its field.
pub(crate) fn check_types(object: &Value, schema: SchemaRef<'_>) -> ApiResult<()> {
    match type_problem(object, schema) {
        None => Ok(()),
        Some(problem) => Err(refused(object, &problem)),
    }
}

/// What cannot be read into its field, in the words of Go's decoder.
pub(crate) fn type_problem(object: &Value, schema: SchemaRef<'_>) -> Option<String> {
    check(object, schema, &mut Position { field: String::new(), structure: String::new() })
}

/// The error of `fieldValidation=Strict`, 400, for the unknown fields that [`drop_unknown`] returned.
pub(crate) fn strict_error(object: &Value, unknown: &[String]) -> ApiError {
    refused(object, &format!("strict decoding error: {}", unknown.join(", ")))
}

/// The 400 that says why the object is not one of its kind.
pub(crate) fn refused(object: &Value, problem: &str) -> ApiError {
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {problem}"))
}

/// Removes null fields and fields that the kind does not have. Returns what it removed, worded as the warnings of
/// `fieldValidation=Warn`: `unknown field "spec.foo"`, in the order of the fields' names.
pub(crate) fn drop_unknown(object: &mut Value, schema: SchemaRef<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(object, schema, &mut String::new(), &mut unknown);
    unknown
}

fn prune(value: &mut Value, schema: SchemaRef<'_>, at: &mut String, unknown: &mut Vec<String>) {
    let node = schema.node();
    let here = at.len();
    match value {
        Value::Object(fields) if node.ty == Type::Object && !node.preserve_unknown => {
            let mut gone = Vec::new();
            for (name, value) in fields.iter_mut() {
                let path = at.len();
                if !at.is_empty() {
                    at.push('.');
                }
                at.push_str(name);
                match schema.field(name) {
                    // A null in a map of texts is the empty text.
                    Some(field) if value.is_null() && is_text_of_map(node, field) => *value = "".into(),
                    Some(_) if value.is_null() => gone.push(name.clone()),
                    Some(field) => prune(value, field, at, unknown),
                    None => {
                        gone.push(name.clone());
                        unknown.push(format!("unknown field {at:?}"));
                    }
                }
                at.truncate(path);
            }
            gone.iter().for_each(|name| drop(fields.remove(name)));
        }
        Value::Array(items) => {
            let Some(schema) = schema.items() else { return };
            for (i, item) in items.iter_mut().enumerate() {
                at.push_str(&format!("[{i}]"));
                prune(item, schema, at, unknown);
                at.truncate(here);
            }
        }
        _ => {}
    }
}

fn is_text_of_map(map: &Node, value: SchemaRef<'_>) -> bool {
    map.properties.is_empty() && value.node().ty == Type::String && value.node().format.is_none()
}

/// Where decoding is, as Go's messages say it: the struct, and the path of fields from the root.
struct Position {
    structure: String,
    field: String,
}

fn check(value: &Value, schema: SchemaRef<'_>, at: &mut Position) -> Option<String> {
    let node = schema.node();
    let mismatch = |found: &str, wanted: &str| {
        if at.structure.is_empty() {
            return Some(format!("json: cannot unmarshal {found} into Go value of type {wanted}"));
        }
        let (structure, field) = (&at.structure, &at.field);
        Some(format!(
            "json: cannot unmarshal {found} into Go struct field {structure}.{field} of type {wanted}"
        ))
    };
    let found = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (node.ty, value) {
        (Type::Any, _) => None,
        (Type::Object, _) if node.preserve_unknown => None,
        (Type::Object, Value::Object(fields)) => check_fields(fields, schema, at),
        (Type::Array, Value::Array(items)) => {
            let schema = schema.items()?;
            items.iter().find_map(|item| check(item, schema, at))
        }
        (Type::String, Value::String(text)) if is_time(schema) => {
            time::problem(text, node.format.as_deref() == Some("micro-time"))
        }
        (Type::String, Value::String(text)) if node.format.as_deref() == Some("byte") => base64_problem(text),
        (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_)) => None,
        (Type::Integer, Value::Number(number)) if fits(number, schema) => None,
        (Type::Integer, Value::Number(number)) => mismatch(&format!("number {number}"), &go_type(schema)),
        (Type::IntOrString, Value::String(text)) if is_quantity(schema) => {
            (!is_quantity_text(text)).then(|| {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                    .to_string()
            })
        }
        (Type::IntOrString, Value::Number(number)) if !is_quantity(schema) && !is_int32(number) => {
            mismatch(&format!("number {number}"), "int32")
        }
        (Type::IntOrString, Value::String(_) | Value::Number(_)) => None,
        _ => mismatch(found, &go_type(schema)),
    }
}

/// Where the text stops being base64, as Go's decoder counts.
fn base64_problem(text: &str) -> Option<String> {
    use base64::Engine as _;
    match base64::engine::general_purpose::STANDARD.decode(text) {
        Ok(_) => None,
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Some(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Some(format!("illegal base64 data at input byte {}", text.len() / 4 * 4)),
    }
}

fn check_fields(fields: &Map<String, Value>, schema: SchemaRef<'_>, at: &mut Position) -> Option<String> {
    let is_map = schema.node().properties.is_empty();
    for (name, value) in fields {
        let Some(field) = schema.field(name) else { continue };
        // A map's keys are not part of the position.
        if is_map {
            if let Some(problem) = check(value, field, at) {
                return Some(problem);
            }
            continue;
        }
        let path = at.field.len();
        let outer = std::mem::take(&mut at.structure);
        at.structure = struct_name(schema).to_string();
        if path > 0 {
            at.field.push('.');
        }
        at.field.push_str(name);
        let problem = check(value, field, at);
        at.field.truncate(path);
        at.structure = outer;
        if problem.is_some() {
            return problem;
        }
    }
    None
}

fn struct_name(schema: SchemaRef<'_>) -> &str {
    schema.node().definition.as_deref().and_then(|d| d.rsplit('.').next()).unwrap_or_default()
}

/// The field's type in Go: `int32`, `[]v1.Container`, `map[string]string`, `v1.PodSpec`.
fn go_type(schema: SchemaRef<'_>) -> String {
    let node = schema.node();
    match node.ty {
        Type::String if is_time(schema) => "string".to_string(),
        Type::String if node.format.as_deref() == Some("byte") => "[]uint8".to_string(),
        Type::String => "string".to_string(),
        Type::Boolean => "bool".to_string(),
        Type::Integer => node.format.clone().unwrap_or_else(|| "int".to_string()),
        Type::Number => "float64".to_string(),
        Type::IntOrString => "int32".to_string(),
        Type::Any => "interface {}".to_string(),
        Type::Array => format!("[]{}", schema.items().map(go_type).unwrap_or_default()),
        Type::Object => match (&node.definition, node.additional) {
            (Some(definition), _) => {
                let mut parts = definition.rsplit('.');
                let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{version}.{name}")
            }
            (None, Some(values)) => format!("map[string]{}", go_type(schema.set.at(values))),
            (None, None) => "map[string]interface {}".to_string(),
        },
    }
}

fn is_time(schema: SchemaRef<'_>) -> bool {
    matches!(schema.node().format.as_deref(), Some("date-time" | "micro-time"))
}

fn is_quantity(schema: SchemaRef<'_>) -> bool {
    schema.node().format.as_deref() == Some("quantity")
}

/// A number (signed, with a decimal point or an exponent) and a known suffix.
fn is_quantity_text(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let known = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"];
    let exponent = || {
        let power = suffix.strip_prefix(['e', 'E'])?;
        let power = power.strip_prefix(['+', '-']).unwrap_or(power);
        Some(!power.is_empty() && power.bytes().all(|b| b.is_ascii_digit()))
    };
    number.parse::<f64>().is_ok() && (known.contains(&suffix) || exponent().unwrap_or(false))
}

fn fits(number: &serde_json::Number, schema: SchemaRef<'_>) -> bool {
    match (number.as_i64(), schema.node().format.as_deref()) {
        (Some(_), Some("int32")) => is_int32(number),
        (Some(_), _) => true,
        (None, _) => false,
    }
}

fn is_int32(number: &serde_json::Number) -> bool {
    number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}
