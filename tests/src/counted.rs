//! A client whose calls are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use anyhow::Result;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::Service;

use crate::TestCluster;

#[derive(Debug, Default)]
pub struct Calls {
    pub reads: AtomicUsize,
    pub writes: AtomicUsize,
    /// Events are told beside the work, and counted apart.
    pub events: AtomicUsize,
}

/// A client of its own for a controller, as the manager makes it.
///
/// # Errors
/// The cluster's kubeconfig cannot be read.
pub async fn own_client(cluster: &TestCluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The same client, and the calls that go through it from now on.
#[must_use]
pub fn counted(inner: Client) -> (Client, Arc<Calls>) {
    let calls = Arc::<Calls>::default();
    (Client::new(CountingService { inner, calls: calls.clone() }, "default"), calls)
}

#[derive(Clone)]
struct CountingService {
    inner: Client,
    calls: Arc<Calls>,
}

impl Service<Request<Body>> for CountingService {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let counter = match *request.method() {
            Method::GET => &self.calls.reads,
            _ if request.uri().path().contains("/events") => &self.calls.events,
            _ => &self.calls.writes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let client = self.inner.clone();
        Box::pin(async move { client.send(request).await })
    }
}
