//! Who looks at what is only written when somebody looks.
//!
//! Heartbeats of nodes would be most of the writes of an idle cluster, and nearly always nobody reads them. So whoever
//! makes them up is asked before nodes or leases are read or watched, and is told while somebody watches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::kinds::Kind;

/// What somebody looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatKind {
    Nodes,
    Leases,
}

impl HeartbeatKind {
    fn of(kind: &Kind) -> Option<Self> {
        if kind.is("", "nodes") {
            Some(Self::Nodes)
        } else if kind.is("coordination.k8s.io", "leases") {
            Some(Self::Leases)
        } else {
            None
        }
    }
}

/// Brings up to date what is about to be looked at.
pub trait Freshener: Send + Sync {
    /// All of them, or the one of that name.
    fn freshen(self: Arc<Self>, kind: HeartbeatKind, name: Option<String>) -> BoxFuture<'static, ()>;
}

/// Marks requests of those who make up what others look at. It cannot come over a connection.
#[derive(Debug, Clone, Copy)]
pub struct InternalRequest;

#[derive(Default)]
pub struct HeartbeatReaders {
    freshener: RwLock<Option<Weak<dyn Freshener>>>,
    /// Open watches: on nodes, on leases.
    watching: [AtomicUsize; 2],
    changed: Notify,
}

impl HeartbeatReaders {
    /// Asks this one from now on, for as long as it is there.
    pub fn ask(&self, freshener: Weak<dyn Freshener>) {
        *self.freshener.write() = Some(freshener);
    }

    pub fn are_watching(&self, kind: HeartbeatKind) -> bool {
        self.watching[kind as usize].load(Ordering::Acquire) > 0
    }

    /// Until somebody begins or ends a watch, or [`HeartbeatReaders::stir`] is called.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn stir(&self) {
        self.changed.notify_one();
    }

    /// Somebody is about to look. A watch lasts as long as what this gives.
    pub async fn look(self: &Arc<Self>, kind: &Kind, verb: &str, name: &str) -> Option<Arc<HeartbeatReader>> {
        let kind = HeartbeatKind::of(kind).filter(|_| matches!(verb, "get" | "list" | "watch"))?;
        let freshener = self.freshener.read().as_ref().and_then(Weak::upgrade)?;
        freshener.freshen(kind, (!name.is_empty()).then(|| name.to_string())).await;
        (verb == "watch").then(|| {
            self.watching[kind as usize].fetch_add(1, Ordering::AcqRel);
            self.stir();
            Arc::new(HeartbeatReader { all: self.clone(), kind })
        })
    }
}

/// Somebody who watches.
pub struct HeartbeatReader {
    all: Arc<HeartbeatReaders>,
    kind: HeartbeatKind,
}

impl Drop for HeartbeatReader {
    fn drop(&mut self) {
        self.all.watching[self.kind as usize].fetch_sub(1, Ordering::AcqRel);
        self.all.stir();
    }
}
