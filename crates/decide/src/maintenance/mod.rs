//! Node maintenance: which pods are asked to leave which node, and when.
//!
//! - [`plan`]: a drain plan, and the step at which it reaches a pod.
//! - [`targets`]: the pods that are asked to leave a node, as entries that people read.
//! - [`progress`]: how overlapping maintenances move through their plans together.
//! - [`board`]: where they and their nodes stand, kept up with every change; [`words`] for people.
//! - [`selector`]: which nodes a maintenance means.

pub mod board;
pub mod nodes;
pub mod plan;
pub mod progress;
pub mod selector;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod words;
