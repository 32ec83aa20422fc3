//! What controllers have in common: watches that go on after errors, lists that tell what is gone, and timers.

use std::collections::HashSet;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource as _};
use usher_api::lenient::Lenient;
use usher_apply::{Clock, kind_of};
pub use usher_decide::snapshot::WatchEvent;
use usher_decide::snapshot::{
    Autoscaler, Budget, DaemonSet, Deployment, Key, Maintenance, Namespace, Node, Pod, ReplicaSet, Request,
    StatefulSet, TaintedNode,
};

use crate::intern::Interner;
use crate::pauses::Pauses;

/// Timers are set for no longer than this, so that they always fit.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

pub type EventStream<E> = Pin<Box<dyn Stream<Item = E> + Send>>;

/// What an object is kept by.
pub trait Keyed {
    type Key: Clone + Eq + Hash + Send + Sync + 'static;

    /// So many are asked for at a time in a list. All of a part are in memory at once, in the text of the answer too.
    const PAGE: u32;

    fn key(&self) -> Self::Key;

    /// Of one that cannot be read any further.
    fn key_of(metadata: &ObjectMeta) -> Self::Key;

    /// Shares what thousands have in common.
    fn intern(&mut self, _: &mut Interner) {}
}

macro_rules! keyed {
    ($($kind:ty),*: $field:ident as $key:ty, $key_of:expr, $page:expr) => {
        keyed!($($kind),*: $field as $key, $key_of, $page, |_, _| ());
    };
    ($($kind:ty),*: $field:ident as $key:ty, $key_of:expr, $page:expr, $intern:expr) => {
        $(impl Keyed for $kind {
            type Key = $key;
            const PAGE: u32 = $page;

            fn key(&self) -> $key {
                self.$field.clone()
            }

            fn key_of(metadata: &ObjectMeta) -> $key {
                $key_of(metadata)
            }

            fn intern(&mut self, interner: &mut Interner) {
                let intern: fn(&mut Interner, &mut Self) = $intern;
                intern(interner, self);
            }
        })*
    };
}

/// Most objects are small.
pub(crate) const PAGE: u32 = 500;
/// Whoever writes a status can make it half a megabyte, and a status of many nodes is as large without anybody's ill will.
const PAGE_OF_LARGE: u32 = 50;

keyed!(Pod: key as Key, key_in_namespace, PAGE, Interner::pod);
keyed!(Budget, DaemonSet, StatefulSet, Autoscaler: key as Key, key_in_namespace, PAGE);
// They carry whole templates of pods.
keyed!(Deployment, ReplicaSet: key as Key, key_in_namespace, PAGE_OF_LARGE);
keyed!(Request: key as Key, key_in_namespace, PAGE_OF_LARGE, Interner::request);
keyed!(Namespace, Node, TaintedNode: name as Arc<str>, name_of, PAGE);
keyed!(Maintenance: name as Arc<str>, name_of, PAGE_OF_LARGE);

pub(crate) fn name_of(metadata: &ObjectMeta) -> Arc<str> {
    metadata.name.clone().unwrap_or_default().into()
}

pub(crate) fn key_in_namespace(metadata: &ObjectMeta) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&metadata.namespace), text(&metadata.name))
}

/// A watch that starts anew after errors, with pauses that grow until a whole list was read. Objects that cannot be read are
/// counted and told, and left out: whoever wrote them holds up nobody else.
pub fn watch<W, T>(client: Client) -> EventStream<WatchEvent<T, T::Key>>
where
    W: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
    T: From<W> + Keyed + Send + 'static,
{
    watch_if_allowed(client).filter_map(std::future::ready).boxed()
}

/// The same, with nothing instead of an event each time that it is forbidden.
pub fn watch_if_allowed<W, T>(client: Client) -> EventStream<Option<WatchEvent<T, T::Key>>>
where
    W: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
    T: From<W> + Keyed + Send + 'static,
{
    let kind = W::kind(&()).into_owned();
    let events =
        watcher(Api::<Lenient<W>>::all(client), watcher::Config::default().page_size(T::PAGE)).boxed();
    let state = (events, Pauses::default(), Reader::<T>::new(kind));
    Box::pin(futures::stream::unfold(state, |(mut events, mut pauses, mut reader)| async {
        loop {
            let mut is_forbidden = false;
            let told = match events.next().await? {
                Ok(event) => {
                    // A list that has only begun may fail again at the same object.
                    if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                        pauses.reset();
                    }
                    reader.read(event)
                }
                Err(why) => {
                    tracing::warn!(kind = reader.kind, why = summary(&why), "a watch was interrupted");
                    tracing::debug!(kind = reader.kind, %why, "a watch was interrupted");
                    is_forbidden = forbids(&why);
                    if let Some(pause) = pauses.next() {
                        tokio::time::sleep(pause).await;
                    }
                    None
                }
            };
            if told.is_some() || is_forbidden {
                return Some((told, (events, pauses, reader)));
            }
        }
    }))
}

