//! The descheduler's flags, in the manager and alone.

use jiff::SignedDuration;
use usher_apply::DeschedulerName;
use usher_controllers::descheduler::Options;
use usher_descheduler::requester;

use super::duration;
use super::gates::{Gate, Gates};

/// A manager deschedules this often unless it is told otherwise.
const IN_MANAGER: SignedDuration = SignedDuration::from_mins(5);

/// Where it runs.
pub enum Run {
    InManager,
    Alone { dry_run: bool },
}

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// How long after the start of a cycle the next one begins. 0: there is one cycle, which is what a descheduler that runs alone does by
    /// default; in the manager it is 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    descheduling_interval: Option<SignedDuration>,
    /// Begin a cycle also a few seconds after the taints of a node have changed; not where there is one cycle.
    #[arg(long)]
    descheduling_on_change: bool,
    /// A pod that was asked to leave and has not left after this is given up, unless its interceptor forbids that. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    max_evacuation_request_ttl: SignedDuration,
    /// A pod that was given up is not asked again before this is over.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    descheduling_cool_down: SignedDuration,
}

impl Arguments {
    pub fn options(&self, gates: &Gates, name: DeschedulerName, run: Run) -> Options {
        let some = |duration: SignedDuration| Some(duration).filter(|duration| !duration.is_zero());
        let (interval, dry_run) = match run {
            Run::InManager => (IN_MANAGER, false),
            Run::Alone { dry_run } => (SignedDuration::ZERO, dry_run),
        };
        Options {
            interval: some(self.descheduling_interval.unwrap_or(interval)),
            on_change: self.descheduling_on_change,
            dry_run,
            knows_requests: true,
            requester: requester::Options {
                requests: gates.is_on(Gate::DeschedulerEvictionRequests),
                in_background: gates.is_on(Gate::EvictionsInBackground),
                time_to_live: some(self.max_evacuation_request_ttl),
                cool_down: self.descheduling_cool_down,
                ..requester::Options::default()
            },
            name,
        }
    }
}
