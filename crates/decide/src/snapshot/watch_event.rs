//! What a watch tells.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// What a watch tells of one kind.
#[derive(Debug, Clone)]
pub enum WatchEvent<T, K> {
    Applied(T),
    Deleted(K),
    /// A new list is complete: what is not in it is gone.
    Listed(Arc<HashSet<K>>),
}

impl<T, K> WatchEvent<T, K> {
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> WatchEvent<U, K> {
        match self {
            Self::Applied(object) => WatchEvent::Applied(into(object)),
            Self::Deleted(key) => WatchEvent::Deleted(key),
            Self::Listed(there) => WatchEvent::Listed(there),
        }
    }

    /// A list is complete.
    pub fn is_listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }
}

impl<T, K: Clone + Eq + Hash + Ord> WatchEvent<T, K> {
    /// Makes it so in what is known, and tells whom it concerns, each with what was known before.
    pub fn store(self, known: &mut HashMap<K, T>, key: impl Fn(&T) -> K) -> Vec<(K, Option<T>)> {
        match self {
            Self::Applied(object) => {
                let key = key(&object);
                let before = known.insert(key.clone(), object);
                vec![(key, before)]
            }
            Self::Deleted(key) => {
                known.remove_entry(&key).map(|(key, it)| (key, Some(it))).into_iter().collect()
            }
            Self::Listed(there) => {
                let mut gone: Vec<K> = known.keys().filter(|key| !there.contains(key)).cloned().collect();
                // In an order that does not depend on hashes: the same history gives the same decisions.
                gone.sort_unstable();
                gone.into_iter()
                    .map(|key| {
                        let before = known.remove(&key);
                        (key, before)
                    })
                    .collect()
            }
        }
    }
}
