//! What LowNodeUtilization and HighNodeUtilization share: how much nodes use, and taking pods from some nodes as long as others have room.

use smallvec::SmallVec;

use super::Run;
use crate::cluster::node::{NodeObject, Taint};
use crate::cluster::node_affinity::{Toleration, tolerate};
use crate::cluster::resources::PODS;
use crate::cluster::{Cluster, Set};
use crate::cycle::{Cycle, ProposalOutcome};
use crate::plan::{Problem, Reason};
use crate::policy::args::{Thresholds, UsageSource};
use crate::policy::{METRIC_RESOURCE, PluginName};

/// The resources that a plugin looks at.
#[derive(Debug)]
pub struct Resources(Vec<Resource>);

#[derive(Debug)]
pub struct Resource {
    pub name: String,
    /// None if nothing in the cluster has ever named it.
    number: Option<u16>,
    is_metric: bool,
}

impl Resource {
    /// What a node has of it; None where it does not know the resource.
    fn total(&self, object: &NodeObject) -> Option<i64> {
        if self.is_metric { Some(100) } else { object.total().get(self.number?) }
    }
}

impl Resources {
    /// Those that have thresholds, and CPU, memory and pods but where a query measures.
    pub fn of(thresholds: &Thresholds, source: &UsageSource, cluster: &Cluster) -> Self {
        let mut names: Vec<&str> = thresholds.keys().map(String::as_str).collect();
        if !matches!(source, UsageSource::Prometheus { .. }) {
            names.extend(["cpu", "memory", "pods"].iter().filter(|name| !thresholds.contains_key(**name)));
        }
        let resources = names.into_iter().map(|name| Resource {
            name: name.to_owned(),
            number: cluster.resources.find(name),
            is_metric: name == METRIC_RESOURCE,
        });
        Self(resources.collect())
    }
}

/// A node and how much of it is used, resource by resource.
#[derive(Debug, Clone)]
pub struct NodeUse {
    pub node: u32,
    pub unschedulable: bool,
    of: SmallVec<[ResourceUse; 3]>,
}

/// How much of a resource is used on a node.
#[derive(Debug, Clone)]
struct ResourceUse {
    used: i64,
    /// None where the node does not know the resource.
    total: Option<i64>,
    /// What may be used.
    ceiling: i64,
}

