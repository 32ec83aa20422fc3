//! Label selectors of objects (`matchLabels`, `matchExpressions`) against labels.

use serde_json::Value;

/// A parsed `metav1.LabelSelector`. Absent or empty matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads a selector; the error says what is wrong with it.
    pub fn parse(selector: Option<&Value>) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let Some(selector) = selector else { return Ok(Self::default()) };
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_string();
                requirements.push(Requirement { key: key.clone(), test: Test::In(vec![value]) });
            }
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
            let values: Vec<String> = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_string))
                .collect();
            let test = match text("operator") {
                "In" | "NotIn" if values.is_empty() => {
                    return Err("for 'in', 'notin' operators, values set can't be empty".to_string());
                }
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    return Err("values set must be empty for exists and does not exist".to_string());
                }
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            requirements.push(Requirement { key: text("key").to_string(), test });
        }
        Ok(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels (an object, or nothing) meet every requirement. `NotIn` holds for an absent label.
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.and_then(|l| l.get(&requirement.key)).and_then(Value::as_str);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_of_label_selectors() {
        let expression = |op: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": op, "values": values}]});
        let cases = [
            ("empty matches everything", json!({}), json!({}), true),
            ("a label equal", json!({"matchLabels": {"a": "1"}}), json!({"a": "1"}), true),
            ("a label different", json!({"matchLabels": {"a": "1"}}), json!({"a": "2"}), false),
            ("all labels must match", json!({"matchLabels": {"a": "1", "b": "1"}}), json!({"a": "1"}), false),
            ("in", expression("In", json!(["1", "2"])), json!({"a": "2"}), true),
            ("in, absent", expression("In", json!(["1"])), json!({}), false),
            ("not in", expression("NotIn", json!(["1"])), json!({"a": "1"}), false),
            ("not in, absent", expression("NotIn", json!(["1"])), json!({}), true),
            ("exists", expression("Exists", json!([])), json!({"a": ""}), true),
            ("exists, absent", expression("Exists", json!([])), json!({}), false),
            ("does not exist", expression("DoesNotExist", json!(null)), json!({"a": ""}), false),
            ("does not exist, absent", expression("DoesNotExist", json!(null)), json!({}), true),
        ];
        for (rule, selector, labels, expected) in cases {
            assert_eq!(Selector::parse(Some(&selector)).unwrap().matches(Some(&labels)), expected, "{rule}");
        }
    }

    #[test]
    fn selectors_that_cannot_be_read() {
        for (operator, values) in [("In", json!([])), ("Exists", json!(["x"])), ("Like", json!([]))] {
            let selector =
                json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
            assert!(Selector::parse(Some(&selector)).is_err(), "{operator}");
        }
    }

    #[test]
    fn an_absent_selector_matches_an_object_without_labels() {
        assert!(Selector::parse(None).unwrap().matches(None));
    }
}
