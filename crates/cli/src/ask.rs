//! Requesting an eviction, and withdrawing it: writes to EvictionRequests that hold when others write at the same time.

use std::time::Duration;

use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use usher_api::names::requester_of;
use usher_api::{EvictionRequest, EvictionRequestSpec};

use crate::Error;
use crate::arguments::Requester;
use crate::error::{is_code, is_missing};
use crate::reading::{Read, sent};

/// The name under which these writes appear in `managedFields`.
pub const FIELD_MANAGER: &str = "usher-cli";
/// Somebody else may write at the same time, but hardly so often.
const ATTEMPTS: usize = 20;
/// A request that is being removed is waited for.
const PAUSE: Duration = Duration::from_millis(500);

/// The pod that is asked to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTarget {
    pub namespace: String,
    pub name: String,
    pub uid: String,
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

/// Creates the request of a pod, or joins the one that is there.
pub async fn ask(
    client: &Client,
    pod: &PodTarget,
    requester: &Requester,
    deadline: Option<i32>,
    dry_run: bool,
) -> Result<Asked, Error> {
    let requests: Api<Read<EvictionRequest>> = Api::namespaced(client.clone(), &pod.namespace);
    let mut spec = EvictionRequestSpec::for_pod(&pod.name, &pod.uid);
    spec.progress_deadline_seconds = deadline.unwrap_or(spec.progress_deadline_seconds);
    let wanted = EvictionRequest {
        metadata: ObjectMeta {
            name: Some(pod.uid.clone()),
            namespace: Some(pod.namespace.clone()),
            finalizers: Some(vec![requester.finalizer.clone()]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let post = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_string()) };
    let wanted = sent(wanted)?;
    for _ in 0..ATTEMPTS {
        match requests.create(&post, &wanted).await {
            Ok(created) => return Ok(Asked::Created(Box::new(created.wanted()?))),
            Err(why) if is_code(&why, 409) => {}
            Err(why) => return Err(why.into()),
        }
        let known = match requests.get(&pod.uid).await {
            Ok(known) => known.wanted()?,
            Err(why) if is_missing(&why) => continue,
            Err(why) => return Err(why.into()),
        };
        if known.metadata.deletion_timestamp.is_some() {
            // No finalizer can be added any more; a new request can be made once this one is gone.
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        if known.finalizers().contains(&requester.finalizer) {
            return Ok(Asked::Already(Box::new(known)));
        }
        let mut finalizers = known.finalizers().to_vec();
        finalizers.push(requester.finalizer.clone());
        if let Some(joined) = write(&requests, &known, &finalizers, dry_run).await? {
            return Ok(Asked::Joined(Box::new(joined)));
        }
    }
    Err(Error::Refused(format!(
        "an earlier request for pod {:?} is still being removed: try again in a moment, or see kubectl get er -n {}",
        pod.name, pod.namespace
    )))
}

/// Whose wish is taken back.
#[derive(Debug, Clone)]
pub enum Whose {
    One(Requester),
    All,
}

impl Whose {
    fn includes(&self, finalizer: &str) -> bool {
        match self {
            Self::One(requester) => finalizer == requester.finalizer,
            Self::All => requester_of(finalizer).is_some(),
        }
    }
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

pub async fn withdraw(
    client: &Client,
    namespace: &str,
    request: &str,
    whose: &Whose,
) -> Result<Withdrawn, Error> {
    let requests: Api<Read<EvictionRequest>> = Api::namespaced(client.clone(), namespace);
    for _ in 0..ATTEMPTS {
        let known = match requests.get(request).await {
            Ok(known) => known.wanted()?,
            Err(why) if is_missing(&why) => return Ok(Withdrawn::NoRequest),
            Err(why) => return Err(why.into()),
        };
        let kept: Vec<String> =
            known.finalizers().iter().filter(|finalizer| !whose.includes(finalizer)).cloned().collect();
        if kept.len() == known.finalizers().len() {
            return Ok(Withdrawn::HadNotAsked(Box::new(known)));
        }
        if let Some(now) = write(&requests, &known, &kept, false).await? {
            return Ok(Withdrawn::Now(Box::new(now)));
        }
    }
    Err(Error::Refused(format!("others keep changing request {request:?}: try again in a moment")))
}

/// Sets the finalizers if the request is still the one that was read; `None` if it is not.
async fn write(
    requests: &Api<Read<EvictionRequest>>,
    known: &EvictionRequest,
    finalizers: &[String],
    dry_run: bool,
) -> Result<Option<EvictionRequest>, Error> {
    let patch = json!({"metadata": {
        "uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version, "finalizers": finalizers,
    }});
    let parameters =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_string()), ..PatchParams::default() };
    match requests.patch(&known.name_any(), &parameters, &Patch::Merge(&patch)).await {
        Ok(written) => Ok(Some(written.wanted()?)),
        Err(why) if is_code(&why, 409) || is_missing(&why) => Ok(None),
        Err(why) => Err(why.into()),
    }
}
