//! How fast seeds go: 1,000 runs of the hour of faults on two cores. `USHER_SEEDS` makes it fewer or more.
//!
//! The figure is compared with the aim, in proportion to the number of seeds; a miss is printed, and fails the run.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use usher_tests::seeds::{self, Named};
use usher_tests::upheaval::an_hour_of_faults;

const SEEDS: u64 = 1000;
/// For that many.
const AIM: Duration = Duration::from_secs(180);

pub fn main() -> Result<()> {
    let named =
        Named { module: "embedded::faults", test: "a_cluster_finds_its_way_back_after_an_hour_of_faults" };
    let seeds = seeds::wanted(SEEDS)?;
    let count = seeds.end() - seeds.start() + 1;
    let started = Instant::now();
    if let Err(failure) = seeds::run(named, seeds, an_hour_of_faults) {
        bail!("{failure}");
    }
    let took = started.elapsed();
    let aim = AIM.mul_f64(count as f64 / SEEDS as f64);
    let verdict = if took <= aim { "met" } else { "MISSED" };
    println!(
        "{count} seeds of an hour of faults, 10 nodes, 200 pods   {:.1} s   aim <= {:.1} s   {verdict}",
        took.as_secs_f64(),
        aim.as_secs_f64()
    );
    if took > aim {
        bail!("the aim was missed");
    }
    Ok(())
}
