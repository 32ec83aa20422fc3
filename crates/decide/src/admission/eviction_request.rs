//! Eviction requests: CREATE, UPDATE (the status too) and DELETE.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use usher_api::names::{INTERCEPTORS_RESOLVED_ANNOTATION, REQUESTER_FINALIZER_PREFIX};
use usher_api::{EvictionRequest, EvictionRequestCancellationPolicy, EvictionRequestStatus, Interceptor};

use super::resolve::Ignored;
use super::{Access, CLOCK_SKEW_SECONDS, Changes, FoundPod, Refusal, Rule, Verdict, finalizers, turn};

/// How many ignored annotations are told one by one. Servers cut off long lists of warnings.
const WARNINGS_MAX: usize = 5;

/// A new request. `pod` is the one that has the name in `spec.podRef` now.
///
/// Who may not delete the pod learns nothing about it.
pub fn on_create(request: &EvictionRequest, pod: Option<&FoundPod>, access: &Access) -> Verdict {
    if let Some(refusal) = check_access(request, access) {
        return refusal.into();
    }
    let mut refusals = Vec::new();
    check_names(request, &mut refusals);
    check_status_on_creation(request, &mut refusals);
    finalizers::check_added(None, request, &mut refusals);
    let pod = check_pod(request, pod, &mut refusals);
    match (pod, refusals.is_empty()) {
        (Some(pod), true) => copy_from_pod(request, pod),
        _ => Verdict::of(refusals),
    }
}

/// The same once all changes are made: nothing may be left to change, else somebody else undid it, or the pod changed meanwhile.
pub fn on_created(request: &EvictionRequest, pod: Option<&FoundPod>, access: &Access) -> Verdict {
    match on_create(request, pod, access) {
        Verdict::Allow { changes, .. } if changes.is_empty() => Verdict::allow(),
        Verdict::Allow { changes, .. } => {
            let field = match changes {
                Changes { interceptors: Some(_), .. } => "spec.interceptors",
                Changes { labels: Some(_), .. } => "metadata.labels",
                _ => "metadata.annotations",
            };
            let message = format!(
                "{field} differs from what the annotations and labels of pod {} say now: the pod changed in this moment, create \
                 the request again; if that does not help, another webhook changes {field}, or the mutating webhook of Usher is \
                 not installed",
                request.spec.pod_ref.name
            );
            Refusal::new(Rule::CopiedFromPod, field, message).into()
        }
        denied @ Verdict::Deny(_) => denied,
    }
}

/// A request that changes, by an update of itself or of its status.
pub fn on_update(old: &EvictionRequest, new: &EvictionRequest, access: &Access, now: Timestamp) -> Verdict {
    if let Some(refusal) = check_access(old, access) {
        return refusal.into();
    }
    let mut refusals = Vec::new();
    check_immutable(old, new, &mut refusals);
    finalizers::check_added(Some(old), new, &mut refusals);
    turn::check(old, new, now, &mut refusals);
    check_counter(old, new, &mut refusals);
    check_progress(old, new, now, &mut refusals);
    Verdict::of(refusals)
}

/// A request that is to be deleted. `pod` is the one that has the name in `spec.podRef` now; it matters under Forbid only.
pub fn on_delete(request: &EvictionRequest, pod: Option<&FoundPod>, access: &Access) -> Verdict {
    if let Some(refusal) = check_access(request, access) {
        return refusal.into();
    }
    let name = &request.spec.pod_ref.name;
    let stays = pod.filter(|pod| pod.uid == request.spec.pod_ref.uid && !pod.is_terminal());
    if !forbids_deletion(request) || stays.is_none() {
        return Verdict::allow();
    }
    let who = request.status.as_ref().and_then(|status| status.active_interceptor_class.as_deref());
    let message = format!(
        "{} cannot stop any more (status.evictionRequestCancellationPolicy is Forbid) and pod {name} still exists: wait until \
         the pod is gone, or withdraw by removing your requester finalizer",
        who.map_or_else(|| "the eviction".to_owned(), |class| format!("interceptor {class}"))
    );
    Refusal::new(Rule::DeletionForbidden, "status.evictionRequestCancellationPolicy", message).into()
}

/// Whether the fate of the pod matters for a DELETE.
pub fn forbids_deletion(request: &EvictionRequest) -> bool {
    let policy = request.status.as_ref().map(|status| status.eviction_request_cancellation_policy);
    policy == Some(EvictionRequestCancellationPolicy::Forbid)
}

