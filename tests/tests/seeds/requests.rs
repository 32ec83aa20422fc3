//! Eviction requests under faults, seed by seed: nothing is forgotten, nothing left behind, no rule broken.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use usher_tests::request_calm::calm_hours_of_requests;
use usher_tests::request_hours::hours_of_requests;
use usher_tests::seeds::{self, Named};

#[test]
fn hours_of_requests_under_faults_end_well() {
    let named = Named { module: module_path!(), test: "hours_of_requests_under_faults_end_well" };
    let seeds = seeds::wanted(seeds::FEW).unwrap_or_else(|why| panic!("{why:#}"));
    if let Err(failure) = seeds::run(named, seeds, hours_of_requests) {
        panic!("{failure}");
    }
}

#[test]
fn whoever_can_go_is_gone_within_a_bound_however_difficult_everybody_is() {
    let test = "whoever_can_go_is_gone_within_a_bound_however_difficult_everybody_is";
    let seeds = seeds::wanted(seeds::FEW).unwrap_or_else(|why| panic!("{why:#}"));
    if let Err(failure) = seeds::run(Named { module: module_path!(), test }, seeds, calm_hours_of_requests) {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_has_the_same_hours() {
    let (first, again) = (seeds::traced(5, hours_of_requests), seeds::traced(5, hours_of_requests));
    assert!(first.1.len() > 100, "{} lines", first.1.len());
    for (at, (line, other)) in first.1.iter().zip(&again.1).enumerate() {
        assert_eq!(line, other, "line {at}");
    }
    assert_eq!(first.1.len(), again.1.len());
}
