//! Reading scenario files, and making a scenario of each row of a table of cases.

use super::Scenario;
use crate::fingerprint;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Fields that do not change how a scenario ends.
const WITHOUT_EFFECT: [&str; 3] = ["title", "embeddedOnly", "judge"];

/// Reads all scenarios, by topic and name.
///
/// # Errors
/// A file cannot be read; the error names it, the place, and what is allowed.
pub fn load(folder: &Path) -> Result<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    for topic in sorted(folder)?.into_iter().filter(|path| path.is_dir() && stem(path) != "recorded") {
        for file in sorted(&topic)? {
            let place = format!("{}/{}.yaml", stem(&topic), stem(&file));
            ensure!(file.extension().is_some_and(|extension| extension == "yaml"), "{place} is no YAML file");
            let text = std::fs::read_to_string(&file)?;
            let read = read(&text, &stem(&topic), &stem(&file)).with_context(|| place)?;
            scenarios.extend(read);
        }
    }
    let mut names = BTreeSet::new();
    for scenario in &scenarios {
        let name = &scenario.name;
        ensure!(names.insert(name), "two scenarios are named {name}");
        let valid = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(valid && name.len() <= 40, "{name} cannot be the name of a namespace");
    }
    Ok(scenarios)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

fn read(text: &str, topic: &str, file: &str) -> Result<Vec<Scenario>> {
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    let mut form: Map<String, Value> = serde_saphyr::from_str_with_options(text, options)?;
    let rows = match form.remove("cases") {
        None => vec![Map::new()],
        Some(Value::Array(rows)) => {
            let row = |row| serde_json::from_value(row).context("cases: a list of maps is wanted");
            rows.into_iter().map(row).collect::<Result<_>>()?
        }
        Some(_) => bail!("cases: a list of maps is wanted"),
    };
    let make = |mut row: Map<String, Value>| {
        let case = row.remove("case");
        let name = match &case {
            Some(Value::String(case)) => format!("{file}-{case}"),
            Some(_) => bail!("case: a name is wanted"),
            None if row.is_empty() => file.to_owned(),
            None => bail!("each of the cases has a name, as `case`"),
        };
        let form = filled(&Value::Object(form.clone()), &row);
        let fingerprint = fingerprint(&form);
        let scenario: Scenario = serde_json::from_value(form).with_context(|| name.clone())?;
        Ok(Scenario { topic: topic.to_owned(), name, fingerprint, ..scenario })
    };
    rows.into_iter().map(make).collect()
}

fn fingerprint(form: &Value) -> String {
    let mut form = form.clone();
    if let Value::Object(fields) = &mut form {
        fields.retain(|field, _| !WITHOUT_EFFECT.contains(&field.as_str()));
    }
    fingerprint::of(&form)
}

/// Puts the values of a row where `{key}` stands. A text that is nothing else becomes the value itself, whatever its
/// type, and a field whose value is null goes.
fn filled(form: &Value, row: &Map<String, Value>) -> Value {
    match form {
        Value::String(text) => {
            let whole = row.iter().find(|(key, _)| *text == format!("{{{key}}}"));
            whole.map(|(_, value)| value.clone()).unwrap_or_else(|| {
                let put = |text: String, (key, value): (&String, &Value)| {
                    let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    text.replace(&format!("{{{key}}}"), &plain)
                };
                Value::String(row.iter().fold(text.clone(), put))
            })
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, row)).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(key, value)| {
                let new = filled(value, row);
                (!new.is_null() || value.is_null()).then(|| (key.clone(), new))
            });
            Value::Object(kept.collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "
title: '{policy} is the policy'
given: {objects: [{budget: web, policy: '{policy}', max: '{max}'}]}
steps: [{wait: 1s}]
cases:
- {case: unset, policy: null, max: 1}
- {case: always, policy: AlwaysAllow, max: 50%}
";

    #[test]
    fn each_row_of_a_table_is_a_scenario() {
        let scenarios = read(TABLE, "t", "f").unwrap();
        let names: Vec<_> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names, ["f-unset", "f-always"]);
        assert_eq!(scenarios[0].given.objects[0], serde_json::json!({"budget": "web", "max": 1}));
        assert_eq!(scenarios[1].title, "AlwaysAllow is the policy");
    }

    #[test]
    fn a_recording_of_a_scenario_is_out_of_date_when_a_step_changes_and_not_when_its_title_does() {
        let fingerprint = |title: &str, wait: &str| {
            let text = format!("title: {title}\nsteps: [{{wait: {wait}}}]");
            read(&text, "t", "f").unwrap().remove(0).fingerprint
        };
        assert_eq!(fingerprint("one", "1s"), fingerprint("another", "1s"));
        assert_ne!(fingerprint("one", "1s"), fingerprint("one", "2s"));
    }

    #[test]
    fn a_wrong_field_is_told_with_those_that_are_allowed() {
        let why = format!("{:#}", read("title: t\nstep: []", "t", "f").unwrap_err());
        assert!(why.contains("unknown field `step`") && why.contains("`steps`"), "{why}");
    }
}
