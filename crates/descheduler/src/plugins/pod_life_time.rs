//! PodLifeTime: pods that are too old, or in listed states; the oldest of the cluster go first.

use jiff::SignedDuration;

use super::candidates::{Candidates, Want};
use super::{Plugin, PodInfo, Run};
use crate::cluster::pod::{Condition, Pod, Role};
use crate::cluster::shape::Shape;
use crate::cycle::{Cycle, ProposalOutcome};
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::{PodConditionFilter, PodLifeTimeArgs};

#[derive(Debug)]
pub struct PodLifeTime {
    args: PodLifeTimeArgs,
    candidates: Candidates,
}

impl PodLifeTime {
    pub fn new(args: PodLifeTimeArgs) -> Self {
        Self { args, candidates: Candidates::default() }
    }

    fn wants(&self, pod: &Pod, shape: &Shape, now: i64) -> Want {
        let args = &self.args;
        let applies = args.scope.admits(shape)
            && self.is_in_state(pod)
            && self.has_owner(shape)
            && self.has_exit_code(pod);
        if !applies {
            return Want::No;
        }
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        // Older, and not as old: one second more.
        let of_age = args.max_pod_life_time_seconds.map_or(i64::MIN, |most| {
            pod.created.saturating_add(seconds(most)).saturating_add(1).max(pod.created)
        });
        if args.conditions.is_empty() {
            return Want::from(of_age, now);
        }
        let holds_from = |filter: &PodConditionFilter, condition: &Condition| {
            let what = &condition.what;
            let equal = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
            let same = equal(&filter.kind, &what.kind)
                && equal(&filter.status, &what.status)
                && equal(&filter.reason, &what.reason);
            match filter.min_time_since_last_transition_seconds {
                _ if !same => None,
                None => Some(i64::MIN),
                Some(least) => condition.since.map(|since| since.saturating_add(seconds(least))),
            }
        };
        let pairs =
            args.conditions.iter().flat_map(|filter| pod.conditions.iter().map(move |one| (filter, one)));
        match pairs.filter_map(|(filter, condition)| holds_from(filter, condition)).min() {
            Some(from) => Want::from(from.max(of_age), now),
            None => Want::No,
        }
    }

    fn is_in_state(&self, pod: &Pod) -> bool {
        let states = &self.args.states;
        let listed = |state: &str| states.iter().any(|one| one == state);
        states.is_empty()
            || listed(pod.phase.name())
            || listed(pod.reason.as_deref().unwrap_or_default())
            || pod.containers.iter().any(|one| {
                let counts = match one.role {
                    Role::Main => true,
                    Role::Init => self.args.including_init_containers,
                    Role::Ephemeral => self.args.including_ephemeral_containers,
                };
                let ended = one.terminated.as_ref().is_some_and(|(_, reason)| listed(reason));
                counts && (one.waiting.as_deref().is_some_and(listed) || ended)
            })
    }

    fn has_owner(&self, shape: &Shape) -> bool {
        let kinds = &self.args.owner_kinds;
        let has =
            |list: &[String]| shape.owners.iter().any(|owner| list.iter().any(|kind| **kind == *owner.kind));
        if !kinds.include.is_empty() { has(&kinds.include) } else { !has(&kinds.exclude) }
    }

    fn has_exit_code(&self, pod: &Pod) -> bool {
        let codes = &self.args.exit_codes;
        codes.is_empty()
            || pod.containers.iter().any(|one| {
                let counts =
                    one.role == Role::Main || one.role == Role::Init && self.args.including_init_containers;
                counts && one.terminated.as_ref().is_some_and(|(code, _)| codes.contains(code))
            })
    }

    fn reason(&self, cycle: &Cycle<'_>, slot: u32) -> Reason {
        let created = cycle.cluster.pod(slot).map_or(0, |pod| pod.created);
        let age = SignedDuration::from_secs(cycle.now.as_second().saturating_sub(created));
        Reason::LifeTime { age, limit_seconds: self.args.max_pod_life_time_seconds }
    }
}

impl Plugin for PodLifeTime {
    fn name(&self) -> PluginName {
        PluginName::PodLifeTime
    }

    fn observe(&mut self, info: &PodInfo<'_>, wakes: &mut Vec<i64>) {
        let want = self.wants(info.pod, info.shape, info.now.as_second());
        self.candidates.observe(info.slot, want, wakes);
    }

    fn forget(&mut self, slot: u32) {
        self.candidates.forget(slot);
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        let mut old: Vec<u32> = Vec::new();
        for slot in self.candidates.iter() {
            let why = (cycle.watched == Some(slot)).then(|| self.reason(cycle, slot));
            if cycle.admits(run.evictor, slot, || why) {
                old.push(slot);
            }
        }
        old.sort_by_cached_key(|slot| {
            let created = cycle.cluster.pod(*slot).map_or(0, |pod| pod.created);
            (!cycle.is_leaving(*slot), created, cycle.by_name(*slot))
        });
        for slot in old {
            if cycle.goes_on_leaving(slot) {
                continue;
            }
            let reason = self.reason(cycle, slot);
            if cycle.propose(run.evictor, slot, reason) == ProposalOutcome::TotalLimit {
                return;
            }
        }
    }
}
