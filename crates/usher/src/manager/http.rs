//! Metrics and health over plain HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use usher_controllers::metrics::{Metrics, text};

use super::health::Health;

/// Kubelets and scrapers need few. More wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
const TEXT: &str = "text/plain; charset=utf-8";

/// What is at a path.
pub struct Page {
    code: StatusCode,
    kind: &'static str,
    body: String,
}

pub fn metrics(metrics: &Metrics, path: &str) -> Option<Page> {
    (path == "/metrics").then(|| match metrics.text() {
        Ok(body) => Page { code: StatusCode::OK, kind: text::CONTENT_TYPE, body },
        Err(why) => Page { code: StatusCode::INTERNAL_SERVER_ERROR, kind: TEXT, body: why.to_string() },
    })
}

pub fn health(health: &Health, path: &str) -> Option<Page> {
    let found = match path {
        "/healthz" => health.alive(),
        "/readyz" => health.ready(),
        _ => return None,
    };
    Some(match found {
        Ok(body) => Page { code: StatusCode::OK, kind: TEXT, body: body.to_string() },
        Err(body) => Page { code: StatusCode::SERVICE_UNAVAILABLE, kind: TEXT, body },
    })
}

/// Serves pages until it is dropped.
pub async fn serve(listener: TcpListener, page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static) {
    let page = Arc::new(page);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(free) = room.clone().acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => {
                tracing::warn!(%why, "a connection was not accepted");
                // Out of file descriptors, most likely: trying again at once would only spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let page = page.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.method(), request.uri().path(), &*page);
                async { Ok::<_, Infallible>(answer) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
            if let Err(why) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%why, "a connection ended early");
            }
            drop(free);
        });
    }
}

fn answer(method: &Method, path: &str, page: &dyn Fn(&str) -> Option<Page>) -> Response<Full<Bytes>> {
    let not_here = |code, body: &str| Page { code, kind: TEXT, body: body.to_string() };
    let page = if *method == Method::GET || *method == Method::HEAD {
        page(path).unwrap_or_else(|| not_here(StatusCode::NOT_FOUND, "there is nothing at this path"))
    } else {
        not_here(StatusCode::METHOD_NOT_ALLOWED, "this is only read")
    };
    let mut response = Response::new(Full::from(page.body));
    *response.status_mut() = page.code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(page.kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_pages_are_read() {
        let known = Health::default();
        let page = |path: &str| health(&known, path);
        let code = |method: Method, path: &str| answer(&method, path, &page).status().as_u16();
        assert_eq!(code(Method::GET, "/healthz"), 200);
        assert_eq!(code(Method::GET, "/readyz"), 503);
        assert_eq!(code(Method::GET, "/metrics"), 404);
        assert_eq!(code(Method::POST, "/healthz"), 405);
    }
}
