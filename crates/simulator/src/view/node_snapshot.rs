//! The nodes with what is taken of them, side by side so that the scheduler gets through many of them quickly.

use std::sync::Arc;

use super::{Node, Requests, Room};

/// What the pods of a node take of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub requests: Requests,
    pub pods: i64,
}

/// A node and its room.
#[derive(Debug)]
pub(crate) struct NodeInfo {
    pub node: Arc<Node>,
    pub has: Room,
    pub used: Used,
    /// Nothing keeps pods away from it that they would have to tolerate.
    pub is_open: bool,
}

/// All nodes, by name.
#[derive(Debug, Default)]
pub(crate) struct NodeSnapshot {
    nodes_info: Vec<NodeInfo>,
}

impl NodeSnapshot {
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.nodes_info.binary_search_by(|node_info| node_info.node.metadata.name.as_str().cmp(name))
    }

    /// A node as it is now; `used` is asked for if it is new.
    pub(super) fn put(&mut self, node: &Arc<Node>, used: impl FnOnce() -> Used) {
        let at = self.position(&node.metadata.name);
        let used = match at {
            Ok(known) => self.nodes_info[known].used,
            Err(_) => used(),
        };
        let is_open = !node.spec.unschedulable && node.spec.taints.is_empty();
        let node_info = NodeInfo { node: node.clone(), has: node.status.allocatable, used, is_open };
        match at {
            Ok(known) => self.nodes_info[known] = node_info,
            Err(new) => self.nodes_info.insert(new, node_info),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(known) = self.position(name) {
            self.nodes_info.remove(known);
        }
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Used)) {
        if let Ok(known) = self.position(name) {
            change(&mut self.nodes_info[known].used);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&NodeInfo> {
        self.position(name).ok().map(|known| &self.nodes_info[known])
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes_info.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes_info.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes_info.iter()
    }

    /// All of them once, beginning somewhere.
    pub(crate) fn from(&self, start: usize) -> impl Iterator<Item = &NodeInfo> {
        let (before, after) = self.nodes_info.split_at(start.min(self.nodes_info.len()));
        after.iter().chain(before)
    }
}
