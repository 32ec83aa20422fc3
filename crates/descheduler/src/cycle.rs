//! One cycle: what was decided so far, what it frees and takes, and the limits.

use jiff::Timestamp;

use crate::cluster::node::Node;
use crate::cluster::pod::{Pod, UNBOUND};
use crate::cluster::resources::PODS;
use crate::cluster::shape::Shape;
use crate::cluster::{Cluster, Map, RandomState, Set};
use crate::evictor::Evictor;
use crate::evictor::kept::Kept;
use crate::in_progress::{InProgress, Slots};
use crate::nodes::NodeList;
use crate::plan::{OwnerRef, Plan, PluginCount, PodRef, Proposal, Reason, Stop, Stopped};
use crate::planner::Differences;
use crate::policy::{Limits, PluginName};
use crate::replacements::{MovedPod, Replacements, Replacing};

pub struct Cycle<'a> {
    pub cluster: &'a Cluster,
    pub now: Timestamp,
    /// The nodes that plugins look at.
    pub nodes: &'a NodeList,
    pub differences: Differences,
    limits: Limits,
    /// The pods that are leaving, with their UIDs and their places by name.
    leaving: Map<u32, (&'a str, usize)>,
    leaving_by_name: Vec<u32>,
    replacements: Replacements,
    /// Until when pods are not asked, and whether that is counted from now.
    cooling: Map<u32, (Timestamp, bool)>,
    moved: Replacing,
    /// Pods that were decided on, and count as gone from then on.
    gone: Set<u32>,
    gone_in_order: Vec<u32>,
    gone_of_owner: Map<&'a str, u64>,
    /// What decisions free on nodes.
    freed: Vec<Sums>,
    /// Pods that are expected on nodes, because they fit there when they were proposed, and what they request.
    expected: Vec<Vec<u32>>,
    kept: Vec<Sums>,
    /// Nodes that a pod left, in order.
    left: Vec<u32>,
    /// Nodes that are to become empty.
    pub emptied: Set<u32>,
    asked_in_all: u64,
    asked_of_node: Vec<u64>,
    asked_of_namespace: Map<&'a str, u64>,
    pub plan: Plan,
    /// The pod that is explained, if one is.
    pub watched: Option<u32>,
    pub views: Vec<PluginStep>,
    current: Option<(String, PluginName)>,
}

/// What happened to the pod that is explained, at a plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginStep {
    pub profile: String,
    pub plugin: PluginName,
    pub wants: Option<Reason>,
    pub kept: Option<Kept>,
    pub stopped: Option<Stop>,
    pub proposed: bool,
    pub fits_on: Option<String>,
}

/// Places by name of pods that are leaving are known, and names need not be compared.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByName<'a> {
    Leaving(usize),
    Staying((&'a str, &'a str)),
}

/// What became of a pod that a plugin wants to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It is proposed, or is leaving already.
    Leaves,
    /// Not this one, and others may still go.
    Refused,
    /// No other of its node.
    NodeLimit,
    /// No other at all.
    TotalLimit,
}