impl ResourceUse {
    /// None where the node does not know the resource.
    #[allow(clippy::cast_precision_loss)]
    fn percent(&self) -> Option<f64> {
        let total = self.total?;
        Some(if total > 0 { self.used as f64 / total as f64 * 100.0 } else { 0.0 })
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn part(threshold: f64, total: i64) -> i64 {
    (threshold * 0.01 * total as f64) as i64
}

impl Resources {
    /// How much each node uses. The node of which that is not known, if there is one.
    pub fn uses(&self, cycle: &Cycle<'_>, source: &UsageSource) -> Result<Vec<NodeUse>, u32> {
        cycle.nodes.nodes.iter().map(|index| self.use_of(cycle, source, *index).ok_or(*index)).collect()
    }

    fn use_of(&self, cycle: &Cycle<'_>, source: &UsageSource, index: u32) -> Option<NodeUse> {
        let node = cycle.node(index)?;
        let object = node.object.as_ref()?;
        let used = |one: &Resource| -> Option<i64> {
            match (source, one.number) {
                (UsageSource::Requests, number) => {
                    Some(number.map_or(0, |number| cycle.requested_by_present(index, number)))
                }
                (UsageSource::KubernetesMetrics, Some(PODS)) => Some(cycle.requested_by_present(index, PODS)),
                (UsageSource::KubernetesMetrics, number) => {
                    let used = node.usage.as_ref()?.get(number?)?;
                    Some(used.saturating_sub(cycle.used_by_replacements(index, number?)))
                }
                #[allow(clippy::cast_possible_truncation)]
                (UsageSource::Prometheus { query }, _) => {
                    node.fractions.get(query.as_str()).map(|fraction| (fraction * 100.0) as i64)
                }
            }
        };
        let mut of = SmallVec::with_capacity(self.0.len());
        for one in &self.0 {
            of.push(ResourceUse { used: used(one)?, total: one.total(object), ceiling: 0 });
        }
        Some(NodeUse { node: index, unschedulable: object.unschedulable, of })
    }

    /// Tells of resources with thresholds that no node has: there is no room anywhere then.
    pub fn warn_of_unknown(
        &self,
        cycle: &mut Cycle<'_>,
        profile: &str,
        plugin: PluginName,
        thresholds: &Thresholds,
    ) {
        for one in self.0.iter().filter(|one| thresholds.contains_key(&one.name)) {
            let has = |node: &u32| one.total(cycle.node(*node)?.object.as_ref()?);
            if cycle.nodes.nodes.iter().all(|node| has(node).is_none()) {
                let (profile, resource) = (profile.to_owned(), one.name.clone());
                cycle.plan.problems.push(Problem::UnknownResource { profile, plugin, resource });
            }
        }
    }

    /// The threshold of each resource that has one.
    pub fn thresholds(&self, thresholds: &Thresholds) -> Vec<Option<f64>> {
        self.0.iter().map(|one| thresholds.get(&one.name).copied()).collect()
    }

    /// Thresholds as distances from what nodes use on average, between 0 and 100.
    pub fn around_average(&self, uses: &[NodeUse], thresholds: &Thresholds, sign: f64) -> Vec<Option<f64>> {
        let around = |(index, one): (usize, &Resource)| {
            let distance = thresholds.get(&one.name)?;
            let known: Vec<f64> = uses.iter().filter_map(|node| node.of[index].percent()).collect();
            #[allow(clippy::cast_precision_loss)]
            let average = known.iter().sum::<f64>() / known.len() as f64;
            (!known.is_empty()).then(|| (average + sign * distance).clamp(0.0, 100.0))
        };
        self.0.iter().enumerate().map(around).collect()
    }

    /// The resource that is the furthest above its threshold, or the least below it, with its use in percent.
    pub fn foremost(&self, node: &NodeUse, thresholds: &[Option<f64>]) -> (String, f64) {
        let over = self.0.iter().enumerate().filter_map(|(index, one)| {
            let used = node.of[index].percent()?;
            Some((used - thresholds[index]?, used, one))
        });
        let most = over.max_by(|a, b| a.0.total_cmp(&b.0));
        most.map_or((String::new(), 0.0), |(_, used, one)| (one.name.clone(), used))
    }

    fn of_pod(&self, cycle: &Cycle<'_>, source: &UsageSource, slot: u32) -> PodUse {
        let shape = cycle.pod(slot).map(|(_, shape)| shape);
        let amounts = |get: &dyn Fn(u16) -> Option<i64>| -> Option<Vec<i64>> {
            let of = |one: &Resource| match one.number {
                Some(PODS) => Some(1),
                Some(number) => get(number),
                None => get(u16::MAX),
            };
            self.0.iter().map(of).collect()
        };
        let known = match source {
            UsageSource::Requests => {
                amounts(&|number| Some(shape.and_then(|shape| shape.requests.get(number)).unwrap_or(0)))
            }
            UsageSource::KubernetesMetrics => {
                let usage = cycle.cluster.usage_of_pod(slot);
                usage.and_then(|usage| amounts(&|number| usage.get(number)))
            }
            UsageSource::Prometheus { .. } => return PodUse::Unmeasurable,
        };
        known.map_or(PodUse::Unknown, PodUse::Known)
    }
}

enum PodUse {
    Known(Vec<i64>),
    Unknown,
    /// It cannot be known: one pod of a node at a time.
    Unmeasurable,
}

impl NodeUse {
    /// No resource is above its threshold.
    pub fn is_below(&self, thresholds: &[Option<f64>]) -> bool {
        !self.is_above(thresholds)
    }

    /// A resource is above its threshold.
    pub fn is_above(&self, thresholds: &[Option<f64>]) -> bool {
        let above = |(one, threshold): (&ResourceUse, &Option<f64>)| {
            threshold.is_some_and(|threshold| threshold < one.percent().unwrap_or(0.0))
        };
        self.of.iter().zip(thresholds).any(above)
    }

    /// What may be used of each resource: all of it, or as much as its threshold.
    pub fn cap(&mut self, thresholds: &[Option<f64>]) {
        for (one, threshold) in self.of.iter_mut().zip(thresholds) {
            one.ceiling = match (one.total, threshold) {
                (None, _) => 0,
                (Some(total), None) => total,
                (Some(total), Some(threshold)) => part(*threshold, total),
            };
        }
    }

    fn is_above_ceiling(&self) -> bool {
        self.of.iter().any(|one| one.ceiling < one.used)
    }

    fn sum(&self) -> i128 {
        self.of.iter().map(|one| i128::from(one.used)).sum()
    }
}

/// How pods are taken from nodes.
pub struct Moves<'a> {
    pub resources: &'a Resources,
    pub source: &'a UsageSource,
    pub excluded_namespaces: &'a [String],
    pub limit_per_node: Option<u64>,
    /// Nodes are left alone as soon as nothing on them is above its ceiling.
    pub until_below: bool,
    /// Only pods that ask for one of these may go.
    pub only_asking_for: Option<Vec<u16>>,
    pub most_used_first: bool,
}

impl Moves<'_> {
    /// Proposes pods of the sources as long as the destinations have room for them.
    pub fn run(
        &self,
        cycle: &mut Cycle<'_>,
        run: &mut Run<'_>,
        mut sources: Vec<NodeUse>,
        destinations: &[NodeUse],
        reason: impl Fn(&NodeUse) -> Reason,
    ) {
        let mut room: Vec<i128> = vec![0; self.resources.0.len()];
        for node in destinations {
            for (index, room) in room.iter_mut().enumerate() {
                *room += i128::from(node.of[index].ceiling) - i128::from(node.of[index].used);
            }
        }
        let taints = Destinations::of(cycle, destinations);
        sources.sort_by(|a, b| {
            let order = a.sum().cmp(&b.sum());
            let order = if self.most_used_first { order.reverse() } else { order };
            order.then_with(|| cycle.nodes.rank(a.node).cmp(&cycle.nodes.rank(b.node)))
        });
        for mut node in sources {
            if !self.goes_on(&node, &room) {
                continue;
            }
            let reason = reason(&node);
            let mut removable: Vec<u32> = cycle.active_on(node.node);
            removable.retain(|slot| {
                if cycle.watched == Some(*slot) {
                    cycle.note_kept(run.evictor);
                }
                run.evictor.passes(cycle, *slot) && self.may_go(cycle, *slot)
            });
            removable.sort_by_cached_key(|slot| cycle.by_priority(*slot));
            if !self.take_from(cycle, run, &mut node, removable, &mut room, &taints, &reason) {
                return;
            }
        }
    }

