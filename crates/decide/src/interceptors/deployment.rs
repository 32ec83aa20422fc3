//! What is known of Deployments, their ReplicaSets, pods and autoscalers, and of the requests for their pods. What is done for them
//! is decided in [`super::surge`].
//!
//! It answers for the classes of Deployments, of ReplicaSets and of autoscalers: who has the turn makes no difference to how pods are
//! replaced. ReplicaSets without a Deployment, and ReplicationControllers, only prefer the pods that are asked to leave when they are
//! scaled down.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::{DEPLOYMENT_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS, REPLICA_SET_CLASS};
use usher_api::workloads::{BundledInterceptor as Bundled, Strategy};

use super::surge::{self, Case};
use super::{
    BundledInterceptor, Decision, Effect, Event, Item, Namespaces, Outcome, complete, has_turn, is_wanted,
};
use super::{owner_of, tell_unknown};
use crate::snapshot::{Autoscaler, Deployment, Key, Owner, Pod, ReplicaSet, Request, Surge};

/// The classes that it answers for.
pub const CLASSES: [&str; 3] = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS];

/// What controls a pod, if it is of interest here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Controller {
    ReplicaSet(Key),
    ReplicationController,
}

#[derive(Debug, Default)]
pub struct Deployments {
    /// Those of ReplicaSets and ReplicationControllers.
    pods: HashMap<Key, Arc<Pod>>,
    /// The pods of a ReplicaSet that they name, in their own namespace.
    of_set: HashMap<Key, BTreeSet<Key>>,
    sets: HashMap<Key, ReplicaSet>,
    /// The ReplicaSets of a Deployment that they name.
    of_deployment: HashMap<Key, BTreeSet<Key>>,
    deployments: HashMap<Key, Deployment>,
    autoscalers: HashMap<Key, Autoscaler>,
    /// The autoscalers of a Deployment.
    over: HashMap<Key, BTreeSet<Key>>,
    /// Requests that have one of these interceptors, or are for a pod of a ReplicationController.
    requests: HashMap<Key, Arc<Request>>,
    namespaces: Namespaces,
    pending: BTreeSet<Item>,
    /// Pods that have a mark, by their UID.
    marked: HashMap<Arc<str>, Key>,
    /// What was last seen of the surges of Deployments, until it is taken back. A tool that replaces whole objects takes the annotation
    /// along, and is one that sets the surge back all the same.
    surges: HashMap<Key, (Arc<str>, Surge)>,
    /// Deployments for which something is under way. A change of a pod of another one needs no look at all its pods.
    active: HashSet<Key>,
    told: HashMap<Key, String>,
}

impl BundledInterceptor for Deployments {
    fn learn(&mut self, event: Event, _: Timestamp) {
        match event {
            Event::Pod(event) => {
                for (key, before) in event.store(&mut self.pods, |pod| pod.key.clone()) {
                    self.pod_changed(&key, before.as_deref());
                }
            }
            Event::Request(event) => {
                for (key, before) in event.store(&mut self.requests, |request| request.key.clone()) {
                    let request = self.requests.get(&key).cloned();
                    if request.as_ref().is_some_and(|request| !self.is_ours(request)) {
                        self.requests.remove(&key);
                        continue;
                    }
                    let request = request.or(before);
                    self.pending.extend(request.map(|request| self.item_of(&request)));
                }
            }
            Event::ReplicaSet(event) => {
                for (key, before) in event.store(&mut self.sets, |set| set.key.clone()) {
                    self.set_changed(&key, before.as_ref());
                }
            }
            Event::Deployment(event) => {
                let event = event.map(|deployment| self.with_surge(deployment));
                for (key, before) in event.store(&mut self.deployments, |it| it.key.clone()) {
                    if !self.deployments.contains_key(&key) {
                        self.surges.remove(&key);
                    }
                    if before.as_ref() != self.deployments.get(&key) {
                        if before.is_none() || !self.deployments.contains_key(&key) {
                            self.orphans_of(&key);
                        }
                        self.pending.insert(Item::Workload(key));
                    }
                }
            }
            Event::Autoscaler(event) => {
                for (key, before) in event.store(&mut self.autoscalers, |it| it.key.clone()) {
                    self.autoscaler_changed(&key, before.as_ref());
                }
            }
            Event::Namespace(event) => {
                for name in self.namespaces.changed(event) {
                    let of = self.deployments.keys().filter(|key| key.namespace == name).cloned();
                    self.pending.extend(of.map(Item::Workload));
                }
            }
            Event::DaemonSet(_) | Event::StatefulSet(_) | Event::Maintenance(_) => {}
        }
    }

