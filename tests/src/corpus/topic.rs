//! Topics, cases and steps, as they stand in the YAML files.

use crate::fingerprint;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names the only topics to run, separated by commas.
pub const ONLY: &str = "USHER_TOPICS";

/// One file of the corpus.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// The file name without `.yaml`.
    #[serde(skip)]
    pub name: String,
    /// What the cases of this file are about.
    pub about: String,
    /// Names for parts of paths and bodies; `{pods}` stands for the value of `pods`.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// A place for YAML anchors; not read otherwise.
    #[serde(default, rename = "shared")]
    _shared: Value,
    pub cases: Vec<Case>,
}

/// A few requests one after another, in a namespace of the case's own name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique in the corpus and a valid namespace name: the template `{ns}` stands for it.
    pub name: String,
    /// Changes with everything that is asked. A recording of another fingerprint is out of date.
    #[serde(skip)]
    pub fingerprint: String,
    /// False where the namespace must not be there when the case starts.
    #[serde(default = "yes")]
    pub namespace: bool,
    pub steps: Vec<Step>,
}

fn yes() -> bool {
    true
}

/// One request, and how its answer is compared. Exactly one of the methods names the path.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    pub get: Option<String>,
    pub post: Option<String>,
    pub put: Option<String>,
    pub patch: Option<String>,
    pub delete: Option<String>,
    pub head: Option<String>,
    pub options: Option<String>,
    /// Later steps refer to this answer by it: `{rv:made}`, `{uid:made}`, `{name:made}`, `{continue:made}`.
    #[serde(rename = "as")]
    pub alias: Option<String>,
    /// `admin` where not set.
    pub user: Option<String>,
    /// The content type: `json`, `merge`, `strategic`, `jsonpatch`, `apply`, or a media type as it stands.
    #[serde(rename = "type")]
    pub content_type: Option<String>,
    /// `table`, `meta`, `metalist`, or a media type as it stands.
    pub accept: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// Sent as JSON.
    pub body: Option<Value>,
    /// Sent as it is.
    pub raw: Option<String>,
    /// Makes `raw` this many bytes long by repeating it.
    pub repeat_to: Option<usize>,
    /// Reads the answer as a watch, until this many events have come or the server ends it.
    pub watch: Option<usize>,
    /// Asks again until the answer has this status: for what takes effect a moment after it was written.
    pub until: Option<u16>,
    pub compare: Compare,
    /// Parts of the answer that are not compared, as JSON pointers into the body.
    pub ignore: Vec<String>,
}

/// How an answer is compared with the recorded one.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// All of it.
    #[default]
    Equal,
    /// The status, and which fields of which type there are.
    Shape,
    /// The status only.
    Status,
    /// A list that may hold less than the real one's: entries with the same key must be equal, and the
    /// `required` ones must be there.
    Subset { list: String, key: String, required: Vec<String> },
}

impl Step {
    /// The method and the path template.
    ///
    /// # Errors
    /// Not exactly one of the methods is set.
    pub fn target(&self) -> Result<(http::Method, &str)> {
        let set: Vec<_> = [
            (http::Method::GET, &self.get),
            (http::Method::POST, &self.post),
            (http::Method::PUT, &self.put),
            (http::Method::PATCH, &self.patch),
            (http::Method::DELETE, &self.delete),
            (http::Method::HEAD, &self.head),
            (http::Method::OPTIONS, &self.options),
        ]
        .into_iter()
        .filter_map(|(method, path)| Some((method, path.as_deref()?)))
        .collect();
        match set.as_slice() {
            [(method, path)] => Ok((method.clone(), path)),
            other => bail!("a step has exactly one method, not {}", other.len()),
        }
    }
}

/// Reads all topics, sorted by name, and checks what the types cannot.
///
/// # Errors
/// A file cannot be read or breaks a rule of the corpus.
pub fn load(folder: &Path) -> Result<Vec<Topic>> {
    let mut topics = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_none_or(|extension| extension != "yaml") || name == "differences" {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        // The limits on anchors guard against hostile input, which the corpus is not. `y` and `n` are names here.
        let options = serde_saphyr::options! { budget: None, strict_booleans: true };
        let mut topic: Topic = serde_saphyr::from_str_with_options(&text, options)
            .with_context(|| format!("{} is no topic", path.display()))?;
        topic.name = name;
        let untyped: Value = serde_saphyr::from_str_with_options(
            &text,
            serde_saphyr::options! { budget: None, strict_booleans: true },
        )?;
        for (case, asked) in topic.cases.iter_mut().zip(untyped["cases"].as_array().into_iter().flatten()) {
            case.fingerprint = fingerprint(asked, &untyped["variables"]);
        }
        topics.push(topic);
    }
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    check(&topics)?;
    Ok(topics)
}

/// The topics that `USHER_TOPICS=a,b` names; all where it is not set.
///
/// # Errors
/// As for [`load`].
pub fn selected(folder: &Path) -> Result<Vec<Topic>> {
    let mut topics = load(folder)?;
    if let Ok(only) = std::env::var(ONLY) {
        topics.retain(|topic| only.split(',').any(|name| name == topic.name));
    }
    Ok(topics)
}

/// How an answer is compared does not change the answer.
fn fingerprint(case: &Value, variables: &Value) -> String {
    let mut case = case.clone();
    for step in case["steps"].as_array_mut().into_iter().flatten() {
        if let Value::Object(fields) = step {
            fields.remove("compare");
        }
    }
    fingerprint::of(&json!([case, variables]))
}

fn check(topics: &[Topic]) -> Result<()> {
    let mut names = BTreeSet::new();
    for case in topics.iter().flat_map(|topic| &topic.cases) {
        ensure!(names.insert(&case.name), "two cases are named {}", case.name);
        let valid = case.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(valid && case.name.len() <= 40, "{} cannot be a namespace name of a case", case.name);
        for step in &case.steps {
            step.target().with_context(|| format!("in case {}", case.name))?;
        }
    }
    Ok(())
}
