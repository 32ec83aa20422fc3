//! What a decision is made of.

use jiff::Timestamp;
use usher_api::EvictionRequestStatus;

use crate::waiting_on::WaitingOn;

/// Effects in their order, what is waited for, and when to look again even if nothing changes. On requests, maintenances, nodes
/// and whatever else is decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<E, W> {
    pub effects: Vec<E>,
    pub waiting_on: Option<W>,
    pub recheck_at: Option<Timestamp>,
}

impl<E, W> Default for Decision<E, W> {
    fn default() -> Self {
        Self { effects: Vec::new(), waiting_on: None, recheck_at: None }
    }
}

impl<E, W> Decision<E, W> {
    pub fn act(mut self, effect: E) -> Self {
        self.effects.push(effect);
        self
    }
}

impl Decision<Effect, WaitingOn> {
    pub fn wait(waiting_on: WaitingOn) -> Self {
        Self { recheck_at: waiting_on.until(), waiting_on: Some(waiting_on), effects: Vec::new() }
    }
}

/// One write. Every one is meant for the request, or the pod, of exactly the UID that was looked at, and for nothing
/// that has changed since: each is refused if the request's resourceVersion is not the expected one any more, except
/// the eviction itself, which is bound to the pod's UID.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Nobody here has ever seen the pod: ask the server before concluding that it is gone.
    LookUpPod,
    /// Replace the status.
    WriteStatus(Box<EvictionRequestStatus>),
    /// Go on only if the request on the server is still the one that was looked at: a watch may be late, and a pod
    /// whose interceptor reports progress, or whose request was withdrawn, must not be evicted.
    Confirm,
    /// Evict the pod through the eviction API.
    Evict,
    /// Delete the request: this is how it ends.
    Delete(Ending),
    /// Leave only these finalizers on the request.
    KeepFinalizers(Vec<String>),
    /// Records an event.
    RecordEvent(Notice),
    /// Records an event that somebody stopped asking and was taken off: such withdrawals are counted.
    RecordWithdrawal(Notice),
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The pod is gone, or has come to its end.
    PodLeft,
    /// Nobody wants it to go any more.
    Withdrawn,
}

/// Whom an event is about. All of them carry the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    Request,
    Pod,
    Owner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub about: &'static [About],
    pub is_warning: bool,
    /// One word, for machines.
    pub reason: &'static str,
    pub message: String,
}

impl Notice {
    pub fn normal(about: &'static [About], reason: &'static str, message: String) -> Effect {
        Effect::RecordEvent(Self { about, is_warning: false, reason, message: limited(message) })
    }

    pub fn warning(about: &'static [About], reason: &'static str, message: String) -> Effect {
        Effect::RecordEvent(Self { about, is_warning: true, reason, message: limited(message) })
    }
}

/// So many characters the server takes in the message of an event. Statuses could hold more, for nobody to read.
pub(crate) const LONGEST_MESSAGE: usize = 1024;

/// A text that may hold the words of others, who may be at any length: the server refuses a status or event that is too long,
/// and then nobody would hear of it.
pub fn limited(text: String) -> String {
    cut(text, LONGEST_MESSAGE)
}

/// The text, or as many letters of it as fit.
pub(crate) fn cut(text: String, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        None => text,
        Some(_) => text.chars().take(letters.saturating_sub(3)).chain("...".chars()).collect(),
    }
}
