//! RemoveFailedPods: pods that failed, for listed reasons and after a while.

use super::PodInfo;
use super::candidates::{Rule, Want};
use crate::cluster::pod::{ContainerState, Phase, Pod, Role};
use crate::cycle::Cycle;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::RemoveFailedPodsArgs;

#[derive(Debug)]
pub struct FailedPods {
    pub args: RemoveFailedPodsArgs,
}

impl FailedPods {
    fn containers<'a>(&self, pod: &'a Pod) -> impl Iterator<Item = &'a ContainerState> {
        let with_init = self.args.including_init_containers;
        pod.containers.iter().filter(move |one| one.role == Role::Main || with_init && one.role == Role::Init)
    }

    fn matches(&self, pod: &Pod) -> bool {
        let listed = |reason: &str| !reason.is_empty() && self.args.reasons.iter().any(|one| one == reason);
        let has_reason = self.args.reasons.is_empty()
            || pod.reason.as_deref().is_some_and(listed)
            || self.containers(pod).any(|one| {
                one.waiting.as_deref().is_some_and(listed)
                    || one.terminated.as_ref().is_some_and(|(_, reason)| listed(reason))
            });
        let has_code = self.args.exit_codes.is_empty()
            || self.containers(pod).any(|one| {
                one.terminated.as_ref().is_some_and(|(code, _)| self.args.exit_codes.contains(code))
            });
        has_reason && has_code
    }
}

impl Rule for FailedPods {
    fn name(&self) -> PluginName {
        PluginName::RemoveFailedPods
    }

    fn wants(&self, info: &PodInfo<'_>) -> Want {
        let pod = info.pod;
        if pod.phase != Phase::Failed || !self.args.scope.admits(info.shape) {
            return Want::No;
        }
        let excluded = |kind: &str| self.args.exclude_owner_kinds.iter().any(|one| one == kind);
        if info.shape.owners.iter().any(|owner| excluded(&owner.kind)) || !self.matches(pod) {
            return Want::No;
        }
        let wait = i64::try_from(self.args.min_pod_lifetime_seconds).unwrap_or(i64::MAX);
        Want::from(pod.created.saturating_add(wait), info.now.as_second())
    }

    fn reason(&self, cycle: &Cycle<'_>, slot: u32) -> Reason {
        let pod = cycle.cluster.pod(slot);
        let of_containers = || {
            let containers = pod.into_iter().flat_map(|pod| self.containers(pod));
            containers.filter_map(|one| one.terminated.as_ref()).map(|(_, reason)| reason.clone()).next()
        };
        let reason = pod.and_then(|pod| pod.reason.clone()).or_else(of_containers);
        Reason::Failed { reason: reason.filter(|reason| !reason.is_empty()).map(|reason| reason.to_string()) }
    }
}
