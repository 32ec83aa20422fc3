//! Pods and requests are watched once in a process, and kept once, whichever controllers look at them.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::Client;
use tokio::task::JoinSet;
use usher_decide::snapshot::{Key, Pod, PodOnWire, Request, RequestOnWire};

use crate::intern::Interner;
use crate::watch::{EventStream, WatchEvent, watch};

/// What a controller is told of pods and requests. The watches end with the last subscription.
pub struct Subscription {
    pub(crate) pods: UnboundedReceiver<WatchEvent<Arc<Pod>, Key>>,
    pub(crate) requests: UnboundedReceiver<WatchEvent<Arc<Request>, Key>>,
    pub(crate) watches: Arc<JoinSet<()>>,
}

/// Starts the watches, for so many controllers.
#[must_use]
pub fn subscribe(client: &Client, controllers: usize) -> Vec<Subscription> {
    let (to_pods, pods): (Vec<_>, Vec<_>) = (0..controllers).map(|_| unbounded()).unzip();
    let (to_requests, requests): (Vec<_>, Vec<_>) = (0..controllers).map(|_| unbounded()).unzip();
    let mut watches = JoinSet::new();
    let mut interner = Interner::default();
    watches.spawn(tell(watch::<PodOnWire, Pod>(client.clone()), to_pods, move |pod| interner.pod(pod)));
    let mut interner = Interner::default();
    watches.spawn(tell(watch::<RequestOnWire, Request>(client.clone()), to_requests, move |request| {
        interner.request(request);
    }));
    let watches = Arc::new(watches);
    let both = pods.into_iter().zip(requests);
    both.map(|(pods, requests)| Subscription { pods, requests, watches: watches.clone() }).collect()
}

async fn tell<T>(
    mut events: EventStream<WatchEvent<T, Key>>,
    to: Vec<UnboundedSender<WatchEvent<Arc<T>, Key>>>,
    mut slim: impl FnMut(&mut T),
) {
    while let Some(event) = events.next().await {
        let event = event.map(|mut object| {
            slim(&mut object);
            Arc::new(object)
        });
        for subscriber in &to {
            // Whoever does not listen any more is not told.
            let _ = subscriber.unbounded_send(event.clone());
        }
    }
}
