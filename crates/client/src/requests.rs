//! Asking that a pod leaves, and taking it back: writes to EvictionRequests that hold when others write at the same time.

use std::fmt::Debug;

use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use usher_api::{EvictionRequest, EvictionRequestSpec};

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

/// Sets the finalizers of a request if it is still the one that was read: what others add meanwhile is not lost.
///
/// # Errors
/// It was changed meanwhile or is gone, or the server did not take it.
pub async fn set_finalizers<K: Clone + DeserializeOwned + Debug>(
    requests: &Api<K>,
    name: &str,
    read: Version<'_>,
    finalizers: &[String],
    parameters: &PatchParams,
) -> Result<K, Error> {
    let metadata =
        json!({"uid": read.uid, "resourceVersion": read.resource_version, "finalizers": finalizers});
    requests.patch(name, parameters, &Patch::Merge(json!({"metadata": metadata}))).await
}

/// Reports on the turn on a request, if the request is still the one that was read.
///
/// # Errors
/// It was changed meanwhile or is gone, or the server did not take it.
pub async fn report<K: Clone + DeserializeOwned + Debug>(
    requests: &Api<K>,
    name: &str,
    read: Version<'_>,
    status: Value,
    parameters: &PatchParams,
) -> Result<K, Error> {
    let metadata = json!({"uid": read.uid, "resourceVersion": read.resource_version});
    let patch = json!({"metadata": metadata, "status": status});
    requests.patch_status(name, parameters, &Patch::Merge(patch)).await
}

/// The object that was read, and as what.
#[derive(Debug, Clone, Copy)]
pub struct Version<'a> {
    pub uid: &'a str,
    pub resource_version: &'a str,
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
pub enum Asked {
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
pub enum AskError<E> {
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

impl<E> From<Error> for AskError<E> {
    fn from(why: Error) -> Self {
        Self::Api(why)
    }
}

impl<K: Clone + DeserializeOwned + Serialize + Debug, E> Requests<K, E> {
    /// Creates a request, or joins the one that is there. `wanted` is [`new_request`] in the form in which it is sent; `exists`: there is one
    /// already. `is_wanted` is asked before every attempt.
    ///
    /// # Errors
    /// It was refused, or an older request does not go away.
    pub async fn ask(
        &self,
        name: &str,
        finalizer: &str,
        wanted: &K,
        mut exists: bool,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Asked, AskError<E>> {
        let parameters =
            PostParams { dry_run: self.dry_run, field_manager: self.field_manager.map(str::to_owned) };
        let mut is_deleting = false;
        let mut attempts = Attempts::of(finalizer);
        loop {
            if !is_wanted() {
                return Err(AskError::NotWanted);
            }
            if !exists {
                match self.api.create(&parameters, wanted).await {
                    Ok(created) => return Ok(Asked::Created(self.understood(created)?)),
                    Err(Error::Api(status)) if status.code == 409 => exists = true,
                    Err(other) => return Err(other.into()),
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
                return Ok(Asked::Already(known));
            }
            is_deleting = known.metadata.deletion_timestamp.is_some();
            // What is being deleted takes no more finalizers; the request is made anew once it is gone.
            if !is_deleting {
                let finalizers: Vec<String> =
                    known.finalizers().iter().cloned().chain([finalizer.to_owned()]).collect();
                if let Some(joined) = self.write(&known, &finalizers).await? {
                    return Ok(Asked::Joined(joined));
                }
            }
            if !attempts.again().await {
                break;
            }
        }
        Err(if is_deleting { AskError::OlderRequestRemains } else { AskError::Contended })
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
    ) -> Result<Withdrawn, AskError<E>> {
        let mut attempts = Attempts::of(who);
        loop {
            let Some(known) = self.get(name).await? else { return Ok(Withdrawn::NoRequest) };
            let kept: Vec<String> = known.finalizers().iter().filter(|one| !whose(one)).cloned().collect();
            if kept.len() == known.finalizers().len() {
                return Ok(Withdrawn::HadNotAsked(known));
            }
            if let Some(now) = self.write(&known, &kept).await? {
                return Ok(Withdrawn::Now(now));
            }
            if !attempts.again().await {
                return Err(AskError::Contended);
            }
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Box<EvictionRequest>>, AskError<E>> {
        self.api.get_opt(name).await?.map(|known| self.understood(known)).transpose()
    }

    fn understood(&self, object: K) -> Result<Box<EvictionRequest>, AskError<E>> {
        (self.read)(object).map(Box::new).map_err(AskError::Unread)
    }

    /// `None`: it is not the one that was read any more.
    async fn write(
        &self,
        known: &EvictionRequest,
        finalizers: &[String],
    ) -> Result<Option<Box<EvictionRequest>>, AskError<E>> {
        let parameters = PatchParams {
            dry_run: self.dry_run,
            field_manager: self.field_manager.map(str::to_owned),
            ..PatchParams::default()
        };
        let (uid, version) = (known.uid().unwrap_or_default(), known.resource_version().unwrap_or_default());
        let read = Version { uid: &uid, resource_version: &version };
        match set_finalizers(&self.api, &known.name_any(), read, finalizers, &parameters).await {
            Ok(written) => Ok(Some(self.understood(written)?)),
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }
}
