//! The end of a pod by its interceptor: eviction, which respects budgets, or deletion. Always of the very pod, by its UID.

use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{DeleteParams, PostParams};
use kube::core::Status;

use crate::turn::{Turn, TurnError};
use crate::turn_state::{Lost, PodSight};

/// What became of the attempt to remove a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The pod is gone or on its way, with its grace period.
    Accepted,
    /// The pod was gone before.
    AlreadyGone,
    /// It stays for now.
    Refused(Refusal),
}

/// Why an eviction was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A disruption budget does not allow it now. Best answered with [`Turn::complete`]: the eviction request controller follows
    /// the budget and evicts the pod as soon as it may.
    #[error("a disruption budget does not allow it: {message}")]
    Budget {
        /// What the API server says of the budget.
        message: String,
    },
    /// Too many calls, or the budget is being changed by others: try again later.
    #[error("the API server is busy, try again in {seconds} s: {message}")]
    Busy {
        /// How long the server wants to be left alone.
        seconds: u64,
        /// What it says.
        message: String,
    },
    /// The caller may not, or a webhook says no.
    #[error("it was denied: {message}")]
    Denied {
        /// What the server or the webhook says.
        message: String,
    },
    /// The server cannot decide, for example because several budgets select the pod.
    #[error("the API server cannot do it: {message}")]
    Server {
        /// What it says.
        message: String,
    },
}

/// The cause by which the API server marks the refusal of a budget.
const BUDGET_CAUSE: &str = "DisruptionBudget";
/// The wait where the server names none.
const BUSY_SECONDS: u64 = 1;

impl Turn {
    /// Evicts the pod as the disruption budgets allow. To be preferred to [`Self::delete_pod`]. Possible while the turn is ours
    /// and after we have completed it.
    ///
    /// A client made from [`kube::Config`] with `default_retry` tries a refused eviction again for minutes before it says
    /// so. Switch that off to learn of [`Refusal::Budget`] at once.
    ///
    /// # Errors
    /// The turn is lost, or the API server did not answer.
    pub async fn evict_pod(&self) -> Result<Removal, TurnError> {
        self.may_remove()?;
        let pod = &self.held.pod;
        // kube's own `evict` does not send the options by their name, so that the precondition would be passed over.
        let eviction = Eviction {
            metadata: ObjectMeta { name: Some(pod.name.clone()), ..ObjectMeta::default() },
            delete_options: Some(DeleteOptions {
                preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), ..Preconditions::default() }),
                ..DeleteOptions::default()
            }),
        };
        let options = PostParams::default();
        let sent: Result<Status, _> =
            self.pods().create_subresource("eviction", &pod.name, &options, &eviction).await;
        self.removal(sent.map(drop)).await
    }

    /// Deletes the pod, whatever its disruption budgets say. For interceptors that know better than the budget, or whose
    /// application is disrupted already. Possible while the turn is ours and after we have completed it.
    ///
    /// # Errors
    /// The turn is lost, or the API server did not answer.
    pub async fn delete_pod(&self) -> Result<Removal, TurnError> {
        self.may_remove()?;
        let precondition =
            kube::api::Preconditions { uid: Some(self.held.pod.uid.clone()), resource_version: None };
        let options = DeleteParams::default().preconditions(precondition);
        let sent = self.pods().delete(&self.held.pod.name, &options).await.map(drop);
        self.removal(sent).await
    }

    fn may_remove(&self) -> Result<(), Lost> {
        match self.is_lost() {
            None | Some(Lost::Completed | Lost::PodGone) => Ok(()),
            Some(why) => Err(why),
        }
    }

    async fn removal(&self, sent: Result<(), kube::Error>) -> Result<Removal, TurnError> {
        let status = match sent {
            Ok(()) => return Ok(Removal::Accepted),
            Err(kube::Error::Api(status)) => status,
            Err(other) => return Err(other.into()),
        };
        // A conflict is another UID, or a budget that others write at the same time.
        let gone = match status.code {
            404 => true,
            409 => {
                let pod = self.find_pod().await?;
                PodSight::of(pod.as_ref(), &self.held.pod.uid) == PodSight::Gone
            }
            _ => false,
        };
        if gone {
            self.lose(Lost::PodGone);
            return Ok(Removal::AlreadyGone);
        }
        match refusal(&status) {
            Some(refusal) => Ok(Removal::Refused(refusal)),
            None => Err(kube::Error::Api(status).into()),
        }
    }
}

/// What an answer means, by its code and causes.
fn refusal(status: &Status) -> Option<Refusal> {
    let details = status.details.as_ref();
    let budget = details.and_then(|details| details.causes.iter().find(|cause| cause.reason == BUDGET_CAUSE));
    let message = || status.message.clone();
    match (status.code, budget) {
        (429, Some(cause)) => Some(Refusal::Budget { message: cause.message.clone() }),
        (429 | 409 | 503, _) => {
            let asked = details.map_or(0, |details| u64::from(details.retry_after_seconds));
            Some(Refusal::Busy { seconds: asked.max(BUSY_SECONDS), message: message() })
        }
        (403, _) => Some(Refusal::Denied { message: message() }),
        (500, _) => Some(Refusal::Server { message: message() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_are_told_apart_by_code_and_cause() {
        let status = |code: u16, details: serde_json::Value| -> Status {
            serde_json::from_value(
                json!({"status": "Failure", "code": code, "message": "m", "details": details}),
            )
            .unwrap()
        };
        let cause = json!({"causes": [{"reason": "DisruptionBudget", "message": "needs 1 and has 1"}]});
        let message = || "m".to_owned();
        for (answer, expected) in [
            (status(429, cause), Some(Refusal::Budget { message: "needs 1 and has 1".into() })),
            (
                status(429, json!({"retryAfterSeconds": 10})),
                Some(Refusal::Busy { seconds: 10, message: message() }),
            ),
            (status(429, json!({})), Some(Refusal::Busy { seconds: 1, message: message() })),
            (status(409, json!({})), Some(Refusal::Busy { seconds: 1, message: message() })),
            (status(403, json!({})), Some(Refusal::Denied { message: message() })),
            (status(500, json!({})), Some(Refusal::Server { message: message() })),
            (status(400, json!({})), None),
        ] {
            assert_eq!(refusal(&answer), expected, "{answer:?}");
        }
    }
}
