//! Asking that a pod leaves, and taking it back: writes to EvictionRequests that hold when others write at the same time.

use std::convert::Infallible;
use std::fmt::{self, Debug, Display};

use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use usher_api::{EvictionRequest, EvictionRequestSpec};

use crate::failure::FailureClass;
use crate::retry::Attempts;

/// The request of somebody, who is told by the finalizer, that a pod leaves.
#[must_use]
pub fn new_request(
    namespace: &str,
    pod: &str,
    uid: &str,
    finalizer: &str,
    deadline: Option<i32>,
) -> EvictionRequest {
    let mut spec = EvictionRequestSpec::for_pod(pod, uid);
    spec.progress_deadline_seconds = deadline.unwrap_or(spec.progress_deadline_seconds);
    let mut request = EvictionRequest::new(uid, spec);
    request.metadata.namespace = Some(namespace.to_owned());
    request.metadata.finalizers = Some(vec![finalizer.to_owned()]);
    request
}

/// The object that was read, and as what.
#[derive(Debug, Clone, Copy)]
pub struct Version<'a> {
    pub uid: &'a str,
    pub resource_version: &'a str,
}

/// The request of a pod, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest<'a> {
    pub name: &'a str,
    pub version: Version<'a>,
    pub finalizers: &'a [String],
}

impl<'a> ReadRequest<'a> {
    fn of(request: &'a EvictionRequest) -> Self {
        let of = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        let metadata = &request.metadata;
        let version = Version { uid: of(&metadata.uid), resource_version: of(&metadata.resource_version) };
        Self { name: of(&metadata.name), version, finalizers: request.finalizers() }
    }
}

/// As whom requests are written. Each write is tried once, and is for the request that was read: who was slower than somebody else is told
/// so by a conflict, and what others add meanwhile is not lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Writer {
    /// The name under which writes appear in `managedFields`.
    pub field_manager: Option<&'static str>,
    /// The server only says what would come of it.
    pub dry_run: bool,
}

impl Writer {
    /// Under this name.
    #[must_use]
    pub const fn named(field_manager: &'static str) -> Self {
        Self { field_manager: Some(field_manager), dry_run: false }
    }

    /// Makes a request: see [`new_request`].
    ///
    /// # Errors
    /// There is one already, or the server did not take it. So for all that write: it was changed meanwhile or is gone, or the server did
    /// not take it.
    pub async fn create<K>(self, requests: &Api<K>, request: &K) -> Result<K, Error>
    where
        K: Clone + Serialize + DeserializeOwned + Debug,
    {
        let field_manager = self.field_manager.map(str::to_owned);
        requests.create(&PostParams { dry_run: self.dry_run, field_manager }, request).await
    }

    /// Joins those who ask, with an annotation beside the finalizer, if there is something to remember.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn join<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        read: ReadRequest<'_>,
        finalizer: &str,
        annotation: Option<(String, String)>,
    ) -> Result<K, Error> {
        let finalizers: Vec<&str> = read.finalizers.iter().map(String::as_str).chain([finalizer]).collect();
        let mut metadata = pinned(read.version);
        metadata["finalizers"] = json!(finalizers);
        if let Some((key, value)) = annotation {
            metadata["annotations"] = json!({key: value});
        }
        self.patch(requests, read.name, metadata).await
    }

    /// Takes back what those asked for whose finalizers these are.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn withdraw<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        read: ReadRequest<'_>,
        whose: impl Fn(&str) -> bool,
    ) -> Result<K, Error> {
        let kept: Vec<String> = read.finalizers.iter().filter(|one| !whose(one)).cloned().collect();
        self.keep(requests, read.name, read.version, &kept).await
    }

    /// Leaves only these finalizers.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn keep<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        name: &str,
        read: Version<'_>,
        finalizers: &[String],
    ) -> Result<K, Error> {
        let mut metadata = pinned(read);
        metadata["finalizers"] = json!(finalizers);
        self.patch(requests, name, metadata).await
    }

    /// Remembers something on the request of this UID, whatever else has changed of it: nobody reads it for this.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn remember<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        name: &str,
        uid: &str,
        (key, value): (String, String),
    ) -> Result<K, Error> {
        self.patch(requests, name, json!({"uid": uid, "annotations": {key: value}})).await
    }

    /// Reports on the turn on a request.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn report<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        name: &str,
        read: Version<'_>,
        status: Value,
    ) -> Result<K, Error> {
        let patch = json!({"metadata": pinned(read), "status": status});
        requests.patch_status(name, &self.patch_parameters(), &Patch::Merge(patch)).await
    }

    async fn patch<K: Clone + DeserializeOwned + Debug>(
        self,
        requests: &Api<K>,
        name: &str,
        metadata: Value,
    ) -> Result<K, Error> {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        requests.patch(name, &self.patch_parameters(), &patch).await
    }

    fn patch_parameters(self) -> PatchParams {
        let field_manager = self.field_manager.map(str::to_owned);
        PatchParams { dry_run: self.dry_run, field_manager, ..PatchParams::default() }
    }
}

fn pinned(read: Version<'_>) -> Value {
    json!({"uid": read.uid, "resourceVersion": read.resource_version})
}

/// The eviction requests of a namespace, as somebody reads and writes them.
pub struct Requests<K, E> {
    pub api: Api<K>,
    /// Programs and people read objects in ways of their own.
    pub read: fn(K) -> Result<EvictionRequest, E>,
    pub field_manager: Option<&'static str>,
    pub dry_run: bool,
}

