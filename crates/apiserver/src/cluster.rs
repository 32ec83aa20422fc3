//! The handle that programs hold: a cluster as a tower service, or served on loopback.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use jiff::Timestamp;

use crate::admission::Caller;
use crate::attributes::User;
use crate::auth::MASTERS;
use crate::clock::Clock;
use crate::faults::{ClientService, Faults};
use crate::response::ServerResponse;
use crate::serve::{Scheme, Serving};
use crate::server::{Options, Server};
use crate::store::Store;

/// An API server with its objects. Clones share it.
#[derive(Clone)]
pub struct Cluster {
    server: Arc<Server>,
}

impl Cluster {
    /// A fresh one. Housekeeping, unless switched off, needs a tokio runtime to be running.
    pub fn new(options: Options) -> Self {
        Self { server: Server::new(options) }
    }

    /// For `kube::Client::new`: requests without a token come from the cluster's administrator.
    pub fn service(&self) -> ClusterService {
        self.service_as(administrator())
    }

    /// The same for another user.
    pub fn service_as(&self, user: User) -> ClusterService {
        ClusterService { server: self.server.clone(), user }
    }

    /// The same for a client that fault rules can name.
    pub fn client_as(&self, client: &str, user: User) -> ClientService {
        ClientService::new(self.server.clone(), client, user)
    }

    /// A client that fault rules can name, with the rights of the administrator.
    pub fn client(&self, name: &str) -> ClientService {
        self.client_as(name, administrator())
    }

    /// What goes wrong for clients that have names.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Serves TLS on a free loopback port, for kubectl and other clients that send tokens.
    pub async fn serve_https(&self) -> std::io::Result<Serving> {
        Serving::start(self.server.clone(), Scheme::Https).await
    }

    /// Serves plain HTTP on a free loopback port; whoever reaches it is the administrator.
    pub async fn serve_http(&self) -> std::io::Result<Serving> {
        Serving::start(self.server.clone(), Scheme::Http).await
    }

    /// What time it is on the cluster's clock.
    pub fn now(&self) -> Timestamp {
        self.server.now()
    }

    pub fn clock(&self) -> Arc<dyn Clock> {
        self.server.clock()
    }

    /// How long it really takes until it is `at` on the cluster's clock.
    pub fn time_until(&self, at: Timestamp) -> Duration {
        self.server.time_until(at)
    }

    /// Lets so much time pass on the cluster's clock.
    pub async fn pass(&self, time: Duration) {
        self.server.pass(time).await;
    }

    /// Where webhooks answer in this process.
    pub fn endpoints(&self) -> &Caller {
        &self.server.endpoints
    }

    /// All objects as they are stored, without asking for rights.
    pub fn store(&self) -> &Store {
        &self.server.store
    }

    /// How a kind is served, if it is.
    pub fn served_kind(&self, api_version: &str, kind: &str) -> Option<ServedKind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let registry = self.server.registry();
        let row = registry.by_kind(group, version, kind)?;
        Some(ServedKind { plural: row.plural.clone(), namespaced: row.namespaced })
    }
}

/// How a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedKind {
    pub plural: String,
    pub namespaced: bool,
}

pub(crate) fn administrator() -> User {
    User {
        name: "kubernetes-admin".into(),
        uid: String::new(),
        groups: vec![MASTERS.into(), crate::auth::AUTHENTICATED.into()],
    }
}

/// A tower service over the cluster, without any socket.
#[derive(Clone)]
pub struct ClusterService {
    server: Arc<Server>,
    user: User,
}

impl<B> tower::Service<Request<B>> for ClusterService
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = ServerResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<ServerResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.server.respond(request, Some(&this.user)).await) })
    }
}
