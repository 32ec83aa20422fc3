//! The scale subresource of custom resources.

use serde_json::{Map, Value, json};

use super::{CustomKind, ScalePaths};
use crate::error::FieldError;
use crate::patch::go_type;

impl CustomKind {
    /// The autoscaling/v1 Scale that stands for the object; none where the kind has no scale subresource.
    pub(crate) fn scale_of(&self, object: &Value) -> Option<Value> {
        let paths = self.scale.as_ref()?;
        let metadata = &object["metadata"];
        let mut scale_metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = metadata.get(field) {
                scale_metadata.insert(field.to_string(), value.clone());
            }
        }
        let mut spec = Map::new();
        if let Some(replicas) = at(object, &paths.spec_replicas).and_then(Value::as_i64).filter(|r| *r != 0) {
            spec.insert("replicas".to_string(), replicas.into());
        }
        let mut status = json!({
            "replicas": at(object, &paths.status_replicas).and_then(Value::as_i64).unwrap_or(0),
        });
        if let Some(selector) =
            paths.label_selector.as_ref().and_then(|path| at(object, path)).and_then(Value::as_str)
            && !selector.is_empty()
        {
            status["selector"] = selector.into();
        }
        Some(json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": scale_metadata, "spec": spec, "status": status,
        }))
    }

    /// Writes `spec.replicas` of a Scale into the object, and its resourceVersion where it states one.
    pub(crate) fn apply_scale(&self, object: &mut Value, scale: &Value) -> Result<(), Vec<FieldError>> {
        let Some(paths) = self.scale.as_ref() else { return Ok(()) };
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if replicas < 0 {
            return Err(vec![FieldError::invalid(
                "spec.replicas",
                replicas,
                "must be greater than or equal to 0",
            )]);
        }
        set(object, &paths.spec_replicas, replicas.into());
        if let Some(version) = scale.pointer("/metadata/resourceVersion").filter(|v| *v != "") {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        Ok(())
    }
}

/// The replica counts and the selector of the object must be of the right type and size.
pub(super) fn validate(paths: &ScalePaths, object: &Value, with_spec: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut counts = vec![&paths.status_replicas];
    if with_spec {
        counts.insert(0, &paths.spec_replicas);
    }
    for path in counts {
        let Some(value) = at(object, path) else { continue };
        match value.as_i64() {
            None => errors.push(FieldError::invalid(path.clone(), 0, wrong_type(path, value, "int64"))),
            Some(count) if count < 0 => {
                errors.push(FieldError::invalid(path.clone(), count, "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => errors.push(FieldError::invalid(
                path.clone(),
                count,
                format!("should be less than or equal to {}", i32::MAX),
            )),
            Some(_) => {}
        }
    }
    if let Some(path) = &paths.label_selector
        && let Some(value) = at(object, path)
        && !value.is_string()
    {
        errors.push(FieldError::invalid(path.clone(), "", wrong_type(path, value, "string")));
    }
    errors
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> String {
    let actual = go_type(value);
    format!("{path} accessor error: {value} is of the type {actual}, expected {expected}")
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    segments(path).try_fold(object, |value, name| value.get(name))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let names: Vec<&str> = segments(path).collect();
    let Some((last, parents)) = names.split_last() else { return };
    let mut here = object;
    for name in parents {
        if !here.get(*name).is_some_and(Value::is_object) {
            here[*name] = json!({});
        }
        here = &mut here[*name];
    }
    here[*last] = value;
}