/// What came of asking.
#[derive(Debug)]
pub enum Requested {
    Created(Box<EvictionRequest>),
    /// Others had asked before.
    Joined(Box<EvictionRequest>),
    /// This requester had asked before.
    Already(Box<EvictionRequest>),
}

/// What came of taking it back.
#[derive(Debug)]
pub enum Withdrawn {
    /// The request as it is now.
    Now(Box<EvictionRequest>),
    /// They had not asked; others may have.
    HadNotAsked(Box<EvictionRequest>),
    NoRequest,
}

/// Why a request was not made, joined or taken back.
#[derive(Debug)]
pub enum WriteError<E> {
    /// An older request for the pod is being deleted and still there.
    OlderRequestRemains,
    /// Others changed it on every attempt.
    Contended,
    /// It was not wanted any more before it was done.
    NotWanted,
    /// It was read, and could not be understood.
    Unread(E),
    Api(Error),
}

impl<E: Display> Display for WriteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OlderRequestRemains => {
                f.write_str("an older request for the pod is being deleted and not gone yet: ask again")
            }
            Self::Contended => f.write_str("the request keeps being changed by others: try again"),
            Self::NotWanted => f.write_str("it is not wanted any more"),
            Self::Unread(why) => write!(f, "the request cannot be understood: {why}"),
            Self::Api(why) => write!(f, "the API server did not take it: {why}"),
        }
    }
}

impl<E: Debug + Display> std::error::Error for WriteError<E> {}

impl<E> From<Error> for WriteError<E> {
    fn from(why: Error) -> Self {
        Self::Api(why)
    }
}

impl Requests<EvictionRequest, Infallible> {
    /// For programs, which read what the server sends as it is.
    #[must_use]
    pub fn new(api: Api<EvictionRequest>) -> Self {
        Self { api, read: Ok, field_manager: None, dry_run: false }
    }
}

impl<K: Clone + DeserializeOwned + Serialize + Debug, E> Requests<K, E> {
    /// Creates a request, or joins the one that is there. `wanted` is [`new_request`] in the form in which it is sent; `exists`: there is one
    /// already. `is_wanted` is asked before every attempt.
    ///
    /// # Errors
    /// It was refused, or an older request does not go away.
    pub async fn create_or_join(
        &self,
        name: &str,
        finalizer: &str,
        wanted: &K,
        mut exists: bool,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Requested, WriteError<E>> {
        let mut is_deleting = false;
        let mut attempts = Attempts::of(finalizer);
        loop {
            if !is_wanted() {
                return Err(WriteError::NotWanted);
            }
            if !exists {
                match self.writer().create(&self.api, wanted).await {
                    Ok(created) => return Ok(Requested::Created(self.understood(created)?)),
                    Err(why) if FailureClass::of(&why) == FailureClass::Conflict => exists = true,
                    Err(why) => return Err(why.into()),
                }
            }
            let Some(known) = self.get(name).await? else {
                exists = false;
                if attempts.again_at_once() {
                    continue;
                }
                break;
            };
            if known.finalizers().iter().any(|one| one == finalizer) {
                return Ok(Requested::Already(known));
            }
            is_deleting = known.metadata.deletion_timestamp.is_some();
            // What is being deleted takes no more finalizers; the request is made anew once it is gone.
            if !is_deleting {
                let joined = self.writer().join(&self.api, ReadRequest::of(&known), finalizer, None).await;
                if let Some(joined) = self.unless_outdated(joined)? {
                    return Ok(Requested::Joined(joined));
                }
            }
            if !attempts.again().await {
                break;
            }
        }
        Err(if is_deleting { WriteError::OlderRequestRemains } else { WriteError::Contended })
    }

    /// Takes back what those asked for whose finalizers are `whose`. Nothing is written if there is nothing to take back. `who` tells
    /// apart those who do so at the same time.
    ///
    /// # Errors
    /// The server did not take it.
    pub async fn withdraw(
        &self,
        name: &str,
        who: &str,
        whose: impl Fn(&str) -> bool,
    ) -> Result<Withdrawn, WriteError<E>> {
        let mut attempts = Attempts::of(who);
        loop {
            let Some(known) = self.get(name).await? else { return Ok(Withdrawn::NoRequest) };
            if !known.finalizers().iter().any(|one| whose(one)) {
                return Ok(Withdrawn::HadNotAsked(known));
            }
            let withdrawn = self.writer().withdraw(&self.api, ReadRequest::of(&known), &whose).await;
            if let Some(now) = self.unless_outdated(withdrawn)? {
                return Ok(Withdrawn::Now(now));
            }
            if !attempts.again().await {
                return Err(WriteError::Contended);
            }
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Box<EvictionRequest>>, WriteError<E>> {
        self.api.get_opt(name).await?.map(|known| self.understood(known)).transpose()
    }

    fn understood(&self, object: K) -> Result<Box<EvictionRequest>, WriteError<E>> {
        (self.read)(object).map(Box::new).map_err(WriteError::Unread)
    }

    /// `None`: it is not the one that was read any more.
    fn unless_outdated(
        &self,
        written: Result<K, Error>,
    ) -> Result<Option<Box<EvictionRequest>>, WriteError<E>> {
        match written {
            Ok(written) => Ok(Some(self.understood(written)?)),
            Err(why) if FailureClass::of(&why).is_outdated() => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    fn writer(&self) -> Writer {
        Writer { field_manager: self.field_manager, dry_run: self.dry_run }
    }
}
