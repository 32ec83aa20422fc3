//! Hand-over, the second way to surge: for a pod that is asked to leave, another one is made from the template of its ReplicaSet, without
//! the label by which the ReplicaSet would know it. Once it is available it gets that label: the ReplicaSet adopts it, has one pod too
//! many, and deletes the one of the lowest deletion cost, which is the one that leaves. Nobody's `replicas` are touched.
//!
//! The request owns the new pod until then, so that the garbage collector removes it with a request that was called off, also while no
//! manager runs. An adopted pod has two owners, and stays when one of them goes: the garbage collector only takes that owner off it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_api::names::{EVICTION_REQUEST_GROUP, HAND_OVER_ANNOTATION, VERSION};
use usher_api::workloads::{BundledInterceptor, POD_TEMPLATE_HASH_LABEL};

use super::super::availability::{Unavailable, why_unavailable};
use super::super::{Decision, Effect, is_wanted};
use super::preference::comes_first;
use super::state::SurgeState;
use super::{Case, give_over};
use crate::admission::workload_pods::with_interceptors;
use crate::snapshot::{Key, Pod, Request};

/// Pods that ReplicaSets make have names of so many letters at most, and this ending.
const LONGEST_NAME: usize = 63;
const LETTERS: usize = 5;
/// Those of which Kubernetes makes such endings: no words come of them.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewHandOver {
    pub name: String,
    /// The ReplicaSet from whose template it is made, and its UID.
    pub set: Key,
    pub set_uid: Arc<str>,
    /// For whose pod it is made.
    pub request: Arc<Request>,
}

impl NewHandOver {
    /// The pod, from the ReplicaSet as the server has it. None if that is another one by now, or is about to go.
    pub fn pod(&self, set: &Value) -> Option<Value> {
        let meta = &set["metadata"];
        if meta["uid"] != *self.set_uid || !meta["deletionTimestamp"].is_null() {
            return None;
        }
        let template = &set["spec"]["template"];
        let texts = |value: &Value| -> BTreeMap<String, String> {
            serde_json::from_value(value.clone()).unwrap_or_default()
        };
        let mut labels = texts(&template["metadata"]["labels"]);
        let mut annotations = texts(&template["metadata"]["annotations"]);
        annotations =
            with_interceptors(BundledInterceptor::Deployment, &labels, &annotations).unwrap_or(annotations);
        annotations.insert(HAND_OVER_ANNOTATION.to_owned(), self.set.name.to_string());
        labels.remove(POD_TEMPLATE_HASH_LABEL);
        Some(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": &*self.set.namespace, "labels": labels, "annotations": annotations,
                "finalizers": template["metadata"]["finalizers"],
                "ownerReferences": [{
                    "apiVersion": format!("{EVICTION_REQUEST_GROUP}/{VERSION}"), "kind": "EvictionRequest",
                    "name": &*self.request.key.name, "uid": &*self.request.uid,
                }],
            },
            "spec": template["spec"],
        }))
    }

    /// This is it: a manager that was killed has made it, or it is known too late.
    pub fn is(&self, pod: &Pod) -> bool {
        pod.hand_over().is_some_and(|it| it.request == self.request.uid && it.set == self.set.name)
    }
}

/// The same for the same request, so that nobody makes two for it. Where others have that name, the next one is tried.
pub fn name(set: &str, request_uid: &str, taken: u32) -> String {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in request_uid.bytes().chain(taken.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let set: String = set.chars().take(LONGEST_NAME - LETTERS - 1).collect();
    let mut name = format!("{}-", set.trim_end_matches(['.', '-']));
    let letters = ALPHABET.len() as u64;
    for _ in 0..LETTERS {
        let at = usize::try_from(hash % letters).unwrap_or(0);
        name.extend(ALPHABET.get(at).map(|letter| char::from(*letter)));
        hash /= letters;
    }
    name
}

/// The pod that was made for the one of this request.
pub(super) fn replacement<'a>(case: &Case<'a>, request: &Request) -> Option<&'a Arc<Pod>> {
    let is_its = |pod: &&Arc<Pod>| pod.hand_over().is_some_and(|it| it.request == request.uid);
    let is_asked = |pod: &Pod| case.handed_asked.contains(&pod.uid);
    let is_there = |pod: &&Arc<Pod>| !pod.is_terminating() && !pod.phase.is_terminal() && !is_asked(pod);
    case.handed.iter().filter(is_its).find(is_there)
}

/// The one that was made for it is available.
pub(super) fn is_replaced(case: &Case<'_>, request: &Request, now: Timestamp) -> bool {
    let new = replacement(case, request);
    new.is_some_and(|new| why_unavailable(new, case.deployment.min_ready_seconds, now).is_none())
}

pub(super) fn is_labelled(pod: &Pod) -> bool {
    pod.hand_over().is_some_and(|it| it.is_labelled)
}

