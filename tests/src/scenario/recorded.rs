//! How the scenarios ended on the real cluster, kept so that the embedded one can be judged without it.

use super::outcome::Outcome;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The outcomes of a topic, by scenario.
pub type Recorded = BTreeMap<String, Outcome>;

fn file(folder: &Path, topic: &str) -> PathBuf {
    folder.join("recorded").join(format!("{topic}.json"))
}

/// What is recorded of a topic; nothing where there is no file.
///
/// # Errors
/// The file cannot be read.
pub fn load(folder: &Path, topic: &str) -> Result<Recorded> {
    let path = file(folder, topic);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Recorded::new()),
        Err(why) => Err(why).with_context(|| path.display().to_string()),
    }
}

/// # Errors
/// The file cannot be written.
pub fn save(folder: &Path, topic: &str, recorded: &Recorded) -> Result<()> {
    let path = file(folder, topic);
    let text = serde_json::to_string_pretty(recorded)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}
