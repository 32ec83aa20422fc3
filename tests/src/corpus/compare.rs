//! Comparing two answers, field by field.

use super::recorded::RecordedAnswer;
use super::topic::Compare;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One place where an answer is not what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Such as `body.spec.containers[0].image`.
    pub path: String,
    /// None: not there.
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("(nothing)".to_owned(), Value::to_string);
        let (expected, actual) = (text(&self.expected), text(&self.actual));
        // Long texts are mostly the same; the interesting part starts where they part.
        let same = expected.chars().zip(actual.chars()).take_while(|(left, right)| left == right).count();
        let skipped = if same > 2 * CONTEXT { same - CONTEXT } else { 0 };
        let (expected, actual) = (excerpt(&expected, skipped), excerpt(&actual, skipped));
        write!(formatter, "{}: expected {expected}  got {actual}", self.path)
    }
}

/// Characters shown of what is the same in front of a difference.
const CONTEXT: usize = 40;

fn excerpt(text: &str, skipped: usize) -> String {
    const LONGEST: usize = 400;
    let shown: String = text.chars().skip(skipped).take(LONGEST).collect();
    let before = if skipped > 0 { "..." } else { "" };
    let after = if text.chars().count() > skipped + LONGEST { "..." } else { "" };
    format!("{before}{shown}{after}")
}

/// All differences between what the real API server answered and `actual`.
#[must_use]
pub fn compare(expected: &RecordedAnswer, actual: &RecordedAnswer, how: &Compare) -> Vec<Difference> {
    let mut found = Vec::new();
    if expected.status != actual.status {
        // The rest of the two answers has nothing in common, so a summary says more than the fields.
        let difference = |answer| Some(Value::String(summary(answer)));
        return vec![Difference {
            path: "status".to_owned(),
            expected: difference(expected),
            actual: difference(actual),
        }];
    }
    if matches!(how, Compare::Status) {
        return found;
    }
    let texts = |texts: &[String]| Value::from(texts.to_vec());
    differ("warnings", &texts(&expected.warnings), &texts(&actual.warnings), &mut found);
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
    differ("retryAfter", &text(&expected.retry_after), &text(&actual.retry_after), &mut found);
    differ("contentType", &text(&expected.content_type), &text(&actual.content_type), &mut found);
    match how {
        Compare::Status => {}
        Compare::Equal => differ("body", &expected.body, &actual.body, &mut found),
        Compare::Shape => differ("body", &shape(&expected.body), &shape(&actual.body), &mut found),
        Compare::Subset { list, key, required } => {
            let pointer = format!("/{list}");
            let entries = |body: &Value| entries_by_key(body.pointer(&pointer), key);
            let (real, ours) = (entries(&expected.body), entries(&actual.body));
            for (name, entry) in &ours {
                let path = format!("body.{list}[{name}]");
                match real.get(name) {
                    Some(real) => differ(&path, real, entry, &mut found),
                    None => found.push(Difference { path, expected: None, actual: Some(entry.clone()) }),
                }
            }
            for name in required.iter().filter(|name| !ours.contains_key(*name)) {
                let expected = real.get(name).cloned();
                found.push(Difference { path: format!("body.{list}[{name}]"), expected, actual: None });
            }
        }
    }
    found
}

/// The status and what the answer is or says.
fn summary(answer: &RecordedAnswer) -> String {
    let field = |name: &str| answer.body.get(name).and_then(Value::as_str);
    match field("message").or_else(|| field("kind")) {
        Some(text) => format!("{} {text}", answer.status),
        None => format!("{} {}", answer.status, answer.body),
    }
}

fn entries_by_key(list: Option<&Value>, key: &str) -> BTreeMap<String, Value> {
    let entries = list.and_then(Value::as_array).into_iter().flatten();
    entries
        .map(|entry| {
            let name = entry.pointer(&format!("/{key}")).and_then(Value::as_str).unwrap_or_default();
            (name.to_owned(), entry.clone())
        })
        .collect()
}

/// The value with every leaf replaced by its type.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(shape).collect()),
        Value::String(_) => "string".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "bool".into(),
        Value::Null => Value::Null,
    }
}

fn differ(path: &str, expected: &Value, actual: &Value, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => differ(&path, left, right, found),
                    (left, right) => {
                        found.push(Difference { path, expected: left.cloned(), actual: right.cloned() });
                    }
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differ(&format!("{path}[{index}]"), left, right, found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push(Difference {
            path: path.to_owned(),
            expected: Some(left.clone()),
            actual: Some(right.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(body: Value) -> RecordedAnswer {
        RecordedAnswer { body, ..RecordedAnswer::unsent("") }
    }

    fn paths(expected: Value, actual: Value, how: &Compare) -> Vec<String> {
        compare(&answer(expected), &answer(actual), how).into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn every_place_that_differs_is_named() {
        let real = json!({"spec": {"a": 1, "b": [1, {"c": 2}]}, "kind": "Pod"});
        let ours = json!({"spec": {"a": 1, "b": [1, {"c": 3}], "d": 0}});
        assert_eq!(paths(real, ours, &Compare::Equal), ["body.kind", "body.spec.b[1].c", "body.spec.d"]);
    }

    #[test]
    fn answers_of_another_status_are_summed_up() {
        let refused = RecordedAnswer { status: 409, ..answer(json!({"kind": "Status", "message": "no"})) };
        let found = compare(&refused, &answer(json!({"kind": "Pod"})), &Compare::Equal);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "status: expected \"409 no\"  got \"0 Pod\"");
    }

    #[test]
    fn a_subset_may_hold_less_but_nothing_else_and_not_too_little() {
        let real = json!({"resources": [{"name": "pods", "v": 1}, {"name": "nodes", "v": 1}, {"name": "x"}]});
        let how = Compare::Subset {
            list: "resources".into(),
            key: "name".into(),
            required: vec!["pods".into(), "nodes".into()],
        };
        let good = json!({"resources": [{"name": "nodes", "v": 1}, {"name": "pods", "v": 1}]});
        assert!(paths(real.clone(), good, &how).is_empty());
        let bad = json!({"resources": [{"name": "pods", "v": 2}, {"name": "own"}]});
        let expected = ["body.resources[own]", "body.resources[pods].v", "body.resources[nodes]"];
        assert_eq!(paths(real, bad, &how), expected);
    }

    #[test]
    fn a_shape_has_fields_and_types_but_no_values() {
        assert!(paths(json!({"major": "1"}), json!({"major": "2"}), &Compare::Shape).is_empty());
        assert_eq!(paths(json!({"major": "1"}), json!({"major": 1}), &Compare::Shape), ["body.major"]);
    }
}
