//! Pods and requests are watched once in a process, and kept once, whichever controllers look at them.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::Client;
use tokio::task::JoinSet;
use usher_decide::snapshot::{Key, Pod, PodOnWire, Request, RequestOnWire};

use crate::intern::Interner;
use crate::watch::{NewsStream, Told, follow};

/// What a controller hears of pods and requests. The watches end with the last one who hears of them.
pub struct Ear {
    pub(crate) pods: UnboundedReceiver<Told<Arc<Pod>, Key>>,
    pub(crate) requests: UnboundedReceiver<Told<Arc<Request>, Key>>,
    pub(crate) watches: Arc<JoinSet<()>>,
}

/// The two ends of what is told.
type Line<T> = (UnboundedSender<Told<Arc<T>, Key>>, UnboundedReceiver<Told<Arc<T>, Key>>);

/// Starts the watches, for so many controllers.
#[must_use]
pub fn listen<const N: usize>(client: &Client) -> [Ear; N] {
    let lines: [(Line<Pod>, Line<Request>); N] = std::array::from_fn(|_| (unbounded(), unbounded()));
    let mut watches = JoinSet::new();
    let mut interner = Interner::default();
    watches.spawn(tell(
        follow::<PodOnWire, Pod>(client.clone()),
        lines.each_ref().map(|((to, _), _)| to.clone()),
        move |pod| interner.pod(pod),
    ));
    let mut interner = Interner::default();
    watches.spawn(tell(
        follow::<RequestOnWire, Request>(client.clone()),
        lines.each_ref().map(|(_, (to, _))| to.clone()),
        move |request| interner.request(request),
    ));
    let watches = Arc::new(watches);
    lines.map(|((_, pods), (_, requests))| Ear { pods, requests, watches: watches.clone() })
}

async fn tell<T, const N: usize>(
    mut news: NewsStream<Told<T, Key>>,
    to: [UnboundedSender<Told<Arc<T>, Key>>; N],
    mut slim: impl FnMut(&mut T),
) {
    while let Some(told) = news.next().await {
        let told = told.map(|mut object| {
            slim(&mut object);
            Arc::new(object)
        });
        for ear in &to {
            // Whoever does not listen any more does not hear it.
            let _ = ear.unbounded_send(told.clone());
        }
    }
}
