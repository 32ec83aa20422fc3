//! A defect that shows with one object costs that object alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt as _;

/// What was begun has panicked; the panic hook has told where.
#[derive(Debug, PartialEq, Eq)]
pub struct Panicked;

/// # Errors
/// It panicked.
pub fn guarded<T>(decide: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(decide)).map_err(|_| Panicked)
}

/// # Errors
/// It panicked.
pub async fn guarded_async<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_and_goes_no_further() {
        let overflow = |count: i32| count.checked_add(1).unwrap();
        assert_eq!(guarded(|| overflow(1)), Ok(2));
        assert_eq!(guarded(|| overflow(i32::MAX)), Err(Panicked));
        assert_eq!(guarded_async(async { overflow(i32::MAX) }).await, Err(Panicked));
    }
}
