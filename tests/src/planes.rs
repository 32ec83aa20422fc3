//! How many real control planes the tests of one process start at a time. Each is a handful of processes and half a gigabyte, and tests
//! run on as many threads as the machine has.

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};

/// So many run side by side: most of the time, tests wait for them.
const AT_A_TIME: u32 = 2;

static PLANES: Semaphore = Semaphore::const_new(AT_A_TIME as usize);

/// A control plane may run beside others while this is held.
///
/// # Errors
/// Never: the semaphore is not closed.
pub async fn one() -> Result<SemaphorePermit<'static>> {
    Ok(PLANES.acquire().await?)
}

/// No other control plane of the suite runs while this is held, only seeds of lower priority: for tests in which real time counts, or that need the whole machine.
///
/// # Errors
/// Never: the semaphore is not closed.
pub async fn alone() -> Result<SemaphorePermit<'static>> {
    Ok(PLANES.acquire_many(AT_A_TIME).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_wants_to_be_alone_waits_for_the_others_and_keeps_them_waiting() {
        let (first, second) = (one().await.unwrap(), one().await.unwrap());
        assert!(PLANES.try_acquire().is_err(), "two at a time");
        drop(first);
        assert!(PLANES.try_acquire_many(AT_A_TIME).is_err(), "one is there");
        drop(second);
        let alone = alone().await.unwrap();
        assert!(PLANES.try_acquire().is_err(), "nobody beside");
        drop(alone);
        assert!(PLANES.try_acquire().is_ok());
    }
}
