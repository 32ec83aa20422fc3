//! A cycle, from what changed since the last one to the plan.
//!
//! Plugins observe pods as they come and forget them as they go. A cycle first brings them up to date with what changed: pods, nodes, and
//! the time where something waits for it. Then all deschedule plugins of all profiles run, and after them all that balance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::cluster::pod::UNBOUND;
use crate::cluster::{Cluster, Set};
use crate::cycle::{Cycle, PluginStep};
use crate::emptied;
use crate::evictor::fit::Fit;
use crate::evictor::{Evictor, Threshold};
use crate::in_progress::{InProgress, Slots};
use crate::nodes::NodeList;
use crate::plan::{Plan, Problem, Stop, Stopped};
use crate::plugins::{self, Plugin, PodInfo, Run};
use crate::policy::args::{Balance, PriorityThreshold};
use crate::policy::{Limits, PluginName, Policy, Profile};
use crate::replicas::Replicas;

/// Where plans are better than those of the Go descheduler, each switched by itself; all on by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Differences {
    /// A pod that is proposed takes its room on the node where it fits, so that the next one does not count on the same room.
    pub node_fit_counts_decisions: bool,
    /// A pod that one topology spread constraint moves is the first that the next one moves.
    pub spread_shares_moves: bool,
}

impl Default for Differences {
    fn default() -> Self {
        Self { node_fit_counts_decisions: true, spread_shares_moves: true }
    }
}

impl Differences {
    /// None of them: decisions are those of the Go descheduler.
    pub fn none() -> Self {
        Self { node_fit_counts_decisions: false, spread_shares_moves: false }
    }
}

/// Plans cycle after cycle, and keeps what did not change in between. It belongs to one cluster.
#[derive(Debug, Default)]
pub struct Planner {
    differences: Differences,
    known: Option<PlanState>,
}

#[derive(Debug)]
struct PlanState {
    policy: Policy,
    environment: Environment,
    profiles: Vec<ProfileState>,
    nodes: NodeList,
    /// Where pods in progress are.
    slots: Slots,
    /// Room on the nodes that the policy looks at.
    fit: Fit,
    /// The version of the cluster that is known.
    version: u64,
    now: Timestamp,
    /// When a pod has to be looked at again, in seconds since 1970.
    wakes: BinaryHeap<Reverse<(i64, u32)>>,
    cycles: u64,
    took: Vec<Took>,
}

/// How long a plugin of a profile ran.
#[derive(Debug, Clone)]
pub struct Took {
    pub profile: String,
    pub plugin: PluginName,
    pub time: Duration,
}

/// What filters look at beside pods and nodes. When it changes, everything is looked at again.
#[derive(Debug, PartialEq, Eq)]
struct Environment {
    budgets: u64,
    claims: u64,
    thresholds: Vec<Option<i32>>,
}

#[derive(Debug)]
struct ProfileState {
    name: String,
    evictor: Evictor,
    deschedule: Vec<Box<dyn Plugin>>,
    balance: Vec<Balancing>,
    replicas: Option<Replicas>,
}

/// A plugin that balances. What was decided before it ran does not count for it; that is mostly the same from one cycle to the next, so it
/// is made up for only where it is not.
#[derive(Debug)]
struct Balancing {
    plugin: Box<dyn Plugin>,
    /// The pods that do not count.
    without: Set<u32>,
}

impl Planner {
    pub fn new(differences: Differences) -> Self {
        Self { differences, known: None }
    }

    /// One cycle. What was proposed before and is under way has to be in progress, or it is proposed again.
    pub fn plan(
        &mut self,
        cluster: &Cluster,
        policy: &Policy,
        in_progress: &InProgress,
        now: Timestamp,
    ) -> Plan {
        self.run(cluster, policy, in_progress, now, None).0
    }

    /// How long each plugin ran in the last cycle.
    pub fn took(&self) -> &[Took] {
        self.known.as_ref().map_or(&[], |known| &known.took)
    }