fn check_access(request: &EvictionRequest, access: &Access) -> Option<Refusal> {
    let Access::Denied { user } = access else { return None };
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    let name = &request.spec.pod_ref.name;
    let message = format!(
        "{user:?} may not delete pod {name} in namespace {namespace}, and so may not ask for its eviction: have a role bound \
         that allows the verb delete on pods there"
    );
    Some(Refusal::new(Rule::CallerMayDeletePod, "spec.podRef", message))
}

fn check_names(request: &EvictionRequest, refusals: &mut Vec<Refusal>) {
    let uid = &request.spec.pod_ref.uid;
    if request.metadata.generate_name.as_deref().is_some_and(|prefix| !prefix.is_empty()) {
        let message =
            format!("metadata.generateName is not supported: set metadata.name to the UID of the pod, {uid}");
        refusals.push(Refusal::new(Rule::NoGenerateName, "metadata.generateName", message));
        return;
    }
    let name = request.metadata.name.as_deref().unwrap_or_default();
    if name != uid {
        let message = format!(
            "metadata.name is {name:?} and spec.podRef.uid is {uid:?}: both must be the UID of the pod"
        );
        refusals.push(Refusal::new(Rule::NameIsPodUid, "metadata.name", message));
    }
}

fn check_status_on_creation(request: &EvictionRequest, refusals: &mut Vec<Refusal>) {
    let Some(status) = &request.status else { return };
    if status.active_interceptor_class.is_some() {
        let field = "status.activeInterceptorClass";
        let message = format!("{field} is chosen by the controller: leave it out");
        refusals.push(Refusal::new(Rule::NoStatusOnCreation, field, message));
    }
    if forbids_deletion(request) {
        let field = "status.evictionRequestCancellationPolicy";
        let message = format!("{field} is Allow in the beginning and set by interceptors: leave it out");
        refusals.push(Refusal::new(Rule::NoStatusOnCreation, field, message));
    }
}

fn check_pod<'a>(
    request: &EvictionRequest,
    pod: Option<&'a FoundPod>,
    refusals: &mut Vec<Refusal>,
) -> Option<&'a FoundPod> {
    let wanted = &request.spec.pod_ref;
    let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
    let Some(pod) = pod else {
        let message = format!(
            "there is no pod {} in namespace {namespace}: it is gone already, or the name is wrong",
            wanted.name
        );
        refusals.push(Refusal::new(Rule::PodExists, "spec.podRef.name", message));
        return None;
    };
    if pod.uid != wanted.uid {
        // Who may delete a pod need not be one who may read it: its UID is for who knows it.
        let message = format!(
            "pod {} in namespace {namespace} has another UID than {}: the pod you mean is gone, or the UID is wrong; to evict the \
             present one use its UID",
            wanted.name, wanted.uid
        );
        refusals.push(Refusal::new(Rule::PodHasUid, "spec.podRef.uid", message));
        return None;
    }
    if pod.is_terminal() {
        let message = format!(
            "pod {} in namespace {namespace} has ended already ({}): there is nothing to evict, delete it if it should go",
            wanted.name, pod.phase
        );
        refusals.push(Refusal::new(Rule::PodIsNotTerminal, "spec.podRef", message));
        return None;
    }
    Some(pod)
}

fn copy_from_pod(request: &EvictionRequest, pod: &FoundPod) -> Verdict {
    let mut warnings = Vec::new();
    let resolved = pod.interceptors();
    warn_of_ignored(&resolved.ignored, &mut warnings);

    let mut changes = Changes::default();
    if request.spec.interceptors != resolved.interceptors {
        if !request.spec.interceptors.is_empty() {
            warnings.push(
                "spec.interceptors is replaced by what the annotations of the pod say: leave it out"
                    .to_owned(),
            );
        }
        changes.interceptors = Some(resolved.interceptors.clone());
    }
    let mark = (INTERCEPTORS_RESOLVED_ANNOTATION.to_owned(), "true".to_owned());
    let mut annotations = request.metadata.annotations.clone().unwrap_or_default();
    if resolved.interceptors.is_empty() && annotations.get(&mark.0) != Some(&mark.1) {
        annotations.extend([mark]);
        changes.annotations = Some(annotations);
    }
    let given = request.metadata.labels.clone().unwrap_or_default();
    let mut labels = given.clone();
    labels.extend(pod.labels.clone());
    if labels != given {
        changes.labels = Some(labels);
    }
    if !finalizers::has_requester(request) {
        warnings.push(format!(
            "no requester stands behind this request and it will be withdrawn at once: add a finalizer \
             {REQUESTER_FINALIZER_PREFIX}SUBDOMAIN"
        ));
    }
    Verdict::Allow { changes, warnings }
}

