//! What snapshots are about.

/// A plugin, or several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// The name of the plugin, or `several`.
    pub name: &'static str,
    /// So that no two subjects have the same seeds.
    pub number: u64,
}

pub const PLUGINS: [&str; 10] = [
    "PodLifeTime",
    "RemoveFailedPods",
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemoveDuplicates",
    "RemovePodsViolatingTopologySpreadConstraint",
    "LowNodeUtilization",
    "HighNodeUtilization",
];

const SEVERAL: &str = "several";

impl Subject {
    pub fn all() -> impl Iterator<Item = Self> {
        let names = PLUGINS.into_iter().chain([SEVERAL]);
        (0..).zip(names).map(|(number, name)| Self { name, number })
    }

    pub fn is(&self, plugin: &str) -> bool {
        self.name == plugin
    }

    /// It looks at how pods are together.
    pub fn is_about_groups(&self) -> bool {
        (5..=7).any(|number| self.is(PLUGINS[number]))
    }

    /// The plugins that a policy may name.
    pub fn plugin(&self) -> Option<&'static str> {
        (self.name != SEVERAL).then_some(self.name)
    }
}

/// Whether a plugin balances.
pub fn balances(plugin: &str) -> bool {
    PLUGINS[6..].contains(&plugin)
}
