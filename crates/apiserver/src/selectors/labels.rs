//! Label selectors, as text or as an object.

use serde_json::Value;

use super::label_text;
use crate::error::{ApiError, ApiResult};
use crate::store::Meta;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    pub key: String,
    pub op: Op,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.op {
            Op::Exists => value.is_some(),
            Op::Absent => value.is_none(),
            Op::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
            Op::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
            Op::Greater(bound) => number().is_some_and(|n| n > *bound),
            Op::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// All requirements must hold; an empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// The text form of query parameters: `app=web,tier in (a,b),!old`.
    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        let requirements = label_text::parse(text).map_err(ApiError::bad_request)?;
        Ok(Self { requirements })
    }

    /// The object form, `matchLabels` and `matchExpressions`; the error says what is wrong with it. Absent or empty
    /// matches everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let Some(selector) = selector else { return Ok(Self::default()) };
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_string();
            requirements.push(Requirement { key: key.clone(), op: Op::In(vec![value]) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values: Vec<String> = values.filter_map(|v| v.as_str().map(str::to_string)).collect();
            let op = match text("operator") {
                "In" | "NotIn" if values.is_empty() => {
                    return Err("for 'in', 'notin' operators, values set can't be empty".to_string());
                }
                "In" => Op::In(values),
                "NotIn" => Op::NotIn(values),
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    return Err("values set must be empty for exists and does not exist".to_string());
                }
                "Exists" => Op::Exists,
                "DoesNotExist" => Op::Absent,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            requirements.push(Requirement { key: text("key").to_string(), op });
        }
        Ok(Self { requirements })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, meta: &Meta) -> bool {
        self.requirements.iter().all(|r| r.matches(meta.label(&r.key)))
    }

    /// Against labels by name.
    pub fn matches_map(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
    }

    /// Against `metadata.labels` of an object.
    pub(crate) fn matches_labels(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|r| r.matches(labels.get(&r.key).and_then(Value::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches_labels(labels)
    }

    #[test]
    fn text_selectors_match_as_kubectl_users_expect() {
        let labels = json!({"app": "web", "tier": "front", "size": "5"});
        for selector in [
            "",
            "app=web",
            "app==web",
            "app!=api",
            "app",
            "!old",
            "app in (web,api)",
            "app notin (api)",
            "tier in (front), app=web",
            "size>4",
            "size<6",
            "missing!=x",
            "missing notin (x)",
        ] {
            assert!(matches(selector, &labels), "{selector}");
        }
        for selector in [
            "app=api",
            "!app",
            "old",
            "app in (api)",
            "app notin (web)",
            "size>5",
            "missing in (x)",
            "app=",
            "app>1",
        ] {
            assert!(!matches(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn broken_text_is_refused_with_400() {
        for selector in
            ["app in web", "a=b c", ",", "a//b=c", "a=bad!value", "a in (b", "=x", "app=web,", "size>x"]
        {
            let error = LabelSelector::parse(selector).unwrap_err();
            assert_eq!((error.code, error.reason), (400, "BadRequest"), "{selector}");
        }
    }

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
            assert_eq!(
                LabelSelector::from_object(Some(&selector)).unwrap().matches_labels(&labels),
                expected,
                "{rule}"
            );
        }
    }

    #[test]
    fn selectors_that_cannot_be_read() {
        for (operator, values) in [("In", json!([])), ("Exists", json!(["x"])), ("Like", json!([]))] {
            let selector =
                json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
            assert!(LabelSelector::from_object(Some(&selector)).is_err(), "{operator}");
        }
    }
}
