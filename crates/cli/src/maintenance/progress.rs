//! How far a drain has come: the pods of each node, and what stands in their way.
//!
//! What a pod waits on is asked of `usher-decide`, and so is what the status of the maintenance says of a node. A drain
//! of many nodes changes thousands of times in a second, so nothing here is counted anew that has not changed: each event names
//! the pods that it concerns, and each look asks about those alone. Of very many nodes the pods are not even seen: how many are left
//! is what the status says, and only those that are blocked are counted ([`Source`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::{NodeMaintenance, NodeStatus, PodType};
use usher_decide::maintenance::drain_state::{DrainState, NodeDelay};
use usher_decide::snapshot::{Budget, Key, Pod};
use usher_forecast::followed_drain::{DrainEnd, FollowedDrain, PodsLeft, drained_nodes};

use super::catch_up::CatchUp;
use super::causes::{Cause, CauseKey, Causes};
use crate::live::Changed;
use crate::world::World;
use crate::{Ending, span};
use usher_forecast::request_state::{RequestState, RequestWait};

/// So many pods are looked at again at a time because their budget has changed.
const CATCH_UP: usize = 1000;
/// So many causes are kept of each node and of all together, the worst.
pub const CAUSES: usize = 10;

/// The pods of a node, and where its drain stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeProgress {
    pub name: String,
    /// Pods that were there at some time since this began.
    pub seen: usize,
    /// On their way, or asked and not blocked.
    pub evicting: usize,
    pub blocked: usize,
    /// Not asked yet.
    pub pending: usize,
    /// Pods that are left and are neither of DaemonSets nor static.
    pub ordinary: usize,
    /// The worst first.
    pub causes: Vec<Cause>,
    /// What the status of the maintenance says of the node.
    pub message: String,
    /// The same, if it is what the manager writes: for people alone.
    pub drain: Option<DrainState>,
    /// The drain has come to it, and by the status no pod is left that is waited for.
    pub has_drained: bool,
    /// Requests may not be read, so nothing is known of pods but that they are there.
    pub requests_are_hidden: bool,
    /// What the status of the maintenance counts: pods with a request, and without.
    pub asked: usize,
    pub not_asked: usize,
}

impl NodeProgress {
    pub fn left(&self) -> usize {
        self.evicting + self.blocked + self.pending
    }

    pub fn gone(&self) -> usize {
        self.seen.saturating_sub(self.left())
    }

    pub fn pods_left(&self) -> PodsLeft {
        PodsLeft { all: self.left(), ordinary: self.ordinary }
    }

    /// All have left that a drain waits for, its status says so, and no ordinary pod has come since.
    pub fn is_drained(&self) -> bool {
        self.has_drained && self.ordinary == 0
    }

    /// What holds up the node beside its pods.
    pub fn delay(&self, maintenance: &NodeMaintenance) -> NodeDelay {
        self.drain.as_ref().map_or(NodeDelay::Other, |drain| drain.delay(maintenance))
    }

    fn count(&mut self, pod: &CountedPod, by: impl Fn(&mut usize)) {
        by(match &pod.waits {
            None => &mut self.pending,
            Some((waits, _)) if waits.is_blocked() => &mut self.blocked,
            Some(_) => &mut self.evicting,
        });
        if pod.is_ordinary {
            by(&mut self.ordinary);
        }
    }
}

/// Where it is known from how many pods are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// All pods of the nodes are seen.
    Pods,
    /// The manager counts them.
    Status,
}

/// A pod as it was counted last.
#[derive(Debug, Clone)]
struct CountedPod {
    node: usize,
    is_ordinary: bool,
    /// `None`: it is not asked to leave.
    waits: Option<(RequestWait, CauseKey)>,
    labels: Arc<BTreeMap<String, String>>,
    /// The budgets that were asked, if any had to be.
    budgets: Option<Vec<Key>>,
    /// When the passing of time changes what it waits on.
    recheck_at: Option<Timestamp>,
}

