//! Calling webhooks, in this process or over HTTPS.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::Value;

use super::hook::{Hook, Target, with_path};
use super::review::Review;
use super::transport::Transport;
use crate::faults::{Asked, Fault, Faults, Outage};

/// Answers AdmissionReviews in this process; an error stands for a webhook that cannot be reached.
pub type InProcess = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// What really answers behind a service or URL.
#[derive(Clone)]
pub enum Endpoint {
    InProcess(InProcess),
    /// HTTPS at this address; the certificate must be for the name in the configuration.
    Address(SocketAddr),
}

/// An endpoint from an async function.
pub fn in_process<F, Fut>(answer: F) -> Endpoint
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, String>> + Send + 'static,
{
    Endpoint::InProcess(Arc::new(move |review| Box::pin(answer(review))))
}

/// Finds and calls webhooks. One for the life of the server, as it keeps connections open.
#[derive(Default)]
pub struct Caller {
    services: RwLock<HashMap<(String, String), Endpoint>>,
    urls: RwLock<HashMap<String, Endpoint>>,
    transport: Transport,
    faults: Option<Faults>,
}

impl Caller {
    /// Calls fail where the rules say so.
    pub(crate) fn failing_by(faults: Faults) -> Self {
        Self { faults: Some(faults), ..Self::default() }
    }

    fn outage(&self, hook: &Hook) -> Option<Outage> {
        let asked =
            Asked { client: "kube-apiserver", verb: "call", resource: &hook.name, ..Asked::default() };
        match self.faults.as_ref()?.strike(&asked)? {
            Fault::Webhook(outage) => Some(outage),
            _ => None,
        }
    }

    /// Webhooks that name this service are answered by the endpoint. There is no other way to reach a service.
    pub fn register_service(&self, namespace: &str, name: &str, endpoint: Endpoint) {
        self.services.write().insert((namespace.to_string(), name.to_string()), endpoint);
    }

    /// The service is gone; calls fail from now on.
    pub fn unregister_service(&self, namespace: &str, name: &str) {
        self.services.write().remove(&(namespace.to_string(), name.to_string()));
    }

    /// Webhooks with exactly this URL are answered by the endpoint instead of by who listens there.
    pub fn register_url(&self, url: &str, endpoint: Endpoint) {
        self.urls.write().insert(with_path(url), endpoint);
    }

    /// Asks the webhook. The error completes the sentence "failed to call webhook: ...".
    pub(super) async fn call(&self, hook: &Hook, review: &Review<'_>) -> Result<Value, String> {
        let url = format!("{}?timeout={}s", hook.target.url, hook.timeout.as_secs());
        let outage = self.outage(hook);
        let answer = tokio::time::timeout(hook.timeout, async {
            match outage {
                None => self.answer(&hook.target, &url, review).await,
                Some(Outage::Refused) => Err(post_error(&url, "connect: connection refused")),
                Some(Outage::Silent) => std::future::pending().await,
            }
        });
        answer.await.unwrap_or_else(|_| Err(post_error(&url, "context deadline exceeded")))
    }

    async fn answer(&self, target: &Target, url: &str, review: &Review<'_>) -> Result<Value, String> {
        let registered = match &target.service {
            Some(service) => self.services.read().get(service).cloned(),
            None => self.urls.read().get(&target.url).cloned(),
        };
        let address = match (registered, &target.service) {
            (Some(Endpoint::InProcess(answer)), _) => {
                let review = review.to_value().map_err(|problem| problem.to_string())?;
                return answer(review).await.map_err(|problem| post_error(url, &problem));
            }
            (Some(Endpoint::Address(address)), _) => Some(address),
            (None, None) => None,
            (None, Some((_, name))) => return Err(post_error(url, &format!("service {name:?} not found"))),
        };
        let body = serde_json::to_vec(review).map_err(|problem| problem.to_string())?;
        let posted = self.transport.post(url, &target.ca_bundle, address, body).await;
        let (status, body) = posted.map_err(|problem| post_error(url, &problem))?;
        if !(200..300).contains(&status) {
            return Err(status_error(status));
        }
        serde_json::from_slice::<Value>(&body)
            .map_err(|problem| problem.to_string())
            .and_then(|answer| if answer.is_object() { Ok(answer) } else { Err("not an object".to_string()) })
            .map_err(|problem| format!("couldn't get version/kind; json parse error: {problem}"))
    }
}

fn post_error(url: &str, problem: &str) -> String {
    format!("Post {url:?}: {problem}")
}

/// The words for an answer of HTTP that is no success.
fn status_error(status: u16) -> String {
    let words = match status {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => "unknown",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => r#"an error on the server ("unknown") has prevented the request from succeeding"#,
        other => {
            return format!(
                "the server responded with the status code {other} but did not return more information"
            );
        }
    };
    words.to_string()
}
