//! Definitions in the Kubernetes project's own groups say where they were approved.

use serde_json::Value;

use super::text;
use crate::error::FieldError;

const APPROVAL: &str = "api-approved.kubernetes.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    Approved,
    Bypassed,
    Missing,
    Invalid,
}

/// Groups that belong to the Kubernetes project.
pub(crate) fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// The state of the approval annotation, and the reason shown for it.
pub(crate) fn approval(crd: &Value) -> (Approval, String) {
    let annotation = text(&crd["metadata"]["annotations"][APPROVAL]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if annotation.is_empty() {
        let reason = format!("protected groups must have approval annotation \"{APPROVAL}\", {see}");
        return (Approval::Missing, reason);
    }
    if annotation.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: \"{annotation}\""));
    }
    let host = annotation.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    if host.is_some_and(|host| !host.is_empty()) {
        return (Approval::Approved, format!("approved in {annotation}"));
    }
    let reason = format!(
        "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \
         \"unapproved\", {see}"
    );
    (Approval::Invalid, reason)
}

/// An unchanged state of approval is never an error.
pub(crate) fn approval_errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !is_protected_group(&text(&new["spec"]["group"])) {
        return Vec::new();
    }
    let (state, reason) = approval(new);
    if old.is_some_and(|old| approval(old).0 == state) {
        return Vec::new();
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    match state {
        Approval::Missing => vec![FieldError::required(field, reason)],
        Approval::Invalid => {
            vec![FieldError::invalid(field, text(&new["metadata"]["annotations"][APPROVAL]), reason)]
        }
        Approval::Approved | Approval::Bypassed => Vec::new(),
    }
}
