//! A PodDisruptionBudget, and what it says about one pod.

use std::collections::BTreeSet;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt};

use super::{BudgetOnWire, Key, Phase, Pod};

/// What the budget says about pods that run but are not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnhealthyPolicy {
    IfHealthyBudget,
    AlwaysAllow,
    /// A value that this version does not know: nobody unhealthy may go.
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    pub key: Key,
    /// `None` if it cannot be read: then the server ignores the budget too.
    pub selector: Option<Selector>,
    pub policy: UnhealthyPolicy,
    pub allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    pub disrupted_pods: BTreeSet<String>,
}

impl Budget {
    pub fn selects(&self, pod: &Pod) -> bool {
        self.key.namespace == pod.key.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }

    /// Whether an eviction of this pod passes without taking anything from the budget (rules 2 and 5 of the eviction
    /// subresource).
    pub fn lets_pass(&self, pod: &Pod) -> bool {
        if pod.phase.is_terminal() || pod.phase == Phase::Pending || pod.is_terminating() {
            return true;
        }
        let healthy_enough = self.current_healthy >= self.desired_healthy && self.desired_healthy > 0;
        pod.phase == Phase::Running
            && !pod.ready
            && match self.policy {
                UnhealthyPolicy::AlwaysAllow => true,
                UnhealthyPolicy::IfHealthyBudget => healthy_enough,
                UnhealthyPolicy::Unknown => false,
            }
    }

    /// Nobody may go, although all of its pods are healthy and none is on its way out, or since it wants all that there are: only
    /// a change to the application or the budget can help.
    pub fn can_never_free(&self) -> bool {
        let all_healthy = self.current_healthy >= self.expected_pods && self.disrupted_pods.is_empty();
        let is_known = self.expected_pods > 0;
        self.allowed <= 0 && is_known && (all_healthy || self.desired_healthy >= self.expected_pods)
    }
}

impl From<PodDisruptionBudget> for Budget {
    fn from(budget: PodDisruptionBudget) -> Self {
        Self::from(&budget)
    }
}

impl From<BudgetOnWire> for Budget {
    fn from(budget: BudgetOnWire) -> Self {
        let BudgetOnWire { metadata, spec, status } = budget;
        Self::from(&PodDisruptionBudget { metadata, spec, status })
    }
}

impl From<&PodDisruptionBudget> for Budget {
    fn from(budget: &PodDisruptionBudget) -> Self {
        let (spec, status) = (budget.spec.as_ref(), budget.status.as_ref());
        let selector = spec.and_then(|spec| spec.selector.clone());
        Self {
            key: Key::new(
                budget.metadata.namespace.as_deref().unwrap_or_default(),
                budget.metadata.name.as_deref().unwrap_or_default(),
            ),
            // Without a selector a budget speaks of no pod, with an empty one of all.
            selector: selector.and_then(|selector| Selector::try_from(selector).ok()),
            policy: match spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref()) {
                None | Some("IfHealthyBudget") => UnhealthyPolicy::IfHealthyBudget,
                Some("AlwaysAllow") => UnhealthyPolicy::AlwaysAllow,
                Some(_) => UnhealthyPolicy::Unknown,
            },
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            current_healthy: status.and_then(|status| status.current_healthy).unwrap_or(0),
            desired_healthy: status.and_then(|status| status.desired_healthy).unwrap_or(0),
            expected_pods: status.and_then(|status| status.expected_pods).unwrap_or(0),
            disrupted_pods: status
                .and_then(|status| status.disrupted_pods.as_ref())
                .map(|pods| pods.keys().cloned().collect())
                .unwrap_or_default(),
        }
    }
}
