//! Pods by node and class, counted as they come and go.
//!
//! Pods that all plans treat alike are one class: type and priority, and of the labels only those that some selector
//! speaks of. So there are few classes, however many labels pods have.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::maintenance::eta::Workload;
use crate::maintenance::nodes::Pods;
use crate::maintenance::plan::PodClass;
use crate::maintenance::pods;
use crate::snapshot::{Key, Pod, Request};
use jiff::Timestamp;

use super::groups::{self, Group, Groups};

/// Classes that no pod has any more are kept until there are so many, and more than of the others.
const UNUSED_CLASSES: usize = 64;

/// What changed on a node: pods of a class, and those of them with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub node: Arc<str>,
    pub class: usize,
    pub group: groups::Number,
    pub there: i64,
    pub evicting: i64,
}

#[derive(Debug, Default)]
pub struct Tally {
    pods: HashMap<Key, CountedPod>,
    /// By namespace and UID of their pods, which are their names.
    requests: HashMap<Key, Arc<Request>>,
    nodes: HashMap<Arc<str>, OnNode>,
    groups: Groups,
    /// Pods that were asked to leave and have left: whose, and since when they were asked.
    departures: Vec<(Arc<Workload>, Timestamp)>,
    /// When interceptors expect to be done, by request: two, one after the other, may be for pods of one name.
    announced: BTreeSet<(Timestamp, Key)>,
    classes: Vec<PodClass>,
    numbers: HashMap<PodClass, usize>,
    /// How many pods have each class, and how many classes none has.
    uses: Vec<u32>,
    unused: usize,
    label_keys: BTreeSet<String>,
}

/// There is one for each pod of the cluster, so it is small.
#[derive(Debug)]
struct CountedPod {
    pod: Arc<Pod>,
    class: u32,
    /// How it is counted. `None` if it is not: without a node, ended, or staying by choice.
    there: Option<There>,
    /// It is asked to leave, and stays because its workload says so.
    is_kept: bool,
}

impl CountedPod {
    fn class(&self) -> usize {
        self.class as usize
    }
}

#[derive(Debug, Clone, Copy)]
struct There {
    group: groups::Number,
    is_asked: bool,
    /// Since when it has a request, if it does: requests are created in whole seconds.
    asked_second: i64,
    /// It is asked to leave, and nothing ends it.
    stays: bool,
}

impl There {
    fn new(group: groups::Number, asked: Option<Timestamp>, stays: bool) -> Self {
        Self { group, is_asked: asked.is_some(), asked_second: asked.unwrap_or_default().as_second(), stays }
    }

    fn asked(&self) -> Option<Timestamp> {
        self.is_asked.then(|| Timestamp::from_second(self.asked_second).unwrap_or_default())
    }
}

#[derive(Debug, Default)]
struct OnNode {
    pods: HashSet<Key>,
    /// Those that are asked to leave and that nothing ends.
    staying: BTreeSet<Key>,
    /// How many stay because their workloads say so.
    kept: u32,
    counts: BTreeMap<usize, Pods>,
    groups: BTreeMap<groups::Number, u32>,
}

impl Tally {
    pub fn classes(&self) -> &[PodClass] {
        &self.classes
    }

    pub fn pod(&self, key: &Key) -> Option<(&Arc<Pod>, &PodClass)> {
        self.pods.get(key).map(|counted| (&counted.pod, &self.classes[counted.class()]))
    }

    pub fn request_of(&self, pod: &Pod) -> Option<&Arc<Request>> {
        self.requests.get(&pod.request_key())
    }

    pub fn request(&self, key: &Key) -> Option<&Arc<Request>> {
        self.requests.get(key)
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.nodes.get(node).into_iter().flat_map(|on| &on.pods)
    }

    /// The pods that are asked to leave and that nothing ends, with their classes.
    pub fn staying_on(&self, node: &str) -> impl Iterator<Item = (&Arc<Pod>, &PodClass)> {
        let on = self.nodes.get(node).into_iter();
        on.flat_map(|on| &on.staying).filter_map(|key| self.pod(key))
    }

