//! Pods by what they wait on, kept as pods come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use usher_decide::snapshot::Key;

use usher_forecast::request_state::{RequestWait, WaitCause};

/// So many pods of a cause are named.
pub const NAMED: usize = 3;

/// Pods that wait on the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Of the first of them.
    pub waits: RequestWait,
    pub count: usize,
    /// The first of them.
    pub pods: Vec<Key>,
}

/// What pods have in common that wait on the same: what blocks is an object of their namespace, and budgets of the same
/// name are many.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CauseKey {
    namespace: Arc<str>,
    cause: Arc<WaitCause>,
    is_blocked: bool,
}

impl CauseKey {
    pub fn new(pod: &Key, waits: &RequestWait) -> Self {
        let is_blocked = waits.is_blocked();
        let namespace = if is_blocked { pod.namespace.clone() } else { Arc::default() };
        Self { namespace, cause: Arc::new(waits.cause()), is_blocked }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Causes(BTreeMap<CauseKey, BTreeSet<Key>>);

impl Causes {
    pub fn add(&mut self, cause: &CauseKey, pod: &Key) {
        match self.0.get_mut(cause) {
            Some(pods) => pods.insert(pod.clone()),
            None => self.0.entry(cause.clone()).or_default().insert(pod.clone()),
        };
    }

    pub fn remove(&mut self, cause: &CauseKey, pod: &Key) {
        if let Some(pods) = self.0.get_mut(cause) {
            pods.remove(pod);
            if pods.is_empty() {
                self.0.remove(cause);
            }
        }
    }

    /// So many of them. What blocks comes first, then what most pods wait on.
    pub fn worst<'a>(&self, count: usize, waits: impl Fn(&Key) -> Option<&'a RequestWait>) -> Vec<Cause> {
        let mut causes: Vec<(&CauseKey, &BTreeSet<Key>)> = self.0.iter().collect();
        causes.sort_by_key(|(cause, pods)| (!cause.is_blocked, std::cmp::Reverse(pods.len())));
        let causes = causes.into_iter().take(count).filter_map(|(_, pods)| {
            let waits = waits(pods.first()?)?.clone();
            Some(Cause { waits, count: pods.len(), pods: pods.iter().take(NAMED).cloned().collect() })
        });
        causes.collect()
    }
}
