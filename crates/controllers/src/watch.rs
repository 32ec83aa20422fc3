//! What controllers have in common: watches that go on after errors, lists that tell what is gone, and timers.

use std::collections::HashSet;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use usher_apply::Clock;

use crate::pauses::Pauses;

/// Timers are set for no longer than this, so that they always fit.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

pub type NewsStream<N> = Pin<Box<dyn Stream<Item = N> + Send>>;

/// A watch that starts anew after errors, with pauses.
pub fn follow<K, N: 'static>(api: Api<K>, into: fn(watcher::Event<K>) -> N) -> NewsStream<N>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let events = watcher(api, watcher::Config::default()).backoff(Pauses::default());
    Box::pin(events.filter_map(move |event| async move {
        match event {
            Ok(event) => Some(into(event)),
            Err(why) => {
                tracing::warn!(kind = %K::kind(&()), %why, "a watch was interrupted");
                None
            }
        }
    }))
}

/// The keys of a list that is being read.
#[derive(Debug)]
pub struct Listing<K> {
    seen: HashSet<K>,
    /// It was read to its end once.
    pub is_known: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { seen: HashSet::new(), is_known: false }
    }
}

/// What a watch tells of one kind.
#[derive(Debug, Clone)]
pub enum Told<T, K> {
    Seen(T),
    Gone(T),
    /// A new list is complete: what is not in it is gone.
    Only(Arc<HashSet<K>>),
    Nothing,
}

impl<T, K> Told<T, K> {
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Told<U, K> {
        match self {
            Self::Seen(object) => Told::Seen(into(object)),
            Self::Gone(object) => Told::Gone(into(object)),
            Self::Only(there) => Told::Only(there),
            Self::Nothing => Told::Nothing,
        }
    }
}

impl<K: Eq + Hash> Listing<K> {
    pub fn told<W, T: From<W>>(&mut self, event: watcher::Event<W>, key: impl Fn(&T) -> K) -> Told<T, K> {
        match event {
            watcher::Event::Apply(object) => Told::Seen(T::from(object)),
            watcher::Event::InitApply(object) => {
                let object = T::from(object);
                self.seen.insert(key(&object));
                Told::Seen(object)
            }
            watcher::Event::Delete(object) => Told::Gone(T::from(object)),
            watcher::Event::Init => {
                self.seen.clear();
                Told::Nothing
            }
            watcher::Event::InitDone => {
                self.is_known = true;
                Told::Only(Arc::new(std::mem::take(&mut self.seen)))
            }
        }
    }
}

/// Sleeps until a time of the clock; for ever without one.
pub async fn sleep_until(clock: &Clock, due: Option<Timestamp>) {
    match due {
        Some(at) => tokio::time::sleep(clock.time_until(at).min(LONGEST_SLEEP)).await,
        None => std::future::pending().await,
    }
}
