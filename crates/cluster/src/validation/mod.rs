//! Semantic validation of objects, with the wording of Kubernetes.

mod fields;
pub mod metadata;
pub mod names;
