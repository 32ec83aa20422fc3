//! The cluster as one client sees it, faults included.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;

use super::broken_watch;
use super::rule::{Asked, Fault, Refusal};
use super::stale;
use crate::attributes::User;
use crate::error::ApiError;
use crate::request::{Path, Query, ResourcePath};
use crate::response::{self, ServerResponse};
use crate::rest;
use crate::server::Server;

/// The connection broke before an answer came; what was asked for may have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection was lost before an answer came; what was asked for may have been done")]
pub struct NoAnswer;

/// A tower service over the cluster for a client that rules can name. Without rules it is the cluster itself.
#[derive(Clone)]
pub struct ClientService {
    server: Arc<Server>,
    client: Arc<str>,
    user: User,
}

impl ClientService {
    pub(crate) fn new(server: Arc<Server>, client: &str, user: User) -> Self {
        Self { server, client: client.into(), user }
    }
}

impl<B> tower::Service<Request<B>> for ClientService
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = ServerResponse;
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<ServerResponse, NoAnswer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            if this.server.faults.is_quiet() {
                return Ok(this.server.respond(request, Some(&this.user)).await);
            }
            this.tried(request).await
        })
    }
}

impl ClientService {
    async fn tried<B>(&self, request: Request<B>) -> Result<ServerResponse, NoAnswer>
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let Path::Resource(path) = Path::parse(request.uri().path()) else {
            return Ok(self.server.respond(request, Some(&self.user)).await);
        };
        let verb = rest::verb(request.method(), &path, &Query::parse(request.uri().query()));
        let asked = asked(&self.client, verb, &path);
        let fault = self.server.faults.strike(&asked);
        match fault {
            Some(Fault::Refuse(refusal)) => return Ok(response::error(&refused(refusal, &path))),
            Some(Fault::Timeout { applied, answered, after }) => {
                if applied {
                    drop(self.server.respond(request, Some(&self.user)).await);
                }
                self.server.pass(after).await;
                return if answered { Ok(response::error(&timed_out())) } else { Err(NoAnswer) };
            }
            Some(Fault::Stale { revisions }) => {
                return Ok(stale::read(&self.server, &self.user, request, &path, revisions).await);
            }
            Some(Fault::Latency(time)) => self.server.pass(time).await,
            // These are about what comes of it.
            None
            | Some(
                Fault::DropWatch { .. }
                | Fault::StallWatch { .. }
                | Fault::LateWatch { .. }
                | Fault::Webhook(_),
            ) => {}
        }
        let response = self.server.respond(request, Some(&self.user)).await;
        if verb == "watch" {
            return Ok(broken_watch::following(response, &self.server, &asked, fault));
        }
        Ok(response)
    }
}

fn asked<'a>(client: &'a str, verb: &'a str, path: &'a ResourcePath) -> Asked<'a> {
    Asked {
        client,
        verb,
        resource: &path.resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        namespace: path.namespace.as_deref().unwrap_or_default(),
        name: path.name.as_deref().unwrap_or_default(),
    }
}

fn refused(refusal: Refusal, path: &ResourcePath) -> ApiError {
    match refusal {
        Refusal::Conflict => {
            let name = path.name.as_deref().unwrap_or_default();
            let resource = match path.group.as_str() {
                "" => path.resource.clone(),
                group => format!("{}.{group}", path.resource),
            };
            ApiError::new(
                409,
                "Conflict",
                format!(
                    "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply \
                     your changes to the latest version and try again"
                ),
            )
        }
        Refusal::TooManyRequests { retry_after } => {
            let mut error = ApiError::new(
                429,
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            );
            error.retry_after = Some(retry_after);
            error
        }
        Refusal::Internal => {
            ApiError::new(500, "InternalError", "Internal error occurred: a fault was asked for")
        }
        Refusal::Unavailable => {
            ApiError::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        }
    }
}

fn timed_out() -> ApiError {
    ApiError::new(
        504,
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    )
}

impl Server {
    /// Waits for a time of the cluster's clock.
    pub(crate) async fn pass(&self, time: Duration) {
        let at = jiff::SignedDuration::try_from(time).ok().and_then(|time| self.now().checked_add(time).ok());
        tokio::time::sleep(self.time_until(at.unwrap_or(jiff::Timestamp::MAX))).await;
    }
}
