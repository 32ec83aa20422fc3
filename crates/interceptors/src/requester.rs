//! Those who want pods gone: ask, take it back, wait for the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};
use usher_api::eviction_request::PROGRESS_DEADLINE_SECONDS_DEFAULT;
use usher_api::names::{RequesterName, RequesterNameError};
use usher_api::{EvictionRequest, LocalPodReference};
use usher_client::requests::{Requests, WriteError, new_request};

use crate::result::{Outcome, OwnAsk, Progress, Update, WatchedObject, end_of_pod, own_ask};

/// The wait before an ask that could not be renewed is renewed again.
const RETRY: Duration = Duration::from_secs(5);
/// What the definition accepts as a deadline, in seconds.
const DEADLINES: std::ops::RangeInclusive<i32> = 600..=21_600;

/// Why a request was not made, changed or followed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The requester cannot have this name.
    #[error(transparent)]
    Name(#[from] RequesterNameError),
    /// The deadline is out of range.
    #[error(
        "a progress deadline of {0} s is out of range: choose one from 600 (10 minutes) to 21600 (6 hours)"
    )]
    Deadline(i32),
    /// The pod has no namespace or UID: it was not read from a cluster.
    #[error("the pod has no {0}: give a pod that was read from the cluster")]
    NotFromCluster(&'static str),
    /// An older request for the pod is being deleted and still there.
    #[error(
        "an older request for pod {0} is being deleted and not gone yet: ask again, or look who holds it by a finalizer"
    )]
    OlderRequestRemains(String),
    /// Others changed the request on every attempt.
    #[error("the request for pod {0} keeps being changed by others: try again")]
    Contended(String),
    /// The API server refused or did not answer.
    #[error("the API server did not take it: {0}")]
    Api(#[from] kube::Error),
}

/// Somebody who asks for evictions, by name.
#[derive(Clone)]
pub struct Requester {
    client: Client,
    finalizer: Arc<str>,
    progress_deadline_seconds: i32,
}

impl Requester {
    /// # Errors
    /// The name is no DNS subdomain, or too long.
    pub fn new(client: Client, name: &str) -> Result<Self, RequestError> {
        let finalizer = RequesterName::new(name)?.finalizer().into();
        Ok(Self { client, finalizer, progress_deadline_seconds: PROGRESS_DEADLINE_SECONDS_DEFAULT })
    }

    /// Another patience with interceptors than 30 minutes, for requests that we make. One that exists keeps its own.
    ///
    /// # Errors
    /// It is not between 10 minutes and 6 hours.
    pub fn with_progress_deadline_seconds(mut self, seconds: i32) -> Result<Self, RequestError> {
        if !DEADLINES.contains(&seconds) {
            return Err(RequestError::Deadline(seconds));
        }
        self.progress_deadline_seconds = seconds;
        Ok(self)
    }

    /// Asks that the pod leaves: makes the request, or joins the one that others have made. To ask twice is to ask once.
    ///
    /// # Errors
    /// It was refused, or an older request does not go away.
    pub async fn request(&self, pod: &Pod) -> Result<RequestHandle, RequestError> {
        let namespace = pod.namespace().ok_or(RequestError::NotFromCluster("namespace"))?;
        let uid = pod.uid().ok_or(RequestError::NotFromCluster("UID"))?;
        let handle = self.handle(&namespace, LocalPodReference { name: pod.name_any(), uid });
        handle.ask(false).await?;
        Ok(handle)
    }

    /// A handle of a request that was made before, for example by an earlier life of this process. Writes nothing.
    #[must_use]
    pub fn handle(&self, namespace: &str, pod: LocalPodReference) -> RequestHandle {
        RequestHandle {
            requester: self.clone(),
            namespace: namespace.to_owned(),
            pod,
            withdrawn: Arc::new(watch::Sender::new(false)),
            writing: Arc::default(),
        }
    }
}

