//! Policies, right and wrong, and what the Go descheduler says of them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::recordings::{folder, header, without_header};
use crate::fingerprint;

/// A recording: the fingerprint of the policy, and `accepted` or `refused WHY`.
pub type Recorded = BTreeMap<String, (String, String)>;

/// What is recorded, by case.
///
/// # Errors
/// The file cannot be read.
pub fn recorded() -> Result<Recorded> {
    let text = fs::read_to_string(folder().join("policies.txt"))?;
    let line = |line: &str| -> Result<(String, (String, String))> {
        let (case, answer) = line.split_once(": ").with_context(|| line.to_owned())?;
        let (name, fingerprint) = case.split_once(' ').with_context(|| line.to_owned())?;
        Ok((name.to_owned(), (fingerprint.to_owned(), answer.to_owned())))
    };
    without_header(&text)?.lines().map(line).collect()
}

/// Writes answers, in the order of the cases.
///
/// # Errors
/// The file cannot be written.
pub fn record(answers: &[(PolicyCase, String)]) -> Result<()> {
    let mut text = header() + "\n";
    for (case, answer) in answers {
        text.push_str(&format!("{} {}: {answer}\n", case.name, case.fingerprint()));
    }
    Ok(fs::write(folder().join("policies.txt"), text)?)
}

/// A policy of one profile with one plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyCase {
    pub name: String,
    /// More keys at the top.
    #[serde(default)]
    top: Map<String, Value>,
    /// More keys of the profile, in place of those that there are.
    #[serde(default)]
    profile: Map<String, Value>,
    #[serde(default)]
    evictor: Option<Value>,
    #[serde(default)]
    plugin: Option<String>,
    #[serde(default)]
    args: Option<Value>,
    /// Why ours refuses it, where the Go descheduler does not.
    #[serde(default)]
    pub stricter: Option<String>,
}

impl PolicyCase {
    /// Changes with the policy. A recording of another fingerprint is out of date.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint::of(&Value::String(self.policy()))
    }

    /// The whole policy.
    #[must_use]
    pub fn policy(&self) -> String {
        let plugin = self.plugin.as_deref().unwrap_or("RemovePodsViolatingNodeTaints");
        let mut configs = vec![json!({"name": plugin, "args": self.args.clone().unwrap_or(json!({}))})];
        configs.extend(self.evictor.iter().map(|args| json!({"name": "DefaultEvictor", "args": args})));
        let balances = ["RemoveDuplicates", "LowNodeUtilization", "HighNodeUtilization"];
        let point =
            if balances.contains(&plugin) || plugin.contains("Spread") { "balance" } else { "deschedule" };
        let mut profile = Map::from_iter([
            ("name".to_owned(), json!("p")),
            ("pluginConfig".to_owned(), json!(configs)),
            ("plugins".to_owned(), json!({point: {"enabled": [plugin]}})),
        ]);
        profile.extend(self.profile.clone());
        let mut policy = Map::from_iter([
            ("apiVersion".to_owned(), json!("descheduler/v1alpha2")),
            ("kind".to_owned(), json!("DeschedulerPolicy")),
            ("profiles".to_owned(), json!([profile])),
        ]);
        policy.extend(self.top.clone());
        Value::Object(policy).to_string()
    }
}

/// All cases.
///
/// # Errors
/// The file cannot be read.
pub fn load() -> Result<Vec<PolicyCase>> {
    Ok(serde_saphyr::from_str(&fs::read_to_string(folder().join("policies.yaml"))?)?)
}