    fn may_go(&self, cycle: &Cycle<'_>, slot: u32) -> bool {
        let asks = |asked: &[u16]| {
            self.only_asking_for.as_ref().is_none_or(|all| all.iter().any(|one| asked.contains(one)))
        };
        cycle.pod(slot).is_some_and(|(_, shape)| asks(&shape.asked))
    }

    fn goes_on(&self, node: &NodeUse, room: &[i128]) -> bool {
        (!self.until_below || node.is_above_ceiling()) && room.iter().all(|room| *room > 0)
    }

    /// False if no pod at all may go any more.
    #[allow(clippy::too_many_arguments)]
    fn take_from(
        &self,
        cycle: &mut Cycle<'_>,
        run: &mut Run<'_>,
        node: &mut NodeUse,
        pods: Vec<u32>,
        room: &mut [i128],
        taints: &Destinations<'_>,
        reason: &Reason,
    ) -> bool {
        let mut taken = 0;
        for slot in pods {
            if self.limit_per_node.is_some_and(|limit| taken >= limit) {
                break;
            }
            let Some((_, shape)) = cycle.pod(slot) else {
                continue;
            };
            let is_excluded = self.excluded_namespaces.iter().any(|one| **one == *shape.namespace);
            let tolerations =
                cycle.cluster.placement(shape.placement).map(|placement| &*placement.tolerations);
            if is_excluded || !taints.tolerated_by(tolerations.unwrap_or_default()) {
                continue;
            }
            let why = (cycle.watched == Some(slot)).then(|| reason.clone());
            if !cycle.admits(run.evictor, slot, || why) {
                continue;
            }
            let of_pod = self.resources.of_pod(cycle, self.source, slot);
            if matches!(of_pod, PodUse::Unknown) {
                continue;
            }
            match cycle.propose(run.evictor, slot, reason.clone()) {
                ProposalOutcome::Leaves => {
                    if !self.until_below {
                        cycle.emptied.insert(node.node);
                    }
                }
                ProposalOutcome::Refused => continue,
                ProposalOutcome::NodeLimit => return true,
                ProposalOutcome::TotalLimit => return false,
            }
            let PodUse::Known(of_pod) = of_pod else {
                if self.limit_per_node.is_none() {
                    break;
                }
                taken += 1;
                continue;
            };
            taken += 1;
            for (index, amount) in of_pod.iter().enumerate() {
                node.of[index].used = node.of[index].used.saturating_sub(*amount);
                room[index] -= i128::from(*amount);
            }
            if !self.goes_on(node, room) {
                break;
            }
        }
        true
    }
}

/// The distinct sets of taints of the nodes to which pods may go.
struct Destinations<'a>(Vec<&'a [Taint]>);

impl<'a> Destinations<'a> {
    fn of(cycle: &Cycle<'a>, nodes: &[NodeUse]) -> Self {
        let objects = nodes.iter().filter_map(|node| cycle.node(node.node)?.object.as_ref());
        let mut distinct: Set<&[Taint]> = Set::default();
        let all = objects.map(|object| &*object.taints);
        Self(all.filter(|taints| distinct.insert(taints)).collect())
    }

    /// One of them has only taints that are tolerated, and not more of them than there are tolerations.
    fn tolerated_by(&self, tolerations: &[Toleration]) -> bool {
        self.0.iter().any(|taints| {
            tolerations.len() >= taints.len() && taints.iter().all(|taint| tolerate(tolerations, taint))
        })
    }
}

impl Resources {
    /// The numbers of resources with thresholds.
    pub fn numbers(&self, thresholds: &Thresholds) -> Vec<u16> {
        self.0.iter().filter(|one| thresholds.contains_key(&one.name)).filter_map(|one| one.number).collect()
    }
}
