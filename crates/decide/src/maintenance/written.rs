//! Targets in the status of a maintenance, in two forms, and how they are read again.
//!
//! While they are few, every node has its own list, as the specification says. Where a node has more entries than people
//! read, or the nodes more bytes than one wants to write again and again, lists are written once and nodes refer to them, and
//! messages are cut to what does not repeat. Where even that does not fit into an object, names of nodes are left out: first of
//! those that have no targets, then of those that are drained. What such nodes have as targets is kept by hashes of their names.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use usher_api::{
    DrainPlanEntry, DrainTargetIntersection, DrainTargetList, DrainTargetSet, NodeMaintenanceStatus,
    NodeStatus,
};

use super::drain_state::DrainState;
use super::targets::{EntryList, LISTED_ENTRIES, Targets};

/// Beyond this a status is written in the compact form. Each of its nodes then has some bytes.
pub const PLAIN_BYTES: usize = 256 << 10;
/// The whole object is kept within this. etcd takes half as much again.
pub const OBJECT_BYTES: usize = 1 << 20;
/// So much is left to a status, however large the rest of its object is.
const LEAST_BYTES: usize = 64 << 10;
/// What is reached everywhere is listed up to this: it is there once, and plans may be long.
const REACHED_BYTES: usize = 16 << 10;
/// Room for conditions and what is told beside the nodes.
const RESERVED_BYTES: usize = 4 << 10;

/// A node that is to be written: its status without its targets, and what its message says.
#[derive(Debug)]
pub struct Row {
    pub node: NodeStatus,
    pub drain: DrainState,
    pub targets: Arc<Targets>,
}

/// Writes nodes and what is reached on all of them, and returns how many nodes could not be named. `rest` are the bytes of the
/// object beside its status.
pub fn write(
    status: &mut NodeMaintenanceStatus,
    rows: Vec<Row>,
    reached: Option<&Arc<Targets>>,
    rest: usize,
) -> usize {
    status.node_statuses = Vec::new();
    status.drain_target_lists = Vec::new();
    status.drain_target_sets = Vec::new();
    let room = OBJECT_BYTES.saturating_sub(rest + RESERVED_BYTES).max(LEAST_BYTES);
    let mut tables = Tables::default();
    if let Some(drain) = &mut status.drain_status {
        let listed = reached.map_or(Some(&[][..]), |reached| reached.entries());
        let listed = listed.filter(|entries| json_bytes(entries) <= REACHED_BYTES);
        drain.reached_drain_targets = listed.unwrap_or_default().to_vec();
        drain.drain_target_set = match reached {
            Some(reached) if listed.is_none() => Some(tables.place_of(reached)),
            _ => None,
        };
    }
    let left_out = if are_few(&rows, room.min(PLAIN_BYTES)) {
        let plain = |row: Row| NodeStatus {
            drain_targets: row.targets.entries().unwrap_or_default().to_vec(),
            ..row.node
        };
        status.node_statuses = rows.into_iter().map(plain).collect();
        0
    } else {
        write_compact(status, rows, &mut tables, room)
    };
    status.drain_target_lists = tables.lists.into_iter().map(|(list, _)| list).collect();
    status.drain_target_sets = tables.sets.into_iter().map(|(set, _)| set).collect();
    left_out
}

/// The field's name, a colon and two commas.
const TARGETS_KEY_BYTES: usize = r#""drainTargets":,,"#.len();

fn are_few(rows: &[Row], room: usize) -> bool {
    // Nodes that come one after the other mostly have the same targets.
    let mut last: Option<(&Arc<Targets>, usize)> = None;
    let mut bytes = 0;
    for row in rows {
        let Some(entries) = row.targets.entries().filter(|entries| entries.len() <= LISTED_ENTRIES) else {
            return false;
        };
        let of_targets = match last {
            Some((known, bytes)) if Arc::ptr_eq(known, &row.targets) => bytes,
            _ => json_bytes(entries),
        };
        last = Some((&row.targets, of_targets));
        bytes += json_bytes(&row.node) + of_targets + TARGETS_KEY_BYTES;
        if bytes > room {
            return false;
        }
    }
    true
}

fn write_compact(
    status: &mut NodeMaintenanceStatus,
    rows: Vec<Row>,
    tables: &mut Tables,
    room: usize,
) -> usize {
    let mut nodes = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        let place = (!row.targets.is_empty()).then(|| tables.place_of(&row.targets));
        let node =
            NodeStatus { drain_message: row.drain.short().to_string(), drain_target_set: place, ..row.node };
        let size = json_bytes(&node) + 1;
        bytes += size;
        nodes.push((node, size));
    }
    let mut room = room.saturating_sub(tables.bytes());
    let mut left_out = 0;
    if bytes > room {
        // Those that are needed first come first; of these, those that have most pods.
        let pods = |node: &NodeStatus| node.pods_pending_eviction + node.pods_evicting;
        nodes.sort_by_cached_key(|(node, _)| {
            let needed = (node.drain_target_set.is_some(), pods(node) > 0);
            (std::cmp::Reverse((needed, pods(node))), node.node_ref.name.clone())
        });
        let hashed = nodes.iter().filter(|(node, _)| node.drain_target_set.is_some()).count();
        room = room.saturating_sub(hashed * HASH_BYTES);
        let mut kept = 0;
        let mut so_far = 0;
        for (_, size) in &nodes {
            so_far += size;
            if so_far > room {
                break;
            }
            kept += 1;
        }
        for (node, _) in nodes.drain(kept..) {
            left_out += 1;
            tables.remember(node.drain_target_set, &node.node_ref.name);
        }
        nodes.sort_by(|(a, _), (b, _)| a.node_ref.name.cmp(&b.node_ref.name));
    }
    status.node_statuses = nodes.into_iter().map(|(node, _)| node).collect();
    left_out
}