/// Those that nobody waits for any more. What is on its way into its ReplicaSet is the ReplicaSet's: for it, another one may have gone.
pub(super) fn dropped<'a>(
    case: &Case<'a>,
    state: &SurgeState<'a>,
    is_on: bool,
    now: Timestamp,
) -> Vec<Effect> {
    let asked = state.asked();
    let kept: Vec<&Arc<Pod>> = asked
        .filter(|(pod, request)| {
            let set = pod.owner.as_ref().map(|owner| &owner.name);
            let is_of_its_set = |new: &Arc<Pod>| new.hand_over().map(|it| &it.set) == set;
            is_on
                && !case.deployment.has_old_pods
                && is_wanted(request)
                && replacement(case, request).is_some_and(is_of_its_set)
        })
        .filter_map(|(_, request)| replacement(case, request))
        .collect();
    let is_dropped = |pod: &&Arc<Pod>| {
        !pod.is_terminating() && !is_labelled(pod) && !kept.iter().any(|kept| kept.key == pod.key)
    };
    // The one that it was made for may be gone for another reason: then it is worth more than what its ReplicaSet has just begun with.
    let is_available =
        |pod: &Arc<Pod>| why_unavailable(pod, case.deployment.min_ready_seconds, now).is_none();
    let available = case.pods.values().filter(|pod| is_available(pod)).count();
    let is_steady = is_on && !case.deployment.has_old_pods;
    let mut lacking = if is_steady { (state.size.wanted as usize).saturating_sub(available) } else { 0 };
    let mut effects = Vec::new();
    for pod in case.handed.iter().filter(is_dropped) {
        let hash = hash_of(case, pod)
            .filter(|_| lacking > 0 && pod.is_ready() && !case.handed_asked.contains(&pod.uid));
        effects.push(match hash {
            Some(hash) => {
                lacking -= 1;
                Effect::HandOver { pod: pod.clone(), hash: hash.into() }
            }
            None => Effect::DropHandOver { pod: pod.clone() },
        });
    }
    effects
}

/// The label of the ReplicaSet that is to adopt the pod, as its pods have it.
fn hash_of<'a>(case: &Case<'a>, pod: &Pod) -> Option<&'a str> {
    let set = &pod.hand_over()?.set;
    let is_its = |pod: &&Arc<Pod>| pod.owner.as_ref().is_some_and(|owner| owner.name == *set);
    case.pods.values().find(is_its)?.labels.get(POD_TEMPLATE_HASH_LABEL).map(String::as_str)
}

/// What is done for the next pods, `most` of them at a time.
pub(super) fn hand_over(
    case: &Case<'_>,
    state: &SurgeState<'_>,
    mut decision: Decision,
    most: usize,
) -> Decision {
    if state.size.by > 0 || state.is_rolling_out {
        return decision;
    }
    let is_replaced = state.is_replaced() && comes_first(case, state);
    if is_replaced {
        for (pod, request) in state.given_over.iter().take(state.for_surge) {
            let hash = pod.labels.get(POD_TEMPLATE_HASH_LABEL);
            let new = replacement(case, request).filter(|new| !is_labelled(new));
            if let (Some(new), Some(hash)) = (new, hash) {
                decision.effects.push(Effect::HandOver { pod: new.clone(), hash: hash.as_str().into() });
            }
        }
        if state.in_between.is_empty() {
            decision.effects.extend(give_over(case, state));
        }
    }
    let new = to_be_made(case, state, most);
    // Before all else: it takes the longest.
    decision.effects.splice(0..0, new.map(|new| Effect::MakeHandOver(Box::new(new))));
    decision
}

/// Why the next pod that waits has no available replacement.
pub(super) fn awaited(case: &Case<'_>, state: &SurgeState<'_>, now: Timestamp) -> Option<Unavailable> {
    let (_, request) = state.waiting.get(state.batch).filter(|_| case.hands_over())?;
    match replacement(case, request) {
        None => Some(Unavailable::Missing),
        Some(pod) => why_unavailable(pod, case.deployment.min_ready_seconds, now),
    }
}

/// New pods for the next that wait, as many as there may be more than wanted, and for those that were given over and whose replacement was
/// lost since.
fn to_be_made<'a>(
    case: &'a Case<'_>,
    state: &'a SurgeState<'_>,
    most: usize,
) -> impl Iterator<Item = NewHandOver> + use<'a> {
    let is_made_for = |request: &Request| {
        case.handed.iter().any(|pod| pod.hand_over().is_some_and(|it| it.request == request.uid))
    };
    let is_there = |pod: &&Arc<Pod>| !pod.is_terminating() && !pod.phase.is_terminal();
    let there = case.pods.values().filter(is_there).count() + case.handed.len();
    let more = there.saturating_sub(state.size.wanted as usize);
    // Those that go have been replaced, or are to be, and count until they are gone.
    let going = state.given_over.len() + state.in_between.len();
    let for_waiting = state.waiting.iter().filter(|(_, request)| is_made_for(request)).count();
    let room = most.saturating_sub(more.max(going + for_waiting));
    // One that is adopted has no request any more: the one that it came for is about to go.
    let lacking = if state.is_shrinking { 0 } else { most.saturating_sub(more) };
    let lost = state.given_over.iter().filter(move |(_, request)| !is_made_for(request)).take(lacking);
    let next = state.waiting.iter().filter(move |(_, request)| !is_made_for(request)).take(room);
    lost.chain(next).filter_map(|(pod, request)| {
        let owner = pod.owner.as_ref()?;
        let taken = case.taken.get(&request.uid).copied().unwrap_or(0);
        Some(NewHandOver {
            name: name(&owner.name, &request.uid, taken),
            set: Key::new(pod.key.namespace.clone(), owner.name.clone()),
            set_uid: owner.uid.clone(),
            request: (*request).clone(),
        })
    })
}
