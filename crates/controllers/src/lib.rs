//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`eviction_request`]: the eviction request controller.
//! - [`feeds`]: the watches that controllers share.
//! - [`leader`]: one of several replicas acts.
//! - [`metrics`]: what can be measured.
//! - [`pulse`]: whether the loop still turns.
//! - [`maintenance`]: the node maintenance controller.
//! - [`queue`]: what is to be looked at, and when.
//! - [`watch`]: watches that go on, whatever somebody wrote into an object.
//!
//! Nothing is decided here.

pub mod eviction_request;
pub mod feeds;
mod guard;
mod intern;
pub mod leader;
pub mod maintenance;
pub mod metrics;
pub mod observer;
mod pauses;
pub mod pulse;
pub mod queue;
pub mod watch;

use usher_apply::Clock;

/// Both controllers on the same watches, with nobody to measure them, until the future is dropped.
pub async fn run_both(client: kube::Client, clock: Clock) {
    let [for_requests, for_maintenances] = feeds::listen(&client);
    let (nobody, stop) = (Box::new(observer::Nobody), std::future::pending());
    let options = eviction_request::Options::default();
    let (for_all, at) = (client.clone(), clock.clone());
    let requests = eviction_request::run_until(for_requests, for_all, at, options, nobody, stop);
    let maintenances = maintenance::run(for_maintenances, client, clock, Box::new(observer::Nobody));
    futures::future::join(requests, maintenances).await;
}
