//! The speed of seeds: an hour of faults with 10 nodes and 200 pods, for 1,000 seeds on two threads. `USHER_SEEDS` chooses other seeds.

use std::time::Instant;

use anyhow::{Result, bail};
use usher_tests::seeds::{self, Named};
use usher_tests::upheaval::an_hour_of_faults;

use crate::report::{Figure, Report};

const SEEDS: usize = 1000;
/// Seconds for all of them: 0.6 s of processor time for a seed, which simulates one to two hours of 200 pods. An earlier aim was 180 s, and
/// 245 s were measured in 2026-11. A profile has no step to remove: it begins with the allocator, copies of text and JSON, at 6 % and less.
const AIM: f64 = 300.0;

pub fn measure(report: &mut Report) -> Result<()> {
    let named =
        Named { module: "embedded::faults", test: "a_cluster_finds_its_way_back_after_an_hour_of_faults" };
    let seeds = seeds::wanted(report.size().of(SEEDS) as u64)?;
    let count = seeds.end() - seeds.start() + 1;
    let started = Instant::now();
    if let Err(failure) = seeds::run(named, seeds, an_hour_of_faults) {
        bail!("{failure}");
    }
    let took = started.elapsed().as_secs_f64();
    println!("{count} seeds in {took:.1} s");
    let of_all = took * SEEDS as f64 / count as f64;
    report.add(Figure::measured("1,000 seeds of an hour of faults", of_all, "s").at_most(AIM));
    Ok(())
}
