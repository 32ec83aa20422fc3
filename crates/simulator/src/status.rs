//! Statuses are written only when they say something new.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use embedded_apiserver::clock::rfc3339;

/// Counts that say zero, too: absent, nobody has counted yet.
const SAID_WHEN_ZERO: [&str; 3] = ["terminatingReplicas", "terminating", "ready"];

/// The part of `wanted` that `current` does not say yet. Other counts of zero and absent ones are the same.
pub(crate) fn difference(current: &Value, wanted: Value) -> Option<Value> {
    let Value::Object(wanted) = wanted else { return None };
    let is_zero =
        |value: &Value| value.is_null() || *value == 0 || *value == json!({}) || *value == json!([]);
    let new: Map<String, Value> = wanted
        .into_iter()
        .filter(|(field, value)| {
            let is = &current[field.as_str()];
            let is_same = is_zero(is) && is_zero(value) && !SAID_WHEN_ZERO.contains(&field.as_str());
            is != value && !is_same
        })
        .collect();
    (!new.is_empty()).then_some(Value::Object(new))
}

/// A condition as it is to be written: its times move only with its status, and it is left out if it says nothing new.
pub(crate) fn condition(
    current: &Value,
    kind: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Option<Value> {
    let is = current["conditions"].as_array().and_then(|list| list.iter().find(|c| c["type"] == kind));
    let text = |field: &str| is.and_then(|is| is[field].as_str()).unwrap_or_default();
    if is.is_some() && (text("status"), text("reason"), text("message")) == (status, reason, message) {
        return None;
    }
    let since = if is.is_some() && text("status") == status {
        text("lastTransitionTime").to_string()
    } else {
        rfc3339(now)
    };
    Some(
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_written() {
        let current = json!({"replicas": 3, "readyReplicas": 2});
        assert_eq!(
            difference(&current, json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 0})),
            None
        );
        assert_eq!(
            difference(&current, json!({"replicas": 3, "readyReplicas": 3})),
            Some(json!({"readyReplicas": 3}))
        );
        let zero = json!({"terminatingReplicas": 0});
        assert_eq!(difference(&current, zero.clone()), Some(zero.clone()));
        assert_eq!(difference(&zero, zero.clone()), None);
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let current = json!({"conditions": [
            {"type": "Available", "status": "True", "reason": "A", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]});
        let at = |what| condition(&current, "Available", what, Timestamp::UNIX_EPOCH);
        assert_eq!(at(("True", "A", "m")), None);
        assert_eq!(at(("True", "B", "m")).unwrap()["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(at(("False", "B", "m")).unwrap()["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }
}
