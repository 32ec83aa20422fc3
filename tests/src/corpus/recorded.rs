//! The answers of the real API server, kept so that the embedded one can be judged without it.

use super::topic::Topic;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The answers to all steps, by case.
pub type RecordedTopic = BTreeMap<String, Vec<RecordedAnswer>>;

/// A case as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedCase {
    /// The version of the API server, such as `v1.37.1`.
    server: String,
    /// The [`Case::fingerprint`](super::topic::Case::fingerprint) of what was asked.
    case: String,
    answers: Vec<RecordedAnswer>,
}

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
/// A recording is missing, cannot be read, or is of an earlier version of its case.
pub fn load(folder: &Path, topics: &[Topic]) -> Result<BTreeMap<String, RecordedTopic>> {
    let read = |topic: &Topic| -> Result<_> {
        let path = file(folder, topic);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("no recording {}", path.display()))?;
        let recorded: BTreeMap<String, RecordedCase> =
            serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        for case in &topic.cases {
            let is_current = recorded.get(&case.name).is_none_or(|kept| kept.case == case.fingerprint);
            ensure!(
                is_current,
                "the recording of case {} of {} is of an earlier version of the case: run `make record`",
                case.name,
                path.display()
            );
        }
        let answers = recorded.into_iter().map(|(case, kept)| (case, kept.answers)).collect();
        Ok((topic.name.clone(), answers))
    };
    topics.iter().map(read).collect()
}

/// Writes what a server of this version answered, one line per answer, so that a change shows in a diff.
///
/// # Errors
/// A file cannot be written.
pub fn save(
    folder: &Path,
    topics: &[Topic],
    server: &str,
    answers: &BTreeMap<String, RecordedTopic>,
) -> Result<()> {
    for topic in topics {
        let Some(recorded) = answers.get(&topic.name) else { continue };
        let mut text = String::from("{");
        for (number, (case, steps)) in recorded.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            let asked = topic.cases.iter().find(|asked| asked.name == *case).context("a case is gone")?;
            let (name, server) = (serde_json::to_string(case)?, serde_json::to_string(server)?);
            let fingerprint = &asked.fingerprint;
            write!(
                text,
                "{separator}\n{name}: {{\"server\": {server}, \"case\": \"{fingerprint}\", \"answers\": ["
            )?;
            for (number, step) in steps.iter().enumerate() {
                let separator = if number == 0 { "" } else { "," };
                write!(text, "{separator}\n{}", sorted(&serde_json::to_value(step)?))?;
            }
            text.push_str("\n]}");
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
