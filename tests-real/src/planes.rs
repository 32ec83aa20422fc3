//! Limits how many real control planes one test process starts at once. Each takes a handful of processes and half a gigabyte, and
//! tests run on as many threads as the machine has.

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of control planes at once. Two keep two cores busy, because tests wait for them most of the time.
pub const LIMIT: u32 = 2;

static PLANES: Semaphore = Semaphore::const_new(LIMIT as usize);

/// Waits for a free place; other control planes may run at the same time.
///
/// # Errors
/// Never: nothing closes the semaphore.
pub async fn one() -> Result<SemaphorePermit<'static>> {
    Ok(PLANES.acquire().await?)
}

/// Waits until no other control plane of this process runs, and keeps others waiting: for tests in which real time counts, or
/// that need the whole machine.
///
/// # Errors
/// Never: nothing closes the semaphore.
pub async fn alone() -> Result<SemaphorePermit<'static>> {
    Ok(PLANES.acquire_many(LIMIT).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plane_that_runs_alone_waits_for_the_others_and_keeps_them_waiting() {
        let (first, second) = (one().await.unwrap(), one().await.unwrap());
        assert!(PLANES.try_acquire().is_err(), "two at once");
        drop(first);
        assert!(PLANES.try_acquire_many(LIMIT).is_err(), "one still runs");
        drop(second);
        let alone = alone().await.unwrap();
        assert!(PLANES.try_acquire().is_err(), "no other plane starts");
        drop(alone);
        assert!(PLANES.try_acquire().is_ok());
    }
}
