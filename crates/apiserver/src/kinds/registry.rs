//! All kinds that are served at the moment; custom kinds come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kind, builtin};

/// An immutable table; a change makes a new one.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    /// By group, version and plural, see [`address`].
    kinds: BTreeMap<String, Arc<Kind>>,
}

impl Registry {
    pub(crate) fn builtin() -> Self {
        let mut registry = Self::default();
        for kind in builtin::kinds() {
            registry.insert(kind);
        }
        registry
    }

    pub(crate) fn insert(&mut self, kind: Kind) {
        self.kinds.insert(address(&kind.group, &kind.version, &kind.plural), Arc::new(kind));
    }

    /// Forgets every version of a resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.retain(|_, kind| kind.group != group || kind.plural != plural);
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&address(group, version, plural))
    }

    /// A kind by its name, as owner references give it.
    pub(crate) fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.kinds.values().find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// The kind in its stored version.
    pub(crate) fn stored_as(&self, storage: &str) -> Option<&Arc<Kind>> {
        self.kinds.values().find(|k| &*k.storage == storage && k.api_version() == k.storage_api_version)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub(crate) fn serves_group(&self, group: &str) -> bool {
        self.iter().any(|kind| kind.group == group)
    }

    pub(crate) fn serves_version(&self, group: &str, version: &str) -> bool {
        self.iter().any(|kind| kind.group == group && kind.version == version)
    }
}

/// None of the three parts can contain a slash.
fn address(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}
