//! The Go descheduler as the judge of ours.
//!
//! A [`Snapshot`] is a small cluster with a policy, made from a seed. A [`verdict`] is what the Go descheduler
//! decided about it, in a few words, and [`recordings`] keeps verdicts in files, so that no test here needs Go. The package `usher-tests-real` asks
//! the Go descheduler itself.

mod clusters;
mod dice;
mod plugins;
mod policies;
pub mod policy_cases;
pub mod recordings;
mod snapshot;
pub mod verdict;

pub use clusters::Objects;
pub use plugins::{PLUGINS, Subject};
pub use snapshot::{Snapshot, fixed_now};

use parking_lot::Mutex;

/// All subjects, or the one that `USHER_SUBJECT` names.
#[must_use]
pub fn subjects() -> Vec<Subject> {
    let only = std::env::var("USHER_SUBJECT").ok();
    Subject::all().filter(|subject| only.as_deref().is_none_or(|only| only == subject.name)).collect()
}

/// Does the work of each subject, on as many threads as there are cores.
pub fn each_subject<T: Send>(work: impl Fn(Subject) -> T + Sync) -> Vec<T> {
    let waiting = Mutex::new(subjects().into_iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().next();
                    let Some(subject) = next else { break };
                    let result = work(subject);
                    done.lock().push(result);
                }
            });
        }
    });
    done.into_inner()
}
