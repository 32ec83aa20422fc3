//! The server on a socket: strangers, certificates that change under it, and its end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use usher_webhook::certificates::Certificates;
use usher_webhook::rotation::Lifetimes;
use usher_webhook::{Admission, ServingCertificate};

fn certificates() -> Certificates {
    let names = ["127.0.0.1".to_owned()];
    Certificates::create(&names, &Lifetimes::default(), jiff::Timestamp::now()).unwrap()
}

async fn connect(address: SocketAddr, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

/// The status line of the answer to a review about a plain pod.
async fn ask(stream: &mut TlsStream<TcpStream>) -> String {
    let body = r#"{"request": {"uid": "1", "operation": "CREATE", "object": {"metadata": {}}}}"#;
    let request = format!(
        "POST /validate/pods?timeout=3s HTTP/1.1\r\nhost: webhook\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_open_connections_and_strangers_change_nothing() {
    let unused = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let admission = Arc::new(Admission::new(kube::Client::new(unused, "default")));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::new(ServingCertificate::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(usher_webhook::serve(listener, admission, serving.clone(), async {
        stopped.await.unwrap_or_default();
    }));
    let (first, second) = (certificates(), certificates());
    assert!(connect(address, &first.bundle()).await.is_err(), "no certificate, no session");

    let mut stranger = TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    serving.replace(&first.serving.certificate, &first.serving.key).unwrap();
    let mut open = connect(address, &first.bundle()).await.unwrap();
    assert_eq!(ask(&mut open).await, "HTTP/1.1 200 OK");

    serving.replace(&second.serving.certificate, &second.serving.key).unwrap();
    assert!(serving.replace(&first.serving.certificate, &second.serving.key).is_err(), "not a pair");
    assert_eq!(ask(&mut open).await, "HTTP/1.1 200 OK", "open connections stay");
    assert!(connect(address, &first.bundle()).await.is_err(), "the old authority did not sign this one");
    let mut new = connect(address, &second.bundle()).await.unwrap();
    assert_eq!(ask(&mut new).await, "HTTP/1.1 200 OK");

    stop.send(()).unwrap();
    silent.shutdown().await.unwrap();
    server.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}