    fn pending(&mut self) -> BTreeSet<Item> {
        std::mem::take(&mut self.pending)
    }

    fn decide(&mut self, item: &Item, now: Timestamp) -> Decision {
        match item {
            Item::Workload(key) => self.decide_workload(key, now),
            Item::Request(key) => self.decide_request(key),
            Item::HeldNodes | Item::GatedPod(_) => Decision::default(),
        }
    }

    fn carried_out(&mut self, effect: &Effect, outcome: Outcome, _: Timestamp) {
        if let (Effect::Resize { deployment, surge: None, .. }, Outcome::Done) = (effect, outcome) {
            self.surges.remove(&deployment.key);
        }
    }
}

impl Deployments {
    /// The Deployment with the surge that it had, if only somebody else can have removed that.
    fn with_surge(&mut self, mut deployment: Deployment) -> Deployment {
        let known = self.surges.get(&deployment.key).filter(|(uid, _)| *uid == deployment.uid);
        match (&deployment.surge, known) {
            (Some(surge), _) => {
                let seen = (deployment.uid.clone(), surge.clone());
                self.surges.insert(deployment.key.clone(), seen);
            }
            (None, Some((_, surge))) => deployment.surge = Some(surge.clone()),
            (None, None) => {}
        }
        deployment
    }

    fn pod_changed(&mut self, key: &Key, before: Option<&Pod>) {
        if let Some(before) = before {
            self.marked.remove(&before.uid);
        }
        if let Some(pod) = self.pods.get(key).filter(|pod| pod.preferred.is_some()) {
            self.marked.insert(pod.uid.clone(), key.clone());
        }
        if let Some(before) = before
            && let Some(Controller::ReplicaSet(set)) = controller_of(before)
        {
            remove(&mut self.of_set, &set, key);
            let workload = self.workload_of(&set).filter(|key| self.active.contains(key));
            self.pending.extend(workload.map(Item::Workload));
        }
        let Some(pod) = self.pods.get(key).cloned() else { return };
        match controller_of(&pod) {
            Some(Controller::ReplicaSet(set)) => {
                self.of_set.entry(set.clone()).or_default().insert(key.clone());
                let concerns = pod.preferred.is_some() || self.requests.contains_key(&pod.request_key());
                match self.workload_of(&set) {
                    Some(key) if concerns || self.active.contains(&key) => {
                        self.pending.insert(Item::Workload(key));
                    }
                    None if concerns => {
                        self.pending.insert(Item::Request(pod.request_key()));
                    }
                    _ => {}
                }
            }
            Some(Controller::ReplicationController) => {
                self.pending.insert(Item::Request(pod.request_key()));
            }
            None => {
                // Somebody may have annotated it with one of these classes all the same.
                if self.requests.contains_key(&pod.request_key()) {
                    self.pending.insert(Item::Request(pod.request_key()));
                } else if !pod.names_interceptors {
                    self.pods.remove(key);
                }
            }
        }
    }

    fn set_changed(&mut self, key: &Key, before: Option<&ReplicaSet>) {
        let after = self.sets.get(key).cloned();
        if before == after.as_ref() {
            return;
        }
        let deployment = |set: &ReplicaSet| {
            set.deployment.as_ref().map(|(name, _)| Key::new(key.namespace.clone(), name.clone()))
        };
        if let Some(before) = before.and_then(deployment) {
            remove(&mut self.of_deployment, &before, key);
            self.pending.insert(Item::Workload(before));
        }
        if let Some(deployment) = after.as_ref().and_then(deployment) {
            self.of_deployment.entry(deployment.clone()).or_default().insert(key.clone());
            self.pending.insert(Item::Workload(deployment));
        }
        self.look_at_pods(key);
    }

