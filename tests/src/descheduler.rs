//! A descheduler beside a test.

use futures::StreamExt as _;
use futures::stream::{once, pending};
use usher_api::names::DESCHEDULER_LEASE;
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::descheduler::{Options, run_until};
use usher_controllers::feeds::Feeds;
use usher_controllers::observer::Nobody;
use usher_descheduler::Policy;

/// Deschedules until it is dropped, or after its only cycle.
pub async fn deschedule(client: kube::Client, clock: Clock, options: Options, policy: Policy) {
    let policies = once(std::future::ready(Ok(policy))).chain(pending()).boxed();
    let mut feeds = Feeds::default();
    let running = run_until(
        &mut feeds,
        client.clone(),
        clock,
        options,
        policies,
        Box::new(Nobody),
        std::future::pending(),
    );
    let _watches = feeds.start(&client);
    running.await;
}

/// The name that it has by default, in this namespace.
pub fn named(namespace: &str) -> DeschedulerName {
    DeschedulerName { namespace: namespace.to_owned(), name: DESCHEDULER_LEASE.to_owned() }
}
