//! Where a Deployment stands with the pods that are asked to leave, for people. It is told by the decision that the manager makes, as far
//! as what it decides by can be seen from outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::workloads::{BundledInterceptor, Strategy, UnknownStrategy};

use super::max_unavailable::{in_order, max_unavailable};
use super::size::max_surge;
use super::{Case, declines, state, strategy_of};
use crate::interceptors::availability::{Unavailable, why_unavailable};
use crate::interceptors::is_wanted;
use crate::snapshot::{Autoscaler, Deployment, Key, Pod, Request};

#[derive(Debug)]
pub struct Description {
    /// So many pods its owner wants.
    pub wanted: u32,
    /// So many more it has for now.
    pub surge: u32,
    /// So many more it may have at most.
    pub max_surge: u32,
    /// It does not surge: so many of its pods go at a time, and others come for them.
    pub max_unavailable: Option<u32>,
    /// Its new pods come beside the replicas, and are handed over.
    pub hands_over: bool,
    /// How often somebody has set the surge back.
    pub reverted: u32,
    /// Pods that wait for a replacement, in the order in which they go.
    pub waiting: Vec<String>,
    /// Pods whose replacement is available, and which the ReplicaSet deletes.
    pub replaced: Vec<String>,
    /// Pods that stay, and are not available.
    pub unavailable: Vec<(String, Unavailable)>,
    /// So many are to come that nobody has made yet.
    pub missing: usize,
    /// So many of its pods are available, without those that are to be handed over.
    pub available: usize,
    /// The pods that are asked to leave, by their UID.
    pub leaving: BTreeSet<Arc<str>>,
    /// Some of them are with an interceptor. Those that only the eviction API is to evict are not in progress, in the specification's
    /// words.
    pub is_in_progress: bool,
    /// The annotation for the strategy, of the Deployment or of its namespace, says nothing known.
    pub unknown_strategy: Option<UnknownStrategy>,
    pub is_rolling_out: bool,
    /// Why its pods are left to the eviction API, if they are.
    pub declines: Option<String>,
}

impl Description {
    /// It tells which pods are waited for, so that the words of the interceptor, which are the same, need not be told again.
    pub fn names_what_is_missing(&self) -> bool {
        !self.unavailable.is_empty() || self.missing > 0
    }
}

/// `pods` are those of its ReplicaSets, and those that are to be handed over to them; `requests` are those for them.
pub fn describe(
    deployment: &Deployment,
    namespace_strategy: Option<&str>,
    autoscaler: Option<&Autoscaler>,
    pods: impl IntoIterator<Item = Arc<Pod>>,
    requests: impl IntoIterator<Item = Arc<Request>>,
    now: Timestamp,
) -> Description {
    let (handed, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.hand_over().is_some());
    let pods: BTreeMap<Key, Arc<Pod>> = pods.into_iter().map(|pod| (pod.key.clone(), pod)).collect();
    let requests: HashMap<Arc<str>, Arc<Request>> =
        requests.into_iter().map(|request| (request.pod_uid.clone(), request)).collect();
    let is_leaving = |pod: &&Arc<Pod>| requests.get(&pod.uid).is_some_and(|request| is_wanted(request));
    let handed_asked = handed.iter().filter(is_leaving).map(|pod| pod.uid.clone()).collect();
    let said =
        Strategy::of(BundledInterceptor::Deployment, deployment.strategy.as_deref(), namespace_strategy);
    let wanted = said.as_ref().map_or_else(|unknown| unknown.instead, |strategy| *strategy);
    let wanted = strategy_of(deployment, autoscaler, wanted);
    let strategy =
        if surges_instead(deployment, autoscaler, wanted, &handed) { Strategy::Default } else { wanted };
    let case = Case {
        deployment,
        strategy,
        autoscaler,
        pods: &pods,
        requests: &requests,
        handed: &handed,
        handed_asked: &handed_asked,
        may_hand_over: !handed.is_empty(),
        taken: &HashMap::new(),
        moved: Timestamp::MIN,
        refused: None,
    };
    let leaving = pods.values().chain(&handed).filter(is_leaving).map(|pod| pod.uid.clone()).collect();
    Description { leaving, unknown_strategy: said.err(), ..of_case(&case, now) }
}

/// Pods are to be handed over, and it surges by replicas: a manager that must not make pods does that, and nobody tells so but by doing
/// it.
fn surges_instead(
    deployment: &Deployment,
    autoscaler: Option<&Autoscaler>,
    wanted: Strategy,
    handed: &[Arc<Pod>],
) -> bool {
    let surges = deployment.surge.as_ref().is_some_and(|it| it.by > 0)
        || autoscaler.and_then(|it| it.raised.as_ref()).is_some_and(|it| it.by > 0);
    wanted == Strategy::HandOver && handed.is_empty() && surges
}

fn is_with_interceptor(request: &Request) -> bool {
    let status = &request.status;
    is_wanted(request) && status.active_interceptor_class.is_some() && !status.active_interceptor_completed
}

