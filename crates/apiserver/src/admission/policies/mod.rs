//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: expressions in place of a webhook, run in the server.
//!
//! A [`Policy`] is what both have in common: which requests it is for, its bindings with their parameters, conditions and
//! variables. [`ValidatingPolicies`] judge, [`MutatingPolicies`] change. There is no budget for what expressions cost.

mod matching;
mod merging;
mod mutating;
mod params;
mod policy;
mod validating;

pub(crate) use mutating::{MutatingPolicies, Target};
pub(crate) use validating::ValidatingPolicies;

#[cfg(test)]
mod tests;
