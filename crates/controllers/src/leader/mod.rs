//! One of several replicas acts: the one that holds a Lease.
//!
//! [`decision`] says what a candidate does next; here it is done. While it leads, the work of the leader is a future
//! beside the renewals, in the same task. When the lease is lost, or might be, that future is dropped before it is
//! polled again, and the candidate stands by. Calls that were on their way carry preconditions.

pub mod decision;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use usher_apply::{Clock, kind_of};

pub use decision::Times;
use decision::{ObservedLease, Step, decide};

/// Releasing the lease at the end may take so long; without it the others only wait a little longer.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// A candidate for a lease.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    me: String,
    times: Times,
    clock: Clock,
}

/// What this candidate knows.
#[derive(Default)]
struct Knowledge {
    /// The lease as it is stored, for the next write.
    stored: Option<Lease>,
    /// Outlives a lease that somebody deletes: its holder may not have noticed yet.
    seen: Option<ObservedLease>,
    /// Since when it leads: when the last renewal that succeeded was begun.
    renewed: Option<Instant>,
}

impl Knowledge {
    fn observe(&mut self, lease: Option<Lease>, times: &Times) {
        if let Some(lease) = &lease {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            if self.seen.as_ref().is_none_or(|seen| seen.version != version) {
                let spec = lease.spec.clone().unwrap_or_default();
                let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                self.seen = Some(ObservedLease {
                    holder: spec.holder_identity.unwrap_or_default(),
                    version,
                    duration: seconds.map_or(times.lease, Duration::from_secs),
                    since: Instant::now(),
                });
            }
        } else if self.renewed.is_some() {
            self.seen = None;
        }
        self.stored = lease;
    }
}

impl Election {
    /// `me` must be another one in every process. The clock only stamps the lease, for people to read.
    pub fn new(client: Client, namespace: &str, name: &str, me: &str, clock: Clock) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_string(),
            me: me.to_string(),
            times: Times::default(),
            clock,
        }
    }

    #[must_use]
    pub fn with_times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// Stands by, leads, and stands by again, until `stop` becomes true and the work has come to its end. The work is
    /// begun anew each time this candidate is elected; it is dropped when it may act no longer.
    pub async fn run<W: Future<Output = ()>>(
        &self,
        mut stop: watch::Receiver<bool>,
        mut work: impl FnMut() -> W,
    ) {
        let mut known = Knowledge::default();
        while self.acquire(&mut known, &mut stop).await {
            tracing::info!(lease = self.name, me = self.me, "elected");
            tokio::select! {
                // First, so that the work is never polled once the lease is lost.
                biased;
                () = self.keep(&mut known) => {
                    tracing::warn!(lease = self.name, me = self.me, "no longer the leader: nothing is done from here on");
                }
                () = work() => {
                    self.release(&mut known).await;
                    return;
                }
            }
            known.renewed = None;
        }
    }

    /// Waits until it is elected; false if it is to stop before that.
    async fn acquire(&self, known: &mut Knowledge, stop: &mut watch::Receiver<bool>) -> bool {
        loop {
            if *stop.borrow_and_update() {
                return false;
            }
            let again = Instant::now() + self.times.retry;
            match timeout(self.times.renew_within, self.try_to_acquire(known)).await {
                Ok(Ok(true)) => return true,
                Ok(Ok(false)) => {}
                Ok(Err(why)) => {
                    tracing::warn!(lease = self.name, why = kind_of(&why), "the lease cannot be had")
                }
                Err(_) => tracing::warn!(lease = self.name, "the server does not answer about the lease"),
            }
            tokio::select! {
                () = sleep_until(again) => {}
                changed = stop.changed() => if changed.is_err() { return false },
            }
        }
    }

    async fn try_to_acquire(&self, known: &mut Knowledge) -> Result<bool, Error> {
        self.read_lease(known).await?;
        if decide(&self.me, None, known.seen.as_ref(), &self.times, Instant::now()) != Step::Acquire {
            return Ok(false);
        }
        let begun = Instant::now();
        match self.write(known, &self.me, self.times.lease).await {
            Ok(()) => {
                known.renewed = Some(begun);
                Ok(true)
            }
            // Another one was faster.
            Err(Error::Api(status)) if status.code == 409 => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Renews until the lease is lost.
    async fn keep(&self, known: &mut Knowledge) {
        while let Some(renewed) = known.renewed {
            let now = Instant::now();
            if decide(&self.me, known.renewed, known.seen.as_ref(), &self.times, now) != Step::Renew {
                return;
            }
            let deadline = renewed + self.times.renew_within;
            sleep_until((now + self.times.retry).min(deadline)).await;
            let begun = Instant::now();
            match timeout_at(deadline, self.renew(known)).await {
                Ok(Ok(())) => known.renewed = Some(begun),
                Ok(Err(why)) => {
                    tracing::warn!(lease = self.name, why = kind_of(&why), "the lease could not be renewed")
                }
                Err(_) => tracing::warn!(lease = self.name, "the lease could not be renewed in time"),
            }
        }
    }

    async fn renew(&self, known: &mut Knowledge) -> Result<(), Error> {
        match self.write(known, &self.me, self.times.lease).await {
            // Taken or deleted by another, or written by us and the answer lost.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.read_lease(known).await?;
                if known.seen.as_ref().is_some_and(|seen| seen.holder == self.me) {
                    self.write(known, &self.me, self.times.lease).await
                } else {
                    Err(Error::Api(status))
                }
            }
            written => written,
        }
    }

    async fn release(&self, known: &mut Knowledge) {
        match timeout(RELEASE_WITHIN, self.write(known, "", Duration::from_secs(1))).await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "released"),
            Ok(Err(why)) => {
                tracing::warn!(
                    lease = self.name,
                    why = kind_of(&why),
                    "not released: others wait until it ends"
                )
            }
            Err(_) => tracing::warn!(lease = self.name, "not released in time: others wait until it ends"),
        }
    }

    async fn read_lease(&self, known: &mut Knowledge) -> Result<(), Error> {
        let lease = self.leases.get_opt(&self.name).await?;
        known.observe(lease, &self.times);
        Ok(())
    }

    /// Writes over what is known to be stored, or fails.
    async fn write(&self, known: &mut Knowledge, holder: &str, valid: Duration) -> Result<(), Error> {
        let now = MicroTime(self.clock.now());
        let mut lease = known.stored.clone().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let before = lease.spec.take().unwrap_or_default();
        let changes_hands = !holder.is_empty() && before.holder_identity.as_deref() != Some(holder);
        let exists = known.stored.is_some();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.to_string()),
            lease_duration_seconds: i32::try_from(valid.as_secs()).ok(),
            acquire_time: if changes_hands { Some(now.clone()) } else { before.acquire_time.clone() },
            lease_transitions: Some(
                before.lease_transitions.unwrap_or(0) + i32::from(changes_hands && exists),
            ),
            renew_time: Some(now),
            ..before
        });
        let written = if exists {
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?
        } else {
            self.leases.create(&PostParams::default(), &lease).await?
        };
        known.observe(Some(written), &self.times);
        Ok(())
    }
}
