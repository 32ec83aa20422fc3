//! What the pods of the drained nodes would meet on their way out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::NODE_MAINTENANCE_FINALIZER;
use usher_api::workloads::{BundledInterceptor, Strategy};
use usher_decide::eviction_request::{Case, Target, decide};
use usher_decide::snapshot::{self, Key, Request};
use usher_decide::waiting_on::WaitingOn;

use super::budgets::{Budget, Shelf, Uncounted};
use super::workloads::{Opted, Surging};
use super::{Finding, Pod, Workloads};
use crate::request_state::{RequestWait, several_budgets};

/// Pods that meet the same.
#[derive(Default)]
struct Groups<'a> {
    two_budgets: BTreeMap<Vec<Key>, Vec<Key>>,
    closed: BTreeMap<&'a Key, Closed<'a>>,
    uncounted: BTreeMap<&'a Key, (&'a Budget, Vec<Key>)>,
    slow: BTreeMap<&'a Key, Slow<'a>>,
    /// With whether they stay.
    daemons: BTreeMap<(Key, bool), Vec<Key>>,
    /// Of DaemonSets that nobody answers for.
    unanswered: BTreeMap<Key, Vec<Key>>,
    /// With how many go at a time.
    max_unavailable: BTreeMap<(Opted, u32), ByWave>,
    /// With by how much they surge.
    surging: BTreeMap<(Key, Surging), ByWave>,
    mirrors: Vec<Key>,
    orphans: Vec<Key>,
    with_data: Vec<Key>,
    interceptors: BTreeMap<&'a str, (usize, Vec<Key>)>,
}

/// What becomes of a pod of a DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaemonFate {
    /// Its DaemonSet opted out.
    Stays,
    /// Its DaemonSet takes it off.
    Leaves,
    /// The interceptor of DaemonSets is not asked.
    Unanswered,
}

/// Pods of one workload, and how many of them in which wave.
#[derive(Default)]
struct ByWave {
    pods: Vec<Key>,
    by_wave: BTreeMap<usize, usize>,
}

/// Pods that a budget never lets go.
struct Closed<'a> {
    budget: &'a Budget,
    pods: Vec<Key>,
    /// Their Deployments that would surge if they had a `maxSurge`.
    without_surge: BTreeSet<Key>,
    /// Their Deployments that would surge if there were room.
    without_room: BTreeSet<Key>,
}

/// The Deployment of a pod, if it would surge with one or the other.
struct CouldSurge {
    with_max_surge: Option<Key>,
    with_room: Option<Key>,
}

/// Pods that take from one budget, and how many of them in which wave.
struct Slow<'a> {
    budget: &'a Budget,
    pods: Vec<Key>,
    by_wave: BTreeMap<usize, usize>,
}

/// What pods meet, each with the number of the wave in which it leaves. For `misfits` there is no room elsewhere, and so no surge either.
pub fn findings<'a>(
    pods: impl Iterator<Item = (usize, &'a Pod)>,
    budgets: &'a [Budget],
    workloads: &Workloads,
    misfits: &HashSet<&Key>,
    now: Timestamp,
) -> Vec<Finding> {
    let shelf = Shelf::of(budgets);
    let mut groups = Groups::default();
    for (wave, pod) in pods {
        let has_room = !misfits.contains(&pod.pod.key);
        groups.sort_in(pod, (wave, has_room), &shelf, workloads, now);
    }
    groups.into_findings()
}