impl<'a> Cycle<'a> {
    pub fn new(
        cluster: &'a Cluster,
        nodes: &'a NodeList,
        limits: Limits,
        in_progress: &'a InProgress,
        slots: &mut Slots,
        differences: Differences,
        now: Timestamp,
    ) -> Self {
        let mut cycle = Self {
            cluster,
            now,
            nodes,
            differences,
            limits,
            leaving: Map::with_capacity_and_hasher(in_progress.len(), RandomState::default()),
            leaving_by_name: Vec::with_capacity(in_progress.len()),
            replacements: Replacements::default(),
            cooling: Map::default(),
            moved: Replacing::default(),
            gone: Set::with_capacity_and_hasher(in_progress.len(), RandomState::default()),
            gone_in_order: Vec::new(),
            gone_of_owner: Map::default(),
            freed: vec![Sums::new(); cluster.node_slots()],
            expected: vec![Vec::new(); cluster.node_slots()],
            kept: vec![Sums::new(); cluster.node_slots()],
            left: Vec::new(),
            emptied: Set::default(),
            asked_in_all: 0,
            asked_of_node: vec![0; cluster.node_slots()],
            asked_of_namespace: Map::default(),
            plan: Plan::default(),
            watched: None,
            views: Vec::new(),
            current: None,
        };
        let (mut since, mut moved) = (Vec::new(), Vec::new());
        slots.begin();
        for (namespace, name, uid, asked) in in_progress.pods() {
            let found = slots.find(cluster, namespace, name, uid);
            let found = found.and_then(|slot| Some((slot, cycle.pod(slot)?)));
            // One that is there and stays has no replacement.
            if let Some(moved_before) = asked.moved.as_ref().filter(|it| it.until > now)
                && (!asked.by.is_empty() || found.is_none_or(|(_, (pod, _))| pod.terminating))
            {
                moved.push(MovedPod { namespace, name, moved: moved_before, is_leaving: found.is_some() });
            }
            let Some((slot, (pod, shape))) = found else {
                continue;
            };
            let (node, namespace) = (pod.node, shape.namespace.as_ref());
            if !asked.by.is_empty() {
                cycle.leaving.insert(slot, (uid, cycle.leaving_by_name.len()));
                // Who is in progress is sorted by name, and of two of the same name one is there.
                cycle.leaving_by_name.push(slot);
                cycle.count(node, namespace);
                if let Some(asked) = asked.since.filter(|_| !pod.terminating) {
                    since.push((slot, asked.as_second()));
                }
                // Its owner has one less, from the start.
                for owner in &shape.owners {
                    *cycle.gone_of_owner.entry(&owner.uid).or_default() += 1;
                }
                if !nodes.has(node) && !cluster.node(node).is_some_and(Node::is_ready) {
                    cycle.plan.still_wanted.push(uid.to_owned());
                }
            }
            if let Some(until) = asked.cools_until.filter(|until| *until > now) {
                cycle.cooling.insert(slot, (until, asked.cools_from_now));
            }
        }
        for pod in in_progress.asked_in_cycle() {
            let slot = cluster.find(&pod.namespace, &pod.name);
            let is_it = |slot: &u32| cluster.pod(*slot).is_some_and(|it| it.uid.is(&pod.uid));
            if !slot.filter(is_it).is_some_and(|slot| cycle.is_leaving(slot)) {
                cycle.count(cluster.find_node(&pod.node).unwrap_or(UNBOUND), &pod.namespace);
            }
        }
        cycle.moved = Replacing::of(cluster, &moved, |slot| cycle.is_leaving(slot));
        cycle.replacements = Replacements::of(cluster, &since, |slot| cycle.is_leaving(slot));
        cycle
    }

    pub fn pod(&self, slot: u32) -> Option<(&'a Pod, &'a Shape)> {
        let pod = self.cluster.pod(slot)?;
        Some((pod, self.cluster.shape(pod.shape)?.as_ref()))
    }

