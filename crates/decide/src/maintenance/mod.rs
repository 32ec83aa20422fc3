//! Node maintenance: which pods are asked to leave which node, and when.
//!
//! Where to start reading:
//! - [`stages`]: one maintenance, from its first stage to its end; [`status`] is what it shows.
//! - [`hold`]: one node, cordoned and released; [`pods`]: one pod, requested and let go.
//! - [`plan`]: a drain plan, and the step at which it reaches a pod.
//! - [`targets`]: the pods that are asked to leave a node; [`written`]: how the status shows and remembers them.
//! - [`progress`]: how overlapping maintenances move through their plans together.
//! - [`board`]: where they and their nodes stand, kept up with every change; [`words`] for people.
//! - [`index`]: all that is known of maintenances, nodes, pods and requests, and the decisions on one of them.
//! - [`eta`]: when a drain is expected to be done.
//! - [`selector`]: which nodes a maintenance means; [`waves`]: how many of them at once.

pub mod board;
#[cfg(test)]
mod board_tests;
pub mod decision;
pub mod drain_state;
pub mod eta;
#[cfg(test)]
mod eta_tests;
pub mod hold;
pub mod index;
pub mod nodes;
pub mod plan;
pub mod pods;
pub mod progress;
pub mod selector;
pub mod stages;
#[cfg(test)]
mod stages_tests;
pub mod status;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod waiting;
pub mod waves;
pub mod words;
pub mod written;
#[cfg(test)]
mod written_tests;
