//! Requesting an eviction, and withdrawing it, as a person does: what is read is read leniently, and errors say what to do.

use kube::{Api, Client};
use usher_api::EvictionRequest;
use usher_api::names::requester_of;
pub use usher_client::requests::{Requested as Asked, Withdrawn};
use usher_client::requests::{Requests, WriteError, new_request};

use crate::Error;
use crate::arguments::Requester;
use crate::reading::{Read, sent};

/// The name under which these writes appear in `managedFields`.
pub const FIELD_MANAGER: &str = "usher-cli";

/// The pod that is asked to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTarget {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

fn requests(client: &Client, namespace: &str, dry_run: bool) -> Requests<Read<EvictionRequest>, Error> {
    let api = Api::namespaced(client.clone(), namespace);
    Requests { api, read: Read::wanted, field_manager: Some(FIELD_MANAGER), dry_run }
}

/// Creates the request of a pod, or joins the one that is there.
pub async fn ask(
    client: &Client,
    pod: &PodTarget,
    requester: &Requester,
    deadline: Option<i32>,
    dry_run: bool,
) -> Result<Asked, Error> {
    let PodTarget { namespace, name, uid } = pod;
    let wanted = sent(new_request(namespace, name, uid, &requester.finalizer, deadline))?;
    let requests = requests(client, namespace, dry_run);
    let asked = requests.create_or_join(uid, &requester.finalizer, &wanted, false, || true).await;
    asked.map_err(|why| match why {
        WriteError::OlderRequestRemains => Error::Refused(format!(
            "an earlier request for pod {name:?} is still being removed: try again in a moment, or see kubectl get er -n {namespace}"
        )),
        why => error(why, uid),
    })
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

pub async fn withdraw(
    client: &Client,
    namespace: &str,
    request: &str,
    whose: &Whose,
) -> Result<Withdrawn, Error> {
    let requests = requests(client, namespace, false);
    let who = match whose {
        Whose::One(requester) => requester.finalizer.as_str(),
        Whose::All => FIELD_MANAGER,
    };
    let withdrawn = requests.withdraw(request, who, |finalizer| whose.includes(finalizer)).await;
    withdrawn.map_err(|why| error(why, request))
}

fn error(why: WriteError<Error>, request: &str) -> Error {
    match why {
        WriteError::OlderRequestRemains | WriteError::Contended | WriteError::NotWanted => {
            Error::Refused(format!("others keep changing request {request:?}: try again in a moment"))
        }
        WriteError::Unread(why) => why,
        WriteError::Api(why) => why.into(),
    }
}
