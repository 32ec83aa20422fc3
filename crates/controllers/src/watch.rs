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
pub fn follow<W, T, K>(api: Api<W>, key: fn(&T) -> K) -> NewsStream<Told<T, K>>
where
    W: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
    T: From<W> + Send + 'static,
    K: Eq + Hash + Send + Sync + 'static,
{
    let events = watcher(api, watcher::Config::default()).backoff(Pauses::default());
    let mut listed = HashSet::new();
    Box::pin(events.filter_map(move |event| {
        let told = match event {
            Ok(event) => told(event, key, &mut listed),
            Err(why) => {
                tracing::warn!(kind = %W::kind(&()), %why, "a watch was interrupted");
                None
            }
        };
        std::future::ready(told)
    }))
}

/// What a watch tells of one kind.
#[derive(Debug, Clone)]
pub enum Told<T, K> {
    Seen(T),
    Gone(T),
    /// A new list is complete: what is not in it is gone.
    Only(Arc<HashSet<K>>),
}

impl<T, K> Told<T, K> {
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Told<U, K> {
        match self {
            Self::Seen(object) => Told::Seen(into(object)),
            Self::Gone(object) => Told::Gone(into(object)),
            Self::Only(there) => Told::Only(there),
        }
    }
}

/// `listed` are the keys of a list that is being read.
fn told<W, T: From<W>, K: Eq + Hash>(
    event: watcher::Event<W>,
    key: fn(&T) -> K,
    listed: &mut HashSet<K>,
) -> Option<Told<T, K>> {
    Some(match event {
        watcher::Event::Apply(object) => Told::Seen(T::from(object)),
        watcher::Event::InitApply(object) => {
            let object = T::from(object);
            listed.insert(key(&object));
            Told::Seen(object)
        }
        watcher::Event::Delete(object) => Told::Gone(T::from(object)),
        watcher::Event::Init => {
            listed.clear();
            return None;
        }
        watcher::Event::InitDone => Told::Only(Arc::new(std::mem::take(listed))),
    })
}

/// Sleeps until a time of the clock; for ever without one.
pub async fn sleep_until(clock: &Clock, due: Option<Timestamp>) {
    match due {
        Some(at) => tokio::time::sleep(clock.time_until(at).min(LONGEST_SLEEP)).await,
        None => std::future::pending().await,
    }
}
