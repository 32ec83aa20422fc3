//! A descheduler beside a test.

use futures::StreamExt as _;
use futures::stream::{once, pending};
use usher_api::names::DESCHEDULER_LEASE;
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::Context;
use usher_controllers::descheduler::{Hooks, Options, run_until};
use usher_controllers::feeds::Feeds;
use usher_descheduler::Policy;

/// Deschedules until it is dropped, or after its only cycle.
pub async fn deschedule(client: kube::Client, clock: Clock, options: Options, policy: Policy) {
    let policies = once(std::future::ready(Ok(policy))).chain(pending()).boxed();
    let mut feeds = Feeds::default();
    let context = Context::new(client.clone(), clock);
    let running = run_until(&mut feeds, context, options, policies, Hooks::default());
    let _watches = feeds.start(&client);
    running.await;
}

/// The name that it has by default, in this namespace.
pub fn named(namespace: &str) -> DeschedulerName {
    DeschedulerName { namespace: namespace.to_owned(), name: DESCHEDULER_LEASE.to_owned() }
}
