//! How the scenarios ended on the real cluster, kept so that the embedded one can be judged without it.

use super::Scenario;
use super::outcome::Outcome;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a scenario ended on the real cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The version of the API server, such as `v1.37.1`.
    pub server: String,
    /// The [`Scenario::fingerprint`] of what was played.
    pub scenario: String,
    pub outcome: Outcome,
}

impl Recording {
    /// The scenario is still what was played.
    #[must_use]
    pub fn is_of(&self, scenario: &Scenario) -> bool {
        self.scenario == scenario.fingerprint
    }
}

/// The recordings of a topic, by scenario.
pub type Recorded = BTreeMap<String, Recording>;

fn file(folder: &Path, topic: &str) -> PathBuf {
    folder.join("recorded").join(format!("{topic}.json"))
}

/// Reads the recordings of a topic. A topic without a file has none.
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