/// What was seen of a drain since somebody looks.
#[derive(Debug, Clone)]
pub struct Progress {
    pub started: Timestamp,
    /// Pods of DaemonSets and static pods need not be gone.
    pub ignores_daemons: bool,
    pub source: Source,
    /// UIDs, by node.
    seen: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// How many left each node before pods were seen.
    departed: BTreeMap<String, usize>,
    /// Of each node, if the status counts all others.
    blocked: Vec<usize>,
    /// By name.
    nodes: Vec<NodeProgress>,
    causes: Vec<Causes>,
    /// All nodes together.
    all: NodeProgress,
    all_causes: Causes,
    /// Where each node is in the list.
    places: BTreeMap<Arc<str>, usize>,
    pods: BTreeMap<Key, CountedPod>,
    /// To be looked at again: pods, pods from a time on, and those of a budget.
    changed: BTreeSet<Key>,
    rechecks: BTreeSet<(Timestamp, Key)>,
    catch_up: CatchUp,
    /// Namespaces where budgets came, went, or select other pods.
    reselected: BTreeSet<Arc<str>>,
    /// Other nodes are selected, so everything is to be looked at.
    is_outdated: bool,
    /// Pods looked at so far.
    #[cfg(test)]
    pub looks: usize,
}

impl Progress {
    pub fn new(started: Timestamp) -> Self {
        Self {
            started,
            ignores_daemons: false,
            source: Source::Pods,
            seen: BTreeMap::new(),
            departed: BTreeMap::new(),
            blocked: Vec::new(),
            nodes: Vec::new(),
            causes: Vec::new(),
            all: NodeProgress::default(),
            all_causes: Causes::default(),
            places: BTreeMap::new(),
            pods: BTreeMap::new(),
            changed: BTreeSet::new(),
            rechecks: BTreeSet::new(),
            catch_up: CatchUp::default(),
            reselected: BTreeSet::new(),
            is_outdated: true,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// One look at all of it.
    pub fn at_once(maintenance: &NodeMaintenance, world: &World, now: Timestamp) -> Self {
        let mut progress = Self::new(now);
        progress.observe(maintenance);
        progress.recount_all(world, now);
        progress
    }

    pub fn node(&self, name: &str) -> Option<&NodeProgress> {
        self.nodes.get(*self.places.get(name)?)
    }

    /// The nodes as they were at the last look, by name.
    pub fn nodes(&self) -> &[NodeProgress] {
        &self.nodes
    }

    /// All nodes together.
    pub fn all(&self) -> &NodeProgress {
        &self.all
    }

    pub fn age(&self, now: Timestamp) -> String {
        span::age(self.started, now)
    }

    /// The nodes of the maintenance, and what its status says of them.
    pub fn observe(&mut self, maintenance: &NodeMaintenance) {
        let statuses = maintenance.status.as_ref().map(|status| &status.node_statuses[..]);
        let mut statuses: Vec<&NodeStatus> = statuses.unwrap_or_default().iter().collect();
        statuses.sort_by(|a, b| a.node_ref.name.cmp(&b.node_ref.name));
        let names = statuses.iter().map(|status| status.node_ref.name.as_str());
        if !names.eq(self.nodes.iter().map(|node| node.name.as_str())) {
            let known = std::mem::take(&mut self.nodes).into_iter();
            let mut known: BTreeMap<String, NodeProgress> =
                known.map(|node| (node.name.clone(), node)).collect();
            let mut node = |status: &&NodeStatus| {
                let name = status.node_ref.name.clone();
                known.remove(&name).unwrap_or_else(|| NodeProgress { name, ..NodeProgress::default() })
            };
            self.nodes = statuses.iter().map(&mut node).collect();
            self.blocked.clear();
            self.places = (0..).zip(&self.nodes).map(|(at, node)| (node.name.as_str().into(), at)).collect();
            self.is_outdated = true;
        }
        let has_drained = drained_nodes(maintenance);
        for (node, status) in self.nodes.iter_mut().zip(statuses) {
            node.has_drained = has_drained(status);
            if node.message != status.drain_message {
                node.message.clone_from(&status.drain_message);
                node.drain = DrainState::of_message(&node.message);
            }
            let count = |count: i32| usize::try_from(count).unwrap_or(0);
            (node.asked, node.not_asked) = (count(status.pods_evicting), count(status.pods_pending_eviction));
        }
        self.take_counts();
    }

    /// Counts pods as they are seen from now on, all of which are known.
    pub fn count_pods(&mut self) {
        if self.source == Source::Status {
            self.source = Source::Pods;
            self.departed = self.nodes.iter().map(|node| (node.name.clone(), node.gone())).collect();
            self.is_outdated = true;
        }
    }

    /// Takes over what the status counts.
    fn take_counts(&mut self) {
        if self.source == Source::Pods {
            return;
        }
        let causes = std::mem::take(&mut self.all.causes);
        let requests_are_hidden = self.all.requests_are_hidden;
        let mut all = NodeProgress { causes, requests_are_hidden, ..NodeProgress::default() };
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let (gone, left) = (node.gone(), node.asked + node.not_asked);
            let asked = if requests_are_hidden { 0 } else { node.asked };
            node.blocked = self.blocked.get(at).map_or(0, |blocked| asked.min(*blocked));
            node.evicting = asked - node.blocked;
            node.pending = left - asked;
            // Of what kind they are, the status does not say.
            node.ordinary = left;
            // More than were there have come since.
            node.seen = node.seen.max(gone + left);
            all.seen += node.seen;
            all.evicting += node.evicting;
            all.blocked += node.blocked;
            all.pending += node.pending;
            all.ordinary += node.ordinary;
        }
        self.all = all;
    }

    /// What is to be looked at because it has changed.
    pub fn note(&mut self, changed: Changed) {
        self.changed.extend(changed.pods);
        for budget in &changed.budgets {
            self.catch_up.budget_changed(budget);
        }
        self.reselected.extend(changed.reselected);
    }

    /// Looks at what has changed since the last time.
    pub fn recount_changed(&mut self, world: &World, now: Timestamp) {
        if std::mem::take(&mut self.is_outdated) {
            return self.recount_all(world, now);
        }
        let mut pods = std::mem::take(&mut self.changed);
        pods.extend(self.catch_up.take(CATCH_UP));
        while self.rechecks.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, pod)) = self.rechecks.pop_first()
        {
            pods.insert(pod);
        }
        let reselected = std::mem::take(&mut self.reselected);
        if !reselected.is_empty() {
            for (key, pod) in self.pods.iter_mut().filter(|(key, _)| reselected.contains(&key.namespace)) {
                if let Some(budgets) = pod.budgets.take() {
                    budgets.iter().for_each(|budget| self.catch_up.remove(budget, key));
                    pods.insert(key.clone());
                }
            }
        }
        let mut touched = BTreeSet::new();
        for pod in &pods {
            self.recount(pod, world, now, &mut touched);
        }
        self.update_causes(touched);
        self.take_counts();
    }

    /// Looks at everything.
    pub fn recount_all(&mut self, world: &World, now: Timestamp) {
        self.pods.clear();
        self.changed.clear();
        self.rechecks.clear();
        self.reselected.clear();
        self.catch_up = CatchUp::default();
        self.all_causes = Causes::default();
        self.causes = vec![Causes::default(); self.nodes.len()];
        self.blocked = vec![0; self.nodes.len()];
        self.all.requests_are_hidden = world.requests_are_hidden;
        for node in &mut self.nodes {
            node.requests_are_hidden = world.requests_are_hidden;
            node.causes.clear();
            if self.source == Source::Pods {
                let departed = self.departed.get(&node.name).copied().unwrap_or(0);
                node.seen = departed + self.seen.get(&node.name).map_or(0, BTreeSet::len);
                (node.evicting, node.blocked, node.pending, node.ordinary) = (0, 0, 0, 0);
            }
        }
        if self.source == Source::Pods {
            let seen = self.nodes.iter().map(|node| node.seen).sum();
            let requests_are_hidden = world.requests_are_hidden;
            self.all = NodeProgress { seen, requests_are_hidden, ..NodeProgress::default() };
        }
        let mut touched = BTreeSet::new();
        for pod in world.pods.keys() {
            self.recount(pod, world, now, &mut touched);
        }
        self.update_causes(touched);
        self.take_counts();
    }

    fn update_causes(&mut self, nodes: BTreeSet<usize>) {
        let waits = |pod: &Key| self.pods.get(pod)?.waits.as_ref().map(|(waits, _)| waits);
        self.all.causes = self.all_causes.worst(CAUSES, waits);
        for at in nodes {
            self.nodes[at].causes = self.causes[at].worst(CAUSES, waits);
        }
    }

    /// Counts a pod as it is now, and no longer as it was.
    fn recount(&mut self, key: &Key, world: &World, now: Timestamp, touched: &mut BTreeSet<usize>) {
        let before = self.pods.remove(key);
        if let Some(before) = &before {
            touched.insert(before.node);
            self.count(before, |count| *count = count.saturating_sub(1));
            if let Some(at) = before.recheck_at {
                self.rechecks.remove(&(at, key.clone()));
            }
            if let Some((_, cause)) = &before.waits {
                self.causes[before.node].remove(cause, key);
                self.all_causes.remove(cause, key);
            }
        }
        let budgets_before = before.as_ref().and_then(|before| before.budgets.clone());
        let after = self.counted(key, before, world, now);
        let budgets = after.as_ref().and_then(|after| after.budgets.clone());
        if budgets != budgets_before {
            budgets_before.iter().flatten().for_each(|budget| self.catch_up.remove(budget, key));
            budgets.iter().flatten().for_each(|budget| self.catch_up.add(budget, key));
        }
        let Some(after) = after else { return };
        touched.insert(after.node);
        self.count(&after, |count| *count += 1);
        if let Some(at) = after.recheck_at {
            self.rechecks.insert((at, key.clone()));
        }
        if let Some((_, cause)) = &after.waits {
            self.causes[after.node].add(cause, key);
            self.all_causes.add(cause, key);
        }
        self.pods.insert(key.clone(), after);
    }

    fn count(&mut self, pod: &CountedPod, by: impl Fn(&mut usize)) {
        match self.source {
            Source::Pods => {
                self.nodes[pod.node].count(pod, &by);
                self.all.count(pod, by);
            }
            Source::Status => {
                if pod.waits.as_ref().is_some_and(|(waits, _)| waits.is_blocked()) {
                    by(&mut self.blocked[pod.node]);
                }
            }
        }
    }

    /// `None`: it is not on a node of the maintenance, or has ended.
    fn counted(
        &mut self,
        key: &Key,
        before: Option<CountedPod>,
        world: &World,
        now: Timestamp,
    ) -> Option<CountedPod> {
        let pod = world.pods.get(key).filter(|pod| !pod.phase.is_terminal())?;
        let node = *self.places.get(&pod.node)?;
        #[cfg(test)]
        {
            self.looks += 1;
        }
        if self.source == Source::Pods
            && self.seen.entry(self.nodes[node].name.clone()).or_default().insert(pod.uid.clone())
        {
            self.nodes[node].seen += 1;
            self.all.seen += 1;
        }
        let known = before.filter(|before| before.labels == pod.labels).and_then(|before| before.budgets);
        let (waits, budgets, recheck_at) = waits(pod, known, world, now);
        let waits = waits.map(|waits| {
            let cause = CauseKey::new(key, &waits);
            (waits, cause)
        });
        let is_ordinary = pod.kind() == PodType::Default;
        Some(CountedPod { node, is_ordinary, waits, labels: pod.labels.clone(), budgets, recheck_at })
    }
}