    pub(crate) fn run(
        &mut self,
        cluster: &Cluster,
        policy: &Policy,
        in_progress: &InProgress,
        now: Timestamp,
        watched: Option<u32>,
    ) -> (Plan, Vec<PluginStep>) {
        let (environment, problems) = environment(cluster, policy);
        let fresh = self.known.as_ref().is_some_and(|known| {
            known.policy == *policy
                && known.environment == environment
                && known.now <= now
                && !known.remembers_too_much(cluster)
        });
        let mut known = match self.known.take() {
            Some(known) if fresh => known,
            _ => PlanState::new(policy, environment, now),
        };
        known.refresh(cluster, now);
        let (mut plan, seen) = known.cycle(cluster, in_progress, self.differences, watched, policy.limits);
        if watched.is_none() && !in_progress.is_empty() && plan.stops.iter().any(|it| it.by.is_limit()) {
            // A limit keeps plugins from looking at all that is leaving: who is still wanted is found out without limits.
            let took = std::mem::take(&mut known.took);
            known.refresh(cluster, now);
            let limits = Limits::default();
            plan.still_wanted =
                known.cycle(cluster, in_progress, self.differences, None, limits).0.still_wanted;
            known.took = took;
        }
        plan.problems.extend(problems);
        plan.problems.extend(policy.remarks.iter().cloned().map(Problem::Remark));
        self.known = Some(known);
        (plan, seen)
    }
}

/// What filters look at, and the profiles that cannot be run by it.
fn environment(cluster: &Cluster, policy: &Policy) -> (Environment, Vec<Problem>) {
    let mut environment = Environment { budgets: 0, claims: 0, thresholds: Vec::new() };
    let mut problems = Vec::new();
    for Profile { name, evictor, .. } in &policy.profiles {
        if evictor.protections.without_pdb {
            environment.budgets = cluster.budgets_version();
        }
        if evictor.protections.pvc && !evictor.protections.protected_storage_classes.is_empty() {
            environment.claims = cluster.claims_version();
        }
        let threshold = match Threshold::of(&evictor.priority_threshold, cluster) {
            Threshold::Value(value) => Some(value),
            Threshold::Unknown(class) => {
                problems.push(Problem::UnknownPriorityClass { profile: name.clone(), class });
                None
            }
            Threshold::TooHigh(class, value) => {
                problems.push(Problem::PriorityClassTooHigh { profile: name.clone(), class, value });
                None
            }
        };
        environment.thresholds.push(threshold);
    }
    (environment, problems)
}

impl PlanState {
    fn new(policy: &Policy, environment: Environment, now: Timestamp) -> Self {
        let profiles =
            policy.profiles.iter().zip(&environment.thresholds).filter_map(|(profile, threshold)| {
                let needs_replicas = profile.evictor.min_replicas > 1;
                Some(ProfileState {
                    name: profile.name.clone(),
                    evictor: Evictor::new(profile.evictor.clone(), (*threshold)?),
                    deschedule: profile.deschedule.iter().map(plugins::deschedule).collect(),
                    balance: profile.balance.iter().map(Balancing::new).collect(),
                    replicas: needs_replicas.then(Replicas::default),
                })
            });
        Self {
            profiles: profiles.collect(),
            policy: policy.clone(),
            environment,
            nodes: NodeList::default(),
            slots: Slots::default(),
            fit: Fit::default(),
            version: 0,
            now,
            wakes: BinaryHeap::new(),
            cycles: 0,
            took: Vec::new(),
        }
    }

    /// Plugins remember shapes that are gone. When those are many, all is learned anew.
    fn remembers_too_much(&self, cluster: &Cluster) -> bool {
        let plugins = self.profiles.iter().flat_map(|profile| {
            profile.deschedule.iter().chain(profile.balance.iter().map(|one| &one.plugin))
        });
        plugins.map(|plugin| plugin.remembered()).max().unwrap_or(0) > 4096 + 2 * cluster.shape_count()
            || self.wakes.len() > 4096 + 4 * cluster.slots() * self.profiles.len().max(1)
    }

    /// Brings everything up to date with the cluster and the time.
    fn refresh(&mut self, cluster: &Cluster, now: Timestamp) {
        self.nodes.refresh(cluster, self.policy.node_selector.as_ref());
        self.now = now;
        let mut stale: Vec<u32> = cluster.changed_since(self.version).collect();
        // At first all pods are new.
        if self.version > 0 && cluster.nodes_version() > self.version {
            let changed = cluster.nodes().filter(|(_, node)| node.version > self.version);
            stale.extend(changed.flat_map(|(_, node)| &node.pods));
        }
        while let Some(Reverse((_, slot))) = self.wakes.pop_if_due(now.as_second()) {
            stale.push(slot);
        }
        self.version = cluster.version();
        self.relearn(cluster, stale);
        let mut turned = Vec::new();
        for profile in &mut self.profiles {
            if let Some(replicas) = &mut profile.replicas {
                turned.extend(replicas.turned(cluster, profile.evictor.args.min_replicas));
            }
        }
        self.relearn(cluster, turned);
    }

