//! Rules of the statuses that controllers write: counts are not negative and do not exceed each other.

use serde_json::Value;

use super::NEGATIVE;
use super::fields::int_at;
use crate::error::FieldError;

/// The counts of a kind's status, and for some the count that they may not exceed.
fn counts(group: &str, kind: &str) -> &'static [(&'static str, Option<&'static str>)] {
    match (group, kind) {
        ("policy", "PodDisruptionBudget") => &[
            ("disruptionsAllowed", None),
            ("currentHealthy", None),
            ("desiredHealthy", None),
            ("expectedPods", None),
        ],
        ("apps", "Deployment") => &[
            ("observedGeneration", None),
            ("replicas", None),
            ("updatedReplicas", Some("replicas")),
            ("readyReplicas", Some("replicas")),
            ("availableReplicas", Some("replicas")),
            ("unavailableReplicas", None),
        ],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &[
            ("replicas", None),
            ("fullyLabeledReplicas", Some("replicas")),
            ("readyReplicas", Some("replicas")),
            ("availableReplicas", Some("replicas")),
            ("observedGeneration", None),
        ],
        ("apps", "StatefulSet") => &[
            ("replicas", None),
            ("readyReplicas", Some("replicas")),
            ("currentReplicas", Some("replicas")),
            ("updatedReplicas", Some("replicas")),
            ("availableReplicas", Some("replicas")),
        ],
        _ => &[],
    }
}

pub(crate) fn validate(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    let status = &object["status"];
    let count = |field: &str| int_at(status, field).unwrap_or_default();
    let counts = counts(group, kind);
    let negative = counts
        .iter()
        .filter(|(field, _)| count(field) < 0)
        .map(|(field, _)| FieldError::invalid(format!("status.{field}"), count(field), NEGATIVE));
    let exceeding = counts.iter().filter_map(|(field, limit)| {
        let limit = (*limit)?;
        (count(field) > count(limit)).then(|| {
            let detail = format!("cannot be greater than status.{limit}");
            FieldError::invalid(format!("status.{field}"), count(field), detail)
        })
    });
    let mut errors: Vec<FieldError> = negative.chain(exceeding).collect();
    // What is available is ready; the kinds word it differently.
    let counts_available = counts.iter().any(|(field, _)| *field == "availableReplicas");
    if counts_available && count("availableReplicas") > count("readyReplicas") {
        let ready = if kind == "StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
        let detail = format!("cannot be greater than {ready}");
        errors.push(FieldError::invalid("status.availableReplicas", count("availableReplicas"), detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_not_negative_and_do_not_exceed_the_replicas() {
        let cases = [
            (json!({"replicas": 3, "readyReplicas": 3}), vec![]),
            (json!({"replicas": 1, "readyReplicas": 2}), vec!["status.readyReplicas"]),
            (json!({"replicas": 2, "availableReplicas": 1}), vec!["status.availableReplicas"]),
            (json!({"replicas": 1, "unavailableReplicas": -1}), vec!["status.unavailableReplicas"]),
        ];
        for (status, want) in cases {
            let object = json!({"status": status});
            let errors = validate("apps", "Deployment", &object);
            let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(fields, want, "{object}");
        }
    }
}
