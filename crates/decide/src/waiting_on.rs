//! What an eviction waits for. Conditions, messages, events and explanations are all made from this.

use jiff::Timestamp;
use usher_api::names::{
    DEPLOYMENT_CLASS, EVICTION_REQUEST_STRATEGY_ANNOTATION, HORIZONTAL_POD_AUTOSCALER_CLASS,
    REPLICA_SET_CLASS,
};

use crate::eviction_request::Refusal;
use crate::interceptors::deployment::answers_for;
use crate::snapshot::{BudgetRule, Pod};

/// The reason of who waits at a budget that lets pods go, or has room for it.
pub const QUEUED: &str = "Queued";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingOn {
    /// An interceptor has its turn and is not overdue.
    Interceptor {
        class: String,
        /// When it last reported, or was given its turn.
        progress: Option<Timestamp>,
        /// When its turn is over if it stays silent.
        until: Timestamp,
        expected_finish: Option<Timestamp>,
        message: String,
    },
    /// The budget that speaks for the pod allows no disruption now.
    Budget {
        name: String,
        rule: BudgetRule,
        allowed: i32,
        current_healthy: i32,
        desired_healthy: i32,
        expected_pods: i32,
        /// Pods that the server has just let go.
        disrupted_pods: usize,
        /// What the interceptor that had the last turn has said in the end.
        said: Option<String>,
        /// That was one of Deployments, and the new pods that were to come for this one did not.
        has_surge_failed: bool,
    },
    /// The budget has room for the pod, and others with room go before it.
    TurnAtBudget { name: String },
    /// The eviction was refused, and is tried again at a time.
    Refused { refusal: Refusal, failures: i32, retry_at: Timestamp },
    /// The server has accepted the eviction; the pod is about to show it.
    Evicted { at: Timestamp },
    /// The pod is on its way out.
    Termination { grace_ends: Timestamp, finalizers: Vec<String> },
    /// Pods of daemon sets and mirror pods are not evicted; others have to end them.
    NotEvictable { pod: Unevictable },
    /// The pod is gone or the request withdrawn, but others still hold the request.
    Finalizers { names: Vec<String> },
    /// Whether the pod still exists is being looked up.
    PodLookup,
    /// The pod names interceptors and the request, which was created past admission, does not know them.
    InterceptorsNotResolved,
    /// The status names an interceptor that is not in the spec; nothing can be concluded from that.
    UnknownInterceptor { class: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unevictable {
    DaemonSetPod,
    /// Its DaemonSet says that its pods stay.
    DaemonSetStays,
    MirrorPod,
}

impl WaitingOn {
    /// Of a pod that is on its way out.
    pub fn termination(pod: &Pod) -> Option<Self> {
        let finalizers = || pod.finalizers().to_vec();
        pod.deletion().map(|grace_ends| Self::Termination { grace_ends, finalizers: finalizers() })
    }

    /// When things will have changed by themselves.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Interceptor { until, .. } => Some(*until),
            Self::Refused { retry_at, .. } => Some(*retry_at),
            _ => None,
        }
    }

    /// Whether nothing moves until somebody does something.
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Budget { .. } => !self.is_queued(),
            Self::Refused { .. }
            | Self::NotEvictable { .. }
            | Self::InterceptorsNotResolved
            | Self::UnknownInterceptor { .. } => true,
            _ => false,
        }
    }

    /// The budget lets pods go, and others are before this one or on their way.
    fn is_queued(&self) -> bool {
        let Self::Budget { allowed, current_healthy, desired_healthy, expected_pods, disrupted_pods, .. } =
            self
        else {
            return false;
        };
        let is_counted = *expected_pods > 0 || *current_healthy > 0;
        let moves = *disrupted_pods > 0 || current_healthy < expected_pods;
        *allowed > 0 || !is_counted || (moves && desired_healthy < expected_pods)
    }

    /// One word for machines: reasons of conditions, labels of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Interceptor { .. } => "Interceptor",
            Self::Budget { .. } if self.is_queued() => QUEUED,
            Self::TurnAtBudget { .. } => QUEUED,
            Self::Budget { .. } => "DisruptionBudget",
            Self::Refused { refusal, .. } => refusal.reason().as_str(),
            Self::Evicted { .. } => "Evicted",
            Self::Termination { .. } => "Terminating",
            Self::NotEvictable { pod: Unevictable::DaemonSetPod } => "DaemonSetPod",
            Self::NotEvictable { pod: Unevictable::DaemonSetStays } => "DaemonSetStays",
            Self::NotEvictable { pod: Unevictable::MirrorPod } => "MirrorPod",
            Self::Finalizers { .. } => "Finalizers",
            Self::PodLookup => "PodLookup",
            Self::InterceptorsNotResolved => "InterceptorsNotResolved",
            Self::UnknownInterceptor { .. } => "UnknownInterceptor",
        }
    }

    /// What whoever has its turn says of it, or had the last one.
    pub fn said(&self) -> Option<&str> {
        match self {
            Self::Interceptor { message, .. } => Some(message.as_str()).filter(|message| !message.is_empty()),
            Self::Budget { said, .. } => said.as_deref(),
            _ => None,
        }
    }

    /// The interceptor, the budgets or the finalizers that it is about.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Interceptor { class, .. } | Self::UnknownInterceptor { class } => vec![class.clone()],
            Self::Budget { name, .. } | Self::TurnAtBudget { name } => vec![name.clone()],
            Self::Refused { refusal, .. } => refusal.budgets().to_vec(),
            Self::Termination { finalizers: names, .. } | Self::Finalizers { names } => names.clone(),
            Self::Evicted { .. }
            | Self::NotEvictable { .. }
            | Self::PodLookup
            | Self::InterceptorsNotResolved => Vec::new(),
        }
    }

    /// A sentence for people. It has no figures that change by the second, so that it can be stored.
    pub fn sentence(&self) -> String {
        match self {
            Self::Interceptor { class, .. } => match class.as_str() {
                DEPLOYMENT_CLASS | HORIZONTAL_POD_AUTOSCALER_CLASS => {
                    "its Deployment has its turn: the pod goes once enough others are available".to_string()
                }
                REPLICA_SET_CLASS => "its ReplicaSet deletes it as soon as a replacement is available".to_string(),
                class => format!("interceptor {class} has its turn"),
            },
            Self::Budget { name, allowed, current_healthy, desired_healthy, expected_pods, .. }
                if self.is_queued() =>
            {
                let unready = expected_pods.saturating_sub(*current_healthy);
                let at_once = expected_pods.saturating_sub(*desired_healthy).max(*allowed).max(1);
                if *allowed <= 0 && unready > 0 {
                    format!("waiting for {unready} of {expected_pods} pods of budget {name} to become ready")
                } else {
                    format!("queued: budget {name} allows {at_once} at a time")
                }
            }
            Self::Budget { name, .. } => {
                format!("disruption budget {name} does not allow the pod to be evicted")
            }
            Self::TurnAtBudget { name } => {
                format!("queued: budget {name} has room for the pod, and others go before it")
            }
            Self::Refused { refusal, .. } => refusal.sentence(),
            Self::Evicted { .. } => "the server has accepted the eviction".to_string(),
            Self::Termination { finalizers, .. } if finalizers.is_empty() => {
                "the pod is terminating".to_string()
            }
            Self::Termination { finalizers, .. } => {
                format!("the pod is terminating and held by the finalizers {}", finalizers.join(", "))
            }
            Self::NotEvictable { pod: Unevictable::DaemonSetPod } => {
                "the pod belongs to a DaemonSet, and the eviction API would only bring it back".to_string()
            }
            Self::NotEvictable { pod: Unevictable::DaemonSetStays } => {
                "the pod stays: its DaemonSet opted out of eviction requests".to_string()
            }
            Self::NotEvictable { pod: Unevictable::MirrorPod } => {
                "the pod mirrors a static pod, which only its node can end".to_string()
            }
            Self::Finalizers { names } => {
                format!("the request is held by the finalizers {}", names.join(", "))
            }
            Self::PodLookup => "the pod is being looked up".to_string(),
            Self::InterceptorsNotResolved => {
                "the pod names interceptors, and the request does not know them: it was created without Usher's webhook"
                    .to_string()
            }
            Self::UnknownInterceptor { class } => {
                format!("status.activeInterceptorClass is {class}, which is not in spec.interceptors")
            }
        }
    }

    /// What the reader can do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Interceptor { class, .. } => match class.as_str() {
                class if answers_for(class) => {
                    "wait; usher explain tells of its Deployment what it waits for".to_string()
                }
                class => format!(
                    "wait; if {class} is stuck, look at its logs. It gives up its turn by setting \
                     status.activeInterceptorCompleted"
                ),
            },
            Self::Budget { name, allowed, .. } if *allowed > 0 => {
                format!("wait: budget {name} allows {allowed} at a time, and others are before this pod")
            }
            Self::Budget { name, expected_pods: 0, current_healthy, .. } if *current_healthy > 0 => format!(
                "budget {name} cannot count pods without a controller: give it minAvailable as a number below {current_healthy}, \
                 or remove it"
            ),
            Self::Budget { name, rule, expected_pods, has_surge_failed, .. } if rule.keeps_all(*expected_pods) => {
                let tried = if *has_surge_failed {
                    "mend what keeps new pods of its Deployment from coming, then cancel and ask again; or: "
                } else {
                    ""
                };
                format!(
                    "{tried}budget {name} has {rule} and {}: {}",
                    pods(*expected_pods),
                    rule.remedy(*expected_pods)
                )
            }
            Self::Budget { name, current_healthy, expected_pods, .. } if current_healthy < expected_pods => {
                format!(
                    "wait for {} of {} of budget {name} to become ready; kubectl get pods shows which",
                    expected_pods - current_healthy,
                    pods(*expected_pods)
                )
            }
            Self::Budget { name, .. } => format!("wait until budget {name} is counted again"),
            Self::TurnAtBudget { name } => {
                format!("wait: pods of budget {name} are evicted one after another")
            }
            Self::Refused { refusal, .. } => refusal.advice(),
            Self::Termination { finalizers, .. } if !finalizers.is_empty() => {
                "ask the owners of the finalizers to remove them".to_string()
            }
            Self::Termination { .. } => {
                "wait until its grace period ends; after that, check the kubelet of its node".to_string()
            }
            Self::NotEvictable { pod: Unevictable::DaemonSetPod } => {
                "a NodeMaintenance of its node takes it off; otherwise keep the DaemonSet off the node".to_string()
            }
            Self::NotEvictable { pod: Unevictable::DaemonSetStays } => {
                format!("drains do not wait for it; to have it taken off, remove the annotation {EVICTION_REQUEST_STRATEGY_ANNOTATION}")
            }
            Self::NotEvictable { pod: Unevictable::MirrorPod } => {
                "remove the static pod's manifest on the node".to_string()
            }
            Self::Finalizers { .. } => "ask the owners of the finalizers to remove them".to_string(),
            Self::Evicted { .. } | Self::PodLookup => "wait a moment".to_string(),
            Self::InterceptorsNotResolved => {
                "install the webhook configurations, then withdraw the request (usher cancel) and ask again; that of a maintenance is \
                 deleted, and made again by itself"
                    .to_string()
            }
            Self::UnknownInterceptor { .. } => "cancel the request and evict the pod again".to_string(),
        }
    }

    /// The same for who is told of the Deployment as well.
    pub fn advice_beside_deployment(&self) -> String {
        match self {
            Self::Interceptor { class, .. } if answers_for(class) => {
                "wait until enough others of its pods are available".to_string()
            }
            waiting_on => waiting_on.advice(),
        }
    }
}

