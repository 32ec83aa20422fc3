//! Those who want pods gone: ask, take it back, wait for the end.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};
use usher_api::eviction_request::PROGRESS_DEADLINE_SECONDS_DEFAULT;
use usher_api::names::{RequesterNameError, requester_finalizer};
use usher_api::{EvictionRequest, EvictionRequestSpec, LocalPodReference};

use crate::result::{Outcome, Progress, Sighting, Update, Wish, end_of_pod, wish};

/// How often a write is tried again after somebody else was faster, and how long the first wait is. Together about 6 seconds,
/// so that a request that is just going away can be made anew.
const ATTEMPTS: u32 = 7;
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);
/// The wait before a wish that could not be renewed is renewed again.
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
        let finalizer = requester_finalizer(name)?.into();
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
    /// Asking and withdrawing exclude each other, so that a wish that is renewed does not outlive its withdrawal.
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

    /// Takes the wish back. The request is deleted once nobody wants it, unless an interceptor has forbidden that; then the pod
    /// still goes. Nothing is written if there is nothing to take back.
    ///
    /// # Errors
    /// The API server did not take it. The wish may still stand: withdraw again.
    pub async fn withdraw(&self) -> Result<(), RequestError> {
        let _alone = self.writing.lock().await;
        self.withdrawn.send_replace(true);
        for attempt in 0..ATTEMPTS {
            let Some(request) = self.read().await? else { return Ok(()) };
            let others: Vec<&String> =
                request.finalizers().iter().filter(|f| **f != *self.requester.finalizer).collect();
            if others.len() == request.finalizers().len() {
                return Ok(());
            }
            match self.set_finalizers(&request, &json!(others)).await {
                Ok(()) => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_conflict() => self.pause(attempt).await,
                Err(other) => return Err(other.into()),
            }
        }
        Err(RequestError::Contended(self.pod.name.clone()))
    }

    /// Waits for the end. Does not renew a wish that others have removed: see [`Self::hold`].
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
                let Sighting::There(request) = &followed.request else { continue };
                let progress = Progress::of(request);
                if last.as_ref() != Some(&progress) {
                    last = Some(progress.clone());
                    return Some((Update::Progress(progress), Some((handle, following, last))));
                }
            }
        })
    }

    /// Waits for the end, and sees to it that the wish stands until then: a finalizer that others remove comes back, and so does
    /// a request that others delete. Ends with [`Outcome::Withdrawn`] after [`Self::withdraw`] of this handle or a clone.
    pub async fn hold(&self) -> Outcome {
        let mut following = self.follow();
        let mut followed = following.next().await;
        loop {
            match self.outcome(&followed).await {
                None | Some(Outcome::RequestDeleted) => {}
                Some(outcome) => return outcome,
            }
            let asked = match wish(&followed.request, &self.requester.finalizer) {
                Wish::Removed => self.ask(true).await,
                Wish::Deleted => self.ask(false).await,
                Wish::Stands | Wish::Unknown => Ok(()),
            };
            if let Err(error) = asked {
                tracing::warn!(pod = %self.pod.name, %error, "the wish could not be renewed, trying again");
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
        let (mut exists, mut deleting) = (exists, false);
        for attempt in 0..ATTEMPTS {
            if *self.withdrawn.borrow() {
                return Ok(());
            }
            if !exists {
                match self.requests().create(&PostParams::default(), &self.new_request()).await {
                    Ok(_) => return Ok(()),
                    Err(kube::Error::Api(status)) if status.is_already_exists() => exists = true,
                    Err(other) => return Err(other.into()),
                }
            }
            let Some(request) = self.read().await? else {
                exists = false;
                continue;
            };
            deleting = request.metadata.deletion_timestamp.is_some();
            let mut finalizers = request.finalizers().to_vec();
            if finalizers.iter().any(|f| **f == *self.requester.finalizer) {
                return Ok(());
            }
            // What is being deleted takes no more finalizers; the request is made anew once it is gone.
            if !deleting {
                finalizers.push(self.requester.finalizer.to_string());
                match self.set_finalizers(&request, &json!(finalizers)).await {
                    Ok(()) => return Ok(()),
                    Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                    Err(other) => return Err(other.into()),
                }
            }
            self.pause(attempt).await;
        }
        let pod = self.pod.name.clone();
        Err(if deleting { RequestError::OlderRequestRemains(pod) } else { RequestError::Contended(pod) })
    }

    /// Requesters that were in each other's way wait for different times, each always for the same.
    async fn pause(&self, attempt: u32) {
        let mut hasher = DefaultHasher::new();
        (&self.requester.finalizer, attempt).hash(&mut hasher);
        let whole = CONFLICT_PAUSE * 2_u32.pow(attempt);
        sleep(whole / 2 + whole.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)).await;
    }

    fn new_request(&self) -> EvictionRequest {
        let mut spec = EvictionRequestSpec::for_pod(&self.pod.name, &self.pod.uid);
        spec.progress_deadline_seconds = self.requester.progress_deadline_seconds;
        let mut request = EvictionRequest::new(&self.pod.uid, spec);
        request.metadata.finalizers = Some(vec![self.requester.finalizer.to_string()]);
        request
    }

    /// Onto the very version that was read: a finalizer that others add meanwhile is not lost.
    async fn set_finalizers(&self, request: &EvictionRequest, finalizers: &Value) -> Result<(), kube::Error> {
        let metadata = json!({"resourceVersion": request.resource_version(), "finalizers": finalizers});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.requests().patch(self.request_name(), &PatchParams::default(), &patch).await.map(drop)
    }

    async fn outcome(&self, followed: &Followed) -> Option<Outcome> {
        if let Some(end) = end_of_pod(&followed.pod, &self.pod.uid) {
            return Some(end);
        }
        match (wish(&followed.request, &self.requester.finalizer), *self.withdrawn.borrow()) {
            (Wish::Removed | Wish::Deleted, true) => return Some(Outcome::Withdrawn),
            (Wish::Unknown | Wish::Stands, _) | (Wish::Removed, false) => return None,
            (Wish::Deleted, false) => {}
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
            Some((Seen::Withdrawn, withdrawn))
        });
        let seen = [
            pods.filter_map(|found| ready(sighting(found).map(Seen::Pod))).boxed(),
            requests.filter_map(|found| ready(sighting(found).map(Seen::Request))).boxed(),
            withdrawn.boxed(),
        ];
        let followed = Followed { pod: Sighting::Unread, request: Sighting::Unread };
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
    pod: Sighting<Pod>,
    request: Sighting<EvictionRequest>,
}

enum Seen {
    Pod(Sighting<Pod>),
    Request(Sighting<EvictionRequest>),
    Withdrawn,
}

struct Following {
    seen: BoxStream<'static, Seen>,
    followed: Followed,
}

impl Following {
    /// What is known once something has changed.
    async fn next(&mut self) -> Followed {
        match self.seen.next().await {
            Some(Seen::Pod(pod)) => self.followed.pod = pod,
            Some(Seen::Request(request)) => self.followed.request = request,
            Some(Seen::Withdrawn) => {}
            // Watches have no end.
            None => std::future::pending().await,
        }
        self.followed.clone()
    }
}

fn sighting<K>(found: Result<Option<K>, watcher::Error>) -> Option<Sighting<K>> {
    found
        .inspect_err(|error| tracing::warn!(%error, "a request cannot be followed, trying again"))
        .ok()
        .map(Sighting::from)
}
