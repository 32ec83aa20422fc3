//! Why a pod is kept.

use std::fmt;

/// Why a filter keeps a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It carries the annotation `prefer-no-eviction`, and the policy has made that mandatory.
    NoEviction,
    MirrorPod,
    StaticPod,
    Terminating,
    SystemCritical {
        priority: i32,
    },
    PriorityThreshold {
        priority: i32,
        threshold: i32,
    },
    NoOwner,
    /// It has no owner, and only failed ones may go.
    NoOwnerAndNotFailed,
    LocalStorage,
    DaemonSet,
    Claim {
        claim: String,
    },
    StorageClass {
        class: String,
    },
    /// The claim is not known, or has no storage class.
    ClaimUnknown {
        claim: String,
    },
    NoBudget,
    ResourceClaims,
    LabelSelector,
    MinReplicas {
        replicas: u64,
        at_least: u64,
    },
    MinPodAge {
        at_least_seconds: i64,
    },
    /// No other node takes it.
    FitsNowhere,
    NamespaceLabelSelector,
    /// It was asked not long ago.
    CoolDown {
        until: jiff::Timestamp,
    },
    /// Its request was withdrawn, and no cycle has seen that yet: the end depends on when one does.
    CoolDownBegins,
    /// It took the place of a pod that the same plugin has asked not long ago.
    ReplacementCoolDown {
        replaced: String,
        until: jiff::Timestamp,
    },
    /// The same, of a pod that has not left: the end depends on when it does.
    ReplacementOfLeaving {
        replaced: String,
    },
    /// A plugin before this one wants it to leave, so that it counts as gone.
    DecidedBefore,
    /// The API server never gave it a uid, so it cannot be asked safely.
    NoUid,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEviction => {
                write!(f, "it is annotated prefer-no-eviction, and noEvictionPolicy is Mandatory")
            }
            Self::MirrorPod => write!(f, "it is a mirror pod"),
            Self::StaticPod => write!(f, "it is a static pod"),
            Self::Terminating => write!(f, "it is being deleted"),
            Self::SystemCritical { priority } => {
                write!(f, "its priority {priority} is critical to the system")
            }
            Self::PriorityThreshold { priority, threshold } => {
                write!(f, "its priority {priority} is not below the threshold {threshold}")
            }
            Self::NoOwner => write!(f, "it has no owner that would replace it"),
            Self::NoOwnerAndNotFailed => write!(f, "it has no owner and has not failed"),
            Self::LocalStorage => write!(f, "it has local storage"),
            Self::DaemonSet => write!(f, "it belongs to a DaemonSet"),
            Self::Claim { claim } => write!(f, "it uses the volume claim {claim}"),
            Self::StorageClass { class } => write!(f, "it uses the protected storage class {class}"),
            Self::ClaimUnknown { claim } => {
                write!(f, "the storage class of its volume claim {claim} is not known")
            }
            Self::NoBudget => write!(f, "no disruption budget covers it"),
            Self::ResourceClaims => write!(f, "it has resource claims"),
            Self::LabelSelector => write!(f, "its labels do not match the labelSelector"),
            Self::MinReplicas { replicas, at_least } => {
                write!(f, "its owner has {replicas} pods, and minReplicas is {at_least}")
            }
            Self::MinPodAge { at_least_seconds } => {
                write!(f, "it has not run for minPodAge, {at_least_seconds} seconds")
            }
            Self::FitsNowhere => write!(f, "it fits on no other node"),
            Self::NamespaceLabelSelector => {
                write!(f, "its namespace does not match the namespaceLabelSelector")
            }
            Self::CoolDown { until } => {
                write!(f, "it was asked before, and is not asked again before {until}")
            }
            Self::CoolDownBegins => write!(
                f,
                "it was asked before and its request withdrawn, and it is not asked again before a cool-down that begins with the \
                 descheduler's next cycle is over"
            ),
            Self::ReplacementOfLeaving { replaced } => write!(
                f,
                "it seems to have come in the place of {replaced}, which the plugin has asked to leave, and is not asked by it before that one \
                 is gone and a cool-down after that is over"
            ),
            Self::ReplacementCoolDown { replaced, until } => write!(
                f,
                "it seems to have come in the place of {replaced}, which the plugin has asked to leave, and is not asked by it before {until}"
            ),
            Self::DecidedBefore => {
                write!(f, "a plugin before it wants it to leave, so that it counts as gone")
            }
            Self::NoUid => write!(f, "it has no uid"),
        }
    }
}
