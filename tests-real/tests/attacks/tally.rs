//! What was tried, what was accepted, and what was told to whom it does not concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Everything that is tried. The last ones are those of a stranger on the network, who has no name in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    HostileValue,
    UnreadableTime,
    NestedFields,
    FloodStatus,
    ForgedNodeStatuses,
    Counters,
    Conditions,
    ForeignFinalizer,
    RemoveFinalizers,
    RemoveMarks,
    Relabel,
    SkipInterceptors,
    KeepNodes,
    ForgedOwner,
    ForgedMirror,
    ForgedGate,
    ForgedStrategy,
    ForgedLimits,
    HundredInterceptors,
    ReportProgress,
    AskForEviction,
    MaintainNodes,
    DryRun,
    Delete,
    DeleteRequests,
    Read,
    ForgedReview,
    SilentConnections,
    SlowConnections,
    LargeReviews,
    Garbage,
    Metrics,
}

impl Move {
    pub const OF_USERS: [Self; 26] = [
        Self::HostileValue,
        Self::UnreadableTime,
        Self::NestedFields,
        Self::FloodStatus,
        Self::ForgedNodeStatuses,
        Self::Counters,
        Self::Conditions,
        Self::ForeignFinalizer,
        Self::RemoveFinalizers,
        Self::RemoveMarks,
        Self::Relabel,
        Self::SkipInterceptors,
        Self::KeepNodes,
        Self::ForgedOwner,
        Self::ForgedMirror,
        Self::ForgedGate,
        Self::ForgedStrategy,
        Self::ForgedLimits,
        Self::HundredInterceptors,
        Self::ReportProgress,
        Self::AskForEviction,
        Self::MaintainNodes,
        Self::DryRun,
        Self::Delete,
        Self::DeleteRequests,
        Self::Read,
    ];
    pub const OF_STRANGERS: [Self; 6] = [
        Self::ForgedReview,
        Self::SilentConnections,
        Self::SlowConnections,
        Self::LargeReviews,
        Self::Garbage,
        Self::Metrics,
    ];
}

#[derive(Debug, Default, Clone)]
struct Count {
    tried: usize,
    accepted: usize,
    /// How the others were answered.
    codes: BTreeMap<u16, usize>,
}

#[derive(Debug, Default)]
pub struct Tally {
    counts: Mutex<BTreeMap<Move, Count>>,
    leaks: Mutex<BTreeSet<String>>,
}

impl Tally {
    pub fn count(&self, tried: Move, code: u16) {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(tried).or_default();
        count.tried += 1;
        if (200..300).contains(&code) {
            count.accepted += 1;
        } else {
            *count.codes.entry(code).or_default() += 1;
        }
    }

    /// Somebody was told this.
    pub fn leak(&self, whom: &str, tried: Move, told: &str) {
        self.leaks.lock().unwrap().insert(format!("{whom} by {tried:?}: {told}"));
    }

    pub fn leaks(&self) -> BTreeSet<String> {
        self.leaks.lock().unwrap().clone()
    }

    pub fn tried(&self, of: Move) -> usize {
        self.counts.lock().unwrap().get(&of).map_or(0, |count| count.tried)
    }

    pub fn accepted(&self, of: Move) -> usize {
        self.counts.lock().unwrap().get(&of).map_or(0, |count| count.accepted)
    }

    pub fn print(&self) {
        for (of, count) in self.counts.lock().unwrap().iter() {
            println!(
                "{:<20} tried {:>6}, accepted {:>6}, others {:?}",
                format!("{of:?}"),
                count.tried,
                count.accepted,
                count.codes
            );
        }
    }
}
