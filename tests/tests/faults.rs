//! What goes wrong on demand, and a cluster that lives through it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use usher_tests::seeds::{self, Named};
use usher_tests::upheaval::an_hour_of_faults;

/// In a test run; `USHER_SEEDS` asks for more.
const FEW: u64 = 4;

#[test]
fn a_cluster_finds_its_way_back_after_an_hour_of_faults() {
    let named = Named { target: "faults", test: "a_cluster_finds_its_way_back_after_an_hour_of_faults" };
    if let Err(failure) = seeds::run(named, seeds::wanted(FEW).unwrap(), an_hour_of_faults) {
        panic!("{failure}");
    }
}
