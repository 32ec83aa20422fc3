//! Label selectors of the plain kind, `app=web,tier=front`, which both sides of a test can read.

use anyhow::{Result, anyhow};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Vec<(String, String)>);

impl Selector {
    /// # Errors
    /// Something in it is not `key=value`.
    pub fn parse(text: &str) -> Result<Self> {
        let part = |part: &str| {
            let (key, value) =
                part.split_once('=').ok_or_else(|| anyhow!("{part:?} is no key=value of a selector"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        };
        text.split(',').map(part).collect::<Result<_>>().map(Self)
    }

    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|(key, value)| labels[key] == value.as_str())
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(|why| serde::de::Error::custom(why.to_string()))
    }
}
