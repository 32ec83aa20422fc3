//! Rows of custom resources, by their printer columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, cells};
use crate::crd::{CustomKind, PrinterColumn};

/// Kinds that declare no columns show their age.
pub(crate) fn columns(kind: &CustomKind) -> Value {
    let mut columns = vec![json!({
        "name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace.",
    })];
    if kind.columns.is_empty() {
        columns.push(json!({
            "name": "Age", "type": "date", "format": "", "description": "Creation time.", "priority": 0,
        }));
    }
    for column in &kind.columns {
        columns.push(json!({
            "name": column.name, "type": column.ty, "format": column.format,
            "description": column.description, "priority": column.priority,
        }));
    }
    Value::Array(columns)
}

pub(crate) fn cells(kind: &CustomKind, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut row = vec![cells::name(object)];
    if kind.columns.is_empty() {
        row.push(age::age(object, now));
    }
    row.extend(kind.columns.iter().map(|column| cell(column, object, now)));
    row
}

/// A value of another type than the column's is an empty cell, except that text columns print anything.
fn cell(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    let Some(value) = column.path.first(object) else { return Value::Null };
    match column.ty.as_str() {
        "string" => crate::crd::print_json_path_value(value).into(),
        "integer" => match (value.as_i64(), value.as_f64()) {
            (Some(integer), _) => integer.into(),
            (None, Some(float)) => (float as i64).into(),
            _ => Value::Null,
        },
        "number" if value.is_number() => value.clone(),
        "boolean" if value.is_boolean() => value.clone(),
        "date" => match value.as_str() {
            None => Value::Null,
            Some("") => "<unknown>".into(),
            Some(text) => match text.parse::<Timestamp>() {
                Ok(then) => age::human_duration(age::between(then, now)).into(),
                Err(_) => "<invalid>".into(),
            },
        },
        _ => Value::Null,
    }
}
