//! The nodes that a cycle looks at, by name.

use crate::cluster::Cluster;
use crate::selector::Selector;

/// Ready nodes that a selector admits, in the order of their names.
#[derive(Debug, Default)]
pub struct NodeList {
    /// Indexes of nodes, by name.
    pub nodes: Vec<u32>,
    /// The place of each node in the list, by index; None if it is not in it.
    ranks: Vec<Option<u32>>,
    built_at: Option<u64>,
}

impl NodeList {
    /// Builds the list again if nodes have changed.
    pub fn refresh(&mut self, cluster: &Cluster, selector: Option<&Selector>) {
        if self.built_at == Some(cluster.nodes_version()) {
            return;
        }
        let mut named: Vec<(&str, u32)> = cluster
            .nodes()
            .filter(|(_, node)| {
                let object = node.object.as_ref().filter(|object| object.ready);
                object.is_some_and(|object| selector.is_none_or(|selector| selector.matches(&object.labels)))
            })
            .map(|(index, node)| (node.name.as_ref(), index))
            .collect();
        named.sort_unstable();
        self.nodes = named.into_iter().map(|(_, index)| index).collect();
        self.ranks = vec![None; cluster.node_slots()];
        for (rank, node) in (0_u32..).zip(&self.nodes) {
            self.ranks[*node as usize] = Some(rank);
        }
        self.built_at = Some(cluster.nodes_version());
    }

    pub fn rank(&self, node: u32) -> Option<u32> {
        self.ranks.get(node as usize).copied().flatten()
    }

    pub fn has(&self, node: u32) -> bool {
        self.rank(node).is_some()
    }
}