    fn relearn(&mut self, cluster: &Cluster, mut slots: Vec<u32>) {
        slots.sort_unstable();
        slots.dedup();
        let now = self.now;
        let mut wakes = Vec::new();
        for slot in slots {
            for profile in &mut self.profiles {
                profile.observe(cluster, &self.nodes, slot, now, &mut wakes);
            }
            if let Some(first) = wakes.iter().filter(|second| **second > now.as_second()).min() {
                self.wakes.push(Reverse((*first, slot)));
            }
            wakes.clear();
        }
    }

    fn cycle(
        &mut self,
        cluster: &Cluster,
        in_progress: &InProgress,
        differences: Differences,
        watched: Option<u32>,
        limits: Limits,
    ) -> (Plan, Vec<PluginStep>) {
        self.cycles += 1;
        self.took.clear();
        let slots = &mut self.slots;
        let mut cycle = Cycle::new(cluster, &self.nodes, limits, in_progress, slots, differences, self.now);
        cycle.watched = watched;
        let ready = self.nodes.nodes.len();
        if ready < 2 {
            cycle.plan.stops.push(Stopped {
                by: Stop::FewerThanTwoReadyNodes { ready },
                plugin: None,
                pods: 0,
                places: BTreeMap::new(),
            });
            return (cycle.plan, cycle.views);
        }
        self.fit.begin(cluster, self.policy.node_selector.as_ref(), self.cycles);
        for profile in &mut self.profiles {
            let selector = profile.evictor.args.node_selector.clone();
            profile.evictor.fit.begin(cluster, selector.as_ref(), self.cycles);
        }
        let fits = self.profiles.iter_mut().find(|profile| profile.evictor.args.node_fit);
        if let Some(profile) = fits.filter(|_| differences.node_fit_counts_decisions) {
            for slot in cycle.leaving().to_vec() {
                let target = profile.evictor.fit.other_node(&cycle, slot);
                cycle.expect(slot, target);
            }
        }
        for profile in &mut self.profiles {
            for plugin in &mut profile.deschedule {
                let run = Run { profile: &profile.name, evictor: &mut profile.evictor, fit: &mut self.fit };
                self.took.push(timed(&mut **plugin, &mut cycle, run));
            }
        }
        // What was decided is gone for those that count.
        let mut without: Set<u32> = cycle.replacements().iter().copied().collect();
        let mut gone = 0;
        for profile in &mut self.profiles {
            for balancing in &mut profile.balance {
                without.extend(&cycle.gone()[gone..]);
                gone = cycle.gone().len();
                let evictor = &mut profile.evictor;
                balancing.leave_out(&without, |slot| evictor.info(cluster, &self.nodes, slot, self.now));
                let run = Run { profile: &profile.name, evictor, fit: &mut self.fit };
                let is_decided = cycle.watched.is_some_and(|slot| cycle.is_gone(slot));
                self.took.push(timed(&mut *balancing.plugin, &mut cycle, run));
                if is_decided {
                    cycle.note_decided();
                }
            }
        }
        let profiles = &mut self.profiles;
        emptied::name_other_nodes(&mut cycle, |cycle, of_profile, slot| {
            let profile = profiles.iter_mut().find(|profile| profile.name == of_profile)?;
            profile.evictor.fit.node_that_stays(cycle, slot)
        });
        (cycle.plan, cycle.views)
    }
}

/// How long a plugin takes is for the metric of that name, and decides nothing.
#[allow(clippy::disallowed_methods, reason = "a metric")]
fn timed(plugin: &mut dyn Plugin, cycle: &mut Cycle<'_>, mut run: Run<'_>) -> Took {
    cycle.begin(run.profile, plugin.name());
    let begun = Instant::now();
    plugin.run(cycle, &mut run);
    Took { profile: run.profile.to_owned(), plugin: plugin.name(), time: begun.elapsed() }
}

impl Balancing {
    fn new(plugin: &Balance) -> Self {
        Self { plugin: plugins::balance(plugin), without: Set::default() }
    }

    /// Lets the plugin count all pods but these, from what did not count for it before.
    fn leave_out<'a>(&mut self, without: &Set<u32>, mut info: impl FnMut(u32) -> Option<PodInfo<'a>>) {
        if !self.plugin.counts_pods() {
            return;
        }
        for slot in self.without.difference(without) {
            if let Some(info) = info(*slot) {
                // When to look at it again was found out when it came.
                self.plugin.observe(&info, &mut Vec::new());
            }
        }
        for slot in without.difference(&self.without) {
            self.plugin.forget(*slot);
        }
        self.without.clone_from(without);
    }
}