fn warn_of_ignored(ignored: &[Ignored], warnings: &mut Vec<String>) {
    warnings.extend(ignored.iter().take(WARNINGS_MAX).map(ToString::to_string));
    if ignored.len() > WARNINGS_MAX {
        warnings.push(format!("{} interceptor annotations of the pod are ignored in all", ignored.len()));
    }
}

fn check_immutable(old: &EvictionRequest, new: &EvictionRequest, refusals: &mut Vec<Refusal>) {
    let mark = |request: &EvictionRequest| {
        request
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(INTERCEPTORS_RESOLVED_ANNOTATION))
            .cloned()
    };
    if mark(old) != mark(new) {
        let message = format!(
            "annotation {INTERCEPTORS_RESOLVED_ANNOTATION} is set by admission alone: leave it as it is"
        );
        refusals.push(Refusal::new(Rule::CopiedFromPod, "metadata.annotations", message));
    }
    let mut refuse = |field: &'static str, instead: &str| {
        let message = format!("{field} cannot change after creation: {instead}");
        refusals.push(Refusal::new(Rule::SpecIsImmutable, field, message));
    };
    if old.spec.pod_ref != new.spec.pod_ref {
        refuse("spec.podRef", "create another request for another pod");
    }
    if by_class(&old.spec.interceptors) != by_class(&new.spec.interceptors) {
        refuse("spec.interceptors", "the interceptors are those the pod named when the request was created");
    }
    if old.spec.progress_deadline_seconds != new.spec.progress_deadline_seconds {
        refuse(
            "spec.progressDeadlineSeconds",
            "interceptors rely on it, withdraw this request and create another",
        );
    }
}

/// Interceptors are a map by class: their order in the list means nothing.
fn by_class(interceptors: &[Interceptor]) -> Vec<&Interceptor> {
    let mut sorted: Vec<&Interceptor> = interceptors.iter().collect();
    sorted.sort_by_key(|i| &i.interceptor_class);
    sorted
}

fn check_counter(old: &EvictionRequest, new: &EvictionRequest, refusals: &mut Vec<Refusal>) {
    let counter = |request: &EvictionRequest| {
        request.status.as_ref().map_or(0, |status| status.failed_api_eviction_counter)
    };
    let (before, after) = (counter(old), counter(new));
    if after < before {
        let field = "status.failedAPIEvictionCounter";
        let message = format!("{field} cannot go from {before} back to {after}: it only rises");
        refusals.push(Refusal::new(Rule::CounterOnlyRises, field, message));
    }
}

fn check_progress(old: &EvictionRequest, new: &EvictionRequest, now: Timestamp, refusals: &mut Vec<Refusal>) {
    let progress = |status: &EvictionRequestStatus| status.progress_timestamp.clone();
    let before = old.status.as_ref().and_then(progress);
    let after = new.status.as_ref().and_then(progress);
    if after == before {
        return;
    }
    let skew = SignedDuration::from_secs(CLOCK_SKEW_SECONDS);
    let class = |request: &EvictionRequest| {
        request.status.as_ref().and_then(|status| status.active_interceptor_class.clone())
    };
    // The next turn begins after the one before it, too. A time in the future was written while nobody was asked: it is not progress, and
    // whoever sets it to the present puts it right.
    let is_undone = |before: &Time| match &after {
        Some(after) => after.0.duration_since(before.0.min(now)) < -2 * skew,
        None => class(old) == class(new),
    };
    if let Some(before) = before.filter(is_undone) {
        let field = "status.progressTimestamp";
        let message = match &after {
            None => format!("{field} cannot be removed: leave {}, or set it to the present time", before.0),
            Some(after) => format!(
                "{field} cannot go from {} back to {}: set it to the present time in UTC, and check the clock",
                before.0, after.0
            ),
        };
        refusals.push(Refusal::new(Rule::ProgressIsNotUndone, field, message));
    }
    let latest = now.saturating_add(skew).unwrap_or(Timestamp::MAX);
    if let Some(after) = after
        && after.0 > latest
    {
        let field = "status.progressTimestamp";
        let message = format!(
            "{field} {} is in the future, it is {now}: set it to the present time, and check the clock",
            after.0
        );
        refusals.push(Refusal::new(Rule::ProgressNotInFuture, field, message));
    }
}
