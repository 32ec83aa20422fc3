//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`eviction_request`]: the eviction request controller.
//! - [`feeds`]: the watches that controllers share.
//! - [`leader`]: one of several replicas acts.
//! - [`metrics`]: what can be measured.
//! - [`pulse`]: whether the loop still turns.
//! - [`maintenance`]: the node maintenance controller.
//! - [`reconcile`]: the loop that all controllers share.
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
pub mod reconcile;
pub mod watch;

use std::future::pending;

use usher_apply::Clock;

/// Both controllers on the same watches, with nobody to measure them, until the future is dropped.
pub async fn run_both(client: kube::Client, clock: Clock) {
    let mut subscriptions = feeds::subscribe(&client, 2).into_iter();
    let (Some(for_requests), Some(for_maintenances)) = (subscriptions.next(), subscriptions.next()) else {
        return;
    };
    let options = eviction_request::Options::default();
    let nobody = || Box::new(observer::Nobody);
    let (other, at) = (client.clone(), clock.clone());
    let requests = eviction_request::run_until(for_requests, other, at, options, nobody(), pending());
    let maintenances = maintenance::run_until(for_maintenances, client, clock, nobody(), pending());
    futures::future::join(requests, maintenances).await;
}