impl ProfileState {
    /// All plugins, which count the pod from now on.
    fn plugins_that_count(&mut self, slot: u32) -> impl Iterator<Item = &mut Box<dyn Plugin>> {
        self.deschedule.iter_mut().chain(self.balance.iter_mut().map(move |balancing| {
            balancing.without.remove(&slot);
            &mut balancing.plugin
        }))
    }

    fn observe(
        &mut self,
        cluster: &Cluster,
        nodes: &NodeList,
        slot: u32,
        now: Timestamp,
        wakes: &mut Vec<i64>,
    ) {
        if let Some(replicas) = &mut self.replicas {
            replicas.forget(slot);
            if let Some(shape) = cluster.pod(slot).and_then(|pod| cluster.shape(pod.shape)) {
                replicas.observe(slot, shape);
            }
        }
        match self.evictor.info(cluster, nodes, slot, now) {
            Some(info) => {
                wakes.extend(self.evictor.old_enough_at(info.pod));
                self.plugins_that_count(slot).for_each(|plugin| plugin.observe(&info, wakes));
            }
            None => self.plugins_that_count(slot).for_each(|plugin| plugin.forget(slot)),
        }
    }
}

impl Evictor {
    /// A pod as plugins see it, if it is on one of the nodes.
    fn info<'a>(
        &mut self,
        cluster: &'a Cluster,
        nodes: &NodeList,
        slot: u32,
        now: Timestamp,
    ) -> Option<PodInfo<'a>> {
        let pod = cluster.pod(slot)?;
        let shape = cluster.shape(pod.shape)?;
        let node = cluster.node(pod.node).filter(|_| pod.node != UNBOUND && nodes.has(pod.node))?;
        let passes = self.counts(cluster, pod, shape, now);
        let generation = cluster.shape_generation(pod.shape);
        Some(PodInfo { cluster, slot, pod, shape, generation, node, now, passes })
    }
}

/// Those whose time has come.
trait Due {
    fn pop_if_due(&mut self, now: i64) -> Option<Reverse<(i64, u32)>>;
}

impl Due for BinaryHeap<Reverse<(i64, u32)>> {
    fn pop_if_due(&mut self, now: i64) -> Option<Reverse<(i64, u32)>> {
        if self.peek().is_some_and(|Reverse((second, _))| *second <= now) { self.pop() } else { None }
    }
}

/// One cycle by itself.
pub fn plan(cluster: &Cluster, policy: &Policy, in_progress: &InProgress, now: Timestamp) -> Plan {
    Planner::default().plan(cluster, policy, in_progress, now)
}

impl Policy {
    /// The priority classes that the policy names.
    pub fn priority_classes(&self) -> impl Iterator<Item = &str> {
        self.profiles.iter().filter_map(|profile| match &profile.evictor.priority_threshold {
            PriorityThreshold::Class(name) => Some(name.as_str()),
            PriorityThreshold::Value(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{cluster, node, now, pod, policy};

    const KEYS: usize = 5000;

    /// Pods may name any number of topology keys.
    #[test]
    fn what_no_pod_asks_for_any_more_is_forgotten() {
        let keys = || (0..KEYS).map(|number| format!("example.com/key-{number}"));
        let selector = json!({"matchLabels": {"app": "web"}});
        let terms: Vec<Value> =
            keys().map(|key| json!({"topologyKey": key, "labelSelector": selector})).collect();
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        let spread: Vec<Value> = keys()
            .map(|key| {
                json!({"topologyKey": key, "labelSelector": selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"})
            })
            .collect();
        for (plugin, spec) in [
            ("RemovePodsViolatingInterPodAntiAffinity", json!({"affinity": {"podAntiAffinity": affinity}})),
            ("RemovePodsViolatingTopologySpreadConstraint", json!({"topologySpreadConstraints": spread})),
        ] {
            let policy = policy(json!({}), plugin, json!({}));
            let asking = pod("a", "n1", json!({"spec": spec}));
            let mut known = cluster(vec![node("n1", json!({})), node("n2", json!({}))], vec![asking]);
            let mut planner = Planner::default();
            let mut remembered = |known: &Cluster| {
                planner.plan(known, &policy, &InProgress::default(), now());
                let profile = &planner.known.as_ref().unwrap().profiles[0];
                let plugins = profile.deschedule.iter().chain(profile.balance.iter().map(|one| &one.plugin));
                plugins.map(|plugin| plugin.remembered()).max().unwrap()
            };
            assert!(remembered(&known) < 10, "{plugin}");
            known.set_pod(&pod("a", "n1", json!({})));
            assert_eq!(remembered(&known), KEYS, "{plugin}");
            assert!(remembered(&known) < 10, "{plugin} learns anew");
        }
    }
}
