//! Node maintenance: which pods are asked to leave which node, and when.
//!
//! - [`plan`]: a drain plan, and the step at which it reaches a pod.
//! - [`targets`]: the pods that are asked to leave a node, as entries that people read.
//! - [`progress`]: how overlapping maintenances move through their plans together.

pub mod nodes;
pub mod plan;
pub mod progress;
pub mod targets;
#[cfg(test)]
mod tests;
