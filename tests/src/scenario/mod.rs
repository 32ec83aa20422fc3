//! Scenarios: given objects, when something is done and time passes, then these effects.
//!
//! A scenario is a YAML file in `scenarios/TOPIC` ([`form`], with the short forms of [`short`]), written once and run
//! on any cluster that answers HTTP requests ([`reach`]): the embedded one in virtual time, the testbed in real time.
//! The runner ([`run`]) does the steps ([`act`], [`drain`]) and checks the expectations ([`expect`]), while watches
//! note every effect ([`observe`], [`names`]). How a scenario ends and what became of each object is compared with
//! what the real cluster did ([`outcome`], [`recorded`]): timing may differ, the end and the order of effects may not.
//! Topics about Usher itself run with it beside the cluster ([`beside`], [`suite`]).
//! Where the embedded cluster is known to end otherwise, `scenarios/differences.yaml` says so ([`differences`]).

mod act;
pub mod beside;
pub mod differences;
mod drain;
mod expect;
pub mod form;
mod load;
mod matching;
mod names;
mod observe;
pub mod outcome;
pub mod reach;
pub mod recorded;
pub mod run;
mod selector;
mod short;
mod stage;
pub mod suite;

pub use form::Scenario;
pub use load::{is_whole_run, load, select};
pub use reach::ClusterUnderTest;
pub use run::{Failure, Report, run};

use std::path::PathBuf;

/// The folder that holds the topics.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}
