//! Admission.
pub mod selector;
