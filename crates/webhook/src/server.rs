//! HTTPS with limits. Whoever can reach the port may send anything; the worst it gets is an error.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::admission::{Admission, Endpoint};
use crate::tls::ServingCertificate;

/// An AdmissionReview has the object twice, and an object has 1.5 MiB at most; encoded it may be longer.
const BODY_MAX: usize = 8 << 20;
/// Shorter than the API server's patience, so that it gets a reason and not silence.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
/// How long open requests may take when the server ends.
const END_WITHIN: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// API servers keep a few each. More wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;

/// Serves admission until `shutdown`, then lets open requests finish.
///
/// # Errors
/// TLS cannot be set up.
pub async fn serve(
    listener: TcpListener,
    admission: Arc<Admission>,
    certificate: Arc<ServingCertificate>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), rustls::Error> {
    let tls = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let free = tokio::select! {
            () = &mut shutdown => break,
            Ok(free) = room.clone().acquire_owned() => free,
        };
        let stream = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
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
        let (tls, admission, watcher) = (tls.clone(), admission.clone(), graceful.watcher());
        connections.spawn(async move {
            connection(stream, tls, admission, watcher).await;
            drop(free);
        });
    }
    drop(listener);
    if timeout(END_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("admission requests were still open at the end");
    }
    Ok(())
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, admission: Arc<Admission>, watcher: Watcher) {
    let stream = match timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return tracing::debug!(%why, "no TLS session"),
        Err(_) => return tracing::debug!("no TLS session in time"),
    };
    let service = hyper::service::service_fn(move |request| respond(admission.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).max_concurrent_streams(250);
    let served = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    if let Err(why) = served.await {
        tracing::debug!(%why, "a connection ended early");
    }
}

type Answer = Response<Full<Bytes>>;

async fn respond(admission: Arc<Admission>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let answer = timeout(ANSWER_WITHIN, handle(&admission, request)).await;
    Ok(answer.unwrap_or_else(|_| plain(StatusCode::GATEWAY_TIMEOUT, "the cluster did not answer in time")))
}

async fn handle(admission: &Admission, request: Request<Incoming>) -> Answer {
    let Some(endpoint) = Endpoint::at(request.uri().path()) else {
        return plain(StatusCode::NOT_FOUND, "there is no webhook at this path");
    };
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "an AdmissionReview is sent by POST");
    }
    let body = match Limited::new(request.into_body(), BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) if why.is::<LengthLimitError>() => {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the AdmissionReview is too large");
        }
        Err(why) => return plain(StatusCode::BAD_REQUEST, &format!("the body did not come whole: {why}")),
    };
    match admission.answer(endpoint, &body).await {
        Ok(review) => json(&review.to_string()),
        Err(why) => plain(StatusCode::BAD_REQUEST, &why.to_string()),
    }
}

fn json(body: &str) -> Answer {
    let mut answer = Response::new(Full::from(body.to_owned()));
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
