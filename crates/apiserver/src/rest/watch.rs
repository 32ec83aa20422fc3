//! watch: a stream of changes, from a revision on or from the present state on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::answer::View;
use super::read::{revision_parameter, selection};
use super::{Call, errors};
use crate::error::{ApiError, ApiResult, FieldError};
use crate::negotiate::Form;
use crate::response::{self, ServerResponse};
use crate::selectors::Selection;
use crate::server::Server;
use crate::store::{EventKind, LogEvent, Object};

/// Events that are looked at in one go; bounds how long the store is held and how large a chunk gets.
const BATCH: usize = 512;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark before a watch ends by its timeout comes this much earlier.
const BOOKMARK_AHEAD: Duration = Duration::from_secs(2);

struct Watch {
    server: Arc<Server>,
    view: View,
    namespace: Option<String>,
    selection: Selection,
    revision: u64,
    grown: crate::store::Growth,
    /// Objects of the present state that are still to be sent.
    initial: VecDeque<Arc<Object>>,
    /// After the present state, say so.
    mark_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    ends: Instant,
    /// The first table carries the columns.
    first: bool,
    over: bool,
}

pub(crate) fn watch(call: &Call<'_>) -> ApiResult<ServerResponse> {
    let selection = selection(call)?;
    let revision = revision_parameter(call)?;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let send_initial = initial_events(call)?;
    let store = &call.server.store;
    let namespace = call.path.namespace.clone();
    let from_present = send_initial.unwrap_or(matches!(revision, None | Some(0)));
    // Subscribe before reading, so that nothing falls in between.
    let grown = store.grown(&call.kind.storage).ok_or_else(errors::no_such_path)?;
    let (initial, start) = if from_present {
        let snapshot = store.list(&call.kind.storage, namespace.as_deref());
        (snapshot.objects.iter().cloned().collect(), snapshot.revision)
    } else {
        (VecDeque::new(), revision.unwrap_or_else(|| store.revision()))
    };
    let seconds = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => seconds as u64,
        _ => 1800 + call.server.random(1800),
    };
    let now = Instant::now();
    let ends = now + Duration::from_secs(seconds);
    let watch = Watch {
        server: call.server.clone(),
        view: View::of(call),
        namespace,
        selection,
        revision: start,
        grown,
        initial,
        mark_initial_end: send_initial == Some(true) && bookmarks,
        bookmarks,
        next_bookmark: (now + BOOKMARK_EVERY).min(ends.checked_sub(BOOKMARK_AHEAD).unwrap_or(ends)),
        ends,
        first: true,
        over: false,
    };
    Ok(response::watch(stream(watch)))
}

/// `sendInitialEvents` and the rules for what must come with it.
fn initial_events(call: &Call<'_>) -> ApiResult<Option<bool>> {
    let rule = call.query.get("resourceVersionMatch");
    const FIELD: &str = "resourceVersionMatch";
    let refuse = |errors: &[FieldError]| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors));
    match (call.query.get("sendInitialEvents"), rule) {
        (None, Some(_)) => refuse(&[FieldError::forbidden(
            FIELD,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )]),
        (None, None) => Ok(None),
        (Some(_), Some("NotOlderThan")) => Ok(Some(call.query.flag("sendInitialEvents"))),
        (Some(_), other) => {
            let mut errors = vec![FieldError::forbidden(
                FIELD,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )];
            errors.extend(other.map(|other| FieldError::not_supported(FIELD, other, &["NotOlderThan"])));
            refuse(&errors)
        }
    }
}

fn stream(watch: Watch) -> impl Stream<Item = Bytes> + Send {
    futures::stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next_chunk().await?;
        Some((chunk, watch))
    })
}

impl Watch {
    /// The next events, or `None` when the watch is over.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.over {
                return None;
            }
            let mut chunk = BytesMut::new();
            self.initial_chunk(&mut chunk);
            if chunk.is_empty() {
                self.changes(&mut chunk);
            }
            if !chunk.is_empty() {
                return Some(chunk.freeze());
            }
            if self.over {
                return None;
            }
            tokio::select! {
                biased;
                grows = self.grown.grown() => if !grows {
                    // The resource is no longer served.
                    return None;
                },
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark += BOOKMARK_EVERY;
                    self.bookmark(&mut chunk, false);
                    return Some(chunk.freeze());
                }
                () = sleep_until(self.ends) => return None,
            }
        }
    }

    /// A piece of the present state; when all is sent, the mark that it was.
    fn initial_chunk(&mut self, chunk: &mut BytesMut) {
        let was_pending = !self.initial.is_empty();
        for _ in 0..BATCH {
            let Some(object) = self.initial.pop_front() else { break };
            if self.selection.matches(&object) {
                self.put("ADDED", &object, chunk);
            }
        }
        if self.initial.is_empty() && self.mark_initial_end {
            self.mark_initial_end = false;
            self.bookmark(chunk, true);
        } else if was_pending && chunk.is_empty() && !self.initial.is_empty() {
            self.initial_chunk(chunk);
        }
    }

    fn changes(&mut self, chunk: &mut BytesMut) {
        while chunk.is_empty() {
            let (events, reached) =
                match self.server.store.events_after(&self.view.kind.storage, self.revision, BATCH) {
                    Ok(found) => found,
                    Err(gone) => {
                        let message =
                            format!("too old resource version: {} ({})", self.revision, gone.oldest);
                        let status = errors::expired(message).status();
                        put_event("ERROR", status.to_string().as_bytes(), chunk);
                        self.over = true;
                        return;
                    }
                };
            if events.is_empty() {
                self.revision = reached;
                return;
            }
            for event in &events {
                match self.seen_as(event) {
                    None => {}
                    Some("DELETED") if event.kind == EventKind::Modified => {
                        // It only left the selection: what is shown is the last state that was in it.
                        let last = event.before.as_ref().unwrap_or(&event.object);
                        self.put("DELETED", &last.at_revision(event.object.revision), chunk);
                    }
                    Some(kind) => self.put(kind, &event.object, chunk),
                }
            }
            self.revision = reached;
        }
    }

    /// What a change means to this watch: entering the selection is ADDED, leaving it DELETED.
    fn seen_as(&self, event: &LogEvent) -> Option<&'static str> {
        let object = &event.object;
        if self.namespace.as_deref().is_some_and(|ns| ns != &*object.key.namespace) {
            return None;
        }
        let was = event.before.as_ref().is_some_and(|before| self.selection.matches(before));
        let is = event.kind != EventKind::Deleted && self.selection.matches(object);
        match (was, is) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn put(&mut self, kind: &str, object: &Object, chunk: &mut BytesMut) {
        let bytes = self.view.bytes(object, self.first);
        self.first = false;
        put_event(kind, &bytes, chunk);
    }

    fn bookmark(&mut self, chunk: &mut BytesMut, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let kind = &self.view.kind;
        let object: Value = match self.view.form {
            Form::Object => {
                json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata})
            }
            Form::Metadata(version) => json!({
                "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
            }),
            Form::Table(version) => {
                let row = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
                let metadata = json!({"resourceVersion": self.revision.to_string()});
                self.view.table(version, &[row], metadata, self.first)
            }
        };
        self.first = false;
        put_event("BOOKMARK", object.to_string().as_bytes(), chunk);
    }
}

fn put_event(kind: &str, object: &[u8], chunk: &mut BytesMut) {
    chunk.reserve(object.len() + 32);
    chunk.put_slice(b"{\"type\":\"");
    chunk.put_slice(kind.as_bytes());
    chunk.put_slice(b"\",\"object\":");
    chunk.put_slice(object);
    chunk.put_slice(b"}\n");
}
