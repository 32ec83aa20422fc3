//! The turn of an interceptor on one request: what its handler is given to report, to act and to notice.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use usher_api::lenient::Lenient;
use usher_api::{
    EvictionRequest, EvictionRequestCancellationPolicy, EvictionRequestStatus, LocalPodReference,
};

use crate::class::InterceptorClass;
use crate::latest::Latest;
use crate::turn_state::{Lost, PodState, TurnState, judge};
use usher_api::report::{ConditionReport, ConditionStatus, Report, beat_interval, until_beat};
use usher_client::retry::{Attempts, this_process};
use usher_client::{Clock, FailureClass, Version, Writer};

/// How often a report is tried, for about 2 seconds: all other reports of the turn wait meanwhile.
const REPORT_ATTEMPTS: u32 = 6;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The turn is over: stop, undo what has to be undone, and return.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Others changed the request on every attempt. The turn is still ours: report again.
    #[error("the request {0} keeps being changed by others: report again")]
    Contended(String),
    /// The API server refused or did not answer.
    #[error("the API server did not take it: {0}")]
    Api(#[from] kube::Error),
}

/// One turn. Clones are the same turn.
///
/// Every write checks that the turn is still ours, on the very version of the request that it changes; when it is not, nothing is
/// written and the answer is [`TurnError::Lost`].
#[derive(Clone)]
pub struct Turn {
    pub(crate) held: Arc<Held>,
}

pub(crate) struct Held {
    pub client: Client,
    pub class: InterceptorClass,
    clock: Clock,
    pub namespace: String,
    uid: String,
    pub pod: LocalPodReference,
    deadline: Duration,
    /// The newest version of the request that is known.
    latest: Latest,
    writing: Mutex<()>,
    /// Our own completion is being written: what the watch says of it is no loss.
    finishing: AtomicBool,
    lost: watch::Sender<Option<Lost>>,
}

impl Turn {
    pub(crate) fn new(
        client: Client,
        class: InterceptorClass,
        clock: Clock,
        request: Arc<EvictionRequest>,
    ) -> Self {
        let seconds = u64::try_from(request.spec.progress_deadline_seconds).unwrap_or_default();
        let held = Held {
            client,
            class,
            clock,
            namespace: request.namespace().unwrap_or_default(),
            uid: request.uid().unwrap_or_default(),
            pod: request.spec.pod_ref.clone(),
            deadline: Duration::from_secs(seconds),
            latest: Latest::new(request),
            writing: Mutex::new(()),
            finishing: AtomicBool::new(false),
            lost: watch::Sender::new(None),
        };
        Self { held: Arc::new(held) }
    }

    /// The pod that is to leave: its name and UID. A pod of that name and another UID is another pod.
    #[must_use]
    pub fn pod_ref(&self) -> &LocalPodReference {
        &self.held.pod
    }

