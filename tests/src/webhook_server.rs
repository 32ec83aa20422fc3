//! An admission webhook on loopback, with a certificate of its own, that remembers what it was asked.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// From the path and the request of a review to the response to it, without its uid.
pub type Decide = Arc<dyn Fn(String, Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// A running webhook server; dropping it ends it and its connections.
pub struct WebhookServer {
    address: SocketAddr,
    ca_pem: String,
    asked: Asked,
    accepting: JoinHandle<()>,
}

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl WebhookServer {
    /// # Errors
    /// No free port, or no certificate.
    pub async fn start(decide: Decide) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (tls, ca_pem) = certificate()?;
        let asked = Asked::default();
        let accepting = tokio::spawn(accept(listener, tls, decide, asked.clone()));
        Ok(Self { address, ca_pem, asked, accepting })
    }

    /// The URL of one of its webhooks.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.address)
    }

    /// What `clientConfig.caBundle` says.
    #[must_use]
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.ca_pem)
    }

    /// The requests of the reviews that came to a path so far.
    #[must_use]
    pub fn asked(&self, path: &str) -> Vec<Value> {
        self.asked.lock().iter().filter(|(at, _)| at == path).map(|(_, request)| request.clone()).collect()
    }
}

fn certificate() -> Result<(TlsAcceptor, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, decide: Decide, asked: Asked) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(speak(stream, tls.clone(), decide.clone(), asked.clone()));
    }
}

async fn speak(stream: TcpStream, tls: TlsAcceptor, decide: Decide, asked: Asked) {
    // A client that does not trust the certificate hangs up here, which is its right.
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = hyper::service::service_fn(move |request| answer(request, decide.clone(), asked.clone()));
    // Callers that lose patience end the connection in the middle.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: hyper::Request<Incoming>,
    decide: Decide,
    asked: Asked,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = review["request"].take();
    asked.lock().push((path.clone(), request.clone()));
    let uid = request["uid"].clone();
    let mut response = decide(path, request).await;
    response["uid"] = uid;
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(hyper::Response::new(Full::from(review.to_string())))
}
