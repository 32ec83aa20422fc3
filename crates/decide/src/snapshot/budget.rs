//! A PodDisruptionBudget, and what it says about one pod.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
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

/// What the budget asks for, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetRule {
    MaxUnavailable(IntOrString),
    MinAvailable(IntOrString),
}

impl BudgetRule {
    fn of(spec: Option<&PodDisruptionBudgetSpec>) -> Self {
        let max = spec.and_then(|spec| spec.max_unavailable.clone());
        let min = spec.and_then(|spec| spec.min_available.clone());
        match (max, min) {
            (Some(max), _) => Self::MaxUnavailable(max),
            (None, Some(min)) => Self::MinAvailable(min),
            // The server's default.
            (None, None) => Self::MinAvailable(IntOrString::Int(1)),
        }
    }

    /// With so many healthy pods, and no fewer, one of them may go. `None`: however many there are, none may.
    ///
    /// The disruption controller rounds percentages up.
    pub fn least_pods(&self) -> Option<i32> {
        match self {
            Self::MaxUnavailable(IntOrString::Int(pods)) => (*pods > 0).then_some(1),
            Self::MaxUnavailable(IntOrString::String(share)) => (percent(share)? > 0).then_some(1),
            Self::MinAvailable(IntOrString::Int(pods)) => pods.checked_add(1),
            Self::MinAvailable(IntOrString::String(share)) => {
                let spare = 100_i32.checked_sub(percent(share)?)?;
                (spare > 0).then(|| 100_i32.div_euclid(spare) + i32::from(100 % spare > 0))
            }
        }
    }

    /// Whether none of so many pods may go, even if all are healthy.
    pub fn keeps_all(&self, pods: i32) -> bool {
        self.least_pods().is_none_or(|least| least > pods)
    }

    /// What lets a pod go where the budget keeps all of so many.
    pub fn remedy(&self, pods: i32) -> String {
        match (self, self.least_pods()) {
            (Self::MinAvailable(_), Some(least)) if least > pods => {
                format!("scale up to {least} pods or more, or lower minAvailable")
            }
            (Self::MaxUnavailable(_), None) => {
                "raise maxUnavailable to 1 or more; more replicas do not help".to_string()
            }
            (Self::MinAvailable(_), None) => {
                "lower minAvailable below 100%; more replicas do not help".to_string()
            }
            (_, Some(_)) => "wait until the budget is counted again".to_string(),
        }
    }
}

/// `maxUnavailable 0`, `minAvailable 50%`.
impl fmt::Display for BudgetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, amount) = match self {
            Self::MaxUnavailable(amount) => ("maxUnavailable", amount),
            Self::MinAvailable(amount) => ("minAvailable", amount),
        };
        match amount {
            IntOrString::Int(pods) => write!(f, "{name} {pods}"),
            IntOrString::String(share) => write!(f, "{name} {share}"),
        }
    }
}

fn percent(share: &str) -> Option<i32> {
    share.strip_suffix('%')?.parse().ok()
}

#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    pub key: Key,
    pub rule: BudgetRule,
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

    /// Whether an eviction of this pod passes without taking anything from the budget (rules 2 and 5 of
    /// `docs/eviction-rules.md`).
    pub fn lets_pass(&self, pod: &Pod) -> bool {
        if pod.phase.is_terminal() || pod.phase == Phase::Pending || pod.is_terminating() {
            return true;
        }
        let healthy_enough = self.current_healthy >= self.desired_healthy && self.desired_healthy > 0;
        pod.phase == Phase::Running
            && !pod.is_ready()
            && match self.policy {
                UnhealthyPolicy::AlwaysAllow => true,
                UnhealthyPolicy::IfHealthyBudget => healthy_enough,
                UnhealthyPolicy::Unknown => false,
            }
    }

    /// Whether the pod may be evicted now as far as this budget is concerned: it has room, or the pod passes without taking any.
    pub fn admits(&self, pod: &Pod) -> bool {
        self.allowed > 0 || self.lets_pass(pod)
    }

    /// Nobody may go, although all of its pods are healthy and none is on its way out, or since it wants all that there are: only
    /// a change to the application or the budget can help.
    pub fn can_never_free(&self) -> bool {
        let all_healthy = self.current_healthy >= self.expected_pods && self.disrupted_pods.is_empty();
        // Pods without a controller are healthy, and not expected: such a budget never lets one go.
        let is_known = self.expected_pods > 0 || self.current_healthy > 0;
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
            rule: BudgetRule::of(spec),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::PodOnWire;
    use serde_json::json;

    #[test]
    fn what_helps_depends_on_the_form_of_the_budget() {
        let number = IntOrString::Int;
        let share = |text: &str| IntOrString::String(text.to_string());
        let no_replicas = "raise maxUnavailable to 1 or more; more replicas do not help";
        for (rule, pods, least, keeps_all, remedy) in [
            (BudgetRule::MaxUnavailable(number(0)), 6, None, true, no_replicas),
            (BudgetRule::MaxUnavailable(number(0)), 8, None, true, no_replicas),
            (BudgetRule::MaxUnavailable(share("0%")), 6, None, true, no_replicas),
            (
                BudgetRule::MaxUnavailable(number(1)),
                6,
                Some(1),
                false,
                "wait until the budget is counted again",
            ),
            // 1% of anything is rounded up to a whole pod.
            (
                BudgetRule::MaxUnavailable(share("1%")),
                3,
                Some(1),
                false,
                "wait until the budget is counted again",
            ),
            (
                BudgetRule::MinAvailable(number(6)),
                6,
                Some(7),
                true,
                "scale up to 7 pods or more, or lower minAvailable",
            ),
            (
                BudgetRule::MinAvailable(share("90%")),
                6,
                Some(10),
                true,
                "scale up to 10 pods or more, or lower minAvailable",
            ),
            (
                BudgetRule::MinAvailable(share("70%")),
                3,
                Some(4),
                true,
                "scale up to 4 pods or more, or lower minAvailable",
            ),
            (
                BudgetRule::MinAvailable(share("100%")),
                6,
                None,
                true,
                "lower minAvailable below 100%; more replicas do not help",
            ),
        ] {
            assert_eq!(rule.least_pods(), least, "{rule}");
            assert_eq!(rule.keeps_all(pods), keeps_all, "{rule}");
            assert_eq!(rule.remedy(pods), remedy, "{rule}");
        }
    }

    #[test]
    fn a_pod_may_go_where_there_is_room_or_none_is_needed() {
        let pod = |phase: &str, ready: &str| {
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let pod = json!({
                "metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": {},
                "status": {"phase": phase, "conditions": conditions},
            });
            Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap())
        };
        let budget = |allowed: i32| {
            let budget = json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
                "status": {
                    "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                },
            });
            Budget::from(&serde_json::from_value(budget).unwrap())
        };
        let (ready, unready, pending) =
            (pod("Running", "True"), pod("Running", "False"), pod("Pending", "False"));
        assert!(!budget(0).admits(&ready) && budget(1).admits(&ready));
        assert!(budget(0).admits(&unready) && budget(0).admits(&pending));
    }

    #[test]
    fn as_many_pods_as_advised_let_one_go_and_one_fewer_does_not() {
        for wanted in 1..100 {
            let rule = BudgetRule::MinAvailable(IntOrString::String(format!("{wanted}%")));
            // As the disruption controller counts.
            let allowed = |pods: i32| pods - (pods * wanted + 99) / 100;
            let least = rule.least_pods().unwrap();
            assert!(allowed(least) > 0 && (1..least).all(|fewer| allowed(fewer) == 0), "{rule}");
        }
    }
}
