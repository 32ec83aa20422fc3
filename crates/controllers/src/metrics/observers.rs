//! Those who count for a run of a controller. What there is, as opposed to what has happened, is forgotten with it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use usher_api::workloads::BundledInterceptor;

use super::counting::{ControllerCounts, Counting};
use super::{Metrics, interceptor};
use crate::all::{Controller, Observers};
use crate::{descheduler, evict_policy, eviction_request, interceptors, maintenance};

impl Metrics {
    /// For a run of the controllers of a manager. `synced` is called when the watches have told one what there is.
    pub fn observers(&self, synced: impl Fn(Controller) + Clone + Send + 'static) -> impl Observers {
        Measured { metrics: self.clone(), synced }
    }

    /// For a run of the descheduler. `synced` is called when the watches have told it what there is.
    pub fn descheduler_observer(&self, synced: impl Fn() + Send + 'static) -> Box<dyn descheduler::Observer> {
        self.counting(&self.descheduler, synced)
    }

    pub(super) fn observer(&self, synced: impl Fn() + Send + 'static) -> Box<dyn eviction_request::Observer> {
        self.counting(&self.counts, synced)
    }

    pub(super) fn maintenance_observer(
        &self,
        synced: impl Fn() + Send + 'static,
    ) -> Box<dyn maintenance::Observer> {
        self.counting(&self.maintenances, synced)
    }

    pub(super) fn evict_policy_observer(
        &self,
        synced: impl Fn() + Send + 'static,
    ) -> Box<dyn evict_policy::Observer> {
        self.counting(&self.evict_policy, synced)
    }

    pub(super) fn interceptor_observer(
        &self,
        which: BundledInterceptor,
        synced: impl Fn() + Send + 'static,
    ) -> Box<dyn interceptors::Observer> {
        let counts = interceptor::Counts {
            class: which.class(),
            errors: self.interceptor_errors.clone(),
            queue: self.queues.named(which.class()),
            waiting: self.interceptors_waiting.clone(),
            waits: HashMap::new(),
        };
        self.counting(&Arc::new(Mutex::new(counts)), synced)
    }

    fn counting<C: ControllerCounts>(
        &self,
        counts: &Arc<Mutex<C>>,
        synced: impl Fn() + Send + 'static,
    ) -> Box<Counting<C>> {
        Box::new(Counting { counts: counts.clone(), clock: self.clock.clone(), synced: Box::new(synced) })
    }
}

/// Those of all controllers of a manager.
struct Measured<F> {
    metrics: Metrics,
    synced: F,
}

impl<F: Fn(Controller) + Clone + Send + 'static> Measured<F> {
    fn synced(&self, controller: Controller) -> impl Fn() + Send + use<F> {
        let synced = self.synced.clone();
        move || synced(controller)
    }
}

impl<F: Fn(Controller) + Clone + Send + 'static> Observers for Measured<F> {
    fn of_requests(&self) -> Box<dyn eviction_request::Observer> {
        self.metrics.observer(self.synced(Controller::EvictionRequests))
    }

    fn of_maintenances(&self) -> Box<dyn maintenance::Observer> {
        self.metrics.maintenance_observer(self.synced(Controller::NodeMaintenances))
    }

    fn of_interceptor(
        &self,
        controller: Controller,
        which: BundledInterceptor,
    ) -> Box<dyn interceptors::Observer> {
        self.metrics.interceptor_observer(which, self.synced(controller))
    }

    fn of_evict_policy(&self) -> Box<dyn evict_policy::Observer> {
        self.metrics.evict_policy_observer(self.synced(Controller::EvictPolicy))
    }
}