    /// The requests for the pods of a ReplicaSet one by one.
    fn look_at_pods(&mut self, set: &Key) {
        let pods = self.of_set.get(set).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let requests = pods.map(|pod| pod.request_key()).filter(|key| self.requests.contains_key(key));
        self.pending.extend(requests.map(Item::Request));
    }

    /// A Deployment has come or gone.
    fn orphans_of(&mut self, deployment: &Key) {
        let sets: Vec<Key> = self.of_deployment.get(deployment).into_iter().flatten().cloned().collect();
        for set in sets {
            self.look_at_pods(&set);
        }
    }

    fn autoscaler_changed(&mut self, key: &Key, before: Option<&Autoscaler>) {
        let deployment = |it: &Autoscaler| {
            it.deployment.as_ref().map(|name| Key::new(key.namespace.clone(), name.clone()))
        };
        let after = self.autoscalers.get(key);
        let (was, is) = (before.and_then(deployment), after.and_then(deployment));
        if was != is
            && let Some(was) = &was
        {
            remove(&mut self.over, was, key);
        }
        if let Some(is) = &is {
            self.over.entry(is.clone()).or_default().insert(key.clone());
        }
        self.pending.extend(was.into_iter().chain(is).map(Item::Workload));
    }

    /// The Deployment of a ReplicaSet, if there is one.
    fn workload_of(&self, set: &Key) -> Option<Key> {
        let (name, uid) = self.sets.get(set)?.deployment.clone()?;
        let key = Key::new(set.namespace.clone(), name);
        self.deployments.get(&key).is_some_and(|deployment| deployment.uid == uid).then_some(key)
    }

    /// It has one of these interceptors, or is for a pod of a ReplicationController.
    fn is_ours(&self, request: &Request) -> bool {
        let pod = || self.pods.get(&request.pod_key()).and_then(|pod| controller_of(pod));
        request.interceptors.iter().any(|it| CLASSES.contains(&it.interceptor_class.as_str()))
            || pod() == Some(Controller::ReplicationController)
    }

    fn item_of(&self, request: &Request) -> Item {
        let pod = self.pods.get(&request.pod_key());
        let deployment = pod.and_then(|pod| match controller_of(pod)? {
            Controller::ReplicaSet(set) => self.workload_of(&set),
            Controller::ReplicationController => None,
        });
        deployment.map_or_else(|| Item::Request(request.key.clone()), Item::Workload)
    }

    fn autoscalers_over(&self, deployment: &Key) -> impl Iterator<Item = &Autoscaler> {
        let keys = self.over.get(deployment).into_iter().flatten();
        keys.filter_map(|key| self.autoscalers.get(key)).filter(|it| !it.is_deleting)
    }

    /// The autoscaler whose limits count: one whose limits are raised, else the first by name.
    fn autoscaler_over(&self, deployment: &Key) -> Option<&Autoscaler> {
        let mut all = self.autoscalers_over(deployment);
        self.autoscalers_over(deployment).find(|it| it.raised.is_some()).or_else(|| all.next())
    }