fn forbids(why: &watcher::Error) -> bool {
    match why {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 403,
        watcher::Error::WatchError(status) => status.code == 403,
        _ => false,
    }
}

/// What went wrong, without anything that the server sent.
fn summary(why: &watcher::Error) -> String {
    let (what, why) = match why {
        watcher::Error::InitialListFailed(why) => ("listing", why),
        watcher::Error::WatchStartFailed(why) => ("starting to watch", why),
        watcher::Error::WatchFailed(why) => ("watching", why),
        watcher::Error::WatchError(status) => {
            return format!("watching was answered with {} {}", status.code, status.reason);
        }
        watcher::Error::NoResourceVersion => return "a list had no resource version".to_owned(),
    };
    format!("{what} failed: {}", kind_of(why))
}

/// So many objects that cannot be read are named in the log; the others are counted.
const NAMED_MAX: usize = 100;

struct Reader<T: Keyed> {
    kind: String,
    interner: Interner,
    /// The keys of a list that is being read.
    listed: HashSet<T::Key>,
    /// Those that could not be read, each of which is named once.
    unreadable: HashSet<T::Key>,
}

impl<T: Keyed> Reader<T> {
    fn new(kind: String) -> Self {
        Self { kind, interner: Interner::default(), listed: HashSet::new(), unreadable: HashSet::new() }
    }

    fn read<W: kube::Resource<DynamicType = ()>>(
        &mut self,
        event: watcher::Event<Lenient<W>>,
    ) -> Option<WatchEvent<T, T::Key>>
    where
        T: From<W>,
    {
        match event {
            watcher::Event::Apply(object) => self.object(object).map(WatchEvent::Applied),
            watcher::Event::InitApply(object) => {
                // One that cannot be read is there all the same.
                let key = T::key_of(object.meta());
                let read = self.object(object);
                self.listed.insert(read.as_ref().map_or(key, T::key));
                read.map(WatchEvent::Applied)
            }
            watcher::Event::Delete(object) => {
                let key = T::key_of(object.meta());
                self.forget(&key);
                Some(WatchEvent::Deleted(key))
            }
            watcher::Event::Init => {
                self.listed.clear();
                None
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.unreadable.retain(|key| listed.contains(key));
                unreadable::count(&self.kind, self.unreadable.len());
                Some(WatchEvent::Listed(Arc::new(listed)))
            }
        }
    }

    fn object<W: kube::Resource<DynamicType = ()>>(&mut self, object: Lenient<W>) -> Option<T>
    where
        T: From<W>,
    {
        match object.read() {
            Ok(object) => {
                let mut object = T::from(object);
                object.intern(&mut self.interner);
                if !self.unreadable.is_empty() {
                    self.forget(&object.key());
                }
                Some(object)
            }
            Err(object) => {
                if self.unreadable.insert(T::key_of(&object.metadata)) && self.unreadable.len() <= NAMED_MAX {
                    tracing::error!(
                        kind = self.kind,
                        "{object}; it is left out, and what was known of it holds"
                    );
                }
                unreadable::count(&self.kind, self.unreadable.len());
                None
            }
        }
    }

    fn forget(&mut self, key: &T::Key) {
        if self.unreadable.remove(key) {
            unreadable::count(&self.kind, self.unreadable.len());
        }
    }
}

/// How many objects of each kind cannot be read now, in this process: its metrics show it.
pub mod unreadable {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;

    static COUNTS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

    pub(super) fn count(kind: &str, count: usize) {
        let mut counts = COUNTS.lock();
        if count > 0 || counts.contains_key(kind) {
            counts.insert(kind.to_owned(), count);
        }
    }

    #[must_use]
    pub fn counts() -> BTreeMap<String, usize> {
        COUNTS.lock().clone()
    }
}

/// Sleeps until a time of the clock; for ever without one.
pub async fn sleep_until(clock: &Clock, due: Option<Timestamp>) {
    match due {
        Some(at) => tokio::time::sleep(clock.time_until(at).min(LONGEST_SLEEP)).await,
        None => std::future::pending().await,
    }
}
