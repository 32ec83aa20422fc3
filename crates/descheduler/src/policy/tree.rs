//! YAML as a tree in which everything knows its line.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, Spanned};

use super::errors::PolicyError;

#[derive(Debug, Clone)]
pub struct Tree {
    pub line: usize,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    pub value: Tree,
}

impl Value {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// No part of a policy is nested more deeply. Each level takes much of the stack, and a thread may have little of it.
const DEEPEST: usize = 20;

/// Reads a document. A key that is there twice is an error.
pub fn parse(text: &str) -> Result<Tree, PolicyError> {
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: DEEPEST } };
    serde_saphyr::from_str_with_options(text, options).map_err(|why| {
        let line = why.location().map_or(0, |location| usize::try_from(location.line()).unwrap_or(0));
        let (message, hint) = in_words(why.without_snippet(), text.lines().nth(line.saturating_sub(1)));
        PolicyError { line, path: String::new(), message, hint: hint.map(str::to_owned) }
    })
}

/// What is wrong and what to do, for who wrote the file and does not know how it is read.
fn in_words(why: &Error, line: Option<&str>) -> (String, Option<&'static str>) {
    let is_tab = |line: &str| line.chars().take_while(|one| one.is_whitespace()).any(|one| one == '\t');
    match why {
        Error::DuplicateMappingKey { key: Some(key), .. } => (format!("the key {key} is there twice"), None),
        Error::DuplicateMappingKey { .. } => ("a key is there twice".to_owned(), None),
        Error::MultipleDocuments { .. } => (
            "there is more than one document, and a policy is one".to_owned(),
            Some("leave out what follows ---"),
        ),
        Error::UnknownAnchor { .. } => {
            ("an alias names nothing".to_owned(), Some("a text that begins with * needs quotes"))
        }
        Error::AliasError { error, .. } => in_words(error, line),
        Error::NonFiniteFloat { value, .. } => {
            (format!("{value} is not a finite number, and nothing in a policy takes another"), None)
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias names what it is a part of".to_owned(), Some("write out what it is to stand for"))
        }
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_many_aliases(),
        Error::Budget { breach, .. } => beyond_limits(breach),
        _ if line.is_some_and(is_tab) => {
            ("this line is indented by a tab".to_owned(), Some("YAML wants spaces"))
        }
        _ => (
            "from here on this is not YAML".to_owned(),
            Some(
                "look at the indentation, and for a colon, a quote or a bracket that is missing or too many",
            ),
        ),
    }
}

/// What is YAML, and more of it than any policy needs.
fn beyond_limits(breach: &BudgetBreach) -> (String, Option<&'static str>) {
    match breach {
        BudgetBreach::Depth { depth } => (
            format!("this is nested {depth} levels deep, and no part of a policy is"),
            Some("look for brackets or indentation that was not meant"),
        ),
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::MergeKeys { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::RecordedAnchorBytes { .. } => too_many_aliases(),
        _ => ("the file is too large for a policy, with what aliases in it stand for".to_owned(), None),
    }
}

fn too_many_aliases() -> (String, Option<&'static str>) {
    ("aliases stand for more than a policy can have".to_owned(), Some("write out what they stand for"))
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned: Spanned<Value> = Spanned::deserialize(deserializer)?;
        Ok(Self { line: line_of(&spanned), value: spanned.value })
    }
}

fn line_of<T>(spanned: &Spanned<T>) -> usize {
    usize::try_from(spanned.referenced.line()).unwrap_or(0)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(i128::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(i128::from(value)))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = access.next_element()? {
            list.push(one);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let line = line_of(&key);
            entries.push(Entry { key: key.value, line, value: access.next_value()? });
        }
        Ok(Value::Map(entries))
    }
}
