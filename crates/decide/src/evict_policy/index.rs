//! What is known of pods that may be wanted gone: they, the taints of their nodes, what their namespaces say, and the requests for them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::evict_policy::EvictPolicy;
use usher_api::workloads::BundledInterceptor;

use super::{Case, Decision, Options, decide, wanted_event};
use crate::snapshot::{Key, Namespace, Pod, Request, Taint, TaintedNode, WatchEvent};

#[derive(Debug, Default)]
pub struct Index {
    options: Options,
    /// The bundled interceptors that are on.
    interceptors: Vec<BundledInterceptor>,
    pods: HashMap<Key, Arc<Pod>>,
    /// Pods on which there is something to see, by their node.
    on_node: HashMap<Arc<str>, BTreeSet<Key>>,
    in_namespace: HashMap<Arc<str>, BTreeSet<Key>>,
    /// Those that have taints which drive pods off.
    nodes: HashMap<Arc<str>, TaintedNode>,
    namespaces: HashMap<Arc<str>, Arc<Namespace>>,
    requests: HashMap<Key, Arc<Request>>,
    pending: BTreeSet<Key>,
    /// Pods for which no request could be made, and since when.
    ask_failed_since: HashMap<Key, Timestamp>,
    /// Pods that were marked since they are known here.
    newly_marked: BTreeSet<Key>,
}

impl Index {
    pub fn new(options: Options, interceptors: Vec<BundledInterceptor>) -> Self {
        Self { options, interceptors, ..Self::default() }
    }

    pub fn pods_changed(&mut self, event: WatchEvent<Arc<Pod>, Key>) {
        for (key, before) in event.store(&mut self.pods, |pod| pod.key.clone()) {
            if let Some(before) = &before {
                leave(&mut self.on_node, &before.node, &key);
                if self.pods.get(&key).is_some_and(|pod| pod.uid != before.uid) {
                    self.ask_failed_since.remove(&key);
                }
            }
            let Some(pod) = self.pods.get(&key) else {
                leave(&mut self.in_namespace, &key.namespace, &key);
                self.newly_marked.remove(&key);
                self.ask_failed_since.remove(&key);
                self.pending.insert(key);
                continue;
            };
            let has_facts = |pod: &Arc<Pod>| pod.evict.is_some();
            let is_marked = |pod: &Arc<Pod>| pod.evict.as_ref().is_some_and(|facts| facts.wanted.is_some());
            if is_marked(pod) && before.as_ref().is_some_and(|before| !is_marked(before)) {
                self.newly_marked.insert(key.clone());
            }
            if before.is_none() {
                self.in_namespace.entry(key.namespace.clone()).or_default().insert(key.clone());
            }
            if has_facts(pod) {
                self.on_node.entry(pod.node.clone()).or_default().insert(key.clone());
            }
            if has_facts(pod) || before.is_some_and(|before| has_facts(&before)) || self.takes_over(&key) {
                self.pending.insert(key);
            }
        }
    }

    pub fn nodes_changed(&mut self, event: WatchEvent<TaintedNode, Arc<str>>) {
        for (name, before) in event.store(&mut self.nodes, |node| node.name.clone()) {
            let before = before.map(|before| before.taints).unwrap_or_default();
            let after = self.nodes.get(&name).map(|node| node.taints.as_slice()).unwrap_or_default();
            if after != before {
                self.pending.extend(self.on_node.get(&name).into_iter().flatten().cloned());
            }
            if self.nodes.get(&name).is_some_and(|node| node.taints.is_empty()) {
                self.nodes.remove(&name);
            }
        }
    }

    pub fn namespaces_changed(&mut self, event: WatchEvent<Arc<Namespace>, Arc<str>>) {
        for (name, before) in event.store(&mut self.namespaces, |namespace| namespace.name.clone()) {
            let after = self.namespaces.get(&name).and_then(|namespace| namespace.evict_policy);
            if after != before.and_then(|before| before.evict_policy) {
                self.pending.extend(self.in_namespace.get(&name).into_iter().flatten().cloned());
            }
        }
    }

    pub fn requests_changed(&mut self, event: WatchEvent<Arc<Request>, Key>) {
        for (key, before) in event.store(&mut self.requests, |request| request.key.clone()) {
            let request = self.requests.get(&key).or(before.as_ref());
            self.pending.extend(request.map(|request| request.pod_key()));
        }
    }

    /// What has become worth a look since the last call.
    pub fn pending(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.pending)
    }

    /// Whether the pod is there.
    pub fn knows(&self, key: &Key) -> bool {
        self.pods.contains_key(key)
    }

    /// No request could be made for the pod, or one was.
    pub fn asked(&mut self, key: &Key, is_done: bool, now: Timestamp) {
        if is_done {
            self.ask_failed_since.remove(key);
        } else {
            self.ask_failed_since.entry(key.clone()).or_insert(now);
        }
    }

    pub fn decide(&mut self, key: &Key, now: Timestamp) -> Decision {
        let is_new = self.newly_marked.remove(key);
        let Some(pod) = self.pods.get(key) else { return Decision::default() };
        let policy = pod.evict.as_ref().and_then(|facts| facts.policy).or_else(|| self.of_namespace(key));
        let taints: &[Taint] = self.nodes.get(&pod.node).map(|node| &node.taints[..]).unwrap_or_default();
        let case = Case {
            pod,
            policy: policy.unwrap_or_default(),
            taints,
            has_interceptors: self.has_interceptors(pod),
            request: self.requests.get(&pod.request_key()),
            ask_failed_since: self.ask_failed_since.get(key).copied(),
            options: &self.options,
        };
        let mut decision = decide(&case, now);
        let wanted = pod.evict.as_ref().and_then(|facts| facts.wanted.as_ref()).filter(|_| is_new);
        decision.effects.splice(0..0, wanted.map(|wanted| wanted_event(pod, wanted)));
        decision
    }

    fn of_namespace(&self, key: &Key) -> Option<EvictPolicy> {
        self.namespaces.get(&key.namespace)?.evict_policy
    }

    fn takes_over(&self, key: &Key) -> bool {
        self.of_namespace(key) == Some(EvictPolicy::ControllerTakeOver)
    }

    /// As admission resolves them for a request: those that the pod names, without bundled ones that are off, and those of its workload.
    fn has_interceptors(&self, pod: &Pod) -> bool {
        let of = pod.owner.as_ref().and_then(|it| BundledInterceptor::of_owner(&it.api_version, &it.kind));
        let (on, off) = match of {
            Some(bundled) if self.interceptors.contains(&bundled) => (true, Vec::new()),
            Some(bundled) => (false, bundled.interceptors(&pod.labels)),
            None => (false, Vec::new()),
        };
        let Some(facts) = &pod.evict else { return on || (pod.names_interceptors && off.is_empty()) };
        let is_off = |class: &String| off.iter().any(|interceptor| interceptor.interceptor_class == *class);
        on || facts.classes.iter().any(|class| !is_off(class))
    }
}

fn leave(of: &mut HashMap<Arc<str>, BTreeSet<Key>>, from: &Arc<str>, key: &Key) {
    if let Some(keys) = of.get_mut(from) {
        keys.remove(key);
        if keys.is_empty() {
            of.remove(from);
        }
    }
}
