//! Objects as JSON and YAML.

use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::Error;

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
        let mut text = text.map_err(|why| Error::Server(format!("the answer cannot be written: {why}")))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
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
