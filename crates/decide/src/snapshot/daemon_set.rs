//! A DaemonSet, as far as anybody decides by it: that it exists.

use std::sync::Arc;

use super::{DaemonSetOnWire, Key};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    pub key: Key,
    pub uid: Arc<str>,
    /// It makes no pods any more.
    pub is_deleting: bool,
}

impl From<DaemonSetOnWire> for DaemonSet {
    fn from(set: DaemonSetOnWire) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default();
        let meta = set.metadata;
        Self {
            is_deleting: meta.deletion_timestamp.is_some(),
            key: Key::new(text(meta.namespace), text(meta.name)),
            uid: text(meta.uid).into(),
        }
    }
}
