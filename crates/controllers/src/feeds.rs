//! What several controllers look at is watched once in a process, and kept once.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::Client;
use tokio::task::JoinSet;
use usher_api::NodeMaintenance;
use usher_decide::snapshot::{
    DaemonSet, DaemonSetOnWire, Maintenance, Namespace, NamespaceOnWire, Pod, PodOnWire, Request,
    RequestOnWire,
};

use crate::watch::{EventStream, Keyed, WatchEvent, watch};

/// What a subscriber is told of one kind.
type SharedEvent<T> = WatchEvent<Arc<T>, <T as Keyed>::Key>;
pub(crate) type Subscription<T> = UnboundedReceiver<SharedEvent<T>>;

/// Those who have subscribed to one kind.
struct Feed<T: Keyed>(Vec<UnboundedSender<SharedEvent<T>>>);

impl<T: Keyed> Feed<T> {
    fn subscribe(&mut self) -> Subscription<T> {
        let (sender, receiver) = unbounded();
        self.0.push(sender);
        receiver
    }
}

impl<T: Keyed> Default for Feed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The watches that controllers share. All subscribe, then they are started; what nobody subscribed to is not watched.
#[derive(Default)]
pub struct Feeds {
    pods: Feed<Pod>,
    requests: Feed<Request>,
    maintenances: Feed<Maintenance>,
    daemon_sets: Feed<DaemonSet>,
    namespaces: Feed<Namespace>,
}

impl Feeds {
    pub(crate) fn pods(&mut self) -> Subscription<Pod> {
        self.pods.subscribe()
    }

    pub(crate) fn requests(&mut self) -> Subscription<Request> {
        self.requests.subscribe()
    }

    pub(crate) fn maintenances(&mut self) -> Subscription<Maintenance> {
        self.maintenances.subscribe()
    }

    pub(crate) fn daemon_sets(&mut self) -> Subscription<DaemonSet> {
        self.daemon_sets.subscribe()
    }

    pub(crate) fn namespaces(&mut self) -> Subscription<Namespace> {
        self.namespaces.subscribe()
    }

    /// Starts the watches. They end when this is dropped.
    #[must_use]
    pub fn start(self, client: &Client) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        feed(&mut watches, self.pods, || watch::<PodOnWire, Pod>(client.clone()));
        feed(&mut watches, self.requests, || watch::<RequestOnWire, Request>(client.clone()));
        feed(&mut watches, self.maintenances, || watch::<NodeMaintenance, Maintenance>(client.clone()));
        feed(&mut watches, self.daemon_sets, || watch::<DaemonSetOnWire, DaemonSet>(client.clone()));
        feed(&mut watches, self.namespaces, || watch::<NamespaceOnWire, Namespace>(client.clone()));
        watches
    }
}

fn feed<T: Keyed + Send + Sync + 'static>(
    watches: &mut JoinSet<()>,
    Feed(to): Feed<T>,
    watch: impl FnOnce() -> EventStream<WatchEvent<T, T::Key>>,
) {
    if to.is_empty() {
        return;
    }
    let mut events = watch();
    watches.spawn(async move {
        while let Some(event) = events.next().await {
            let event = event.map(Arc::new);
            for subscriber in &to {
                // Whoever does not listen any more is not told.
                let _ = subscriber.unbounded_send(event.clone());
            }
        }
    });
}
