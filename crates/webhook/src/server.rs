//! HTTPS with limits. Whoever can reach the port may send anything; the worst it gets is an error.

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use crate::admission::{Admission, Endpoint};
use crate::clients::Clients;
use crate::connections::{Connection, Connections, Exchange, Limits};
use crate::memory::{Memory, NotWhole};
use crate::tls::ServingCertificate;

/// API servers say how long they wait; this much earlier they get a reason instead of silence.
const MARGIN: Duration = Duration::from_millis(200);
/// For whoever does not say it, and for whoever says more than any of our configurations.
const PATIENCE: [u64; 2] = [3, 10];
/// Reviews come in one piece from a server nearby.
const BODY_WITHIN: Duration = Duration::from_secs(2);
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
/// How long open requests may take when the server ends.
const END_WITHIN: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// API servers keep a few connections each, and close idle ones after 90 s.
const LIMITS: Limits =
    Limits { connections: 256, first_request_within: Duration::from_secs(5), idle: Duration::from_secs(120) };
/// What a connection may hold of what nobody has read yet.
const WINDOW: u32 = 128 << 10;
const HEADERS_MAX: usize = 16 << 10;

/// Serves admission until `shutdown`, then lets open requests finish.
///
/// # Errors
/// TLS cannot be set up.
pub async fn serve(
    listener: TcpListener,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), rustls::Error> {
    serve_clients(listener, admission, certificate, None, shutdown).await
}

/// As [`serve`], and only to these clients.
///
/// # Errors
/// TLS cannot be set up.
pub async fn serve_clients(
    listener: TcpListener,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
    clients: Option<Clients>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), rustls::Error> {
    serve_boxed(listener, admission, certificate, clients, shutdown.boxed()).await
}

/// Not generic, so that the server is compiled here and not again in each crate that runs it.
fn serve_boxed(
    listener: TcpListener,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
    clients: Option<Clients>,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, Result<(), rustls::Error>> {
    accept(listener, admission, certificate, clients, shutdown).boxed()
}

async fn accept(
    listener: TcpListener,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
    clients: Option<Clients>,
    mut shutdown: BoxFuture<'static, ()>,
) -> Result<(), rustls::Error> {
    let tls = TlsAcceptor::from(Arc::new(certificate.server_config(clients)?));
    let service = Service { admission, memory: Memory::default(), told: Arc::default() };
    let connections = Connections::new(LIMITS);
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(why) => {
                    tracing::warn!(%why, "a connection was not accepted");
                    // Out of file descriptors, most likely: trying again at once would only spin.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let Some(place) = connections.enter() else {
            tracing::debug!("no room: all connections are being answered");
            continue;
        };
        let (tls, service, watcher) = (tls.clone(), service.clone(), graceful.watcher());
        tasks.spawn(async move {
            tokio::select! {
                () = connection(stream, tls, service, place.clone(), watcher) => {}
                () = place.overstayed() => tracing::debug!("a connection made way"),
            }
        });
    }
    drop(listener);
    if timeout(END_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("admission requests were still open at the end");
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    service: Service,
    place: Connection,
    watcher: Watcher,
) {
    let stream = match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return tracing::debug!(%why, "no TLS session"),
        Err(_) => return tracing::debug!("no TLS session in time"),
    };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (service, exchange) = (service.clone(), place.begin());
        async move { Ok::<_, Infallible>(service.respond(request, exchange).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(2 * HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(100)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEADERS_MAX as u32);
    let served = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    if let Err(why) = served.await {
        tracing::debug!(%why, "a connection ended early");
    }
}

const LOG_EVERY: Duration = Duration::from_secs(60);

type Answer = Response<Full<Bytes>>;

#[derive(Clone)]
struct Service {
    admission: Arc<Admission>,
    memory: Memory,
    /// When it was last logged that a review came without the key. Strangers do not fill the log.
    told: Arc<Mutex<Option<Instant>>>,
}

impl Service {
    /// Once in a minute.
    fn log_strangers(&self) {
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| now.duration_since(at) >= LOG_EVERY) {
            *told = Some(now);
            tracing::warn!("reviews of evictions come without the key of this cluster, and are not answered");
        }
    }

    async fn respond<B>(&self, request: Request<B>, exchange: Exchange) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let patience = patience(request.uri().query());
        let answer = timeout(patience, self.handle(request, exchange)).await;
        answer.unwrap_or_else(|_| plain(StatusCode::GATEWAY_TIMEOUT, "the cluster did not answer in time"))
    }

    async fn handle<B>(&self, request: Request<B>, mut exchange: Exchange) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Some(endpoint) = Endpoint::at(request.uri().path()) else {
            return plain(StatusCode::NOT_FOUND, "there is no webhook at this path");
        };
        if !self.admission.is_proven(endpoint, request.uri().path()) {
            self.log_strangers();
            return plain(StatusCode::FORBIDDEN, "reviews of evictions are answered to API servers only");
        }
        if request.method() != Method::POST {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "an AdmissionReview is sent by POST");
        }
        let body = self.memory.collect(request.into_body(), &exchange);
        let body = match timeout(BODY_WITHIN, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(NotWhole::TooLarge)) => {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the AdmissionReview is too large");
            }
            Ok(Err(NotWhole::Broken)) => {
                return plain(StatusCode::BAD_REQUEST, "the body did not come whole");
            }
            Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not come whole in time"),
        };
        exchange.is_whole();
        let Ok(_memory) = self.memory.to_judge(body.bytes.len()).await else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many reviews at a time");
        };
        match self.admission.answer(endpoint, &body.bytes).await {
            Ok(review) => json(review.to_string()),
            Err(why) => plain(StatusCode::BAD_REQUEST, &why.to_string()),
        }
    }
}