/// One request of one requester. Clones are the same.
#[derive(Clone)]
pub struct RequestHandle {
    requester: Requester,
    namespace: String,
    pod: LocalPodReference,
    withdrawn: Arc<watch::Sender<bool>>,
    /// Asking and withdrawing exclude each other, so that an ask that is renewed does not outlive its withdrawal.
    writing: Arc<Mutex<()>>,
}

impl RequestHandle {
    /// The pod that is to leave.
    #[must_use]
    pub fn pod_ref(&self) -> &LocalPodReference {
        &self.pod
    }

    /// The name of the request: the UID of the pod.
    #[must_use]
    pub fn request_name(&self) -> &str {
        &self.pod.uid
    }

    /// Reads the request. Nothing if there is none.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn read(&self) -> Result<Option<EvictionRequest>, RequestError> {
        Ok(self.requests().get_opt(self.request_name()).await?)
    }

    /// Takes the ask back. The request is deleted once nobody wants it, unless an interceptor has forbidden that; then the pod
    /// still goes. Nothing is written if there is nothing to take back.
    ///
    /// # Errors
    /// The API server did not take it. The ask may still stand: withdraw again.
    pub async fn withdraw(&self) -> Result<(), RequestError> {
        let _alone = self.writing.lock().await;
        self.withdrawn.send_replace(true);
        let ours = |finalizer: &str| finalizer == &*self.requester.finalizer;
        let withdrawn = self.protocol().withdraw(self.request_name(), &self.requester.finalizer, ours).await;
        withdrawn.map(drop).map_err(|why| self.error(why))
    }

    /// Waits for the end. Does not renew an ask that others have removed: see [`Self::hold`].
    pub async fn wait(&self) -> Outcome {
        let mut following = self.follow();
        loop {
            let followed = following.next().await;
            if let Some(outcome) = self.outcome(&followed).await {
                return outcome;
            }
        }
    }

    /// Every change of the request, then how it has ended.
    pub fn updates(&self) -> impl Stream<Item = Update> + Send + use<> {
        let start = Some((self.clone(), self.follow(), None));
        stream::unfold(start, |state| async {
            let (handle, mut following, mut last) = state?;
            loop {
                let followed = following.next().await;
                if let Some(outcome) = handle.outcome(&followed).await {
                    return Some((Update::Ended(outcome), None));
                }
                let WatchedObject::There(request) = &followed.request else { continue };
                let progress = Progress::of(request);
                if last.as_ref() != Some(&progress) {
                    last = Some(progress.clone());
                    return Some((Update::Progress(progress), Some((handle, following, last))));
                }
            }
        })
    }

    /// Waits for the end, and sees to it that the ask stands until then: a finalizer that others remove comes back, and so does
    /// a request that others delete. Ends with [`Outcome::Withdrawn`] after [`Self::withdraw`] of this handle or a clone.
    pub async fn hold(&self) -> Outcome {
        let mut following = self.follow();
        let mut followed = following.next().await;
        loop {
            match self.outcome(&followed).await {
                None | Some(Outcome::RequestDeleted) => {}
                Some(outcome) => return outcome,
            }
            let asked = match own_ask(&followed.request, &self.requester.finalizer) {
                OwnAsk::Removed => self.ask(true).await,
                OwnAsk::Deleted => self.ask(false).await,
                OwnAsk::Stands | OwnAsk::Unknown => Ok(()),
            };
            if let Err(error) = asked {
                tracing::warn!(pod = %self.pod.name, %error, "the ask could not be renewed, trying again");
                if let Ok(newer) = timeout(RETRY, following.next()).await {
                    followed = newer;
                }
            } else {
                followed = following.next().await;
            }
        }
    }

    /// Makes the request or joins it. Nothing happens once it was withdrawn.
    async fn ask(&self, exists: bool) -> Result<(), RequestError> {
        let _alone = self.writing.lock().await;
        let deadline = Some(self.requester.progress_deadline_seconds);
        let finalizer = &self.requester.finalizer;
        let wanted = new_request(&self.namespace, &self.pod.name, &self.pod.uid, finalizer, deadline);
        let is_wanted = || !*self.withdrawn.borrow();
        let asked =
            self.protocol().create_or_join(self.request_name(), finalizer, &wanted, exists, is_wanted).await;
        match asked {
            Ok(_) | Err(WriteError::NotWanted) => Ok(()),
            Err(why) => Err(self.error(why)),
        }
    }

    fn protocol(&self) -> Requests<EvictionRequest, Infallible> {
        Requests::new(self.requests())
    }

    fn error(&self, why: WriteError<Infallible>) -> RequestError {
        match why {
            WriteError::OlderRequestRemains => RequestError::OlderRequestRemains(self.pod.name.clone()),
            WriteError::Contended | WriteError::NotWanted => RequestError::Contended(self.pod.name.clone()),
            WriteError::Unread(never) => match never {},
            WriteError::Api(why) => RequestError::Api(why),
        }
    }

    async fn outcome(&self, followed: &Followed) -> Option<Outcome> {
        if let Some(end) = end_of_pod(&followed.pod, &self.pod.uid) {
            return Some(end);
        }
        match (own_ask(&followed.request, &self.requester.finalizer), *self.withdrawn.borrow()) {
            (OwnAsk::Removed | OwnAsk::Deleted, true) => return Some(Outcome::Withdrawn),
            (OwnAsk::Unknown | OwnAsk::Stands, _) | (OwnAsk::Removed, false) => return None,
            (OwnAsk::Deleted, false) => {}
        }
        // A request goes when its pod is gone. Our watch of the pod may be behind, so that the pod is asked for.
        loop {
            match self.pods().get_opt(&self.pod.name).await {
                Ok(pod) => {
                    return end_of_pod(&pod.into(), &self.pod.uid).or(Some(Outcome::RequestDeleted));
                }
                Err(error) => {
                    tracing::warn!(pod = %self.pod.name, %error, "cannot find out how a request has ended, trying again");
                    sleep(RETRY).await;
                }
            }
        }
    }

    fn follow(&self) -> Following {
        let pods = watcher::watch_object(self.pods(), &self.pod.name).default_backoff();
        let requests = watcher::watch_object(self.requests(), self.request_name()).default_backoff();
        let withdrawn = stream::unfold(self.withdrawn.subscribe(), |mut withdrawn| async {
            withdrawn.changed().await.ok()?;
            Some((FollowedEvent::Withdrawn, withdrawn))
        });
        let seen = [
            pods.filter_map(|found| ready(watched(found).map(FollowedEvent::Pod))).boxed(),
            requests.filter_map(|found| ready(watched(found).map(FollowedEvent::Request))).boxed(),
            withdrawn.boxed(),
        ];
        let followed = Followed { pod: WatchedObject::Unread, request: WatchedObject::Unread };
        Following { seen: stream::select_all(seen).boxed(), followed }
    }

    fn requests(&self) -> Api<EvictionRequest> {
        Api::namespaced(self.requester.client.clone(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.requester.client.clone(), &self.namespace)
    }
}

/// What is known of the request and its pod.
#[derive(Clone)]
struct Followed {
    pod: WatchedObject<Pod>,
    request: WatchedObject<EvictionRequest>,
}

enum FollowedEvent {
    Pod(WatchedObject<Pod>),
    Request(WatchedObject<EvictionRequest>),
    Withdrawn,
}

struct Following {
    seen: BoxStream<'static, FollowedEvent>,
    followed: Followed,
}

impl Following {
    /// What is known once something has changed.
    async fn next(&mut self) -> Followed {
        match self.seen.next().await {
            Some(FollowedEvent::Pod(pod)) => self.followed.pod = pod,
            Some(FollowedEvent::Request(request)) => self.followed.request = request,
            Some(FollowedEvent::Withdrawn) => {}
            // Watches have no end.
            None => std::future::pending().await,
        }
        self.followed.clone()
    }
}

fn watched<K>(found: Result<Option<K>, watcher::Error>) -> Option<WatchedObject<K>> {
    found
        .inspect_err(|error| tracing::warn!(%error, "a request cannot be followed, trying again"))
        .ok()
        .map(WatchedObject::from)
}
