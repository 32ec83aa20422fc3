//! Scenarios: given objects, when something is done and time passes, then these effects.
//!
//! A scenario is a YAML file in `scenarios/TOPIC` ([`form`], with the short forms of [`short`]), written once and run
//! on any cluster that answers HTTP requests ([`reach`]): the embedded one in virtual time, the testbed in real time.
//! The runner ([`run`]) does the steps ([`act`], [`drain`]) and checks the expectations ([`expect`]), while watches
//! note every effect ([`observe`], [`names`]). How a scenario ends and what became of each object is compared with
//! what the real cluster did ([`outcome`], [`recorded`]): timing may differ, the end and the order of effects may not.
//! The scenarios of a folder are a [`suite`]; those about Usher itself run with it beside the cluster ([`beside`]).

mod act;
pub mod beside;
mod drain;
mod expect;
pub mod form;
mod load;
mod matching;
pub mod migration;
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
pub use load::load;
pub use reach::ClusterUnderTest;
pub use run::{Failure, Report, run};
