//! Known differences between how scenarios end on the embedded cluster and on the real one, each with its reason.

use super::outcome::Difference;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excuse {
    /// Where, with `*` for anything: `/status/deployments/*/terminatingReplicas`.
    pub at: String,
    /// Only in this scenario.
    pub scenario: Option<String>,
    pub why: String,
}

impl Excuse {
    #[must_use]
    pub fn excuses(&self, scenario: &str, difference: &Difference) -> bool {
        self.scenario.as_ref().is_none_or(|only| only == scenario) && matches(&self.at, &difference.at)
    }
}

/// # Errors
/// The file cannot be read.
pub fn load(folder: &Path) -> Result<Vec<Excuse>> {
    let path = folder.join("differences.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Parts between stars must come in this order, the first at the start and the last at the end.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, holds) in [
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/d", false),
            ("/a/*", "/a/b/d", true),
            ("/a", "/a/b", false),
            ("/*/x*", "/a/xy", true),
        ] {
            assert_eq!(matches(pattern, text), holds, "{pattern} {text}");
        }
    }
}
