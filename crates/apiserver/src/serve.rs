//! The cluster on a loopback port, with or without TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::attributes::User;
use crate::cluster::administrator;
use crate::server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// A running listener; dropping it stops new connections.
pub struct Serving {
    address: SocketAddr,
    scheme: Scheme,
    ca_pem: String,
    accepting: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Serving {
    pub(crate) async fn start(server: Arc<Server>, scheme: Scheme) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (tls, ca_pem) = match scheme {
            Scheme::Http => (None, String::new()),
            Scheme::Https => {
                let (acceptor, ca) = certificate().map_err(std::io::Error::other)?;
                (Some(acceptor), ca)
            }
        };
        let accepting = spawn_accept(listener, server, tls);
        Ok(Self { address, scheme, ca_pem, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate to trust; empty without TLS.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A kubeconfig for the holder of a token. It is JSON, which is YAML too.
    pub fn kubeconfig_for(&self, token: &str) -> String {
        let mut cluster = json!({"server": self.url()});
        if self.scheme == Scheme::Https {
            cluster["certificate-authority-data"] = STANDARD.encode(&self.ca_pem).into();
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "user", "namespace": "default"}}],
        });
        format!("{config:#}\n")
    }
}

/// A certificate of its own for this listener, valid for loopback names only.
fn certificate() -> Result<(TlsAcceptor, String), Box<dyn std::error::Error + Send + Sync>> {
    let names = vec!["127.0.0.1".to_string(), "localhost".to_string()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

/// Not async, so that the server is compiled in this crate and not again in each crate that starts one.
fn spawn_accept(listener: TcpListener, server: Arc<Server>, tls: Option<TlsAcceptor>) -> JoinHandle<()> {
    tokio::spawn(accept(listener, server, tls))
}

async fn accept(listener: TcpListener, server: Arc<Server>, tls: Option<TlsAcceptor>) {
    // Connections end with the listener.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(why) => {
                    tracing::warn!(%why, "a connection was not accepted");
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        connections.spawn(connection(stream, server.clone(), tls.clone()));
    }
}

async fn connection(stream: TcpStream, server: Arc<Server>, tls: Option<TlsAcceptor>) {
    if let Err(why) = stream.set_nodelay(true) {
        tracing::debug!(%why, "nodelay not set");
    }
    match tls {
        None => speak(stream, server, Some(administrator())).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => speak(stream, server, None).await,
            Err(why) => tracing::debug!(%why, "no TLS session"),
        },
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: Arc<Server>,
    trusted: Option<User>,
) {
    let service = tower::service_fn(move |request| {
        let server = server.clone();
        let trusted = trusted.clone();
        async move {
            Ok::<_, std::convert::Infallible>(
                server.respond::<hyper::body::Incoming>(request, trusted.as_ref()).await,
            )
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await;
    if let Err(why) = served {
        tracing::debug!(%why, "a connection ended early");
    }
}
