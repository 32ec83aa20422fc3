//! Admission: policies and webhooks, which of them a request must pass, and what they say.
//!
//! [`Webhooks`] and the policies ([`MutatingPolicies`], [`ValidatingPolicies`]) are compiled from their objects whenever
//! one of those changes. [`mutate`] runs a request through all that may change it, policies first;
//! [`ValidatingPolicies::validate`] and [`Webhooks::validate`] through those that judge it. Calls of webhooks go through
//! a [`Caller`], which outlives the compiled webhooks and keeps connections open.

pub(crate) mod cel;
mod conditions;
mod endpoints;
mod errors;
mod hook;
mod mutation;
mod patch;
mod policies;
mod request;
mod review;
mod rules;
mod selection;
mod transport;
mod trust;
mod webhooks;

pub use endpoints::{Caller, Endpoint, InProcess, in_process};
pub(crate) use mutation::mutate;
pub(crate) use policies::{MutatingPolicies, Target, ValidatingPolicies};
pub(crate) use request::{Kind, Lookup, Operation, Request};
pub(crate) use review::options_of;
pub(crate) use webhooks::Webhooks;

#[cfg(test)]
mod tests;
