//! Metrics and health over HTTP: probes are answered however many others are connected and say nothing.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use usher_controllers::metrics::{Metrics, text};
use usher_webhook::connections::{Connection, Connections, Limits};

use super::health::Health;

/// Kubelets and scrapers need few, and send their request at once. They are answered and closed.
const LIMITS: Limits =
    Limits { connections: 256, first_request_within: Duration::from_secs(2), idle: Duration::from_secs(2) };
const HEADERS_MAX: usize = 16 << 10;
const TEXT: &str = "text/plain; charset=utf-8";

/// What is at a path.
pub struct Page {
    code: StatusCode,
    kind: &'static str,
    body: String,
}

impl Page {
    /// A few words.
    pub fn text(code: StatusCode, body: impl Into<String>) -> Self {
        Self { code, kind: TEXT, body: body.into() }
    }

    #[cfg(test)]
    pub fn code(&self) -> StatusCode {
        self.code
    }
}

pub fn metrics(metrics: &Metrics, path: &str) -> Option<Page> {
    (path == "/metrics").then(|| match metrics.text() {
        Ok(body) => Page { code: StatusCode::OK, kind: text::CONTENT_TYPE, body },
        Err(why) => Page::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
    })
}

pub fn health(health: &Health, path: &str) -> Option<Page> {
    let found = match path {
        "/healthz" => health.alive(),
        "/readyz" => health.ready(),
        _ => return None,
    };
    Some(match found {
        Ok(body) => Page::text(StatusCode::OK, body),
        Err(body) => Page::text(StatusCode::SERVICE_UNAVAILABLE, body),
    })
}

/// Serves pages until it is dropped, over TLS if there is a certificate for it. What is asked for is a path, with these headers.
pub async fn serve<P, F>(listener: TcpListener, tls: Option<TlsAcceptor>, page: P)
where
    P: Fn(String, HeaderMap) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Page>> + Send + 'static,
{
    let page = Arc::new(page);
    let connections = Connections::new(LIMITS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) => {
                tracing::warn!(%why, "a connection was not accepted");
                // Out of file descriptors, most likely: trying again at once would only spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(place) = connections.enter() else { continue };
        let (page, tls) = (page.clone(), tls.clone());
        tokio::spawn(async move {
            let served = async {
                match tls {
                    None => connection(stream, place.clone(), page).await,
                    Some(tls) => match timeout(LIMITS.first_request_within, tls.accept(stream)).await {
                        Ok(Ok(stream)) => connection(stream, place.clone(), page).await,
                        _ => tracing::debug!("no TLS session"),
                    },
                }
            };
            tokio::select! {
                () = served => {}
                () = place.overstayed() => {}
            }
        });
    }
}

async fn connection<S, P, F>(stream: S, place: Connection, page: Arc<P>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    P: Fn(String, HeaderMap) -> F,
    F: Future<Output = Option<Page>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let mut exchange = place.begin();
        let page = page.clone();
        async move {
            exchange.is_whole();
            let (head, _) = request.into_parts();
            let answer = answer(&head.method, || page(head.uri.path().to_owned(), head.headers)).await;
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(LIMITS.first_request_within)
        .max_buf_size(HEADERS_MAX)
        .keep_alive(false);
    if let Err(why) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%why, "a connection ended early");
    }
}

async fn answer<F>(method: &Method, page: impl FnOnce() -> F) -> Response<Full<Bytes>>
where
    F: Future<Output = Option<Page>>,
{
    let page = if *method == Method::GET || *method == Method::HEAD {
        let found = page().await;
        found.unwrap_or_else(|| Page::text(StatusCode::NOT_FOUND, "there is nothing at this path"))
    } else {
        Page::text(StatusCode::METHOD_NOT_ALLOWED, "this is only read")
    };
    let mut response = Response::new(Full::from(page.body));
    *response.status_mut() = page.code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(page.kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Instant;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn only_known_pages_are_read() {
        let known = Health::default();
        for (method, path, wanted) in [
            (Method::GET, "/healthz", 200),
            (Method::GET, "/readyz", 503),
            (Method::GET, "/metrics", 404),
            (Method::POST, "/healthz", 405),
        ] {
            let found = health(&known, path);
            let answer = answer(&method, || async { found }).await;
            assert_eq!(answer.status().as_u16(), wanted, "{method} {path}");
        }
    }

    async fn probe(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: m\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn probes_are_answered_although_a_thousand_connections_say_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let known = Health::default();
        tokio::spawn(serve(listener, None, move |path, _| std::future::ready(health(&known, &path))));
        let mut strangers = Vec::new();
        for number in 0..1000 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                // Half of them have begun.
                stream.write_all(b"GET /healthz HTT").await.unwrap();
            }
            strangers.push(stream);
        }
        for _ in 0..3 {
            let start = Instant::now();
            let answer = timeout(Duration::from_secs(1), probe(address)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
            assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        }
    }
}
