//! Admission webhooks: which of them a request must pass, calling them, and what their answers mean.
//!
//! [`Webhooks`] is compiled from the MutatingWebhookConfiguration and ValidatingWebhookConfiguration objects whenever
//! one of them changes; [`Webhooks::mutate`] and [`Webhooks::validate`] run a request through it. Calls go through a
//! [`Caller`], which outlives the compiled webhooks and keeps connections open. ValidatingAdmissionPolicy is not here.

mod conditions;
mod endpoints;
mod errors;
mod hook;
mod patch;
mod request;
mod review;
mod rules;
mod transport;
mod trust;
mod webhooks;

pub use endpoints::{Caller, Endpoint, InProcess, in_process};
pub use request::{Kind, Operation, Request};
pub use webhooks::Webhooks;

#[cfg(test)]
mod tests;
