//! The answers of the real API server, kept so that the embedded one can be judged without it.

use super::topic::Topic;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The answers to all steps, by case.
pub type RecordedTopic = BTreeMap<String, Vec<RecordedAnswer>>;

/// What is kept of an answer, normalised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RecordedAnswer {
    /// 0 where the request could not be sent.
    pub status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// Where it is not plain JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    pub body: Value,
}

impl RecordedAnswer {
    pub(super) fn unsent(reason: &str) -> Self {
        Self {
            status: 0,
            warnings: Vec::new(),
            retry_after: None,
            content_type: None,
            body: Value::String(reason.to_owned()),
        }
    }
}

fn file(folder: &Path, topic: &Topic) -> PathBuf {
    folder.join("recorded").join(format!("{}.json", topic.name))
}

/// Reads the recordings of `topics`.
///
/// # Errors
/// A recording is missing or cannot be read.
pub fn load(folder: &Path, topics: &[Topic]) -> Result<BTreeMap<String, RecordedTopic>> {
    let read = |topic: &Topic| -> Result<_> {
        let path = file(folder, topic);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("no recording {}", path.display()))?;
        let recorded = serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        Ok((topic.name.clone(), recorded))
    };
    topics.iter().map(read).collect()
}

/// Writes the recordings, one line per answer, so that a change shows in a diff.
///
/// # Errors
/// A file cannot be written.
pub fn save(folder: &Path, topics: &[Topic], answers: &BTreeMap<String, RecordedTopic>) -> Result<()> {
    for topic in topics {
        let Some(recorded) = answers.get(&topic.name) else { continue };
        let mut text = String::from("{");
        for (number, (case, steps)) in recorded.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            write!(text, "{separator}\n{}: [", serde_json::to_string(case)?)?;
            for (number, step) in steps.iter().enumerate() {
                let separator = if number == 0 { "" } else { "," };
                write!(text, "{separator}\n{}", sorted(&serde_json::to_value(step)?))?;
            }
            text.push_str("\n]");
        }
        text.push_str("\n}\n");
        let path = file(folder, topic);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The order of fields has no meaning, so recordings have them sorted.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
