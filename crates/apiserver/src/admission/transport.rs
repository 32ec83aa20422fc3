//! HTTPS to webhooks: one pool of connections for each certificate bundle and address.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::trust::trusting;

/// Beyond this many, all pools are dropped: configurations come and go with their certificates.
const MOST_POOLS: usize = 200;
/// The largest answer that is read.
const LARGEST_ANSWER: usize = 16 << 20;

type Pool = Client<Connector, Full<Bytes>>;
/// Certificate bundle, and address if it is not that of the URL.
type PoolKey = (Vec<u8>, Option<SocketAddr>);

#[derive(Default)]
pub(super) struct Transport {
    pools: Mutex<HashMap<PoolKey, Pool>>,
}

impl Transport {
    /// Status and body of the answer, or why there is none.
    pub(super) async fn post(
        &self,
        url: &str,
        ca_bundle: &[u8],
        address: Option<SocketAddr>,
        body: Vec<u8>,
    ) -> Result<(u16, Bytes), String> {
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(body)))
            .map_err(|problem| problem.to_string())?;
        let pool = self.pool(ca_bundle, address)?;
        let response = pool.request(request).await.map_err(|problem| innermost(&problem))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        Ok((status, body.map_err(|problem| problem.to_string())?.to_bytes()))
    }

    fn pool(&self, ca_bundle: &[u8], address: Option<SocketAddr>) -> Result<Pool, String> {
        let key = (ca_bundle.to_vec(), address);
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&key) {
            return Ok(pool.clone());
        }
        let connector = Connector { tls: trusting(ca_bundle)?, address };
        let pool = Client::builder(TokioExecutor::new()).build(connector);
        if pools.len() >= MOST_POOLS {
            pools.clear();
        }
        pools.insert(key, pool.clone());
        Ok(pool)
    }
}

/// Opens TLS connections, to the host of the URL or to a fixed address.
#[derive(Clone)]
struct Connector {
    tls: tokio_rustls::TlsConnector,
    address: Option<SocketAddr>,
}

/// Why no connection came about, in the words of Go's network library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ConnectError(String);

impl tower::Service<Uri> for Connector {
    type Response = TlsConnection;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<TlsConnection, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map_err(ConnectError) })
    }
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> Result<TlsConnection, String> {
        if uri.scheme_str() != Some("https") {
            return Err(format!("unsupported protocol scheme {:?}", uri.scheme_str().unwrap_or_default()));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(443);
        let tcp = match self.address {
            Some(address) => dial(address).await?,
            None => {
                let found = tokio::net::lookup_host((host, port)).await;
                let addresses: Vec<_> =
                    found.map_err(|_| format!("dial tcp: lookup {host}: no such host"))?.collect();
                dial_any(host, &addresses).await?
            }
        };
        tcp.set_nodelay(true).map_err(|problem| problem.to_string())?;
        let name = ServerName::try_from(host.to_string()).map_err(|problem| problem.to_string())?;
        let tls = self.tls.connect(name, tcp).await.map_err(|problem| tls_error(&problem))?;
        Ok(TlsConnection(TokioIo::new(tls)))
    }
}

/// The first address that answers; the first refusal is told.
async fn dial_any(host: &str, addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut refusal = None;
    for address in addresses {
        match dial(*address).await {
            Ok(stream) => return Ok(stream),
            Err(problem) => {
                refusal.get_or_insert(problem);
            }
        }
    }
    Err(refusal.unwrap_or_else(|| format!("dial tcp: lookup {host}: no such host")))
}

async fn dial(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|problem| {
        let words = match problem.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_string(),
            _ => problem.to_string(),
        };
        format!("dial tcp {address}: connect: {words}")
    })
}

fn tls_error(problem: &io::Error) -> String {
    let inner = problem.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let x509 = match inner {
        // A bad signature is that of another authority of the same name.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "certificate signed by unknown authority".to_string(),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => "certificate has expired or is not yet valid".to_string(),
        Some(rustls::Error::InvalidCertificate(other)) => other.to_string(),
        _ => return format!("tls: {problem}"),
    };
    format!("tls: failed to verify certificate: x509: {x509}")
}

/// The cause at the bottom, which is what says something.
fn innermost(problem: &dyn Error) -> String {
    let mut at = problem;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// A TLS connection as the client wants it.
struct TlsConnection(TokioIo<TlsStream<TcpStream>>);

impl Connection for TlsConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