impl<'a> Groups<'a> {
    fn sort_in(
        &mut self,
        pod: &'a Pod,
        (wave, has_room): (usize, bool),
        shelf: &Shelf<'a>,
        workloads: &Workloads,
        now: Timestamp,
    ) {
        let key = || pod.pod.key.clone();
        if pod.pod.is_terminating() {
            return;
        }
        let budgets = shelf.of_pod(&pod.pod);
        let is_answered = workloads.is_answered_for(pod);
        let surge = workloads
            .surge(&pod.pod)
            .filter(|_| pod.has_bundled_controller() && !workloads.is_off(BundledInterceptor::Deployment));
        let without_room = surge.as_ref().filter(|_| !has_room).map(|(owner, _)| owner.clone());
        let surge = surge.filter(|_| has_room);
        let surges = surge.is_some();
        // Without a budget there is nothing that it is better than.
        if let Some(surge) = surge.filter(|_| !budgets.is_empty()) {
            let deployment = self.surging.entry(surge).or_default();
            deployment.pods.push(key());
            *deployment.by_wave.entry(wave).or_default() += 1;
        }
        // Nobody asks a budget for a pod that a ReplicaSet deletes.
        let budgets = if surges { Vec::new() } else { budgets };
        let daemon_set = workloads.daemon_set(&pod.pod).map(|strategy| match strategy {
            Strategy::Off => DaemonFate::Stays,
            _ if is_answered => DaemonFate::Leaves,
            _ => DaemonFate::Unanswered,
        });
        let could_surge =
            CouldSurge { with_max_surge: workloads.lacks_max_surge(&pod.pod), with_room: without_room };
        let stays = self.stays(pod, &budgets, daemon_set, could_surge, now);
        // What is said of one that stays is enough.
        let goes_by = workloads.max_unavailable(&pod.pod).filter(|_| is_answered && !stays);
        if let Some((owner, at_once)) = goes_by {
            let set = self.max_unavailable.entry((owner, at_once)).or_default();
            set.pods.push(key());
            *set.by_wave.entry(wave).or_default() += 1;
        }
        if !stays
            && let [budget] = &budgets[..]
            && !budget.budget.lets_pass(&pod.pod)
        {
            self.waits_for(budget, pod, wave);
        }
        // What is lost is lost as well once somebody has made way for a pod that stays at first.
        if pod.has_no_controller() {
            self.orphans.push(key());
        }
        if pod.loses_data() {
            self.with_data.push(key());
        }
    }

