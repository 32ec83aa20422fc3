//! The cases of `testdata/crd-rules.yaml`, for tests against any API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use serde::Deserialize;
use serde_json::{Map, Value};

/// A request and what the API server does with it. The head of the file explains the fields.
#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleCase {
    pub name: String,
    pub given: Option<Value>,
    #[serde(default)]
    pub given_status: Vec<Value>,
    pub create: Option<Value>,
    pub patch: Option<Value>,
    pub patch_status: Option<Value>,
    #[serde(default)]
    pub accepted: bool,
    pub rejected: Option<String>,
    pub stored: Option<Value>,
}

impl RuleCase {
    /// The kind under test.
    pub fn kind(&self) -> &str {
        self.given
            .as_ref()
            .or(self.create.as_ref())
            .and_then(|object| object["kind"].as_str())
            .unwrap_or_default()
    }
}

/// All cases, long strings written out.
pub fn load() -> Vec<RuleCase> {
    let text = include_str!("../../testdata/crd-rules.yaml");
    let mut cases: Vec<RuleCase> = serde_saphyr::from_str(text).expect("crd-rules.yaml");
    for case in &mut cases {
        let parts =
            [&mut case.given, &mut case.create, &mut case.patch, &mut case.patch_status, &mut case.stored];
        parts.into_iter().flatten().chain(&mut case.given_status).for_each(write_out);
    }
    cases
}

fn write_out(value: &mut Value) {
    match value {
        Value::Object(fields) => match repeated(fields) {
            Some(text) => *value = Value::String(text),
            None => fields.values_mut().for_each(write_out),
        },
        Value::Array(items) => items.iter_mut().for_each(write_out),
        _ => {}
    }
}

fn repeated(fields: &Map<String, Value>) -> Option<String> {
    let times = fields.get("times")?.as_u64()?;
    Some(fields.get("repeat")?.as_str()?.repeat(usize::try_from(times).ok()?))
}