    pub fn node(&self, index: u32) -> Option<&'a Node> {
        self.cluster.node(index)
    }

    /// It was decided on in this cycle.
    pub fn is_gone(&self, slot: u32) -> bool {
        self.gone.contains(&slot)
    }

    pub fn gone(&self) -> &[u32] {
        &self.gone_in_order
    }

    pub fn is_leaving(&self, slot: u32) -> bool {
        self.leaving.contains_key(&slot)
    }

    /// The cool-down that keeps the pod, if one does.
    pub fn cool_down(&self, slot: u32) -> Option<Kept> {
        let (until, from_now) = self.cooling.get(&slot).copied()?;
        Some(if from_now { Kept::CoolDownBegins } else { Kept::CoolDown { until } })
    }

    /// How many pods an owner has, without those that were decided on.
    pub fn replicas(&self, uid: &str) -> u64 {
        let gone = self.gone_of_owner.get(uid).copied().unwrap_or(0);
        u64::from(self.cluster.owned(uid)).saturating_sub(gone)
    }

    /// What pods on a node request, after what was decided.
    pub fn requested(&self, node: u32, resource: u16) -> i64 {
        self.requested_but_expected(node, resource).saturating_add(sum(&self.kept, node, resource))
    }

    fn requested_but_expected(&self, node: u32, resource: u16) -> i64 {
        let requested = self.cluster.node(node).map_or(0, |node| node.requested_of(resource));
        requested.saturating_sub(sum(&self.freed, node, resource))
    }

    /// What pods on a node request, without those that were decided on; what is expected there does not count, nor do replacements.
    pub fn requested_by_present(&self, node: u32, resource: u16) -> i64 {
        let replacements = self.replacements.on(node).iter().filter_map(|slot| self.pod(*slot));
        let replacements = replacements.map(|(_, shape)| match resource {
            PODS => 1,
            _ => shape.requests.get(resource).unwrap_or(0),
        });
        self.requested_but_expected(node, resource).saturating_sub(replacements.fold(0, i64::saturating_add))
    }

    /// What replacements on a node use of a resource, as far as it is known.
    pub fn used_by_replacements(&self, node: u32, resource: u16) -> i64 {
        let replacements = self.replacements.on(node).iter();
        let used = replacements.filter_map(|slot| self.cluster.usage_of_pod(*slot)?.get(resource));
        used.fold(0, i64::saturating_add)
    }

    /// Pods that have come in the place of pods that are leaving: both are there for a while. Plugins that balance do not count them, or
    /// what is under way would look as if it were not needed.
    pub fn replacements(&self) -> &[u32] {
        &self.replacements.slots
    }

    /// A plugin cannot tell what was before the replacements came: pods that have one go on leaving.
    pub fn keep_replaced(&mut self) {
        for slot in &self.replacements.replaced {
            if let Some(pod) = self.cluster.pod(*slot) {
                self.plan.still_wanted.push(pod.uid.to_string());
            }
        }
    }

    /// Nodes that a pod left, in the order of the decisions.
    pub fn left(&self) -> &[u32] {
        &self.left
    }

    pub fn expected_on(&self, node: u32) -> impl Iterator<Item = u32> {
        self.expected.get(node as usize).into_iter().flatten().copied()
    }

    /// The pods on a node that hold resources, were not decided on and are nobody's replacement.
    pub fn active_on(&self, node: u32) -> Vec<u32> {
        let pods = self.cluster.node(node).map_or(&[][..], |node| &node.pods);
        let mut active: Vec<u32> = pods
            .iter()
            .copied()
            .filter(|slot| !self.is_gone(*slot) && !self.replacements.on(node).contains(slot))
            .filter(|slot| self.cluster.pod(*slot).is_some_and(Pod::is_active))
            .collect();
        active.sort_by_key(|slot| self.name_of(*slot));
        active
    }

    /// Namespace and name: what decides where nothing else does.
    pub fn name_of(&self, slot: u32) -> (&'a str, &'a str) {
        self.pod(slot).map_or(("", ""), |(pod, shape)| (shape.namespace.as_ref(), pod.name.as_ref()))
    }

    /// What decides by name between pods that are leaving, and between pods that are not.
    pub fn by_name(&self, slot: u32) -> ByName<'a> {
        match self.leaving.get(&slot) {
            Some((_, place)) => ByName::Leaving(*place),
            None => ByName::Staying(self.name_of(slot)),
        }
    }

    /// The order in which pods go from a node: those that are leaving first, then low priority, low quality of service, and at last those
    /// that would rather stay.
    pub fn by_priority(&self, slot: u32) -> impl Ord + use<'a> {
        let shape = self.pod(slot).map(|(_, shape)| shape);
        (
            !self.is_leaving(slot),
            shape.and_then(|shape| shape.priority),
            shape.map(|shape| shape.qos),
            shape.map(|shape| shape.traits.prefer_no_eviction),
            self.by_name(slot),
        )
    }

    /// Room is kept for a pod that is leaving on the node where it fits, if there is one.
    pub fn expect(&mut self, slot: u32, target: Option<u32>) {
        if let (Some(target), Some((_, shape))) = (target, self.pod(slot)) {
            add(&mut self.kept, target, shape);
            if let Some(expected) = self.expected.get_mut(target as usize) {
                expected.push(slot);
            }
        }
    }

    /// The pods that are leaving, in the order of their names.
    pub fn leaving(&self) -> &[u32] {
        &self.leaving_by_name
    }

    pub fn begin(&mut self, profile: &str, plugin: PluginName) {
        self.current = Some((profile.to_owned(), plugin));
        self.plan.counts.push(PluginCount {
            profile: profile.to_owned(),
            plugin,
            wanted: 0,
            proposed: 0,
            leaving: 0,
        });
    }

    /// Whether the pod passes all filters, noting what keeps the one that is explained.
    pub fn admits(
        &mut self,
        evictor: &mut Evictor,
        slot: u32,
        wants: impl FnOnce() -> Option<Reason>,
    ) -> bool {
        if self.is_gone(slot) {
            if self.watched == Some(slot) {
                self.note(wants(), None, None, None);
            }
            return false;
        }
        let kept = match evictor.passes(self, slot) {
            true => evictor.pre_eviction(self, slot).err(),
            false => {
                if self.watched == Some(slot) {
                    let kept = evictor.keeps(self, slot);
                    self.note(wants(), kept, None, None);
                }
                return false;
            }
        };
        let admitted = kept.is_none();
        if !admitted && self.watched == Some(slot) {
            self.note(wants(), kept, None, None);
        }
        admitted
    }

    /// It was decided on in this cycle, and is not the one that is explained: of that one plugins say what they think all the same.
    pub fn is_passed_over(&self, slot: u32) -> bool {
        self.is_gone(slot) && self.watched != Some(slot)
    }

    /// Notes that the pod that is explained does not count for a plugin, as it was decided on before.
    pub fn note_decided(&mut self) {
        self.note(None, Some(Kept::DecidedBefore), None, None);
    }

    /// Notes what a filter thinks of the pod that is explained, for plugins that count only what passes.
    pub fn note_kept(&mut self, evictor: &Evictor) {
        if let Some(slot) = self.watched
            && let Some(kept) = evictor.keeps(self, slot)
        {
            self.note(None, Some(kept), None, None);
        }
    }

    fn note(
        &mut self,
        wants: Option<Reason>,
        kept: Option<Kept>,
        stopped: Option<Stop>,
        proposal: Option<&Proposal>,
    ) {
        let Some((profile, plugin)) = self.current.clone() else {
            return;
        };
        self.views.push(PluginStep {
            profile,
            plugin,
            wants,
            kept,
            stopped,
            proposed: proposal.is_some(),
            fits_on: proposal.and_then(|proposal| proposal.fits_on.clone()),
        });
    }

    /// Whether the pod is leaving already, and is wanted to: nothing has to be said of why.
    pub fn goes_on_leaving(&mut self, slot: u32) -> bool {
        let is_asked = self.leaving.get(&slot).is_some_and(|(uid, _)| !uid.is_empty());
        let goes_on = is_asked && !self.is_gone(slot) && self.watched != Some(slot);
        if goes_on {
            self.still_wants(slot);
        }
        goes_on
    }

    fn still_wants(&mut self, slot: u32) {
        if let Some(count) = self.plan.counts.last_mut() {
            count.wanted += 1;
            count.leaving += 1;
        }
        let uid = self.leaving.get(&slot).map(|(uid, _)| (*uid).to_owned());
        self.plan.still_wanted.extend(uid);
        self.leave(slot, None);
    }

    /// Proposes the pod, unless a limit is against it.
    pub fn propose(&mut self, evictor: &mut Evictor, slot: u32, reason: Reason) -> ProposalOutcome {
        let Some((pod, shape)) = self.pod(slot) else {
            return ProposalOutcome::Refused;
        };
        if self.is_gone(slot) || pod.uid.is_empty() {
            if self.watched == Some(slot) {
                let kept = pod.uid.is_empty().then_some(Kept::NoUid);
                self.note(Some(reason), kept, None, None);
            }
            return ProposalOutcome::Refused;
        }
        if self.is_leaving(slot) {
            if self.watched == Some(slot) {
                self.note(Some(reason), None, None, None);
            }
            self.still_wants(slot);
            return ProposalOutcome::Leaves;
        }
        if let Some(count) = self.plan.counts.last_mut() {
            count.wanted += 1;
        }
        if let Some((_, plugin)) = &self.current
            && reason.may_recur()
            && let Some(kept) = self.moved.keeps(slot, *plugin)
        {
            if self.watched == Some(slot) {
                self.note(Some(reason), Some(kept), None, None);
            }
            return ProposalOutcome::Refused;
        }
        if let Some((stop, outcome)) = self.limit(pod.node, &shape.namespace) {
            if self.watched == Some(slot) {
                self.note(Some(reason), None, Some(stop.clone()), None);
            }
            self.stopped(stop, pod.node, &shape.namespace);
            // The pod that is explained may come after all that the limit admits.
            return if self.watched.is_some() { ProposalOutcome::Refused } else { outcome };
        }
        let target = evictor.fit.other_node(self, slot);
        if self.differences.node_fit_counts_decisions && evictor.args.node_fit && target.is_none() {
            if self.watched == Some(slot) {
                self.note(Some(reason), Some(Kept::FitsNowhere), None, None);
            }
            return ProposalOutcome::Refused;
        }
        let Some((profile, plugin)) = self.current.clone() else {
            return ProposalOutcome::Refused;
        };
        let name = |node: u32| self.cluster.node(node).map(|node| node.name.to_string());
        let proposal = Proposal {
            pod: PodRef {
                namespace: shape.namespace.to_string(),
                name: pod.name.to_string(),
                uid: pod.uid.to_string(),
                node: name(pod.node).unwrap_or_default(),
            },
            profile,
            plugin,
            reason,
            fits_on: target.and_then(name),
            owner: shape.owners.iter().find(|owner| owner.is_controller).map(|owner| OwnerRef {
                api_version: owner.api_version.to_string(),
                kind: owner.kind.to_string(),
                name: owner.name.to_string(),
                uid: owner.uid.to_string(),
            }),
        };
        if self.watched == Some(slot) {
            self.note(Some(proposal.reason.clone()), None, None, Some(&proposal));
        }
        self.plan.proposals.push(proposal);
        if let Some(count) = self.plan.counts.last_mut() {
            count.proposed += 1;
        }
        self.count(pod.node, &shape.namespace);
        self.leave(slot, target.filter(|_| self.differences.node_fit_counts_decisions));
        ProposalOutcome::Leaves
    }

    fn count(&mut self, node: u32, namespace: &'a str) {
        self.asked_in_all += 1;
        if let Some(of_node) = self.asked_of_node.get_mut(node as usize) {
            *of_node += 1;
        }
        *self.asked_of_namespace.entry(namespace).or_default() += 1;
    }

    /// The limit that one more pod would exceed: in total, of its node, of its namespace, in that order.
    fn limit(&self, node: u32, namespace: &str) -> Option<(Stop, ProposalOutcome)> {
        if let Some(limit) = self.limits.total.filter(|limit| self.asked_in_all >= *limit) {
            return Some((Stop::TotalLimit { limit }, ProposalOutcome::TotalLimit));
        }
        let of_node = self.asked_of_node.get(node as usize).copied().unwrap_or(0);
        if let Some(limit) = self.limits.per_node.filter(|limit| node != UNBOUND && of_node >= *limit) {
            let node = self.cluster.node(node).map(|node| node.name.to_string()).unwrap_or_default();
            return Some((Stop::NodeLimit { node, limit }, ProposalOutcome::NodeLimit));
        }
        let of_namespace = self.asked_of_namespace.get(namespace).copied().unwrap_or(0);
        let limit = self.limits.per_namespace.filter(|limit| of_namespace >= *limit)?;
        Some((Stop::NamespaceLimit { namespace: namespace.to_owned(), limit }, ProposalOutcome::Refused))
    }

    fn stopped(&mut self, by: Stop, node: u32, namespace: &str) {
        let plugin = self.current.clone();
        let same = self.plan.stops.iter_mut().rev().find(|one| one.by == by && one.plugin == plugin);
        let node = self.cluster.node(node).map(|node| node.name.to_string()).unwrap_or_default();
        let place = (namespace.to_owned(), node);
        match same {
            Some(stopped) => {
                stopped.pods += 1;
                *stopped.places.entry(place).or_default() += 1;
            }
            None => self.plan.stops.push(Stopped { by, plugin, pods: 1, places: [(place, 1)].into() }),
        }
    }

    /// The pod counts as gone from its node, and as there on the target.
    fn leave(&mut self, slot: u32, target: Option<u32>) {
        let Some((pod, shape)) = self.pod(slot) else {
            return;
        };
        self.gone.insert(slot);
        self.gone_in_order.push(slot);
        for owner in shape.owners.iter().filter(|_| !self.leaving.contains_key(&slot)) {
            *self.gone_of_owner.entry(&owner.uid).or_default() += 1;
        }
        if pod.node != UNBOUND {
            if pod.is_active() {
                add(&mut self.freed, pod.node, shape);
            }
            self.left.push(pod.node);
        }
        self.expect(slot, target);
    }
}

/// The sum of each resource, by its number.
type Sums = Vec<i64>;

/// The sum of a resource on a node.
fn sum(of_nodes: &[Sums], node: u32, resource: u16) -> i64 {
    of_nodes.get(node as usize).and_then(|all| all.get(resource as usize)).copied().unwrap_or(0)
}

/// Adds what pods of the shape request on a node.
fn add(of_nodes: &mut [Sums], node: u32, shape: &Shape) {
    let Some(sums) = of_nodes.get_mut(node as usize) else {
        return;
    };
    for (resource, amount) in shape.requests.iter().filter(|(one, _)| *one != PODS).chain([(PODS, 1)]) {
        let index = resource as usize;
        if sums.len() <= index {
            sums.resize(index + 1, 0);
        }
        sums[index] = sums[index].saturating_add(amount);
    }
}