    /// Whether the pod cannot leave; if so, it is told why.
    fn stays(
        &mut self,
        pod: &'a Pod,
        budgets: &[&'a Budget],
        daemon_set: Option<DaemonFate>,
        could_surge: CouldSurge,
        now: Timestamp,
    ) -> bool {
        let strategy = daemon_set.map(|fate| match fate {
            DaemonFate::Stays => Strategy::Off,
            DaemonFate::Leaves | DaemonFate::Unanswered => Strategy::Default,
        });
        let obstacle = obstacle(&pod.pod, budgets, strategy, now);
        let is_closed = |budget: &Budget| {
            matches!(budget.uncounted, Some(Uncounted::Failed(_)))
                || (budget.uncounted.is_none() && budget.is_closed())
        };
        let stays = match &obstacle {
            Some(RequestWait::On(WaitingOn::Budget { .. })) => budgets.iter().any(|budget| is_closed(budget)),
            // Its DaemonSet takes it off, or says that it stays.
            Some(RequestWait::On(WaitingOn::NotEvictable { .. })) => {
                daemon_set.is_none_or(|it| it == DaemonFate::Unanswered)
            }
            Some(RequestWait::Refused(_)) => true,
            _ => false,
        };
        let owner = pod.pod.owner.as_ref();
        let owner = owner.map(|owner| Key::new(pod.pod.key.namespace.clone(), owner.name.clone()));
        if let (Some(owner), Some(fate @ (DaemonFate::Stays | DaemonFate::Leaves))) = (&owner, daemon_set) {
            let stays = fate == DaemonFate::Stays;
            self.daemons.entry((owner.clone(), stays)).or_default().push(pod.pod.key.clone());
        }
        // An interceptor may end the pod without the eviction API.
        let others =
            || pod.interceptors.iter().filter(|it| !BundledInterceptor::has_class(&it.interceptor_class));
        for interceptor in others() {
            let (only_way, pods) = self.interceptors.entry(&interceptor.interceptor_class).or_default();
            *only_way += usize::from(stays);
            pods.push(pod.pod.key.clone());
        }
        if !stays || others().next().is_some() {
            return false;
        }
        let key = pod.pod.key.clone();
        match obstacle {
            Some(RequestWait::On(WaitingOn::NotEvictable { .. })) => {
                match owner.filter(|_| daemon_set.is_some()) {
                    Some(owner) => self.unanswered.entry(owner).or_default().push(key),
                    None => self.mirrors.push(key),
                }
            }
            Some(RequestWait::Refused(_)) => {
                let names = budgets.iter().map(|budget| budget.budget.key.clone()).collect();
                self.two_budgets.entry(names).or_default().push(key);
            }
            _ => {
                if let Some(budget) = budgets.first() {
                    let closed = || Closed {
                        budget,
                        pods: Vec::new(),
                        without_surge: BTreeSet::new(),
                        without_room: BTreeSet::new(),
                    };
                    let closed = self.closed.entry(&budget.budget.key).or_insert_with(closed);
                    closed.pods.push(key);
                    closed.without_surge.extend(could_surge.with_max_surge);
                    closed.without_room.extend(could_surge.with_room);
                }
            }
        }
        true
    }

    fn waits_for(&mut self, budget: &'a Budget, pod: &Pod, wave: usize) {
        let key = pod.pod.key.clone();
        if budget.uncounted.is_some() {
            self.uncounted.entry(&budget.budget.key).or_insert((budget, Vec::new())).1.push(key);
        } else if !budget.is_closed() {
            let slow = || Slow { budget, pods: Vec::new(), by_wave: BTreeMap::new() };
            let slow = self.slow.entry(&budget.budget.key).or_insert_with(slow);
            slow.pods.push(key);
            *slow.by_wave.entry(wave).or_default() += 1;
        }
    }

    fn into_findings(self) -> Vec<Finding> {
        let mut all = Vec::new();
        all.extend(self.two_budgets.into_iter().map(|(budgets, pods)| Finding::TwoBudgets { budgets, pods }));
        all.extend(self.closed.into_values().map(|Closed { budget, pods, without_surge, without_room }| {
            let key = budget.budget.key.clone();
            match &budget.uncounted {
                Some(Uncounted::Failed(why)) => Finding::FailedBudget { budget: key, why: why.clone(), pods },
                _ => Finding::ClosedBudget {
                    budget: key,
                    rule: budget.budget.rule.clone(),
                    expected: budget.budget.expected_pods,
                    pods,
                    without_surge: without_surge.into_iter().collect(),
                    without_room: without_room.into_iter().collect(),
                },
            }
        }));
        let unanswered = self.unanswered.into_iter();
        all.extend(unanswered.map(|(owner, pods)| Finding::UnansweredDaemonSet { owner, pods }));
        let daemons = self.daemons.into_iter();
        all.extend(daemons.map(|((owner, stays), pods)| Finding::DaemonSet { owner, stays, pods }));
        all.extend(self.max_unavailable.into_iter().map(|((owner, at_once), ByWave { pods, by_wave })| {
            let rounds = by_wave.values().map(|pods| pods.div_ceil(at_once as usize)).sum();
            Finding::MaxUnavailable { owner, at_once, rounds, pods }
        }));
        all.extend(self.surging.into_iter().map(|((owner, surging), ByWave { pods, by_wave })| {
            let rounds = by_wave.values().map(|pods| pods.div_ceil(surging.by as usize)).sum();
            Finding::Surge { owner, surging, rounds, pods }
        }));
        let uncounted = self.uncounted.into_values();
        all.extend(
            uncounted
                .map(|(budget, pods)| Finding::UncountedBudget { budget: budget.budget.key.clone(), pods }),
        );
        all.extend(self.slow.into_values().filter_map(Slow::into_finding));
        all.extend(self.interceptors.into_iter().map(|(class, (only_way, pods))| Finding::Interceptor {
            class: class.to_string(),
            only_way,
            pods,
        }));
        let plain = [
            Finding::MirrorPods { pods: self.mirrors },
            Finding::NoOwner { pods: self.orphans },
            Finding::LocalData { pods: self.with_data },
        ];
        all.extend(plain.into_iter().filter(|finding| !finding.pods().is_empty()));
        all
    }
}

impl Slow<'_> {
    /// A budget slows the drain if the pods of a wave cannot all leave at once.
    fn into_finding(self) -> Option<Finding> {
        let at_once = self.budget.at_once().max(1);
        let room = usize::try_from(at_once).unwrap_or(1);
        let rounds: usize = self.by_wave.values().map(|pods| pods.div_ceil(room)).sum();
        let snapshot::Budget { allowed, ref key, .. } = self.budget.budget;
        let is_slow = rounds > self.by_wave.len() || allowed <= 0;
        is_slow.then(|| Finding::SlowBudget {
            budget: key.clone(),
            allowed,
            at_once,
            rounds,
            pods: self.pods,
        })
    }
}

/// What would stop the eviction of a pod that nobody has asked to leave yet: the decision on a request that is not
/// there, after its interceptors.
fn obstacle(
    pod: &snapshot::Pod,
    budgets: &[&Budget],
    daemon_set: Option<Strategy>,
    now: Timestamp,
) -> Option<RequestWait> {
    let request = Request::if_asked(pod, Arc::new([NODE_MAINTENANCE_FINALIZER.to_owned()]), [].into(), now);
    let budgets: Vec<&snapshot::Budget> = budgets.iter().map(|budget| &budget.budget).collect();
    let mut has_room = budgets.iter().all(|budget| budget.allowed > 0);
    let case = Case {
        request: &request,
        pod: Target::Found(pod),
        budgets: &budgets,
        attempt: None,
        daemon_set,
        interceptors_limit: None,
        withdraw_after: None,
    };
    let waiting_on = decide(&case, &mut has_room, now).waiting_on.map(RequestWait::On);
    waiting_on.or_else(|| several_budgets(pod, &budgets).map(RequestWait::Refused))
}
