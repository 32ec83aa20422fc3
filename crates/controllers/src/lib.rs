//! Controllers: watches, snapshots and queues around the decisions of `usher-decide`.
//!
//! - [`descheduler`]: plans in cycles, and asks pods to leave.
//! - [`evict_policy`]: pods that Kubernetes wants to evict, and whose workloads take over.
//! - [`eviction_request`]: the eviction request controller.
//! - [`feeds`]: the watches that controllers share.
//! - [`interceptors`]: the bundled interceptors.
//! - [`leader`]: one of several replicas acts.
//! - [`metrics`]: what can be measured.
//! - [`pulse`]: whether the loop still turns.
//! - [`maintenance`]: the node maintenance controller.
//! - [`reconcile`]: the loop that all controllers share.
//! - [`queue`]: what is to be looked at, and when.
//! - [`watch`]: watches that go on, whatever somebody wrote into an object.
//!
//! What becomes of pods, requests, nodes and maintenances is decided in `usher-decide` and `usher-descheduler`. What is decided here is
//! only who acts ([`leader`]), and when ([`queue`]).

pub mod descheduler;
pub mod evict_policy;
pub mod eviction_request;
pub mod feeds;
mod guard;
pub mod interceptors;
mod intern;
pub mod leader;
mod listed;
pub mod maintenance;
pub mod metrics;
pub mod observer;
mod pauses;
pub mod pulse;
pub mod queue;
pub mod reconcile;
pub mod watch;

use std::future::pending;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use usher_api::names::MANAGER_NAMESPACE;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;

/// The controllers of requests and maintenances and these interceptors on the same watches, with nobody to measure them, until the future
/// is dropped. They are those of a manager in its usual namespace, which may hand over pods.
pub async fn run_all(client: kube::Client, clock: Clock, interceptors: &[BundledInterceptor]) {
    let mut feeds = feeds::Feeds::default();
    let nobody = || Box::new(observer::Nobody);
    let options = eviction_request::Options {
        withdraw_after: Some(eviction_request::WITHDRAW_AFTER),
        ..eviction_request::Options::default()
    };
    let (on, at) = (|| client.clone(), || clock.clone());
    let requests = eviction_request::run_until(&mut feeds, on(), at(), options, nobody(), pending());
    let maintenances = maintenance::run_until(&mut feeds, on(), at(), nobody(), pending());
    let mut answers: Vec<BoxFuture<'static, ()>> = Vec::new();
    for which in interceptors {
        let namespace = MANAGER_NAMESPACE;
        let chosen = interceptors::Chosen { which: *which, hand_over: interceptors::HandOver::Allowed };
        answers.push(
            interceptors::run_until(chosen, &mut feeds, on(), at(), namespace, nobody(), pending()).boxed(),
        );
    }
    if !interceptors.contains(&BundledInterceptor::DaemonSet) {
        let namespace = MANAGER_NAMESPACE;
        let releases =
            interceptors::release_held_until(&mut feeds, on(), at(), namespace, nobody(), pending());
        answers.push(releases.boxed());
    }
    let _watches = feeds.start(&client);
    futures::future::join3(requests, maintenances, futures::future::join_all(answers)).await;
}
