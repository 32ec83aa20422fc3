//! RemovePodsHavingTooManyRestarts: pods whose containers restarted as often as the threshold; those that did most go first.

use super::PodInfo;
use super::candidates::{Rule, Want};
use crate::cluster::pod::{Pod, Role};
use crate::cycle::Cycle;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::TooManyRestartsArgs;

#[derive(Debug)]
pub struct TooManyRestarts {
    pub args: TooManyRestartsArgs,
}

impl TooManyRestarts {
    fn restarts(&self, pod: &Pod) -> i32 {
        let init = if self.args.including_init_containers { pod.init_restarts } else { 0 };
        pod.restarts.wrapping_add(init)
    }

    fn is_in_state(&self, pod: &Pod) -> bool {
        let states = &self.args.states;
        let listed = |state: &str| states.iter().any(|one| one == state);
        states.is_empty()
            || listed(pod.phase.name())
            || pod.containers.iter().any(|one| {
                let counts =
                    one.role == Role::Main || one.role == Role::Init && self.args.including_init_containers;
                counts && one.waiting.as_deref().is_some_and(listed)
            })
    }
}

impl Rule for TooManyRestarts {
    fn name(&self) -> PluginName {
        PluginName::RemovePodsHavingTooManyRestarts
    }

    fn wants(&self, info: &PodInfo<'_>) -> Want {
        let wanted = self.restarts(info.pod) >= self.args.pod_restart_threshold
            && self.is_in_state(info.pod)
            && self.args.scope.admits(info.shape);
        if wanted { Want::Now } else { Want::No }
    }

    fn reason(&self, cycle: &Cycle<'_>, slot: u32) -> Reason {
        let restarts = cycle.cluster.pod(slot).map_or(0, |pod| self.restarts(pod));
        Reason::TooManyRestarts { restarts, threshold: self.args.pod_restart_threshold }
    }

    fn order(&self, cycle: &Cycle<'_>, slot: u32) -> i64 {
        -i64::from(cycle.cluster.pod(slot).map_or(0, |pod| self.restarts(pod)))
    }
}
