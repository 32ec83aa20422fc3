//! Whether what a patch made of an object can still be read as one of its kind. The server words this as a fault of
//! the patch (422), unlike bodies that do not fit (400).

use serde_json::Value;

use super::gotext::go_value;
use crate::defaults;
use crate::error::{ApiError, ApiResult, FieldError};
use crate::kinds::{Kind, KindSchema};
use crate::schema::{SchemaRef, Type};

/// Refuses a patched object of a built-in kind that cannot be read. The complaint shows the patch if it is a
/// `strategic` one, else the whole result.
pub(crate) fn check_result(object: &Value, kind: &Kind, strategic: Option<&Value>) -> ApiResult<()> {
    let KindSchema::Builtin(schema) = &kind.schema else { return Ok(()) };
    let problem = match strategic {
        Some(_) => misfit(object, *schema),
        None => other_kind(object, kind).or_else(|| defaults::type_problem(object, *schema)),
    };
    let shown = || strategic.map_or_else(|| object.to_string(), go_value);
    problem.map_or(Ok(()), |problem| Err(refused(shown(), problem)))
}

/// A patch whose result is not an object of its kind; `shown` is what the complaint is about.
pub(crate) fn refused(shown: String, problem: String) -> ApiError {
    let mut error = ApiError::invalid("", "", "", &[FieldError::invalid("patch", shown, problem)]);
    error.details.as_object_mut().map(|details| details.remove("kind"));
    error
}

fn other_kind(object: &Value, kind: &Kind) -> Option<String> {
    let given = object["kind"].as_str().filter(|given| *given != kind.kind && !given.is_empty())?;
    let version = object["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let group = kind.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    Some(format!("converting ({version}.{given}) to ({group}.{}): unknown conversion", kind.kind))
}

/// The first value that does not fit, in the words of the converter from maps to structs.
pub(crate) fn misfit(value: &Value, schema: SchemaRef<'_>) -> Option<String> {
    let node = schema.node();
    let found = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    match (node.ty, value) {
        (Type::Any, _) => None,
        (Type::Object, _) if node.preserve_unknown => None,
        (Type::Object, Value::Object(fields)) => {
            fields.iter().find_map(|(name, value)| misfit(value, schema.field(name)?))
        }
        (Type::Object, _) if node.properties.is_empty() => Some(format!("cannot restore map from {found}")),
        (Type::Object, _) => Some(format!("cannot restore struct from: {found}")),
        (Type::Array, Value::Array(items)) => {
            let schema = schema.items()?;
            items.iter().find_map(|item| misfit(item, schema))
        }
        (Type::Array, _) => Some(format!("cannot restore slice from {found}")),
        (Type::String, Value::String(_)) if node.format.is_some() => defaults::type_problem(value, schema),
        (Type::String, _) if node.format.as_deref() == Some("byte") => {
            Some(format!("cannot restore slice from {found}"))
        }
        (Type::IntOrString, _) => defaults::type_problem(value, schema),
        (Type::Integer, Value::Number(number)) if number.as_f64().is_some_and(|n| n.fract() != 0.0) => {
            Some(format!("cannot convert float64 to {}", node.format.as_deref().unwrap_or("int")))
        }
        (Type::String, Value::Number(number)) if !number.is_f64() => {
            Some("cannot convert int64 to string".to_string())
        }
        (Type::String, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number | Type::Integer, Value::Number(_)) => None,
        (Type::String, _) => Some("unrecognized type: string".to_string()),
        (Type::Boolean, _) => Some("unrecognized type: bool".to_string()),
        (Type::Number, _) => Some("unrecognized type: float64".to_string()),
        (Type::Integer, _) => Some(format!("unrecognized type: {}", node.format.as_deref().unwrap_or("int"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin_kind;
    use serde_json::json;

    /// The first two were read off kube-apiserver v1.37.1.
    #[test]
    fn what_a_strategic_merge_broke_is_told_in_the_converters_words() {
        let schema = builtin_kind("apps", "v1", "Deployment").expect("a served kind");
        for (object, problem) in [
            (
                json!({"spec": {"template": {"spec": {"containers": {"name": "main"}}}}}),
                Some("cannot restore slice from map"),
            ),
            (json!({"spec": {"replicas": "many"}}), Some("unrecognized type: int32")),
            (json!({"spec": {"replicas": 1.5}}), Some("cannot convert float64 to int32")),
            (json!({"spec": {"replicas": 1.0}}), None),
            (json!({"spec": []}), Some("cannot restore struct from: slice")),
            (json!({"metadata": {"labels": "x"}}), Some("cannot restore map from string")),
            (json!({"metadata": {"labels": {"a": 1}}}), Some("cannot convert int64 to string")),
            (json!({"spec": {"paused": "yes"}}), Some("unrecognized type: bool")),
            (json!({"spec": {"replicas": null, "unknown": 1}}), None),
        ] {
            assert_eq!(misfit(&object, schema).as_deref(), problem, "{object}");
        }
    }
}
