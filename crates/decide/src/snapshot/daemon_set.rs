//! A DaemonSet, as far as anybody decides by it: that it exists.

use std::sync::Arc;

use super::{DaemonSetOnWire, Key};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    pub key: Key,
    pub uid: Arc<str>,
}

impl From<DaemonSetOnWire> for DaemonSet {
    fn from(set: DaemonSetOnWire) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default();
        let meta = set.metadata;
        Self { key: Key::new(text(meta.namespace), text(meta.name)), uid: text(meta.uid).into() }
    }
}