/// How long an API server waits for the answer, as it says in its address: `?timeout=3s`.
fn patience(query: Option<&str>) -> Duration {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let told = pairs.find_map(|pair| pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok());
    let [usual, most] = PATIENCE;
    Duration::from_secs(told.unwrap_or(usual).clamp(1, most)) - MARGIN
}

fn json(body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn plain(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{text}\n")));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use kube::client::Body as ClientBody;

    use crate::configurations::{self, Target};
    use crate::gateway_key::GatewayKey;
    use crate::memory::REVIEW_MAX;
    use usher_api::gateway::GatewayMode;

    /// Asks an API server that never answers.
    async fn ask(method: Method, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        let silent = tower::service_fn(|_: Request<ClientBody>| {
            std::future::pending::<Result<Response<ClientBody>, Infallible>>()
        });
        let admission = Arc::new(Admission::new(kube::Client::new(silent, "default")));
        let request = Request::builder().method(method).uri(path).body(Full::new(body.into())).unwrap();
        let service = Service { admission, memory: Memory::default(), told: Arc::default() };
        let place = Connections::new(LIMITS).enter().unwrap();
        let answer = service.respond(request, place.begin()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn garbage_gets_an_error_and_nothing_else() {
        let path = Endpoint::CheckRequests.path();
        let huge = vec![b' '; REVIEW_MAX + 1];
        let no_object = r#"{"request": {"uid": "1", "operation": "CREATE", "namespace": "shop"}}"#;
        let cases: [(&str, Method, &str, Vec<u8>, u16); 9] = [
            ("another path", Method::POST, "/validate/secrets", vec![], 404),
            ("another method", Method::GET, path, vec![], 405),
            ("nothing", Method::POST, path, vec![], 400),
            ("no JSON", Method::POST, path, b"\xff\x00{".to_vec(), 400),
            ("JSON of another kind", Method::POST, path, b"[1, 2]".to_vec(), 400),
            ("no request", Method::POST, path, b"{}".to_vec(), 400),
            ("an unknown operation", Method::POST, path, no_object.replace("CREATE", "STEAL").into(), 400),
            ("too much", Method::POST, path, huge, 413),
            ("an object that is none", Method::POST, path, no_object.into(), 200),
        ];
        for (what, method, path, body, wanted) in cases {
            assert_eq!(ask(method, path, body).await.0, wanted, "{what}");
        }
        let (_, answer) = ask(Method::POST, path, no_object).await;
        assert!(answer.contains("cannot be read as an EvictionRequest"), "{answer}");
        let (_, answer) = ask(Method::POST, Endpoint::FillRequests.path(), no_object).await;
        assert!(
            answer.contains("\"allowed\":true") && !answer.contains("patch"),
            "left to the schema: {answer}"
        );
        let (_, answer) = ask(Method::POST, Endpoint::CheckPods.path(), no_object).await;
        assert!(answer.contains("\"allowed\":true"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_evictions_are_answered_to_who_knows_the_key_only() {
        let key = Arc::new(GatewayKey::default());
        let secret = GatewayKey::make();
        key.set(&secret);
        let silent = tower::service_fn(|_: Request<ClientBody>| {
            std::future::pending::<Result<Response<ClientBody>, Infallible>>()
        });
        let admission = Admission::new(kube::Client::new(silent, "default")).with_gateway_key(key);
        let service =
            Service { admission: Arc::new(admission), memory: Memory::default(), told: Arc::default() };
        let gateway = Endpoint::Gateway.path();
        for (path, wanted) in [
            (gateway.to_owned(), 403),
            (format!("{gateway}/"), 403),
            (format!("{gateway}/{}", GatewayKey::make()), 403),
            (format!("{gateway}s"), 404),
            // No review, but an answer.
            (GatewayKey::path(&secret), 400),
            // Others need none.
            (Endpoint::CheckPods.path().to_owned(), 400),
        ] {
            let request = Request::post(&path).body(Full::new(Bytes::from_static(b"{}"))).unwrap();
            let place = Connections::new(LIMITS).enter().unwrap();
            let answer = service.respond(request, place.begin()).await;
            assert_eq!(answer.status().as_u16(), wanted, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_not_waited_for() {
        let review = serde_json::json!({"request": {
            "uid": "1", "operation": "CREATE", "namespace": "shop", "userInfo": {"username": "somebody"},
            "object": {
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": "u"}, "spec": {"podRef": {"name": "p", "uid": "u"}},
            },
        }});
        for (timeout, wanted) in
            [("?timeout=1s", 800), ("?timeout=10s", 9800), ("", 2800), ("?timeout=99s", 9800)]
        {
            let start = tokio::time::Instant::now();
            let path = format!("{}{timeout}", Endpoint::CheckRequests.path());
            let (status, _) = ask(Method::POST, &path, review.to_string()).await;
            assert_eq!((status, start.elapsed().as_millis()), (504, wanted), "{timeout}");
        }
    }

    #[test]
    fn no_api_server_waits_longer_than_the_webhook_tries() {
        let target = Target::Service { namespace: configurations::NAMESPACE.to_owned() };
        let validating = configurations::validating(&target, "usher-system", GatewayMode::Request);
        let both = [configurations::mutating(&target), validating];
        let mut hooks = 0;
        for hook in both.iter().flat_map(|all| all["webhooks"].as_array().unwrap()) {
            let seconds = hook["timeoutSeconds"].as_u64().unwrap();
            let tried = patience(Some(&format!("timeout={seconds}s")));
            assert!(tried < Duration::from_secs(seconds), "{hook}");
            assert!(tried >= Duration::from_secs(seconds) - 2 * MARGIN, "{hook}");
            hooks += 1;
        }
        assert_eq!(hooks, 9);
    }
}
