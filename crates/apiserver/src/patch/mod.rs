//! The three ways to patch an object that are not apply: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and
//! strategic merge patch, with the API server's deviations from the standards and its wording of errors.
//!
//! The results are what the patch says and nothing more: the caller drops unknown fields and nulls
//! (`defaults::drop_unknown`), applies defaults and validates.

mod gotext;
mod json;
mod lists;
mod merge;
mod result;
mod strategic;

use serde_json::{Map, Value};

pub(crate) use gotext::{go_type, go_value, json_kind};
pub(crate) use json::{Failure, apply_operation, json_patch};
pub(crate) use merge::merge_patch;
pub(crate) use result::{check_result, misfit, refused};
pub(crate) use strategic::strategic;

/// An object of one field, such as a patch of it.
pub fn only(field: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(field.to_string(), value)]))
}
