//! The server on a socket: strangers, certificates that change under it, and its end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use usher_webhook::certificates::Certificates;
use usher_webhook::rotation::Lifetimes;
use usher_webhook::{Admission, Clients, ServingCertificate};

fn certificates() -> Certificates {
    let names = ["127.0.0.1".to_owned()];
    Certificates::create(&names, &Lifetimes::default(), jiff::Timestamp::now()).unwrap()
}

async fn connect(address: SocketAddr, bundle: &str) -> std::io::Result<TlsStream<TcpStream>> {
    connect_as(address, bundle, None).await
}

/// With this certificate and key, if any.
async fn connect_as(
    address: SocketAddr,
    bundle: &str,
    client: Option<(&str, &str)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
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

struct Webhook {
    address: SocketAddr,
    bundle: String,
    _stop: oneshot::Sender<()>,
}

/// A webhook whose API server never answers, for these clients or all.
async fn webhook(clients: Option<Clients>) -> Webhook {
    let unused = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let admission = Arc::new(Admission::new(kube::Client::new(unused, "default")));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::new(ServingCertificate::default());
    let made = certificates();
    serving.replace(&made.serving.certificate, &made.serving.key).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let until = async { stopped.await.unwrap_or_default() };
        usher_webhook::serve_clients(listener, admission, serving, clients, until).await.unwrap();
    });
    Webhook { address, bundle: made.bundle(), _stop: stop }
}

/// How long a new API server waits for an answer.
async fn answered(webhook: &Webhook) -> Duration {
    let start = Instant::now();
    let asking = async {
        let mut stream = connect(webhook.address, &webhook.bundle).await.unwrap();
        assert_eq!(ask(&mut stream).await, "HTTP/1.1 200 OK");
    };
    timeout(Duration::from_secs(10), asking).await.unwrap();
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_silent_connections_do_not_stop_admission() {
    let webhook = webhook(None).await;
    let mut known = connect(webhook.address, &webhook.bundle).await.unwrap();
    assert_eq!(ask(&mut known).await, "HTTP/1.1 200 OK");
    let mut silent = Vec::new();
    for _ in 0..1024 {
        silent.push(TcpStream::connect(webhook.address).await.unwrap());
    }
    let waited = answered(&webhook).await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert_eq!(ask(&mut known).await, "HTTP/1.1 200 OK", "who was answered before is not the first to go");

    // A session costs the server more. They say nothing in it.
    let mut sessions = Vec::new();
    for _ in 0..300 {
        sessions.push(connect(webhook.address, &webhook.bundle).await.unwrap());
    }
    let waited = answered(&webhook).await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    drop((silent, sessions));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_in_which_nothing_is_said_ends() {
    let webhook = webhook(None).await;
    let mut silent = connect(webhook.address, &webhook.bundle).await.unwrap();
    let start = Instant::now();
    let ended = timeout(Duration::from_secs(9), silent.read(&mut [0; 64])).await.unwrap();
    assert!(!ended.is_ok_and(|bytes| bytes > 0));
    assert!(start.elapsed() > Duration::from_secs(3), "it had its time: {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_slowly_takes_no_memory_from_others() {
    let webhook = webhook(None).await;
    let announced = 3 << 20;
    let head = format!("POST /validate/pods HTTP/1.1\r\nhost: w\r\ncontent-length: {announced}\r\n\r\n");
    let mut slow = Vec::new();
    let start = Instant::now();
    for _ in 0..12 {
        let mut stream = connect(webhook.address, &webhook.bundle).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // Those that are closed for others notice while they send.
        let _ = timeout(Duration::from_secs(1), stream.write_all(&vec![b' '; announced - 1])).await;
        slow.push(stream);
    }
    let waited = answered(&webhook).await;
    assert!(waited < Duration::from_millis(1500), "{waited:?}");
    let mut last = slow.pop().unwrap();
    let mut answer = String::new();
    let _ = timeout(Duration::from_secs(5), last.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A certificate for this name, by an authority of its own.
struct Client {
    authority: String,
    certificate: String,
    key: String,
}

fn client(names: &[&str]) -> Client {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(authority, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Client { authority: signed.pem(), certificate, key: key.serialize_pem() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_api_server_with_its_certificate_is_answered_where_one_is_demanded() {
    let server = client(&["kube-apiserver.example.com"]);
    let stranger = client(&["kube-apiserver.example.com"]);
    let names = ["kube-apiserver.example.com".to_owned()];
    for (names, is_known) in
        [(&names[..], true), (&[][..], true), (&["other.example.com".to_owned()][..], false)]
    {
        let clients = Clients::new(server.authority.as_bytes(), names).unwrap();
        let webhook = webhook(Some(clients)).await;
        let rows = [
            ("the API server", Some((&*server.certificate, &*server.key)), is_known),
            ("of another authority", Some((&*stranger.certificate, &*stranger.key)), false),
            ("without a certificate", None, false),
        ];
        for (who, shown, wanted) in rows {
            let asked = async {
                let mut stream = connect_as(webhook.address, &webhook.bundle, shown).await.ok()?;
                let body = r#"{"request": {"uid": "1", "operation": "CREATE", "object": {"metadata": {}}}}"#;
                let request = format!(
                    "POST /validate/pods HTTP/1.1\r\nhost: w\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(request.as_bytes()).await.ok()?;
                let mut answer = [0; 15];
                stream.read_exact(&mut answer).await.ok()?;
                Some(String::from_utf8_lossy(&answer).into_owned())
            };
            let answer = timeout(Duration::from_secs(5), asked).await.unwrap();
            assert_eq!(
                answer.as_deref() == Some("HTTP/1.1 200 OK"),
                wanted,
                "{who} for {names:?}: {answer:?}"
            );
        }
    }
}

#[test]
fn authorities_and_names_of_clients_are_checked_at_the_start() {
    let good = client(&["a.example.com"]).authority;
    let wrong = |authority: &str, name: &str| {
        Clients::new(authority.as_bytes(), &[name.to_owned()]).unwrap_err().to_string()
    };
    assert!(wrong("", "a.example.com").contains("no authority"));
    assert!(wrong(&good, "a b").contains("is no DNS name"));
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
