//! The status of a definition: whether its names are free, and whether it is served.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::approval::{Approval, approval, is_protected_group};
use super::{text, texts};

/// Names that other definitions of the same group already hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimedNames {
    /// Plurals, singulars and short names.
    pub resources: Vec<String>,
    /// Kinds and list kinds.
    pub kinds: Vec<String>,
}

impl ClaimedNames {
    /// Adds what another definition's status holds.
    pub(crate) fn add(&mut self, crd: &Value) {
        let accepted = &crd["status"]["acceptedNames"];
        self.resources.extend([text(&accepted["plural"]), text(&accepted["singular"])]);
        self.resources.extend(texts(&accepted["shortNames"]));
        self.kinds.extend([text(&accepted["kind"]), text(&accepted["listKind"])]);
        self.resources.retain(|name| !name.is_empty());
        self.kinds.retain(|name| !name.is_empty());
    }
}

pub(crate) fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The status that the server's controllers would settle on, at once: accepted names, conditions, stored
/// versions.
pub(crate) fn compute_status(crd: &Value, claimed: &ClaimedNames, now: Timestamp) -> Value {
    let requested = &crd["spec"]["names"];
    let before = &crd["status"]["acceptedNames"];
    let mut accepted = before.as_object().cloned().unwrap_or_default();
    let mut conflict: Option<(&str, String)> = None;
    let taken = |name: &str, used: &[String]| used.iter().any(|u| u == name);
    let checks = [
        ("plural", "PluralConflict", &claimed.resources),
        ("singular", "SingularConflict", &claimed.resources),
        ("shortNames", "ShortNamesConflict", &claimed.resources),
        ("kind", "KindConflict", &claimed.kinds),
        ("listKind", "ListKindConflict", &claimed.kinds),
    ];
    for (field, reason, used) in checks {
        let held = if field == "shortNames" { texts(&before[field]) } else { vec![text(&before[field])] };
        let wanted =
            if field == "shortNames" { texts(&requested[field]) } else { vec![text(&requested[field])] };
        let conflicts: Vec<String> = wanted
            .iter()
            .filter(|name| !held.contains(name) && taken(name, used))
            .map(|name| format!("\"{name}\" is already in use"))
            .collect();
        if conflicts.is_empty() {
            match requested.get(field) {
                Some(value) => accepted.insert(field.to_string(), value.clone()),
                None => accepted.remove(field),
            };
        } else {
            let message = match conflicts.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            conflict = Some((reason, message));
        }
    }
    match requested.get("categories") {
        Some(categories) => accepted.insert("categories".to_string(), categories.clone()),
        None => accepted.remove("categories"),
    };
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }
    let names_accepted = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_string()),
        Some((reason, message)) => ("False", *reason, message.clone()),
    };
    let established = match &conflict {
        _ if is_established(crd) => None,
        None => Some(("True", "InitialNamesAccepted", "the initial names have been accepted".to_string())),
        Some(_) => Some(("False", "NotAccepted", "not all names are accepted".to_string())),
    };
    let mut conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    set_condition(&mut conditions, "NamesAccepted", names_accepted, now);
    if let Some(established) = established {
        set_condition(&mut conditions, "Established", established, now);
    }
    if let Some(approval) = approval_condition(crd) {
        set_condition(&mut conditions, "KubernetesAPIApprovalPolicyConformant", approval, now);
    }
    json!({
        "acceptedNames": accepted,
        "conditions": conditions,
        "storedVersions": stored_versions(crd),
    })
}

/// Every version that was ever the storage version, the present one last.
fn stored_versions(crd: &Value) -> Vec<String> {
    let mut stored = texts(&crd["status"]["storedVersions"]);
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let name = text(&version["name"]);
        if version["storage"] == true && !stored.contains(&name) {
            stored.push(name);
        }
    }
    stored
}

/// Definitions in the project's own groups carry a condition about their approval.
fn approval_condition(crd: &Value) -> Option<(&'static str, &'static str, String)> {
    if !is_protected_group(&text(&crd["spec"]["group"])) {
        return None;
    }
    let (state, reason) = approval(crd);
    Some(match state {
        Approval::Invalid => ("False", "InvalidAnnotation", reason),
        Approval::Missing => ("False", "MissingAnnotation", reason),
        Approval::Approved => ("True", "ApprovedAnnotation", reason),
        Approval::Bypassed => ("False", "UnapprovedAnnotation", reason),
    })
}

/// The transition time moves only when the status does.
fn set_condition(
    conditions: &mut Vec<Value>,
    ty: &str,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
) {
    let stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut condition = json!({
        "type": ty, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp,
    });
    match conditions.iter_mut().find(|c| c["type"] == ty) {
        Some(existing) => {
            if existing["status"] == status {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}
