//! Pods by node and class, counted as they come and go.
//!
//! Pods that all plans treat alike are one class: type and priority, and of the labels only those that some selector
//! speaks of. So there are few classes, however many labels pods have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use usher_api::DrainPlanEntry;
use usher_decide::maintenance::nodes::Pods;
use usher_decide::maintenance::plan::PodClass;
use usher_decide::snapshot::{Key, Pod, Request};

use crate::intern::Interner;

/// What changed on a node: pods of a class, and those of them with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub node: Arc<str>,
    pub class: usize,
    pub there: i64,
    pub evicting: i64,
}

#[derive(Debug, Default)]
pub struct Tally {
    pods: HashMap<Key, Counted>,
    /// By namespace and UID of their pods, which are their names.
    requests: HashMap<Key, Arc<Request>>,
    nodes: HashMap<Arc<str>, OnNode>,
    classes: Vec<PodClass>,
    numbers: HashMap<PodClass, usize>,
    label_keys: BTreeSet<String>,
    interner: Interner,
}

#[derive(Debug)]
struct Counted {
    pod: Arc<Pod>,
    class: usize,
    /// How it is counted: whether it has a request. `None` if it is not: without a node, or ended.
    as_evicting: Option<bool>,
}

#[derive(Debug, Default)]
struct OnNode {
    pods: HashSet<Key>,
    counts: BTreeMap<usize, Pods>,
}

impl Tally {
    pub fn classes(&self) -> &[PodClass] {
        &self.classes
    }

    pub fn pod(&self, key: &Key) -> Option<(&Arc<Pod>, &PodClass)> {
        self.pods.get(key).map(|counted| (&counted.pod, &self.classes[counted.class]))
    }

    pub fn request_of(&self, pod: &Pod) -> Option<&Arc<Request>> {
        self.requests.get(&Key { namespace: pod.key.namespace.clone(), name: pod.uid.clone() })
    }

    pub fn request(&self, key: &Key) -> Option<&Arc<Request>> {
        self.requests.get(key)
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.nodes.get(node).into_iter().flat_map(|on| &on.pods)
    }

    pub fn counts_on(&self, node: &str) -> BTreeMap<usize, Pods> {
        self.nodes.get(node).map(|on| on.counts.clone()).unwrap_or_default()
    }

    /// Pods that have not ended, and those of them with a request.
    pub fn sum_on(&self, node: &str) -> Pods {
        let mut sum = Pods::default();
        for pods in self.nodes.get(node).into_iter().flat_map(|on| on.counts.values()) {
            sum.there += pods.there;
            sum.evicting += pods.evicting;
        }
        sum
    }

