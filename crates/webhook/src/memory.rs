//! How much memory all reviews together may take.
//!
//! A review takes memory twice. While it comes in, for its bytes: whoever sends slowly holds them, so these are counted as they
//! arrive, and who has been sending for the longest makes way when there is no more. Once it is whole, for what is read of it:
//! lists of tiny pieces take about twenty times their bytes, and much of a review is never looked at.

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connections::Exchange;

/// The largest review. It has the object twice, and an object in the store has 1.5 MiB at most.
pub const REVIEW_MAX: usize = 7 << 19;
/// What all reviews take that are coming in. Six of the largest.
const COMING_MAX: usize = 2 * 6 * REVIEW_MAX;
/// What all reviews take that are judged. Two of the largest, and hundreds of the usual size.
const JUDGED_MAX: usize = 64 << 20;
/// Growing a buffer moves it.
const BYTES_COST: usize = 2;
/// Measured: see `tests/memory.rs`.
const READ_COST: usize = 20;
/// Nothing beyond this is read of one object, see `objects`.
const READ_MAX: usize = 3 << 19;
/// So long a review waits for memory before somebody else makes way for it.
const PRESS_EVERY: Duration = Duration::from_millis(100);
/// Semaphores count in these.
const UNIT: usize = 1024;

/// Why a review did not come whole.
#[derive(Debug)]
pub(crate) enum NotWhole {
    TooLarge,
    Broken,
}

#[derive(Debug, Clone)]
pub(crate) struct Memory {
    coming: Arc<Semaphore>,
    judged: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        let units = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT));
        Self { coming: units(COMING_MAX), judged: units(JUDGED_MAX) }
    }
}

/// Bytes, and the memory that they take.
pub(crate) struct Whole {
    pub bytes: Vec<u8>,
    _memory: Vec<OwnedSemaphorePermit>,
}

impl Memory {
    /// Reads a body as fast as there is memory for it.
    pub async fn collect<B>(&self, body: B, exchange: &Exchange) -> Result<Whole, NotWhole>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let is_announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if is_announced > REVIEW_MAX {
            return Err(NotWhole::TooLarge);
        }
        let mut body = pin!(body);
        let mut whole = Whole { bytes: Vec::new(), _memory: Vec::new() };
        let mut counted = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| NotWhole::Broken)?.into_data() else { continue };
            let length = whole.bytes.len() + data.remaining();
            if length > REVIEW_MAX {
                return Err(NotWhole::TooLarge);
            }
            let units = (length * BYTES_COST).div_ceil(UNIT);
            if units > counted {
                whole._memory.push(take(&self.coming, units - counted, Some(exchange)).await?);
                counted = units;
            }
            whole.bytes.extend_from_slice(&data);
        }
        Ok(whole)
    }

    /// Waits until there is memory to judge a review of this length.
    pub async fn to_judge(&self, length: usize) -> Result<OwnedSemaphorePermit, NotWhole> {
        let units = (length.min(READ_MAX) * READ_COST).div_ceil(UNIT).max(1);
        take(&self.judged, units, None).await
    }
}

async fn take(
    from: &Arc<Semaphore>,
    units: usize,
    exchange: Option<&Exchange>,
) -> Result<OwnedSemaphorePermit, NotWhole> {
    let units = u32::try_from(units).map_err(|_| NotWhole::TooLarge)?;
    let mut taken = pin!(from.clone().acquire_many_owned(units));
    loop {
        tokio::select! {
            biased;
            taken = &mut taken => return taken.map_err(|_| NotWhole::Broken),
            () = tokio::time::sleep(PRESS_EVERY) => {}
        }
        if let Some(exchange) = exchange {
            exchange.press();
        }
    }
}
