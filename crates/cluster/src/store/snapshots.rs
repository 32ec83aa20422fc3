//! Snapshots kept for paged lists: every page of a list shows the state of the first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Object;

/// The objects of a resource at one revision, in key order.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub objects: Arc<[Arc<Object>]>,
}

/// So many lists may be paged through at once; older ones are told that their continue token expired.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Snapshots {
    kept: VecDeque<(Box<str>, Option<Box<str>>, Snapshot)>,
}

impl Snapshots {
    pub fn keep(&mut self, resource: &str, namespace: Option<&str>, snapshot: Snapshot) {
        if self.find(resource, namespace, snapshot.revision).is_some() {
            return;
        }
        self.kept.push_back((resource.into(), namespace.map(Into::into), snapshot));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    pub fn find(&self, resource: &str, namespace: Option<&str>, revision: u64) -> Option<Snapshot> {
        self.kept
            .iter()
            .find(|(r, n, s)| &**r == resource && n.as_deref() == namespace && s.revision == revision)
            .map(|(_, _, snapshot)| snapshot.clone())
    }

    pub fn clear(&mut self) {
        self.kept.clear();
    }
}