    /// The namespace of the pod and of the request.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.held.namespace
    }

    /// The request as it was last seen or written. After a restart its status is what was reported before.
    #[must_use]
    pub fn request(&self) -> Arc<EvictionRequest> {
        self.held.latest.get()
    }

    /// The status of [`Self::request`].
    #[must_use]
    pub fn status(&self) -> EvictionRequestStatus {
        self.request().status.clone().unwrap_or_default()
    }

    /// Reads the pod. Nothing if it is gone; a pod of another UID is not it.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn pod(&self) -> Result<Option<Pod>, kube::Error> {
        let found = self.find_pod().await?;
        Ok(found.filter(|pod| pod.uid().as_ref() == Some(&self.held.pod.uid)))
    }

    /// How long there may be no report before the turn passes on.
    #[must_use]
    pub fn progress_deadline(&self) -> Duration {
        self.held.deadline
    }

    /// When the turn passes on if nothing is reported until then.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        let request = self.request();
        let reported = request.status.as_ref().and_then(|status| status.progress_timestamp.clone());
        let since =
            reported.or_else(|| request.creation_timestamp()).map_or_else(|| self.now(), |Time(at)| at);
        let patience = SignedDuration::try_from(self.held.deadline).unwrap_or(SignedDuration::MAX);
        since.checked_add(patience).unwrap_or(Timestamp::MAX)
    }

    /// Says that work has been done, and what.
    ///
    /// # Errors
    /// The turn is lost, or the report could not be written. So for all that write.
    pub async fn progress(&self, message: impl Into<String>) -> Result<(), TurnError> {
        self.write(Report { progress: true, message: Some(message.into()), ..Report::default() }).await
    }

    /// Says that work has been done, and when all of it will be.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn progress_with_eta(
        &self,
        message: impl Into<String>,
        finish: Timestamp,
    ) -> Result<(), TurnError> {
        let message = Some(message.into());
        self.write(Report { progress: true, message, finish: Some(finish), ..Report::default() }).await
    }

    /// From here on there is no way back: the request cannot be deleted while the pod exists. Writes nothing if it is so
    /// already, and does not count as progress.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn forbid_cancellation(&self) -> Result<(), TurnError> {
        self.set_policy(EvictionRequestCancellationPolicy::Forbid).await
    }

    /// The request can be cancelled. The interceptor before may have forbidden it, so that one that can be stopped at any time
    /// says so first. Writes nothing if it is so already, and does not count as progress.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn allow_cancellation(&self) -> Result<(), TurnError> {
        self.set_policy(EvictionRequestCancellationPolicy::Allow).await
    }

    async fn set_policy(&self, policy: EvictionRequestCancellationPolicy) -> Result<(), TurnError> {
        if self.is_still_ours()? && self.status().eviction_request_cancellation_policy == policy {
            return Ok(());
        }
        self.write(Report { policy: Some(policy), ..Report::default() }).await
    }

    /// Sets a condition on the request, for machines to read. Does not count as progress.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn set_condition(
        &self,
        type_: impl Into<String>,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Result<(), TurnError> {
        let condition =
            ConditionReport { type_: type_.into(), status, reason: reason.into(), message: message.into() };
        self.write(Report { condition: Some(condition), ..Report::default() }).await
    }

    /// Says that our part is done. The next interceptor has its turn, or the pod is evicted if it still runs and there is none.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn complete(&self, message: impl Into<String>) -> Result<(), TurnError> {
        let message = Some(message.into());
        self.finish(Report { progress: true, completed: true, message, ..Report::default() }).await
    }

    /// Gives the turn up, so that the next one need not wait for the deadline. No progress is claimed. A ban on cancellation
    /// stays: lift it first if what it was for has been undone.
    ///
    /// # Errors
    /// As for [`Self::progress`].
    pub async fn decline(&self, message: impl Into<String>) -> Result<(), TurnError> {
        let message = Some(message.into());
        self.finish(Report { completed: true, message, ..Report::default() }).await
    }

    /// Waits until the turn is over, and says why. [`Lost::Completed`] if it was by ourselves.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.held.lost.subscribe();
        match lost.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(why)) => why,
            // The sender lives in this very turn.
            Ok(None) | Err(_) => pending().await,
        }
    }

    /// Why the turn is over, if it is.
    #[must_use]
    pub fn is_lost(&self) -> Option<Lost> {
        self.held.lost.borrow().clone()
    }

    /// Does work and shows signs of life while it goes on: `progressTimestamp` is renewed six times per deadline, at least every 3
    /// minutes; a report of the work itself counts as one. If the turn is lost the work is dropped where it stands; use
    /// [`Self::keep_alive_through`] where that would do harm.
    ///
    /// Only for work. To wait with it for something that is not being worked on breaks the contract: whether a pod has to wait
    /// is for its disruption budget to say.
    ///
    /// # Errors
    /// Why the turn was lost, unless it was completed by ourselves.
    pub async fn keep_alive_while<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let taken = async {
            match self.lost().await {
                Lost::Completed => pending().await,
                why => why,
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            why = taken => Err(why),
            () = self.show_life() => pending().await,
        }
    }

    /// As [`Self::keep_alive_while`] for work that must not stop halfway: it goes on after the turn is lost.
    pub async fn keep_alive_through<F: Future>(&self, work: F) -> F::Output {
        tokio::select! {
            biased;
            done = work => done,
            () = self.show_life() => pending().await,
        }
    }

    /// Never ends. A failed renewal is tried again a few times within the deadline.
    async fn show_life(&self) {
        let interval = beat_interval(self.held.deadline);
        loop {
            if self.is_lost().is_some() {
                return pending().await;
            }
            let last = self.request().status.as_ref().and_then(|s| s.progress_timestamp.clone());
            let wait = until_beat(last.map(|Time(at)| at), self.now(), interval);
            if !wait.is_zero() {
                sleep(wait).await;
                continue;
            }
            match self.write(Report { progress: true, ..Report::default() }).await {
                Ok(()) | Err(TurnError::Lost(_)) => {}
                Err(error) => {
                    tracing::warn!(pod = %self.held.pod.name, %error, "the sign of life was not written, trying again");
                    sleep(interval / 4).await;
                }
            }
        }
    }

    fn is_still_ours(&self) -> Result<bool, Lost> {
        self.is_lost().map_or(Ok(true), Err)
    }

    async fn finish(&self, report: Report) -> Result<(), TurnError> {
        self.held.finishing.store(true, Ordering::SeqCst);
        let written = self.write(report).await;
        match &written {
            Ok(()) => self.lose(Lost::Completed),
            Err(_) => {
                self.held.finishing.store(false, Ordering::SeqCst);
                // What was passed over meanwhile counts now.
                self.saw(self.request());
            }
        }
        written
    }

    /// Writes one report onto the version it was judged by, and judges anew where that is not the newest.
    async fn write(&self, report: Report) -> Result<(), TurnError> {
        let _one_at_a_time = self.held.writing.lock().await;
        let requests = self.requests();
        let name = &self.held.pod.uid;
        let who = (this_process(), self.held.class.as_str(), name);
        let mut attempts = Attempts::of(who).at_most(REPORT_ATTEMPTS);
        loop {
            self.is_still_ours()?;
            let request = self.request();
            self.settle(Some(&request)).await?;
            let status = request.status.clone().unwrap_or_default();
            let version = request.resource_version().unwrap_or_default();
            let read_as = Version { uid: &self.held.uid, resource_version: &version };
            let status = report.patch(&status, self.now());
            match Writer::default().report(&requests, name, read_as, status).await {
                Ok(written) => {
                    self.held.latest.set(Arc::new(read(written)?));
                    return Ok(());
                }
                Err(why) if FailureClass::of(&why).is_outdated() => {}
                Err(other) => return Err(other.into()),
            }
            let is_another = attempts.again().await;
            let fresh = requests.get_opt(name).await?.map(read).transpose()?;
            self.settle(fresh.as_ref()).await?;
            if let Some(fresh) = fresh {
                self.held.latest.set(Arc::new(fresh));
            }
            if !is_another {
                return Err(TurnError::Contended(name.clone()));
            }
        }
    }

    /// Judges a version of the request to the end, asking for the pod where that decides.
    async fn settle(&self, seen: Option<&EvictionRequest>) -> Result<(), TurnError> {
        let judged = |pod| judge(&self.held.class, Some(&self.held.uid), seen, pod);
        let state = match judged(PodState::NotLooked) {
            TurnState::LookAtPod => {
                let pod = self.find_pod().await?;
                judged(PodState::of(pod.as_ref(), &self.held.pod.uid))
            }
            state => state,
        };
        match state {
            TurnState::Lost(why) => {
                self.lose(why.clone());
                Err(why.into())
            }
            TurnState::Ours | TurnState::NotOurs | TurnState::LookAtPod => Ok(()),
        }
    }

    /// Takes in what a watch says. Gives back whether somebody has to look closer: see [`Self::look_closer`].
    pub(crate) fn saw(&self, request: Arc<EvictionRequest>) -> bool {
        let state = judge(&self.held.class, Some(&self.held.uid), Some(&request), PodState::NotLooked);
        self.held.latest.set(request);
        match state {
            TurnState::Lost(_) if self.held.finishing.load(Ordering::SeqCst) => false,
            TurnState::Lost(why) => {
                self.lose(why);
                false
            }
            TurnState::LookAtPod => true,
            TurnState::Ours | TurnState::NotOurs => false,
        }
    }

    /// Finds out how a request has ended, or that it has not: one may also leave a watch by its labels.
    pub(crate) async fn look_closer(&self) -> Result<(), kube::Error> {
        let fresh = self.requests().get_opt(&self.held.pod.uid).await?.map(read).transpose()?;
        match self.settle(fresh.as_ref()).await {
            Err(TurnError::Api(error)) => Err(error),
            Ok(()) | Err(TurnError::Lost(_) | TurnError::Contended(_)) => Ok(()),
        }
    }

    /// The first reason stays.
    pub(crate) fn lose(&self, why: Lost) {
        self.held.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            if first {
                *lost = Some(why);
            }
            first
        });
    }

    fn now(&self) -> Timestamp {
        self.held.clock.now()
    }

    fn requests(&self) -> Api<Lenient<EvictionRequest>> {
        Api::namespaced(self.held.client.clone(), &self.held.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Lenient<Pod>> {
        Api::namespaced(self.held.client.clone(), &self.held.namespace)
    }

    /// The pod that has the name now.
    pub(crate) async fn find_pod(&self) -> Result<Option<Pod>, kube::Error> {
        self.pods().get_opt(&self.held.pod.name).await?.map(read).transpose()
    }
}

/// What cannot be read is an answer that cannot be read.
fn read<K>(object: Lenient<K>) -> Result<K, kube::Error> {
    object.read().map_err(|object| {
        kube::Error::SerdeError(serde_json::Error::io(std::io::Error::other(object.to_string())))
    })
}
