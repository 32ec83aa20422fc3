//! The end of a pod by its interceptor: eviction, which respects budgets, or deletion. Always of the very pod, by its UID.

use usher_api::Refusal;
use usher_client::refusal::refusal_of;
use usher_client::{Evicted, EvictionOptions, delete_pod, evict};

use crate::turn::{Turn, TurnError};
use crate::turn_state::{Lost, PodState};

/// What became of the attempt to remove a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The pod is gone or on its way, with its grace period.
    Accepted,
    /// The pod was gone before.
    AlreadyGone,
    /// It stays for now. With [`Refusal::Budget`], best answered with [`Turn::complete`]: the eviction request controller follows the
    /// budget and evicts the pod as soon as it may.
    Refused(Refusal),
}

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
        // A gateway in front of evictions lets those pass whose turn it is.
        let interceptor = Some(self.held.class.as_str());
        let options = EvictionOptions { interceptor, ..EvictionOptions::default() };
        match evict(self.held.client.clone(), self.namespace(), &pod.name, &pod.uid, options).await? {
            Evicted::Accepted => Ok(Removal::Accepted),
            Evicted::Gone => Ok(self.already_gone()),
            Evicted::Refused(refusal) => Ok(Removal::Refused(refusal)),
            Evicted::Conflict(_) if self.is_gone().await? => Ok(self.already_gone()),
            Evicted::Conflict(refusal) => Ok(Removal::Refused(refusal)),
        }
    }

    /// Deletes the pod, whatever its disruption budgets say. For interceptors that know better than the budget, or whose
    /// application is disrupted already. Possible while the turn is ours and after we have completed it.
    ///
    /// # Errors
    /// The turn is lost, or the API server did not answer.
    pub async fn delete_pod(&self) -> Result<Removal, TurnError> {
        self.may_remove()?;
        let pod = &self.held.pod;
        match delete_pod(self.held.client.clone(), self.namespace(), &pod.name, &pod.uid, None).await {
            Ok(()) => Ok(Removal::Accepted),
            Err(kube::Error::Api(status)) => match refusal_of(&status) {
                None => Ok(self.already_gone()),
                Some(Refusal::Server { code: 409, .. }) if self.is_gone().await? => Ok(self.already_gone()),
                Some(refusal) => Ok(Removal::Refused(refusal)),
            },
            Err(other) => Err(other.into()),
        }
    }

    fn may_remove(&self) -> Result<(), Lost> {
        match self.is_lost() {
            None | Some(Lost::Completed | Lost::PodGone) => Ok(()),
            Some(why) => Err(why),
        }
    }

    /// Whether a conflict was another pod's UID.
    async fn is_gone(&self) -> Result<bool, TurnError> {
        let pod = self.find_pod().await?;
        Ok(PodState::of(pod.as_ref(), &self.held.pod.uid) == PodState::Gone)
    }

    fn already_gone(&self) -> Removal {
        self.lose(Lost::PodGone);
        Removal::AlreadyGone
    }
}
