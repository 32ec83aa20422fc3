//! The controllers of a manager: which of them there are, and how they run on the same watches.
//!
//! The manager, the sandbox and tests all take them from here.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use jiff::SignedDuration;
use kube::Client;
use usher_api::names::MANAGER_NAMESPACE;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;

use crate::context::{Context, OnSynced};
use crate::feeds::Feeds;
use crate::interceptors::{Chosen, HandOver};
use crate::{evict_policy, eviction_request, interceptors, maintenance};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    EvictionRequests,
    NodeMaintenances,
    Interceptor(BundledInterceptor),
    /// Without the interceptor of DaemonSets: lets through what one before has held.
    HeldPods,
    /// Pods that are wanted gone, and whose workloads take over.
    EvictPolicy,
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EvictionRequests => "eviction requests",
            Self::NodeMaintenances => "node maintenances",
            Self::Interceptor(which) => return write!(f, "the interceptor of {}s", which.kind()),
            Self::HeldPods => "pods that are held for no one",
            Self::EvictPolicy => "the Pod Evict Policy",
        })
    }
}

/// Which controllers run, and how.
#[derive(Debug, Clone)]
pub struct Controllers {
    /// The manager's.
    pub namespace: String,
    /// Without it eviction requests are kept, and nobody acts on them.
    pub requests: Option<eviction_request::Options>,
    /// Whether there is that of node maintenances.
    pub maintenances: bool,
    /// They act on requests, and only where these are acted on.
    pub interceptors: Vec<BundledInterceptor>,
    /// Where Deployments hand over.
    pub hand_over: HandOver,
    /// With it there is the Pod Evict Policy, which goes by requests too: so long a workload has to end a pod that is wanted gone.
    pub evict_timeout: Option<SignedDuration>,
}

impl Controllers {
    /// Those of requests and maintenances with these interceptors, for a manager in its usual namespace, which may hand over pods.
    pub fn with(interceptors: &[BundledInterceptor]) -> Self {
        Self {
            namespace: MANAGER_NAMESPACE.to_owned(),
            requests: Some(eviction_request::Options {
                withdraw_after: Some(eviction_request::WITHDRAW_AFTER),
                ..eviction_request::Options::default()
            }),
            maintenances: true,
            interceptors: interceptors.to_vec(),
            hand_over: HandOver::Allowed,
            evict_timeout: None,
        }
    }

    pub fn list(&self) -> Vec<Controller> {
        let requests = self.requests.map(|_| Controller::EvictionRequests);
        let maintenances = self.maintenances.then_some(Controller::NodeMaintenances);
        let held = (!self.acting().contains(&BundledInterceptor::DaemonSet)).then_some(Controller::HeldPods);
        let evict_policy = self.evict_policy().map(|_| Controller::EvictPolicy);
        let interceptors = self.acting().iter().copied().map(Controller::Interceptor);
        let others = [requests, maintenances].into_iter().flatten();
        others.chain(interceptors).chain(held).chain(evict_policy).collect()
    }

    fn acting(&self) -> &[BundledInterceptor] {
        if self.requests.is_some() { &self.interceptors } else { &[] }
    }

    fn evict_policy(&self) -> Option<evict_policy::Options> {
        let eviction_request::Options { interceptors_limit, withdraw_after } = self.requests?;
        let timeout = self.evict_timeout?;
        Some(evict_policy::Options { timeout, withdraw_after, interceptors_limit })
    }

    /// Runs them until the future is dropped.
    pub async fn run(self, client: Client, clock: Clock) {
        self.run_until(&Context::new(client, clock), Arc::new(|_| ())).await;
    }