fn pods(count: i32) -> String {
    if count == 1 { "1 pod".to_string() } else { format!("{count} pods") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    #[test]
    fn a_budget_is_told_by_what_frees_it() {
        let waits = |rule: BudgetRule, allowed, current_healthy, expected_pods| WaitingOn::Budget {
            name: "web".into(),
            rule,
            allowed,
            current_healthy,
            desired_healthy: 0,
            expected_pods,
            disrupted_pods: 0,
            said: None,
            has_surge_failed: false,
        };
        let max = |pods| BudgetRule::MaxUnavailable(IntOrString::Int(pods));
        let min = |pods| BudgetRule::MinAvailable(IntOrString::Int(pods));
        for (waiting_on, advice) in [
            (
                waits(max(0), 0, 6, 6),
                "budget web has maxUnavailable 0 and 6 pods: raise maxUnavailable to 1 or more; more replicas do not help",
            ),
            (
                waits(max(0), 0, 8, 8),
                "budget web has maxUnavailable 0 and 8 pods: raise maxUnavailable to 1 or more; more replicas do not help",
            ),
            // That they become ready would not help either.
            (
                waits(min(6), 0, 5, 6),
                "budget web has minAvailable 6 and 6 pods: scale up to 7 pods or more, or lower minAvailable",
            ),
            (
                waits(max(1), 0, 5, 6),
                "wait for 1 of 6 pods of budget web to become ready; kubectl get pods shows which",
            ),
            (waits(max(1), 0, 6, 6), "wait until budget web is counted again"),
            (
                waits(max(1), 0, 1, 0),
                "budget web cannot count pods without a controller: give it minAvailable as a number below 1, or remove it",
            ),
            (waits(max(1), 1, 6, 6), "wait: budget web allows 1 at a time, and others are before this pod"),
        ] {
            assert_eq!(waiting_on.advice(), advice);
        }
    }
}