    /// Entries of plans and targets may speak of labels that did not matter before. Returns whether classes are others
    /// now, and with them all counts.
    pub fn heed<'a>(&mut self, entries: impl Iterator<Item = &'a DrainPlanEntry>) -> bool {
        let before = self.label_keys.len();
        for selector in entries.filter_map(|entry| entry.pod_selector.as_ref()) {
            self.label_keys.extend(selector.match_labels.iter().flatten().map(|(key, _)| key.clone()));
            self.label_keys.extend(selector.match_expressions.iter().flatten().map(|need| need.key.clone()));
        }
        if self.label_keys.len() == before {
            return false;
        }
        self.classes.clear();
        self.numbers.clear();
        self.nodes.clear();
        for (_, counted) in std::mem::take(&mut self.pods) {
            self.enter(counted.pod);
        }
        true
    }

    pub fn pod_seen(&mut self, mut pod: Pod) -> Vec<Change> {
        self.interner.pod(&mut pod);
        let mut changes = self.pod_gone(&pod.key);
        changes.extend(self.enter(Arc::new(pod)));
        merged(changes)
    }

    pub fn pod_gone(&mut self, key: &Key) -> Vec<Change> {
        let Some(counted) = self.pods.remove(key) else { return Vec::new() };
        if let Some(on) = self.nodes.get_mut(&counted.pod.node) {
            on.pods.remove(key);
            if on.pods.is_empty() {
                self.nodes.remove(&counted.pod.node);
            }
        }
        let change = counted.as_evicting.map(|evicting| Change {
            node: counted.pod.node.clone(),
            class: counted.class,
            there: -1,
            evicting: -i64::from(evicting),
        });
        change.into_iter().inspect(|change| self.apply(change)).collect()
    }

    pub fn pod_keys(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }

    pub fn request_keys(&self) -> impl Iterator<Item = &Key> {
        self.requests.keys()
    }

    /// The pod that the request is about, and what that changes.
    pub fn request_seen(&mut self, mut request: Request) -> (Key, Option<Change>) {
        self.interner.request(&mut request);
        let (key, pod) = (request.key.clone(), request.pod_key());
        self.requests.insert(key, Arc::new(request));
        let change = self.recount(&pod);
        (pod, change)
    }

    pub fn request_gone(&mut self, key: &Key) -> Option<(Key, Option<Change>)> {
        let pod = self.requests.remove(key)?.pod_key();
        let change = self.recount(&pod);
        Some((pod, change))
    }

    fn enter(&mut self, pod: Arc<Pod>) -> Option<Change> {
        let class = self.class_of(&pod);
        let key = pod.key.clone();
        let is_there = !pod.node.is_empty() && !pod.phase.is_terminal();
        let as_evicting = is_there.then(|| self.request_of(&pod).is_some());
        let change = as_evicting.map(|evicting| Change {
            node: pod.node.clone(),
            class,
            there: 1,
            evicting: i64::from(evicting),
        });
        if !pod.node.is_empty() {
            self.nodes.entry(pod.node.clone()).or_default().pods.insert(key.clone());
        }
        self.pods.insert(key, Counted { pod, class, as_evicting });
        if let Some(change) = &change {
            self.apply(change);
        }
        change
    }

    fn recount(&mut self, pod: &Key) -> Option<Change> {
        let counted = self.pods.get(pod)?;
        let now = self.request_of(&counted.pod).is_some();
        let before = counted.as_evicting.filter(|before| *before != now)?;
        let change = Change {
            node: counted.pod.node.clone(),
            class: counted.class,
            there: 0,
            evicting: i64::from(now) - i64::from(before),
        };
        if let Some(counted) = self.pods.get_mut(pod) {
            counted.as_evicting = Some(now);
        }
        self.apply(&change);
        Some(change)
    }

    fn apply(&mut self, change: &Change) {
        let Some(on) = self.nodes.get_mut(&change.node) else { return };
        let pods = on.counts.entry(change.class).or_default();
        let by = |count: u32, by: i64| u32::try_from((i64::from(count) + by).max(0)).unwrap_or(u32::MAX);
        *pods = Pods { there: by(pods.there, change.there), evicting: by(pods.evicting, change.evicting) };
        if pods.there == 0 {
            on.counts.remove(&change.class);
        }
    }

    fn class_of(&mut self, pod: &Pod) -> usize {
        let labels = if self.label_keys.is_empty() {
            Arc::default()
        } else {
            let of_interest = pod.labels.iter().filter(|(key, _)| self.label_keys.contains(*key));
            Arc::new(of_interest.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        let class = PodClass { kind: pod.kind(), priority: pod.priority, labels };
        if let Some(number) = self.numbers.get(&class) {
            return *number;
        }
        let number = self.classes.len();
        self.classes.push(class.clone());
        self.numbers.insert(class, number);
        number
    }
}

/// What comes and goes in the same place at once has not changed.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    match &changes[..] {
        [gone, come] if gone.node == come.node && gone.class == come.class => {
            let (there, evicting) = (gone.there + come.there, gone.evicting + come.evicting);
            if there == 0 && evicting == 0 {
                return Vec::new();
            }
            vec![Change { there, evicting, ..come.clone() }]
        }
        _ => changes,
    }
}
