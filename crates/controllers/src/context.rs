//! What the process around a controller gives it.

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kube::Client;
use usher_apply::Clock;

use crate::metrics::Metrics;

/// Resolves when controllers should stop. All clones resolve together.
///
/// It is one type and not a type parameter: otherwise every crate that runs controllers would compile their loops again.
pub type Stop = Shared<BoxFuture<'static, ()>>;

/// Called when all watches of a controller have delivered their first list.
pub type OnSynced = Box<dyn Fn() + Send>;

/// What all controllers of a process share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub clock: Clock,
    pub metrics: Metrics,
    pub stop: Stop,
}

impl Context {
    /// With metrics that no endpoint serves and a stop that never resolves.
    pub fn new(client: Client, clock: Clock) -> Self {
        let stop = std::future::pending().boxed().shared();
        Self { client, clock, metrics: Metrics::default(), stop }
    }
}
