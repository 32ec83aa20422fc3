//! All kinds that are served at the moment; custom kinds come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kind, builtin};

/// An immutable table; a change makes a new one.
#[derive(Clone, Default)]
pub struct Registry {
    /// By group, version, plural.
    kinds: BTreeMap<(String, String, String), Arc<Kind>>,
}

impl Registry {
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        for kind in builtin::kinds() {
            registry.insert(kind);
        }
        registry
    }

    pub fn insert(&mut self, kind: Kind) {
        self.kinds.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), Arc::new(kind));
    }

    /// Forgets every version of a resource.
    pub fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.retain(|(g, _, p), _| g != group || p != plural);
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// A kind by its name, as owner references give it.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.kinds.values().find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// The kind in its stored version.
    pub fn stored_as(&self, storage: &str) -> Option<&Arc<Kind>> {
        self.kinds.values().find(|k| &*k.storage == storage && k.api_version() == k.storage_api_version)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub fn serves_group(&self, group: &str) -> bool {
        self.kinds.keys().any(|(g, _, _)| g == group)
    }

    pub fn serves_version(&self, group: &str, version: &str) -> bool {
        self.kinds.keys().any(|(g, v, _)| g == group && v == version)
    }
}
