//! Ours refuses every policy that the Go descheduler refuses. Those that it refuses beyond that say why.
//!
//! `USHER_RECORD=1` asks the Go descheduler again.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use usher_descheduler::Policy;
use usher_tests::descheduling::judge::{Asking, Judge};
use usher_tests::descheduling::{Snapshot, Subject};

/// A policy of one profile with one plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    name: String,
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
    stricter: Option<String>,
}

impl Case {
    fn policy(&self) -> String {
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

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/descheduler")
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(&fs::read_to_string(folder().join("policies.yaml")).unwrap()).unwrap()
}

#[test]
fn the_recordings_of_policies_that_the_go_descheduler_refuses() {
    if !std::env::var("USHER_RECORD").is_ok_and(|value| value == "1") {
        return;
    }
    let mut judge = Judge::start().unwrap();
    let subject = Subject::all().next().unwrap();
    let cluster = Snapshot::make(subject, 1, Timestamp::now()).objects;
    let mut text = String::new();
    for case in cases() {
        let asking = Asking { least: 1, most: 1, own_indexes: false };
        let answer = judge.ask(&case.policy(), &cluster, asking).unwrap();
        match answer.refused {
            None => text.push_str(&format!("{}: accepted\n", case.name)),
            Some(why) => text.push_str(&format!("{}: refused {}\n", case.name, why.replace('\n', " "))),
        }
    }
    fs::write(folder().join("policies.txt"), text).unwrap();
}

#[test]
fn policies_that_the_go_descheduler_refuses_are_refused() {
    let recorded = fs::read_to_string(folder().join("policies.txt")).unwrap();
    let recorded: BTreeMap<&str, &str> = recorded.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut wrong = Vec::new();
    for case in cases() {
        let ours = Policy::read(&case.policy());
        let says = |errors: &dyn std::fmt::Display| errors.to_string().replace('\n', " ");
        let go = recorded.get(case.name.as_str()).copied().unwrap_or("not recorded");
        match (go == "accepted", &ours, &case.stricter) {
            (true, Ok(_), None) | (true, Err(_), Some(_)) => {}
            (false, Err(_), None) if go.starts_with("refused") => {}
            (_, Ok(_), _) => wrong.push(format!("{}: Go {go}, ours accepts", case.name)),
            (_, Err(errors), _) => wrong.push(format!("{}: Go {go}, ours: {}", case.name, says(errors))),
        }
    }
    assert!(wrong.is_empty(), "{} differ, or need no reason any more:\n{}", wrong.len(), wrong.join("\n"));
}
