//! What the server's answer to an eviction means.

use kube::core::Status;
use usher_api::Refusal;

/// A denial by a webhook or an admission policy. The status has no field that would tell one from a denial by the server's own rules, but
/// the message begins with the webhook, or, after what is forbidden, with the policy.
fn is_denial(message: &str) -> bool {
    let denier = message.split_once(" is forbidden: ").map_or(message, |(_, denier)| denier);
    message.starts_with("admission webhook ") || denier.starts_with("ValidatingAdmissionPolicy ")
}

/// Tells refusals apart. `None`: the pod is not there any more.
pub fn refusal_of(status: &Status) -> Option<Refusal> {
    let details = status.details.as_ref();
    let cause =
        details.and_then(|details| details.causes.iter().find(|cause| cause.reason == "DisruptionBudget"));
    let retry_after = details.map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0);
    let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
    // A webhook may choose any code, also those of budgets.
    if is_denial(&status.message) {
        return Some(Refusal::Webhook { code: status.code, message });
    }
    Some(match (status.code, cause) {
        (404, _) => return None,
        (429, Some(cause)) if retry_after.is_some() => {
            Refusal::BudgetNotReady { message: cause.message.clone(), retry_after }
        }
        (429, Some(cause)) => Refusal::Budget { message: cause.message.clone() },
        (429, None) => Refusal::Throttled { retry_after },
        (401 | 403, _) => Refusal::NotAllowed { message },
        (code, _) => Refusal::Server { code, message },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn refusal(status: Value) -> Option<Refusal> {
        refusal_of(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_budget_a_webhook_a_busy_server_and_a_missing_right_are_told_apart() {
        let budget = |retry: u32| {
            json!({
                "code": 429, "reason": "TooManyRequests",
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": {
                    "retryAfterSeconds": retry,
                    "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 3 healthy pods and has 3 currently"}],
                },
            })
        };
        let words = "The disruption budget web needs 3 healthy pods and has 3 currently".to_string();
        assert_eq!(refusal(budget(0)), Some(Refusal::Budget { message: words.clone() }));
        assert_eq!(
            refusal(budget(10)),
            Some(Refusal::BudgetNotReady { message: words, retry_after: Some(10) })
        );
        assert_eq!(
            refusal(json!({"code": 429, "message": "slow down", "details": {"retryAfterSeconds": 1}})),
            Some(Refusal::Throttled { retry_after: Some(1) })
        );
        for (code, denial) in [
            (400, "admission webhook \"hold.example.com\" denied the request: not now"),
            (429, "admission webhook \"hold.example.com\" denied the request: not now"),
            (500, "admission webhook \"hold.example.com\" denied the request: not now"),
            (
                403,
                "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'hold' with binding 'hold' denied request: not now",
            ),
            (
                422,
                "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'hold' with binding 'hold' denied request: not now",
            ),
        ] {
            assert_eq!(
                refusal(json!({"code": code, "message": denial})),
                Some(Refusal::Webhook { code, message: denial.to_string() })
            );
        }
        assert_eq!(
            refusal(json!({"code": 403, "message": "pods \"p\" is forbidden"})),
            Some(Refusal::NotAllowed { message: "pods \"p\" is forbidden".to_string() })
        );
        assert_eq!(
            refusal(json!({"code": 500, "message": "This pod has more than one PodDisruptionBudget"})),
            Some(Refusal::Server {
                code: 500,
                message: "This pod has more than one PodDisruptionBudget".to_string()
            })
        );
        assert_eq!(refusal(json!({"code": 404, "message": "pods \"p\" not found"})), None);
    }
}
