//! Finalizers of requesters: `requester.evictionrequest.coordination.k8s.io/name_SUBDOMAIN`.
//!
//! Only what is added is checked. Whatever is there can be removed, else a malformed one would hold its request for ever.

use usher_api::EvictionRequest;
use usher_api::names::{
    FOREIGN_FINALIZER_PREFIXES, REQUESTER_FINALIZER_PREFIX, requester_finalizer, requester_of,
};

use super::{Refusal, Rule};

const FIELD: &str = "metadata.finalizers";

/// What is wrong with the finalizers that `new` has and `old` has not.
pub(super) fn check_added(old: Option<&EvictionRequest>, new: &EvictionRequest, refusals: &mut Vec<Refusal>) {
    let before = old.map(of).unwrap_or_default();
    let added = of(new).iter().filter(|finalizer| !before.contains(finalizer));
    refusals.extend(added.filter_map(|finalizer| problem(finalizer)));
}

/// Whether any requester stands behind the request.
pub(super) fn has_requester(request: &EvictionRequest) -> bool {
    of(request).iter().any(|finalizer| requester_of(finalizer).is_some())
}

fn of(request: &EvictionRequest) -> &[String] {
    request.metadata.finalizers.as_deref().unwrap_or_default()
}

fn problem(finalizer: &str) -> Option<Refusal> {
    let [requesters, _] = FOREIGN_FINALIZER_PREFIXES;
    let why = match requester_of(finalizer) {
        Some(name) => requester_finalizer(name).err()?.to_string(),
        None if finalizer.starts_with(requesters) => {
            format!(
                "{requesters} is for requesters: write {REQUESTER_FINALIZER_PREFIX}SUBDOMAIN, or use a prefix of your own"
            )
        }
        None => return None,
    };
    Some(Refusal::new(Rule::RequesterFinalizerForm, FIELD, format!("finalizer {finalizer:?}: {why}")))
}
