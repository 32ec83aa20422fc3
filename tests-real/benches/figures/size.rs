//! How large the measured clusters are.

use clap::ValueEnum;

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// The sizes of docs/benchmarks.md: up to 5,000 nodes and 150,000 pods
    Full,
    /// A tenth of them, which takes minutes: only ratios and counts are judged
    Tenth,
}

impl Size {
    pub fn is_full(self) -> bool {
        self == Self::Full
    }

    /// The number to measure with, where a full run takes `full`.
    pub fn of(self, full: usize) -> usize {
        self.pick(full, (full / 10).max(1))
    }

    pub fn pick<T>(self, full: T, tenth: T) -> T {
        match self {
            Self::Full => full,
            Self::Tenth => tenth,
        }
    }

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        self.pick("full", "tenth")
    }
}
