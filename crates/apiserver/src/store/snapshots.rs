//! Snapshots kept for paged lists: every page of a list shows the state of the first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Object;

/// The objects of a resource at one revision, in key order.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub revision: u64,
    pub objects: Arc<[Arc<Object>]>,
}

/// So many lists may be paged through at once; older ones are told that their continue token expired.
const KEPT: usize = 16;
/// A snapshot holds on to objects that are long gone, so it is dropped after the time in which etcd would compact.
const EXPIRY: Duration = Duration::from_secs(300);

struct Kept {
    resource: Box<str>,
    namespace: Option<Box<str>>,
    snapshot: Snapshot,
    since: Instant,
}

impl Kept {
    fn is(&self, resource: &str, namespace: Option<&str>, revision: u64) -> bool {
        &*self.resource == resource
            && self.namespace.as_deref() == namespace
            && self.snapshot.revision == revision
    }
}

#[derive(Default)]
pub(super) struct Snapshots {
    /// Oldest first.
    kept: VecDeque<Kept>,
}

impl Snapshots {
    pub(crate) fn keep(&mut self, resource: &str, namespace: Option<&str>, snapshot: Snapshot) {
        if self.find(resource, namespace, snapshot.revision).is_some() {
            return;
        }
        let since = Instant::now();
        self.kept.push_back(Kept {
            resource: resource.into(),
            namespace: namespace.map(Into::into),
            snapshot,
            since,
        });
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    pub(crate) fn find(
        &mut self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Option<Snapshot> {
        self.kept.retain(|kept| kept.since.elapsed() < EXPIRY);
        self.kept.iter().find(|kept| kept.is(resource, namespace, revision)).map(|kept| kept.snapshot.clone())
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(revision: u64) -> Snapshot {
        Snapshot { revision, objects: Vec::new().into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_serves_its_own_list_for_a_while_and_only_so_many_are_kept() {
        let mut snapshots = Snapshots::default();
        snapshots.keep("pods", None, snapshot(1));
        assert!(snapshots.find("pods", None, 1).is_some());
        assert!(snapshots.find("pods", Some("a"), 1).is_none(), "another list");
        assert!(snapshots.find("pods", None, 2).is_none(), "another state");
        tokio::time::advance(EXPIRY).await;
        assert!(snapshots.find("pods", None, 1).is_none(), "expired");
        for revision in 0..=KEPT as u64 {
            snapshots.keep("pods", None, snapshot(revision));
        }
        assert!(snapshots.find("pods", None, 0).is_none(), "the oldest went");
        assert!(snapshots.find("pods", None, 1).is_some());
    }
}
