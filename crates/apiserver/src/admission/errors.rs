//! Failures of admission, in the API server's words.

use serde_json::{Value, json};

use crate::error::ApiError;

/// Why a call of a webhook did not lead to "allowed".
#[derive(Debug)]
pub(super) enum Failure {
    /// The webhook could not be asked, or its answer makes no sense. The failure policy decides.
    Calling(String),
    /// The request ends here whatever the failure policy says.
    Final(ApiError),
}

/// 500 with the words under which users know it.
pub(super) fn internal(cause: impl Into<String>) -> ApiError {
    let cause = cause.into();
    ApiError::new(500, "InternalError", format!("Internal error occurred: {cause}"))
        .with_details(json!({"causes": [{"message": cause}]}))
}

/// The webhook said no. Its status is passed on; a code that is no error becomes 400.
pub(super) fn denied(webhook: &str, status: Option<&Value>) -> ApiError {
    let field = |name: &str| status.and_then(|s| s.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str).unwrap_or_default();
    let because = match (text("message"), text("reason")) {
        ("", "") => " without explanation".to_string(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let code = field("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    let message = format!("admission webhook {webhook:?} denied the request{because}");
    let mut error = ApiError::new(code.max(400), known_reason(text("reason")), message);
    if let Some(details) = field("details").filter(|d| d.is_object()) {
        let after = details.get("retryAfterSeconds").and_then(Value::as_u64);
        error.retry_after = after.and_then(|seconds| u32::try_from(seconds).ok()).filter(|s| *s > 0);
        error.details = details.clone();
    }
    error
}

/// Reasons of errors are a closed list here; a reason of the webhook's own making is left out.
fn known_reason(reason: &str) -> &'static str {
    const REASONS: [&str; 19] = [
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "StorageReadError",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "InternalError",
        "Expired",
        "ServiceUnavailable",
    ];
    REASONS.into_iter().find(|known| *known == reason).unwrap_or_default()
}

/// 400: a dry run must not reach a webhook that may do something elsewhere.
pub(super) fn no_dry_run(webhook: &str) -> ApiError {
    ApiError::bad_request(format!("admission webhook {webhook:?} does not support dry run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_denial_reads() {
        let by = r#"admission webhook "h.example.com" denied the request"#;
        let cases = [
            ("no status", json!(null), 400, "", format!("{by} without explanation")),
            ("an empty status", json!({}), 400, "", format!("{by} without explanation")),
            (
                "a message",
                json!({"message": "no", "code": 403, "reason": "Forbidden"}),
                403,
                "Forbidden",
                format!("{by}: no"),
            ),
            ("only a reason", json!({"reason": "Forbidden"}), 400, "Forbidden", format!("{by}: Forbidden")),
            ("too many requests", json!({"message": "wait", "code": 429}), 429, "", format!("{by}: wait")),
            ("a code of success", json!({"code": 200}), 400, "", format!("{by} without explanation")),
            ("a server error", json!({"code": 500}), 500, "", format!("{by} without explanation")),
        ];
        for (rule, status, code, reason, message) in cases {
            let error = denied("h.example.com", Some(&status));
            assert_eq!((error.code, error.reason, error.message), (code, reason, message), "{rule}");
        }
    }

    #[test]
    fn a_denial_may_say_when_to_try_again() {
        let status = json!({"code": 429, "details": {"retryAfterSeconds": 7}});
        assert_eq!(denied("h", Some(&status)).retry_after, Some(7));
    }
}