/// What a pod waits on, if it is asked to leave; its budgets, which are looked for if they are not known; and until when it
/// stays so by itself.
fn waits(
    pod: &Pod,
    budgets: Option<Vec<Key>>,
    world: &World,
    now: Timestamp,
) -> (Option<RequestWait>, Option<Vec<Key>>, Option<Timestamp>) {
    if let Some(state) = RequestState::of_terminating(pod) {
        return (Some(state.wait), None, None);
    }
    let Some(request) = world.request_of(pod) else { return (None, None, None) };
    let keys = |found: Vec<&Budget>| found.into_iter().map(|budget| budget.key.clone()).collect();
    let budgets = budgets.or_else(|| world.budgets_of(pod).map(keys));
    let found = budgets.as_ref().map(|budgets: &Vec<Key>| {
        budgets.iter().filter_map(|budget| world.budgets.get(budget)).collect::<Vec<&Budget>>()
    });
    let state = RequestState::of(request, Some(pod), found.as_deref(), None, now);
    (Some(state.wait), budgets, state.recheck_at)
}

/// How the drain ended, if it did, by the last look. `None` instead of a maintenance: it is gone.
pub fn ending(maintenance: Option<&NodeMaintenance>, progress: &Progress) -> Option<Ending> {
    let (nodes, left) = (progress.nodes().len(), progress.all().pods_left());
    let drain = FollowedDrain { maintenance, nodes, left, ignores_daemons: progress.ignores_daemons };
    Some(match drain.end()? {
        DrainEnd::Drained => Ending::Done,
        DrainEnd::Withdrawn => Ending::Withdrawn,
    })
}