fn of_case(case: &Case<'_>, now: Timestamp) -> Description {
    let state = state(case, now);
    let update = case.deployment.rolling_update.as_ref();
    let going = state.given_over.iter().chain(&state.in_between);
    let hands_over = case.hands_over();
    let max_surge = update.map_or(0, |update| max_surge(case, update, &state.size));
    let new = case.handed.iter().filter(|_| hands_over);
    let new: Vec<(String, Unavailable)> = new
        .filter_map(|pod| Some((pod, why_unavailable(pod, case.deployment.min_ready_seconds, now)?)))
        .filter(|(pod, _)| !state.unavailable.iter().any(|(known, _)| known.key == pod.key))
        .map(|(pod, why)| (pod.key.name.to_string(), why))
        .collect();
    let most = state.waiting.len().min(max_surge as usize);
    let to_come = if hands_over { most.saturating_sub(case.handed.len()) } else { 0 };
    let mut waiting: Vec<_> = state.waiting.iter().collect();
    if case.strategy == Strategy::MaxUnavailable {
        in_order(&mut waiting);
    }
    let unavailable = state.unavailable.iter().map(|(pod, why)| (pod.key.name.to_string(), why.clone()));
    let unavailable: Vec<(String, Unavailable)> = unavailable.chain(new).collect();
    let is_available = |pod: &&Arc<Pod>| {
        pod.is_ready() && !unavailable.iter().any(|(missing, _)| **missing == *pod.key.name)
    };
    Description {
        wanted: state.size.wanted,
        surge: state.size.by,
        max_surge,
        max_unavailable: (case.strategy == Strategy::MaxUnavailable)
            .then(|| max_unavailable(case.deployment, state.size.wanted)),
        hands_over,
        reverted: state.size.reverted,
        waiting: waiting.into_iter().map(|(pod, _)| pod.key.name.to_string()).collect(),
        replaced: going.map(|(pod, _)| pod.key.name.to_string()).collect(),
        declines: declines(case, &state, now),
        missing: state.missing + to_come,
        available: case.pods.values().filter(is_available).count(),
        leaving: BTreeSet::new(),
        is_in_progress: case.requests.values().any(|request| is_with_interceptor(request)),
        unknown_strategy: None,
        is_rolling_out: state.is_rolling_out,
        unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;
    use crate::interceptors::samples::at;
    use serde_json::json;
    use usher_api::names::{DEPLOYMENT_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION};

    fn described(scene: Scene, namespace: Option<&str>) -> Description {
        let deployment: crate::snapshot::DeploymentOnWire = serde_json::from_value(scene.deployment).unwrap();
        let pods = scene.pods.into_values().chain(scene.handed);
        describe(&deployment.into(), namespace, None, pods, scene.requests.into_values(), at(1))
    }

    fn wants(scene: Scene, strategy: &str) -> Scene {
        scene.with(|it| {
            it["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: strategy});
        })
    }

    fn waiting(scene: Scene) -> Scene {
        scene.asked("a", DEPLOYMENT_CLASS, json!({}))
    }

    #[test]
    fn who_leaves_and_what_is_waited_for_is_told_of_all_its_pods() {
        let told = described(waiting(Scene::new(3).surge(1, 3, 3, 0).pending("c")), None);
        assert_eq!((told.wanted, told.surge, told.available), (2, 1, 2));
        assert!(told.names_what_is_missing() && told.is_in_progress);
        assert_eq!(told.waiting, ["a"]);
        assert_eq!(told.leaving, BTreeSet::from(["a".into()]));
        let in_peace = described(Scene::new(3), None);
        assert!(!in_peace.names_what_is_missing() && !in_peace.is_in_progress);
        assert_eq!((in_peace.available, in_peace.leaving.len()), (3, 0));
    }

    #[test]
    fn in_progress_is_what_an_interceptor_has_and_not_what_is_left_to_the_eviction_api() {
        let of = |change: fn(&mut Request)| {
            let mut scene = waiting(Scene::new(1));
            scene.requests.values_mut().for_each(|request| change(Arc::make_mut(request)));
            let told = described(scene, None);
            (told.leaving.len(), told.is_in_progress)
        };
        assert_eq!(of(|_| {}), (1, true));
        assert_eq!(of(|request| request.status.active_interceptor_completed = true), (1, false));
        assert_eq!(of(|request| request.status.active_interceptor_class = None), (1, false));
        assert_eq!(of(|request| request.finalizers = [].into()), (0, false), "nobody wants it gone any more");
    }

    #[test]
    fn a_manager_that_must_not_make_pods_is_seen_to_surge_by_replicas_instead() {
        let hands_over = |scene: Scene, namespace| described(waiting(scene), namespace).hands_over;
        assert!(hands_over(wants(Scene::new(2), "HandOver"), None));
        assert!(hands_over(Scene::new(2), Some("HandOver")));
        assert!(!hands_over(wants(Scene::new(2).surge(1, 2, 2, 0), "HandOver"), None));
        let handed = Scene::new(2).surge(1, 2, 2, 0).handed("new", "a", json!({}));
        assert!(hands_over(wants(handed, "HandOver"), None), "a pod was made for it");
        assert!(!hands_over(Scene::new(2), None));
    }

    #[test]
    fn a_strategy_that_says_nothing_counts_as_if_it_were_not_there() {
        let told = described(waiting(wants(Scene::new(2), "Surgery")), Some("HandOver"));
        assert_eq!(told.unknown_strategy.map(|unknown| unknown.value).as_deref(), Some("Surgery"));
        assert!(told.hands_over, "its namespace counts");
    }
}
