//! Objects as JSON and YAML.

use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::Error;
use crate::terminal::is_unsafe;

/// How a list is written, where not as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// More columns.
    Wide,
    Json,
    Yaml,
    /// Only the names.
    Name,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Structured {
    Json,
    Yaml,
}

impl Structured {
    pub fn render(self, object: &impl Serialize) -> Result<String, Error> {
        let text = match self {
            Self::Json => serde_json::to_string_pretty(object).map_err(|why| why.to_string()),
            Self::Yaml => serde_saphyr::to_string(object).map_err(|why| why.to_string()),
        };
        let text = text.map(|text| self.without_controls(text, object));
        let mut text = text.map_err(|why| Error::Server(format!("the answer cannot be written: {why}")))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// JSON and YAML stay exact, but have to be safe to print: control characters beyond ASCII stand there as they are. In JSON each
    /// of them can be written as an escape; JSON is YAML, too, for the few objects that need it.
    fn without_controls(self, text: String, object: &impl Serialize) -> String {
        let is_raw = |letter: char| letter != '\n' && is_unsafe(letter);
        if !text.contains(is_raw) {
            return text;
        }
        let json = match self {
            Self::Json => text,
            Self::Yaml => serde_json::to_string_pretty(object).unwrap_or_default(),
        };
        let mut safe = String::with_capacity(json.len());
        for letter in json.chars() {
            match letter {
                raw if is_raw(raw) => safe.push_str(&format!("\\u{:04x}", u32::from(raw))),
                other => safe.push(other),
            }
        }
        safe
    }
}

/// Objects as kubectl lists them.
pub fn list_of(items: &[impl Serialize]) -> impl Serialize {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
}

/// An object by its kind and name, as kubectl prints and takes it.
pub fn name_of<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{}.{}/{}", K::kind(&()).to_lowercase(), K::group(&()), object.name_any())
}