    /// Subscribes to the feeds and returns the future that runs the controllers until they should stop. Calls under way get some time
    /// to finish. `on_synced` is called for each controller when its watches have delivered their first list.
    pub fn run_until(
        &self,
        context: &Context,
        on_synced: Arc<dyn Fn(Controller) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        let mut feeds = Feeds::default();
        let start = |controller| {
            let on_synced = on_synced.clone();
            self.start(controller, &mut feeds, context.clone(), Box::new(move || on_synced(controller)))
        };
        let running: Vec<_> = self.list().into_iter().map(start).collect();
        let client = context.client.clone();
        let running = async move {
            let _watches = feeds.start(&client);
            join_all(running).await;
        };
        running.boxed()
    }

    /// Subscribes one of them to the feeds and returns the future that runs it.
    fn start(
        &self,
        controller: Controller,
        feeds: &mut Feeds,
        context: Context,
        on_synced: OnSynced,
    ) -> BoxFuture<'static, ()> {
        let namespace = &self.namespace;
        match controller {
            Controller::EvictionRequests => {
                eviction_request::run_until(feeds, context, self.requests.unwrap_or_default(), on_synced)
            }
            Controller::NodeMaintenances => maintenance::run_until(feeds, context, on_synced),
            Controller::Interceptor(which) => {
                let chosen = Chosen { which, hand_over: self.hand_over };
                interceptors::run_until(chosen, feeds, context, namespace, on_synced)
            }
            Controller::HeldPods => interceptors::release_held_until(feeds, context, namespace, on_synced),
            Controller::EvictPolicy => {
                let options = self.evict_policy().unwrap_or_default();
                evict_policy::run_until(feeds, context, options, self.acting().to_vec(), on_synced)
            }
        }
    }
}

/// Runs the controllers of [`Controllers::with`] these interceptors until the future is dropped.
pub async fn run_all(client: Client, clock: Clock, interceptors: &[BundledInterceptor]) {
    Controllers::with(interceptors).run(client, clock).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use BundledInterceptor::{DaemonSet, Deployment, StatefulSet};
    use Controller::{EvictPolicy, EvictionRequests, HeldPods, Interceptor, NodeMaintenances};

    #[test]
    fn held_pods_are_let_through_wherever_nobody_holds_any() {
        let all = Controllers::with(&BundledInterceptor::ALL);
        let kept = Controllers { requests: None, ..all.clone() };
        let interceptors = BundledInterceptor::ALL.map(Interceptor);
        let wanted = [vec![EvictionRequests, NodeMaintenances], interceptors.to_vec()].concat();
        for (controllers, wanted) in [
            (all, wanted),
            (
                Controllers::with(&[DaemonSet, StatefulSet]),
                vec![EvictionRequests, NodeMaintenances, Interceptor(DaemonSet), Interceptor(StatefulSet)],
            ),
            (
                Controllers::with(&[Deployment]),
                vec![EvictionRequests, NodeMaintenances, Interceptor(Deployment), HeldPods],
            ),
            (Controllers::with(&[]), vec![EvictionRequests, NodeMaintenances, HeldPods]),
            (kept, vec![NodeMaintenances, HeldPods]),
        ] {
            assert_eq!(controllers.list(), wanted, "{controllers:?}");
        }
    }

    #[test]
    fn the_pod_evict_policy_goes_by_the_options_of_requests_and_not_without_them() {
        let (limit, timeout) = (SignedDuration::from_hours(12), SignedDuration::from_secs(20));
        let requests = eviction_request::Options { interceptors_limit: Some(limit), withdraw_after: None };
        let without = Controllers { requests: Some(requests), ..Controllers::with(&[]) };
        assert_eq!(without.evict_policy(), None);
        let with = Controllers { evict_timeout: Some(timeout), ..without };
        let options =
            evict_policy::Options { timeout, withdraw_after: None, interceptors_limit: Some(limit) };
        assert_eq!(with.evict_policy(), Some(options));
        assert!(with.list().contains(&EvictPolicy));
        let kept = Controllers { requests: None, ..with };
        assert!(!kept.list().contains(&EvictPolicy), "nobody acts on requests");
    }
}
