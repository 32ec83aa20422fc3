//! What a component decided to do.

use jiff::Timestamp;
use serde_json::Value;

use super::view::{Meta, Owner, Resource};
use embedded_apiserver::toolkit::only;

/// The object that an action is meant for. An object of that name with another uid is another object; without a uid,
/// any of that name will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub resource: Resource,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Target {
    pub(crate) fn of(resource: Resource, meta: &Meta) -> Self {
        Self { resource, namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Create {
        resource: Resource,
        namespace: String,
        object: Value,
    },
    /// The same, and it is fine if it is there already.
    Ensure {
        resource: Resource,
        namespace: String,
        object: Value,
    },
    /// A strategic merge patch; `pinned` is the resourceVersion that it builds on, where that matters.
    Patch {
        target: Target,
        subresource: Option<&'static str>,
        patch: Value,
        pinned: Option<String>,
    },
    Delete {
        target: Target,
        grace: Option<i64>,
    },
    Bind {
        pod: Target,
        node: String,
    },
    /// Asks the API for the scale of an owner that nobody follows; the answer goes into the view.
    AskScale {
        namespace: String,
        owner: Owner,
    },
}

/// Something that people should be able to look up later: an event of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub about: About,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Note {
    pub(crate) fn normal(about: About, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about, warning: false, reason, message: message.into() }
    }

    pub(crate) fn warning(about: About, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about, warning: true, reason, message: message.into() }
    }
}

/// What a note is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct About {
    pub resource: Resource,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl About {
    pub(crate) fn of(resource: Resource, meta: &Meta) -> Self {
        Self { resource, namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
    }
}

impl Action {
    pub(crate) fn create(resource: Resource, namespace: &str, object: Value) -> Self {
        Self::Create { resource, namespace: namespace.to_string(), object }
    }

    pub(crate) fn patch(resource: Resource, meta: &Meta, patch: Value) -> Self {
        let pinned = Some(meta.resource_version.clone());
        Self::Patch { target: Target::of(resource, meta), subresource: None, patch, pinned }
    }

    /// Replaces what is given of the status. What others may write at the same time must not be in it.
    pub(crate) fn status(resource: Resource, meta: &Meta, status: Value) -> Self {
        let patch = only("status", status);
        Self::Patch { target: Target::of(resource, meta), subresource: Some("status"), patch, pinned: None }
    }

    /// The same, refused if anybody wrote the object meanwhile.
    pub(crate) fn pinned_status(resource: Resource, meta: &Meta, status: Value) -> Self {
        let patch = only("status", status);
        let pinned = Some(meta.resource_version.clone());
        Self::Patch { target: Target::of(resource, meta), subresource: Some("status"), patch, pinned }
    }

    pub(crate) fn delete(resource: Resource, meta: &Meta) -> Self {
        Self::Delete { target: Target::of(resource, meta), grace: None }
    }
}

/// Actions in their order, what is noted once they are done, and when to look again even if nothing changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub actions: Vec<Action>,
    pub notes: Vec<Note>,
    pub recheck_at: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// The earliest time counts.
    pub(crate) fn recheck(&mut self, at: Timestamp) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |before| before.min(at)));
    }
}
