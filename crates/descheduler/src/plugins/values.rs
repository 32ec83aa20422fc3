//! The values that nodes have for topology keys.

use std::sync::Arc;

use crate::cluster::{Labels, Map};
use crate::slots::Slots;

/// So many keys are remembered for each node. Pods may name any number of them.
const REMEMBERED: usize = 64;

/// The values of topology keys, numbered: the many pods of a node need not compare its labels again.
#[derive(Debug, Default)]
pub struct Values {
    numbers: Map<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    keys: Map<Arc<str>, usize>,
    key_names: Vec<Arc<str>>,
    of_node: Slots<NodeValues>,
}

/// What the labels of a node say.
#[derive(Debug)]
struct NodeValues {
    labels: Arc<Labels>,
    /// By the number of the topology key, of those that are remembered.
    values: Vec<Option<u32>>,
}

impl Values {
    /// The number of a topology key.
    pub fn key(&mut self, key: &str) -> usize {
        if let Some(number) = self.keys.get(key) {
            return *number;
        }
        let (number, key) = (self.key_names.len(), Arc::<str>::from(key));
        self.key_names.push(key.clone());
        self.keys.insert(key, number);
        number
    }

    fn number(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let (number, value) = (u32::try_from(self.names.len()).unwrap_or(u32::MAX), Arc::<str>::from(value));
        self.names.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize)
    }

    /// The value of a topology key on a node.
    pub fn of(&mut self, node: u32, labels: &Arc<Labels>, key: usize) -> Option<u32> {
        let known = self.of_node.get(node).filter(|known| Arc::ptr_eq(&known.labels, labels));
        if let Some(value) = known.and_then(|known| known.values.get(key)) {
            return *value;
        }
        if key >= REMEMBERED {
            let value = labels.get(self.key_names.get(key)?)?;
            return Some(self.number(value));
        }
        let keys: Vec<Arc<str>> = self.key_names.iter().take(REMEMBERED).cloned().collect();
        let values: Vec<Option<u32>> =
            keys.iter().map(|key| labels.get(key).map(|value| self.number(value))).collect();
        let value = values.get(key).copied().flatten();
        self.of_node.insert(node, NodeValues { labels: labels.clone(), values });
        value
    }

    /// How many may be those of nodes that are gone.
    pub fn remembered(&self) -> usize {
        self.names.len().saturating_sub(self.of_node.len() * self.key_names.len())
    }
}
