//! Verdicts on what people and components write: eviction requests, node maintenances, and pods that name interceptors.
//!
//! The webhook gathers what a verdict needs (the objects, the pod as found, the caller's rights, the time) and these functions
//! judge. Much of it is in the schema of the EvictionRequest too, so that it holds while the webhook is down; here the same
//! rules answer with better words.
//!
//! Where to start reading:
//! - [`eviction_request`]: CREATE, UPDATE and DELETE of requests; `turn` for who may be the active interceptor when.
//! - [`gateway`]: plain evictions of pods that have interceptors. Its verdicts have an effect: somebody asks that the pod leaves.
//! - [`resolve`]: the interceptors of a pod, even of one whose annotations break the rules.
//! - [`node_maintenance`]: CREATE, UPDATE and DELETE of maintenances; [`drain_plan`] for what is added to their plans,
//!   [`node_rights`] for who may write them. [`node_cordon`]: warnings on nodes that they hold.
//! - [`pods`]: annotations of pods. [`workload_pods`]: what is written on new pods of workloads.
//! - [`rules`]: every rule with its name, code and reason.

pub mod drain_plan;
pub mod eviction_request;
#[cfg(test)]
mod eviction_request_tests;
mod finalizers;
pub mod gateway;
pub mod node_cordon;
pub mod node_maintenance;
pub mod node_rights;
pub mod pods;
pub mod resolve;
pub mod rules;
mod turn;
pub mod workload_pods;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use usher_api::workloads::BundledInterceptor;
use usher_api::{DrainPlanEntry, Interceptor, annotation_of};

pub use rules::{Refusal, Rule};

/// Clocks of a cluster differ; nobody is refused for being ahead or behind by less than this many seconds.
pub const CLOCK_SKEW_SECONDS: i64 = 30;

/// What becomes of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It may go on, with these changes.
    Allow {
        /// What admission sets on the object.
        changes: Changes,
        /// What the caller should know although it is allowed.
        warnings: Vec<String>,
    },
    /// It breaks these rules, all of which are named.
    Deny(Denial),
}

impl Verdict {
    /// Allowed as it is.
    pub fn allow() -> Self {
        Self::Allow { changes: Changes::default(), warnings: Vec::new() }
    }

    /// Refused if there is any reason to.
    pub fn of(refusals: Vec<Refusal>) -> Self {
        let mut refusals = refusals.into_iter();
        match refusals.next() {
            None => Self::allow(),
            Some(first) => Self::Deny(Denial { first, others: refusals.collect() }),
        }
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        Self::Deny(Denial { first: refusal, others: Vec::new() })
    }
}

/// What admission sets on a request, a maintenance or a pod. `None` leaves the field as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// `metadata.labels`, whole.
    pub labels: Option<BTreeMap<String, String>>,
    /// `metadata.annotations`, whole.
    pub annotations: Option<BTreeMap<String, String>>,
    /// `spec.interceptors`, whole.
    pub interceptors: Option<Vec<Interceptor>>,
    /// `spec.drainPlan`, whole.
    pub drain_plan: Option<Vec<DrainPlanEntry>>,
    /// `spec.schedulingGates`, whole, by their names.
    pub scheduling_gates: Option<Vec<String>>,
}

impl Changes {
    /// Whether the object stays as it is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a write is refused: at least one broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The one that gives the answer its code.
    pub first: Refusal,
    /// The others.
    pub others: Vec<Refusal>,
}

impl Denial {
    /// All broken rules.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// HTTP status of the answer.
    pub fn code(&self) -> u16 {
        self.first.rule.code()
    }

    /// Reason as in a Kubernetes Status.
    pub fn reason(&self) -> &'static str {
        self.first.rule.reason()
    }
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, refusal) in self.refusals().enumerate() {
            if position > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{refusal}")?;
        }
        Ok(())
    }
}

/// What admission needs to know of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPod {
    /// UID of the pod that has the name now.
    pub uid: String,
    /// It has been deleted and is on its way out.
    pub is_terminating: bool,
    /// The version that was found.
    pub resource_version: String,
    /// Its phase, empty if it has none yet.
    pub phase: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, at least those that name interceptors.
    pub annotations: BTreeMap<String, String>,
    /// The interceptor that comes with Usher for the kind of its controller, if that is on.
    pub bundled: Option<BundledInterceptor>,
    /// The name of its Deployment, if it has one.
    pub deployment: Option<String>,
    /// The interceptor of the autoscaler over that.
    pub autoscaler: Option<Interceptor>,
}

impl FoundPod {
    /// The interceptors that may answer for it: those that it names, and those that come with Usher.
    pub fn interceptors(&self) -> resolve::Resolved {
        let mut bundled = self.bundled.map(|bundled| bundled.interceptors(&self.labels)).unwrap_or_default();
        bundled.extend(self.autoscaler.clone());
        resolve::resolve_with(&self.annotations, &bundled)
    }

    /// As it is where only these bundled interceptors are on: one that is switched off answers to nobody, also where a policy has written
    /// it on the pod.
    #[must_use]
    pub fn with_only(mut self, on: &[BundledInterceptor]) -> Self {
        for off in BundledInterceptor::ALL.into_iter().filter(|it| !on.contains(it)) {
            for (key, value) in off.interceptors(&self.labels).iter().map(annotation_of) {
                if self.annotations.get(&key) == Some(&value) {
                    self.annotations.remove(&key);
                }
            }
            self.bundled = self.bundled.filter(|it| *it != off);
        }
        self
    }

    /// Whether its containers have ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

impl From<Pod> for FoundPod {
    fn from(pod: Pod) -> Self {
        Self {
            uid: pod.metadata.uid.unwrap_or_default(),
            phase: pod.status.and_then(|status| status.phase).unwrap_or_default(),
            labels: pod.metadata.labels.unwrap_or_default(),
            annotations: pod.metadata.annotations.unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Whether the caller may delete the pod of the request, as the API server's authorizers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It may.
    Allowed,
    /// It may not.
    Denied {
        /// Who asked.
        user: String,
    },
}
