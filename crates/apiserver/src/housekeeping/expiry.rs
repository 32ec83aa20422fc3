//! Events are kept for an hour after they were last written.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::kinds::Kind;
use crate::server::Server;
use crate::store::{Key, Object};

const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Events in the order in which they were written, each with its revision.
#[derive(Default)]
pub(crate) struct Expiry(VecDeque<(Timestamp, Key, u64)>);

impl Expiry {
    pub(crate) fn written(&mut self, kind: &Kind, object: &Object, now: Timestamp) {
        if kind.is("", "events") || kind.is("events.k8s.io", "events") {
            self.0.push_back((now + KEPT, object.key.clone(), object.revision));
        }
    }

    /// When the next one is to go.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.0.front().map(|(at, ..)| *at)
    }

    /// Removes what is too old, unless it was written again: then it is further back.
    pub(crate) fn sweep(&mut self, server: &Arc<Server>) {
        let now = server.now();
        let Some(kind) = server.registry().find("", "v1", "events").cloned() else { return };
        while let Some((at, ..)) = self.0.front()
            && *at <= now
            && let Some((_, key, revision)) = self.0.pop_front()
        {
            if let Ok(gone) = server.store.delete(&kind.storage, &key, revision) {
                server.after_delete(&kind, &gone);
            }
        }
    }
}
