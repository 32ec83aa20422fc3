//! Who may read metrics: whoever the API server knows by the token it sends, and lets get the path `/metrics`.
//!
//! The same as kube-rbac-proxy and controller-runtime ask: a TokenReview, then a SubjectAccessReview. Consent is remembered for a
//! while, so that scrapes cost the API server little.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use usher_apply::kind_of;

use super::http::Page;

/// How long consent is remembered. A token that was taken back counts for so long.
const REMEMBERED: Duration = Duration::from_secs(30);
/// How many consents are remembered.
const ROOM: usize = 64;
/// Strangers with made-up tokens cost the API server so many questions at a time.
const AT_A_TIME: usize = 4;
/// A longer token is none: service account tokens have about 1 KiB.
const TOKEN_MAX: usize = 8 << 10;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Cheap to clone.
#[derive(Clone)]
pub struct Scrapers {
    client: Client,
    consents: Arc<Mutex<HashMap<String, Instant>>>,
    asking: Arc<Semaphore>,
}

impl Scrapers {
    /// The client needs to create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self { client, consents: Arc::default(), asking: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// `Some` is the answer to who may not.
    pub async fn refuse(&self, path: &str, headers: &HeaderMap) -> Option<Page> {
        let Some(token) = bearer(headers) else {
            return Some(Page::text(
                StatusCode::UNAUTHORIZED,
                "send the token of a service account: Authorization: Bearer TOKEN",
            ));
        };
        if self.consents.lock().get(token).is_some_and(|until| Instant::now() < *until) {
            return None;
        }
        match timeout(ANSWER_WITHIN, self.ask(token, path)).await {
            Ok(Ok(Access::Allowed)) => {
                self.remember(token);
                None
            }
            Ok(Ok(Access::Unknown)) => {
                Some(Page::text(StatusCode::UNAUTHORIZED, "the cluster does not know this token"))
            }
            Ok(Ok(Access::Denied)) => Some(Page::text(
                StatusCode::FORBIDDEN,
                "bind the ClusterRole usher-metrics-reader: it lets you get the path /metrics",
            )),
            Ok(Err(why)) => {
                tracing::warn!(why = kind_of(&why), "nobody knows whether a scraper may read metrics");
                tracing::debug!(%why, "the answer");
                Some(Page::text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "your rights cannot be found out; try again",
                ))
            }
            Err(_) => {
                Some(Page::text(StatusCode::SERVICE_UNAVAILABLE, "the API server did not answer in time"))
            }
        }
    }

    fn remember(&self, token: &str) {
        let now = Instant::now();
        let mut consents = self.consents.lock();
        consents.retain(|_, until| now < *until);
        if consents.len() < ROOM {
            consents.insert(token.to_owned(), now + REMEMBERED);
        }
    }

    async fn ask(&self, token: &str, path: &str) -> kube::Result<Access> {
        // It is never closed.
        let _turn = self.asking.acquire().await;
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let known = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let (Some(true), Some(user)) = (known.authenticated, known.user) else { return Ok(Access::Unknown) };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &may_get(user, path)).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Access::Allowed } else { Access::Denied })
    }
}

enum Access {
    Allowed,
    Denied,
    Unknown,
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_MAX).then_some(token)
}

fn may_get(user: UserInfo, path: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::convert::Infallible;

    /// An API server that knows two tokens and lets one of their owners read metrics.
    fn scrapers(asked: Arc<Mutex<usize>>) -> Scrapers {
        let service = tower::service_fn(move |request: Request<Body>| {
            *asked.lock() += 1;
            async move {
                let path = request.uri().path().to_owned();
                let sent = request.into_body().collect_bytes().await.unwrap();
                let sent: Value = serde_json::from_slice(&sent).unwrap();
                let spec = &sent["spec"];
                let status = if path.ends_with("/tokenreviews") {
                    match spec["token"].as_str() {
                        Some(token @ ("prometheus" | "tenant")) => {
                            json!({"authenticated": true, "user": {"username": token, "groups": ["g"]}})
                        }
                        _ => json!({"authenticated": false, "user": {"username": "forged"}}),
                    }
                } else {
                    assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
                    assert_eq!(spec["groups"], json!(["g"]));
                    json!({"allowed": spec["user"] == "prometheus"})
                };
                let answer = json!({"spec": {}, "status": status}).to_string();
                Ok::<_, Infallible>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        Scrapers::new(Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_for_who_may_get_them() {
        let asked = Arc::new(Mutex::new(0));
        let scrapers = scrapers(asked.clone());
        let code = async |authorization: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(text) = authorization {
                headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            }
            scrapers.refuse("/metrics", &headers).await.map_or(200, |page| page.code().as_u16())
        };
        for (authorization, wanted) in [
            (None, 401),
            (Some("Basic cHJvbWV0aGV1cw=="), 401),
            (Some("Bearer "), 401),
            (Some("Bearer made-up"), 401),
            (Some("Bearer tenant"), 403),
            (Some("Bearer prometheus"), 200),
            (Some("bearer prometheus"), 200),
        ] {
            assert_eq!(code(authorization).await, wanted, "{authorization:?}");
        }
        let before = *asked.lock();
        assert_eq!(code(Some("Bearer prometheus")).await, 200);
        assert_eq!(*asked.lock(), before, "consent is remembered");
        tokio::time::advance(REMEMBERED).await;
        assert_eq!(code(Some("Bearer prometheus")).await, 200);
        assert_eq!(*asked.lock(), before + 2, "for a while");
        assert_eq!(code(Some("Bearer tenant")).await, 403, "refusal is not");
    }
}
