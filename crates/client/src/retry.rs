//! Trying a write again after somebody else was faster.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::sleep;

/// How often it is tried, and how long the first pause is. Together about 13 seconds, so that a request that is just going away can be
/// made anew.
pub const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// After this attempt, counted from 0. Those who were in each other's way wait for different times, each always for the same.
pub async fn pause(who: &str, attempt: u32) {
    let mut hasher = DefaultHasher::new();
    (who, attempt).hash(&mut hasher);
    let whole = FIRST_PAUSE * 2_u32.pow(attempt);
    sleep(whole / 2 + whole.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)).await;
}
