//! Scenarios over many seeds, each in virtual time on a runtime of its own. The first seed that fails is told with the
//! end of its trace and the command that runs it again.
//!
//! `USHER_SEED=7` runs one seed, `USHER_SEEDS=500` the first 500, `USHER_SEEDS=501-1000` the next; without them a test runs the first [`FEW`].
//! A long run reports how far it is.

use std::fmt;
use std::io::Write;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, anyhow};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Seeds of each kind in `make test`; `make test-long` runs 200.
pub const FEW: u64 = 20;
/// Maximum number of seeds of one test at once.
const THREADS: usize = 2;
/// Lines of the trace that a failure shows, unless it is of a single seed.
const SHOWN: usize = 40;
/// A line is said for one seed in so many.
const TOLD_EVERY: u64 = 50;

/// Where lines go that say what happened, if anybody wants them.
pub type Trace = Option<UnboundedSender<String>>;

/// The test that runs a scenario, as cargo names it.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// As `module_path!()` says it: the binary, and the modules in it.
    pub module: &'static str,
    pub test: &'static str,
}

/// A seed that failed.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub why: String,
    pub trace: Vec<String>,
    pub replay: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed: {}", self.seed, self.why)?;
        writeln!(f, "the end of its trace:")?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "to run it again:\n  {}", self.replay)
    }
}

/// The seeds to run: what the environment asks for, else the first `few`.
///
/// # Errors
/// The environment asks for something that is no number.
pub fn wanted(few: u64) -> Result<RangeInclusive<u64>> {
    let variable = |name: &str| std::env::var(name).ok();
    chosen(variable("USHER_SEED").as_deref(), variable("USHER_SEEDS").as_deref(), few)
}

fn chosen(seed: Option<&str>, count: Option<&str>, few: u64) -> Result<RangeInclusive<u64>> {
    let number = |name: &str, text: &str| -> Result<u64> {
        text.parse().with_context(|| format!("{name}={text}: give a whole number"))
    };
    match (seed, count) {
        (Some(seed), _) => {
            let seed = number("USHER_SEED", seed)?;
            Ok(seed..=seed)
        }
        (None, Some(range)) => match range.split_once('-') {
            Some((first, last)) => Ok(number("USHER_SEEDS", first)?..=number("USHER_SEEDS", last)?),
            None => Ok(1..=number("USHER_SEEDS", range)?),
        },
        (None, None) => Ok(1..=few),
    }
}

/// Runs a scenario for each seed.
///
/// # Errors
/// The first seed that failed.
pub fn run<F, Fut>(named: Named, seeds: RangeInclusive<u64>, scenario: F) -> Result<(), Failure>
where
    F: Fn(u64, Trace) -> Fut + Sync,
    Fut: Future<Output = Result<()>>,
{
    let next = AtomicU64::new(*seeds.start());
    let stopped = AtomicBool::new(false);
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    let work = || {
        while !stopped.load(Ordering::Acquire) {
            let seed = next.fetch_add(1, Ordering::AcqRel);
            if seed > *seeds.end() {
                return;
            }
            if seed.is_multiple_of(TOLD_EVERY) {
                // Past the harness, which swallows what tests that pass have said.
                let _ = std::io::stderr().write_all(format!("{}: at seed {seed}\n", named.test).as_bytes());
            }
            if let Err(why) = one(seed, None, &scenario) {
                stopped.store(true, Ordering::Release);
                failed.lock().push((seed, format!("{why:#}")));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(work);
        }
        work();
    });
    let Some((seed, why)) = failed.into_inner().into_iter().min() else { return Ok(()) };
    // Nobody listened the first time, which is faster. The same seed does the same again.
    let (again, lines) = traced(seed, scenario);
    let why = match again {
        Err(again) if format!("{again:#}") == why => why,
        Err(again) => format!("{why}\nand then, run again with a trace: {again:#}"),
        Ok(()) => format!("{why}\nbut not when it was run again with a trace"),
    };
    let shown = if seeds.start() == seeds.end() { lines.len() } else { lines.len().min(SHOWN) };
    let trace = lines[lines.len() - shown..].to_vec();
    let Named { module, test } = named;
    let (target, test) = match module.split_once("::") {
        Some((target, within)) => (target, format!("{within}::{test}")),
        None => (module, test.to_owned()),
    };
    let replay = format!("USHER_SEED={seed} cargo test --test {target} {test} -- --exact --nocapture");
    Err(Failure { seed, why, trace, replay })
}

/// Runs a scenario for one seed, with all that happened.
pub fn traced<F, Fut>(seed: u64, scenario: F) -> (Result<()>, Vec<String>)
where
    F: Fn(u64, Trace) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let (trace, mut heard) = unbounded_channel();
    let outcome = one(seed, Some(trace), &scenario);
    (outcome, std::iter::from_fn(|| heard.try_recv().ok()).collect())
}

/// One seed, in virtual time. A panic is a failure like any other.
fn one<F, Fut>(seed: u64, trace: Trace, scenario: &F) -> Result<()>
where
    F: Fn(u64, Trace) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { scenario(seed, trace).await }))).unwrap_or_else(
        |panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            Err(anyhow!("{text}"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_which_seeds() {
        assert_eq!(chosen(None, None, 3).unwrap(), 1..=3);
        assert_eq!(chosen(None, Some("10"), 3).unwrap(), 1..=10);
        assert_eq!(chosen(None, Some("11-20"), 3).unwrap(), 11..=20);
        assert_eq!(chosen(Some("7"), Some("10"), 3).unwrap(), 7..=7);
        let error = chosen(Some("x"), None, 3).unwrap_err();
        assert!(error.to_string().contains("USHER_SEED=x"), "{error}");
    }
}
