//! Filling in what a step takes from its case, its topic, or an earlier answer.

use anyhow::{Result, anyhow, bail};
use serde_json::Value;
use std::collections::BTreeMap;

/// What templates may refer to while a case runs.
#[derive(Debug, Default)]
pub struct Scope {
    /// `{ns}` and the variables of the topic.
    pub variables: BTreeMap<String, String>,
    /// Answers of earlier steps, by alias, as the server gave them.
    pub answers: BTreeMap<String, Value>,
}

impl Scope {
    /// Replaces every `{name}` and `{field:alias}`. Other braces, such as those of JSON, stay.
    ///
    /// # Errors
    /// A template refers to a step that does not exist, or to a field its answer lacks.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let (before, from) = rest.split_at(start);
            filled.push_str(before);
            let value = match from[1..].split_once('}') {
                Some((name, after)) => self.value(name)?.map(|value| (value, after)),
                None => None,
            };
            match value {
                Some((value, after)) => {
                    filled.push_str(&value);
                    rest = after;
                }
                None => {
                    filled.push('{');
                    rest = &from[1..];
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Fills every string and every key.
    ///
    /// # Errors
    /// As for [`Scope::fill`].
    pub fn fill_value(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill_value(item)).collect::<Result<_>>()?)
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| Ok((self.fill(key)?, self.fill_value(value)?)))
                    .collect::<Result<_>>()?,
            ),
            other => other.clone(),
        })
    }

    /// None where `name` is no template at all.
    fn value(&self, name: &str) -> Result<Option<String>> {
        if let Some(value) = self.variables.get(name) {
            // Variables of a topic may themselves hold `{ns}`.
            return self.fill(value).map(Some);
        }
        let Some((field, alias)) = name.split_once(':') else { return Ok(None) };
        if !alias.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        let pointer = match field {
            "rv" => "/metadata/resourceVersion",
            "uid" => "/metadata/uid",
            "name" => "/metadata/name",
            "continue" => "/metadata/continue",
            _ => return Ok(None),
        };
        let Some(answer) = self.answers.get(alias) else {
            bail!("no step before this one is called {alias}")
        };
        let value = answer.pointer(pointer).and_then(Value::as_str);
        value
            .map(|value| Some(value.to_owned()))
            .ok_or_else(|| anyhow!("the answer of {alias} has no {pointer}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope() -> Scope {
        let variables = [("ns", "case"), ("pods", "/namespaces/{ns}/pods")];
        Scope {
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            answers: BTreeMap::from([("made".to_owned(), json!({"metadata": {"resourceVersion": "7"}}))]),
        }
    }

    #[test]
    fn variables_and_earlier_answers_are_filled_in() {
        assert_eq!(scope().fill("{pods}/a?rv={rv:made}").unwrap(), "/namespaces/case/pods/a?rv=7");
    }

    #[test]
    fn braces_that_are_no_template_stay() {
        assert_eq!(scope().fill(r#"{"a":{"b":"{ns}"}}"#).unwrap(), r#"{"a":{"b":"case"}}"#);
        assert_eq!(scope().fill("{name: {ns}}").unwrap(), "{name: case}");
    }

    #[test]
    fn an_answer_that_is_not_there_is_an_error() {
        assert!(scope().fill("{rv:other}").is_err());
        assert!(scope().fill("{uid:made}").is_err());
    }
}