    pub fn count_staying_on(&self, node: &str) -> u32 {
        let count = self.nodes.get(node).map_or(0, |on| on.staying.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Pods that stay because their workloads say so.
    pub fn count_kept_on(&self, node: &str) -> u32 {
        self.nodes.get(node).map_or(0, |on| on.kept)
    }

    pub fn is_staying(&self, pod: &Key) -> bool {
        self.pods.get(pod).and_then(|counted| counted.there).is_some_and(|there| there.stays)
    }

    pub fn counts_on(&self, node: &str) -> BTreeMap<usize, Pods> {
        self.nodes.get(node).map(|on| on.counts.clone()).unwrap_or_default()
    }

    /// The groups of the pods that have not ended, and how many of each.
    pub fn groups_on(&self, node: &str) -> impl Iterator<Item = (groups::Number, u32)> {
        let on = self.nodes.get(node).into_iter();
        on.flat_map(|on| on.groups.iter().map(|(group, pods)| (*group, *pods)))
    }

    pub fn group(&self, number: groups::Number) -> &Group {
        self.groups.get(number)
    }

    /// Who has left since this was last asked.
    pub fn departures(&mut self) -> Vec<(Arc<Workload>, Timestamp)> {
        std::mem::take(&mut self.departures)
    }

    /// The last time that an interceptor has announced for a pod on these nodes, if it is after the given one.
    pub fn announced_after(&self, after: Timestamp, nodes: &BTreeSet<Arc<str>>) -> Option<Timestamp> {
        let later = self.announced.iter().rev().take_while(|(at, _)| *at > after);
        let pod_of = |request: &Key| {
            let request = self.requests.get(request)?;
            let counted = self.pods.get(&request.pod_key())?;
            Some(&counted.pod).filter(|pod| pod.uid == request.pod_uid)
        };
        let is_there = |request: &Key| pod_of(request).is_some_and(|pod| nodes.contains(&pod.node));
        later.into_iter().find(|(_, request)| is_there(request)).map(|(at, _)| *at)
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

    /// The labels that entries of plans and targets speak of. Returns whether classes are others now, and with them all
    /// counts.
    pub fn set_label_keys(&mut self, label_keys: BTreeSet<String>) -> bool {
        let is_other = self.label_keys != label_keys;
        if is_other {
            self.label_keys = label_keys;
            self.count_anew();
        }
        is_other
    }

    /// Forgets classes that no pod has any more, once they are many. Returns whether classes are others now.
    pub fn forget_unused(&mut self) -> bool {
        let are_many = self.unused > UNUSED_CLASSES && self.unused > self.classes.len() / 2;
        if are_many {
            self.count_anew();
        }
        are_many
    }

    fn count_anew(&mut self) {
        self.classes.clear();
        self.numbers.clear();
        self.uses.clear();
        self.unused = 0;
        self.nodes.clear();
        self.groups.clear();
        for (_, counted) in std::mem::take(&mut self.pods) {
            self.enter(counted.pod);
        }
    }

    pub fn pod_seen(&mut self, pod: Arc<Pod>) -> Vec<Change> {
        let (before, gone) = self.take_out(&pod.key).unzip();
        let is_there = is_there(&pod);
        if let Some(before) = before
            && (!is_there || before.pod.uid != pod.uid)
        {
            self.has_left(&before);
        }
        let come = self.enter(pod);
        merged(gone.flatten().into_iter().chain(come).collect())
    }

    pub fn pod_gone(&mut self, key: &Key) -> Option<Change> {
        let (counted, change) = self.take_out(key)?;
        self.has_left(&counted);
        change
    }

    fn has_left(&mut self, counted: &CountedPod) {
        if let Some(asked) = counted.there.and_then(|there| there.asked()) {
            self.departures.push((Arc::new(Workload::of(&counted.pod)), asked));
        }
    }

    fn take_out(&mut self, key: &Key) -> Option<(CountedPod, Option<Change>)> {
        let counted = self.pods.remove(key)?;
        let change = counted.there.map(|there| Change {
            node: counted.pod.node.clone(),
            class: counted.class(),
            group: there.group,
            there: -1,
            evicting: -i64::from(there.is_asked),
        });
        if let Some(change) = &change {
            self.apply(change);
        }
        if let Some(there) = counted.there {
            self.groups.leave(there.group, there.asked());
        }
        let uses = &mut self.uses[counted.class()];
        *uses -= 1;
        self.unused += usize::from(*uses == 0);
        if let Some(on) = self.nodes.get_mut(&counted.pod.node) {
            on.pods.remove(key);
            on.staying.remove(key);
            on.kept -= u32::from(counted.is_kept);
            if on.pods.is_empty() {
                self.nodes.remove(&counted.pod.node);
            }
        }
        Some((counted, change))
    }

    pub fn pod_keys(&self) -> impl Iterator<Item = &Key> {
        self.pods.keys()
    }

    pub fn request_keys(&self) -> impl Iterator<Item = &Key> {
        self.requests.keys()
    }

    /// The pod that the request is about, and what that changes.
    pub fn request_seen(&mut self, request: Arc<Request>) -> (Key, Option<Change>) {
        let (key, pod) = (request.key.clone(), request.pod_key());
        self.announced.extend(announced(&request));
        if let Some(before) = self.requests.insert(key.clone(), request)
            && let Some(said) = announced(&before)
            && announced(&self.requests[&key]).as_ref() != Some(&said)
        {
            self.announced.remove(&said);
        }
        let change = self.recount(&pod);
        (pod, change)
    }

    pub fn request_gone(&mut self, key: &Key) -> Option<(Key, Option<Change>)> {
        let request = self.requests.remove(key)?;
        if let Some(said) = announced(&request) {
            self.announced.remove(&said);
        }
        let pod = request.pod_key();
        let change = self.recount(&pod);
        Some((pod, change))
    }

    fn enter(&mut self, pod: Arc<Pod>) -> Option<Change> {
        let class = self.class_of(&pod);
        let key = pod.key.clone();
        let is_kept = is_there(&pod) && self.is_kept(&pod);
        let there = (is_there(&pod) && !is_kept).then(|| {
            let (asked, stays) = self.asked(&pod);
            There::new(self.groups.enter(&pod, class, asked), asked, stays)
        });
        let change = there.map(|there| Change {
            node: pod.node.clone(),
            class,
            group: there.group,
            there: 1,
            evicting: i64::from(there.is_asked),
        });
        if !pod.node.is_empty() {
            let on = self.nodes.entry(pod.node.clone()).or_default();
            on.pods.insert(key.clone());
            on.kept += u32::from(is_kept);
            if there.is_some_and(|there| there.stays) {
                on.staying.insert(key.clone());
            }
        }
        let class = u32::try_from(class).unwrap_or(u32::MAX);
        self.pods.insert(key, CountedPod { pod, class, there, is_kept });
        if let Some(change) = &change {
            self.apply(change);
        }
        change
    }

    /// Since when a pod is asked to leave, and whether nothing ends it.
    fn asked(&self, pod: &Pod) -> (Option<Timestamp>, bool) {
        let request = self.request_of(pod);
        let created = |request: &Arc<Request>| Timestamp::from_second(request.created.as_second()).ok();
        (request.and_then(created), request.is_some_and(|request| pods::nothing_ends(request)))
    }

    fn is_kept(&self, pod: &Pod) -> bool {
        self.request_of(pod).is_some_and(|request| pods::stays_by_choice(request))
    }

    fn recount(&mut self, pod: &Key) -> Option<Change> {
        let counted = self.pods.get(pod)?;
        if counted.is_kept != (is_there(&counted.pod) && self.is_kept(&counted.pod)) {
            let (counted, gone) = self.take_out(pod)?;
            return gone.or(self.enter(counted.pod));
        }
        let (now, stays) = self.asked(&self.pods.get(pod)?.pod);
        let counted = self.pods.get_mut(pod)?;
        let class = counted.class();
        let there = counted.there.as_mut()?;
        if std::mem::replace(&mut there.stays, stays) != stays
            && let Some(on) = self.nodes.get_mut(&counted.pod.node)
        {
            if stays {
                on.staying.insert(pod.clone());
            } else {
                on.staying.remove(pod);
            }
        }
        let before = there.asked();
        if before == now {
            return None;
        }
        *there = There::new(there.group, now, stays);
        self.groups.ask(there.group, before, now);
        if before.is_some() == now.is_some() {
            return None;
        }
        let change = Change {
            node: counted.pod.node.clone(),
            class,
            group: there.group,
            there: 0,
            evicting: i64::from(now.is_some()) - i64::from(before.is_some()),
        };
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
        let of_group = on.groups.entry(change.group).or_default();
        *of_group = by(*of_group, change.there);
        if *of_group == 0 {
            on.groups.remove(&change.group);
        }
    }

    /// The class of a pod that comes.
    fn class_of(&mut self, pod: &Pod) -> usize {
        let labels = if self.label_keys.is_empty() {
            Arc::default()
        } else {
            let of_interest = pod.labels.iter().filter(|(key, _)| self.label_keys.contains(*key));
            Arc::new(of_interest.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        let class = PodClass { kind: pod.kind(), priority: pod.priority, labels };
        if let Some(number) = self.numbers.get(&class) {
            self.unused -= usize::from(self.uses[*number] == 0);
            self.uses[*number] += 1;
            return *number;
        }
        let number = self.classes.len();
        self.classes.push(class.clone());
        self.uses.push(1);
        self.numbers.insert(class, number);
        number
    }
}

fn is_there(pod: &Pod) -> bool {
    !pod.node.is_empty() && !pod.phase.is_terminal()
}

/// When its interceptor expects to be done, if its turn is not over.
fn announced(request: &Request) -> Option<(Timestamp, Key)> {
    let status = &request.status;
    let at =
        status.expected_interceptor_finish_time.as_ref().filter(|_| !status.active_interceptor_completed)?;
    Some((at.0, request.key.clone()))
}

/// What comes and goes in the same place at once has not changed.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    match &changes[..] {
        [gone, come] if gone.node == come.node && (gone.class, gone.group) == (come.class, come.group) => {
            let (there, evicting) = (gone.there + come.there, gone.evicting + come.evicting);
            if there == 0 && evicting == 0 {
                return Vec::new();
            }
            vec![Change { there, evicting, ..come.clone() }]
        }
        _ => changes,
    }
}