/// Lists and sets of the compact form, each once.
#[derive(Default)]
struct Tables {
    lists: Vec<(DrainTargetList, Arc<EntryList>)>,
    sets: Vec<(DrainTargetSet, Arc<Targets>)>,
}

impl Tables {
    fn place_of(&mut self, targets: &Arc<Targets>) -> i32 {
        if let Some(known) = self.sets.iter().position(|(_, known)| known == targets) {
            return place(known);
        }
        let any_of = targets.any_of().iter().map(|lists| DrainTargetIntersection {
            all_of: lists.iter().map(|list| self.place_of_list(list)).collect(),
        });
        let set = DrainTargetSet { any_of: any_of.collect(), unlisted_nodes: Vec::new() };
        self.sets.push((set, targets.clone()));
        place(self.sets.len() - 1)
    }

    fn place_of_list(&mut self, list: &Arc<EntryList>) -> i32 {
        if let Some(known) = self.lists.iter().position(|(_, known)| known == list) {
            return place(known);
        }
        self.lists.push((DrainTargetList { entries: list.entries().to_vec() }, list.clone()));
        place(self.lists.len() - 1)
    }

    fn remember(&mut self, set: Option<i32>, node: &str) {
        let set = set.and_then(|at| self.sets.get_mut(usize::try_from(at).ok()?));
        if let Some((set, _)) = set {
            set.unlisted_nodes.push(hash(node));
        }
    }

    fn bytes(&self) -> usize {
        let lists: usize = self.lists.iter().map(|(list, _)| json_bytes(list) + 1).sum();
        let sets: usize = self.sets.iter().map(|(set, _)| json_bytes(set) + 1).sum();
        lists + sets
    }
}

fn place(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

/// A hash with its quotation marks and comma.
const HASH_BYTES: usize = 16 + 3;

/// FNV-1a, 64 bits: it stays the same whatever this is compiled with. Of 50,000 nodes, two have the same one in a case of ten
/// thousand million.
fn hash(node: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", node.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// How many bytes this has as JSON.
pub fn json_bytes<T: Serialize + ?Sized>(value: &T) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // What cannot be written as JSON is not written at all, and takes no room.
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => 0,
    }
}

/// What a status says is targeted on which node.
#[derive(Debug, Default)]
pub struct Written {
    named: HashMap<Arc<str>, Arc<Targets>>,
    /// Nodes that the status does not name, by the hashes of their names.
    unlisted: HashMap<String, Arc<Targets>>,
}

impl Written {
    pub fn read(status: &NodeMaintenanceStatus) -> Self {
        let sets = sets(status);
        let mut written = Self::default();
        let mut last: Option<Arc<Targets>> = None;
        for node in &status.node_statuses {
            let targets = match node.drain_target_set {
                Some(place) => set_at(&sets, place).cloned(),
                None if node.drain_targets.is_empty() => None,
                None => Some(
                    last.filter(|last| last.entries() == Some(&node.drain_targets[..]))
                        .unwrap_or_else(|| Targets::of_entries(node.drain_targets.clone())),
                ),
            };
            if let Some(targets) = &targets {
                written.named.insert(node.node_ref.name.as_str().into(), targets.clone());
            }
            last = targets;
        }
        for (set, targets) in status.drain_target_sets.iter().zip(&sets) {
            written.unlisted.extend(set.unlisted_nodes.iter().map(|hash| (hash.clone(), targets.clone())));
        }
        written
    }

    pub fn get(&self, node: &str) -> Option<&Arc<Targets>> {
        match self.named.get(node) {
            None if !self.unlisted.is_empty() => self.unlisted.get(&hash(node)),
            found => found,
        }
    }

    pub fn has(&self, node: &str) -> bool {
        self.get(node).is_some()
    }

    /// The nodes with targets that are named.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.named.keys()
    }

    /// Some nodes with targets are not named.
    pub fn has_unlisted(&self) -> bool {
        !self.unlisted.is_empty()
    }
}

/// What is targeted on all nodes, as a status says.
pub fn reached(status: &NodeMaintenanceStatus) -> Arc<Targets> {
    let Some(drain) = &status.drain_status else { return Arc::default() };
    match drain.drain_target_set {
        Some(place) => set_at(&sets(status), place).cloned().unwrap_or_default(),
        None => Targets::of_entries(drain.reached_drain_targets.clone()),
    }
}

/// All entries that a status speaks of, for the labels in them.
pub fn entries(status: &NodeMaintenanceStatus) -> impl Iterator<Item = &DrainPlanEntry> {
    let plain = status.node_statuses.iter().flat_map(|node| &node.drain_targets);
    plain.chain(status.drain_target_lists.iter().flat_map(|list| &list.entries))
}

fn sets(status: &NodeMaintenanceStatus) -> Vec<Arc<Targets>> {
    let lists: Vec<Arc<EntryList>> =
        status.drain_target_lists.iter().map(|list| EntryList::new(list.entries.clone())).collect();
    let list_at = |place: &i32| usize::try_from(*place).ok().and_then(|at| lists.get(at)).cloned();
    let set = |set: &DrainTargetSet| {
        // An intersection with a list that is not there selects nothing.
        let any_of = set.any_of.iter().filter_map(|one| one.all_of.iter().map(list_at).collect());
        Targets::new(any_of.collect())
    };
    status.drain_target_sets.iter().map(set).collect()
}

fn set_at(sets: &[Arc<Targets>], place: i32) -> Option<&Arc<Targets>> {
    usize::try_from(place).ok().and_then(|at| sets.get(at)).filter(|targets| !targets.is_empty())
}
