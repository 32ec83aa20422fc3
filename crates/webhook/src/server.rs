//! HTTPS with limits. Whoever can reach the port may send anything; the worst it gets is an error.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
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
    let service = hyper::service::service_fn(move |request| respond::<Incoming>(admission.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).max_concurrent_streams(250);
    let served = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    if let Err(why) = served.await {
        tracing::debug!(%why, "a connection ended early");
    }
}

type Answer = Response<Full<Bytes>>;

async fn respond<B>(admission: Arc<Admission>, request: Request<B>) -> Result<Answer, Infallible>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let answer = timeout(ANSWER_WITHIN, handle(&admission, request)).await;
    Ok(answer.unwrap_or_else(|_| plain(StatusCode::GATEWAY_TIMEOUT, "the cluster did not answer in time")))
}

async fn handle<B>(admission: &Admission, request: Request<B>) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body as ClientBody;

    /// Asks an API server that never answers.
    async fn ask(method: Method, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        let silent = tower::service_fn(|_: Request<ClientBody>| {
            std::future::pending::<Result<Response<ClientBody>, Infallible>>()
        });
        let admission = Arc::new(Admission::new(kube::Client::new(silent, "default")));
        let request = Request::builder().method(method).uri(path).body(Full::new(body.into())).unwrap();
        let Ok(answer) = respond(admission, request).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn garbage_gets_an_error_and_nothing_else() {
        let path = Endpoint::CheckRequests.path();
        let huge = vec![b' '; BODY_MAX + 1];
        let no_object = r#"{"request": {"uid": "1", "operation": "CREATE"}}"#;
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
    async fn an_api_server_that_does_not_answer_is_not_waited_for() {
        let review = serde_json::json!({"request": {
            "uid": "1", "operation": "CREATE", "namespace": "shop", "userInfo": {"username": "somebody"},
            "object": {
                "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
                "metadata": {"name": "u"}, "spec": {"podRef": {"name": "p", "uid": "u"}},
            },
        }});
        let start = tokio::time::Instant::now();
        let (status, _) = ask(Method::POST, Endpoint::CheckRequests.path(), review.to_string()).await;
        assert_eq!((status, start.elapsed()), (504, ANSWER_WITHIN));
    }
}
