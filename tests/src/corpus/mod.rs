//! The conformance corpus: what the embedded API server is judged by.
//!
//! `corpus/*.yaml` holds requests, one topic per file ([`topic`]). They are sent to a cluster ([`run`]), what differs
//! from run to run is taken out of the answers ([`normalise`]), and the rest is compared ([`compare`]) with the
//! answers the real API server gave, which are kept in `corpus/recorded` ([`recorded`]). No expected answer is
//! written by hand. Where the two are meant to differ, `corpus/differences.yaml` says where and why
//! ([`differences`]).

pub mod compare;
pub mod differences;
pub mod normalise;
pub mod recorded;
pub mod run;
pub mod template;
pub mod topic;

use std::path::PathBuf;

/// The folder that holds the topics.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}
