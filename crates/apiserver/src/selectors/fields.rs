//! Field selectors: names of a kind's selectable fields, compared with texts.

use crate::error::{ApiError, ApiResult};
use crate::kinds::Kind;
use crate::store::{Key, Meta};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Index into `Meta::fields`.
    Stored(usize),
}

/// Field requirements; every one must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    requirements: Vec<(Field, bool, String)>,
}

impl FieldSelector {
    pub(crate) fn parse(text: &str, kind: &Kind) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = term.split_once("==") {
                (key, true, value)
            } else if let Some((key, value)) = term.split_once('=') {
                (key, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            let field = match key {
                "metadata.name" => Field::Name,
                "metadata.namespace" if kind.namespaced => Field::Namespace,
                _ => match kind.selectable.iter().position(|(name, _)| name == key) {
                    Some(index) => Field::Stored(index),
                    None => return Err(unsupported_field(key, kind)),
                },
            };
            let value = unescape(value).map_err(|c| {
                ApiError::bad_request(format!(
                    "invalid field selector: unescaped character in value: {}",
                    c as u32
                ))
            })?;
            requirements.push((field, equal, value));
        }
        Ok(Self { requirements })
    }

    pub(crate) fn matches(&self, key: &Key, meta: &Meta) -> bool {
        self.requirements.iter().all(|(field, equal, wanted)| {
            let actual = match field {
                Field::Name => &*key.name,
                Field::Namespace => &*key.namespace,
                Field::Stored(index) => meta.fields.get(*index).map_or("", |v| &**v),
            };
            // An absent boolean reads as false, an absent count as 0.
            let same = actual == wanted || (actual.is_empty() && matches!(wanted.as_str(), "false" | "0"));
            same == *equal
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// Kinds with selectable fields of their own and those without word it differently.
fn unsupported_field(key: &str, kind: &Kind) -> ApiError {
    ApiError::bad_request(if kind.is_custom() || !kind.selectable.is_empty() {
        format!("field label not supported: {key}")
    } else {
        format!("\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The error is a character that should have been escaped.
fn unescape(value: &str) -> Result<String, char> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '=' | ',' => return Err(c),
            _ => out.push(c),
        }
    }
    Ok(out)
}