    fn decide_workload(&mut self, key: &Key, now: Timestamp) -> Decision {
        let Some(deployment) = self.deployments.get(key) else {
            self.told.remove(key);
            self.active.remove(key);
            let autoscaler = self.autoscaler_over(key);
            let raised = autoscaler.filter(|autoscaler| autoscaler.raised.is_some());
            return raised.map_or_else(Decision::default, |it| Decision::default().act(surge::restored(it)));
        };
        let autoscaler = self.autoscaler_over(key);
        let sets = self.of_deployment.get(key).into_iter().flatten().filter_map(|set| self.sets.get(set));
        let is_its =
            |set: &&ReplicaSet| set.deployment.as_ref().is_some_and(|(_, uid)| *uid == deployment.uid);
        let (mut pods, mut requests) = (BTreeMap::new(), HashMap::new());
        for set in sets.filter(is_its) {
            let of_set = self.of_set.get(&set.key).into_iter().flatten();
            for pod in of_set.filter_map(|key| self.pods.get(key)) {
                if pod.owner.as_ref().is_none_or(|owner| owner.uid != set.uid) {
                    continue;
                }
                if let Some(request) = self.requests.get(&pod.request_key()) {
                    requests.insert(pod.uid.clone(), request.clone());
                }
                pods.insert(pod.key.clone(), pod.clone());
            }
        }
        let strategy =
            self.namespaces.strategy(Bundled::Deployment, &deployment.key, deployment.strategy.as_deref());
        let case = Case {
            deployment,
            strategy: strategy.as_ref().map_or_else(|unknown| unknown.instead, |strategy| *strategy),
            autoscaler,
            pods: &pods,
            requests: &requests,
        };
        let mut decision = surge::decide(&case, now);
        let beside = self.autoscalers_over(key).filter(|it| autoscaler.is_some_and(|one| one.key != it.key));
        decision.effects.extend(beside.filter(|it| it.raised.is_some()).map(surge::restored));
        let is_idle = requests.is_empty()
            && deployment.surge.is_none()
            && autoscaler.is_none_or(|autoscaler| autoscaler.raised.is_none())
            && !pods.values().any(|pod| pod.preferred.is_some());
        if is_idle {
            self.active.remove(key);
        } else {
            self.active.insert(key.clone());
        }
        match strategy {
            Ok(_) => drop(self.told.remove(key)),
            Err(unknown) => {
                let owner = owner_of(Bundled::Deployment, &deployment.key, &deployment.uid);
                decision.effects.extend(tell_unknown(&mut self.told, key, owner, &unknown).effects);
            }
        }
        decision
    }

    /// A request for a pod that no Deployment has. Of a ReplicaSet without one, or a ReplicationController, such a pod is preferred when
    /// it is scaled down.
    fn decide_request(&self, key: &Key) -> Decision {
        let mut decision = Decision::default();
        let request = self.requests.get(key);
        let pod = request.map(|request| request.pod_key()).or_else(|| self.marked.get(&key.name).cloned());
        let pod = pod.and_then(|key| self.pods.get(&key)).filter(|pod| pod.uid == key.name);
        let Some(pod) = pod else { return decision };
        let controller = controller_of(pod);
        if let Some(Controller::ReplicaSet(set)) = &controller
            && self.workload_of(set).is_some()
        {
            return decision;
        }
        let is_ours = request.is_some_and(|request| {
            let active = request.status.active_interceptor_class.as_deref();
            is_wanted(request)
                && match active {
                    Some(active) => CLASSES.contains(&active),
                    None => {
                        controller == Some(Controller::ReplicationController)
                            && request.interceptors.is_empty()
                    }
                }
        });
        let is_on = self.namespaces.strategy(Bundled::Deployment, &pod.key, None) != Ok(Strategy::Off);
        let prefers = controller.is_some() && is_ours && is_on && !pod.is_terminating();
        match (&pod.preferred, prefers) {
            (None, true) => {
                decision.effects.push(Effect::Prefer { pod: pod.clone(), cost: Some(i32::MIN) });
            }
            (Some(_), false) if !pod.is_terminating() => {
                decision.effects.push(Effect::Prefer { pod: pod.clone(), cost: None });
            }
            _ => {}
        }
        if let Some(request) = request
            && CLASSES.iter().any(|class| has_turn(request, class))
        {
            decision.effects.push(complete(
                request,
                "no Deployment controls the pod: it is left to the eviction API".to_owned(),
            ));
        }
        decision
    }
}

fn controller_of(pod: &Pod) -> Option<Controller> {
    let Owner { api_version, kind, name, .. } = &**pod.owner.as_ref()?;
    if Bundled::of_owner(api_version, kind) == Some(Bundled::Deployment) {
        return Some(Controller::ReplicaSet(Key::new(pod.key.namespace.clone(), name.clone())));
    }
    (&**api_version == "v1" && &**kind == "ReplicationController")
        .then_some(Controller::ReplicationController)
}

fn remove(of: &mut HashMap<Key, BTreeSet<Key>>, from: &Key, key: &Key) {
    if let Some(keys) = of.get_mut(from) {
        keys.remove(key);
        if keys.is_empty() {
            of.remove(from);
        }
    }
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
