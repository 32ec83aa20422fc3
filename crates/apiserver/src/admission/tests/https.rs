//! Webhooks that really listen on a socket, with certificates.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;

use super::*;

struct Server {
    address: SocketAddr,
    ca_bundle: String,
    connections: Arc<AtomicUsize>,
    requests: Log,
}

/// A webhook with a certificate for `name`, signed by an authority of its own. The path decides the answer.
async fn server(name: &str) -> Server {
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
    serve(certificate.der().clone(), &key, &issuer.pem()).await
}

/// A webhook whose certificate is its own authority, as `openssl req -x509` makes them.
async fn self_signed_server(name: &str) -> Server {
    let mut params = CertificateParams::new([name.to_string()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    serve(certificate.der().clone(), &key, &certificate.pem()).await
}

async fn serve(certificate: CertificateDer<'static>, key: &KeyPair, ca_bundle: &str) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server {
        address: listener.local_addr().unwrap(),
        ca_bundle: BASE64_STANDARD.encode(ca_bundle),
        connections: Arc::default(),
        requests: Log::default(),
    };
    let (connections, requests) = (server.connections.clone(), server.requests.clone());
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            connections.fetch_add(1, Ordering::SeqCst);
            let (acceptor, requests) = (acceptor.clone(), requests.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let service = service_fn(|request| answer(request, requests.clone()));
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tls), service)
                    .await;
            });
        }
    });
    server
}

async fn answer(
    request: http::Request<hyper::body::Incoming>,
    requests: Log,
) -> Result<http::Response<Full<Bytes>>, std::convert::Infallible> {
    requests.add(request.uri().to_string());
    let path = request.uri().path().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let (status, body) = match path.as_str() {
        "/fail" => (500, "boom".to_string()),
        "/gone" => (404, "gone".to_string()),
        "/junk" => (200, "junk".to_string()),
        "/deny" => {
            (200, respond(&review, json!({"allowed": false, "status": {"message": "no"}})).to_string())
        }
        _ => (200, respond(&review, json!({"allowed": true})).to_string()),
    };
    Ok(http::Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap())
}

fn at(url: String, ca_bundle: &str) -> Webhooks {
    let client = json!({"url": url, "caBundle": ca_bundle});
    let hook = webhook("h.example.com", json!({"clientConfig": client, "timeoutSeconds": 3}));
    Webhooks::compile([], [&configuration("c", &[hook])], Arc::new(Caller::default()))
}

async fn failure(webhooks: &Webhooks) -> String {
    let message = Case::create().validate(webhooks).await.unwrap_err().message;
    let prefix =
        r#"Internal error occurred: failed calling webhook "h.example.com": failed to call webhook: "#;
    message.strip_prefix(prefix).unwrap_or(&message).to_string()
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = server("127.0.0.1").await;
    let webhooks = at(format!("https://{}/allow", server.address), &server.ca_bundle);
    for _ in 0..3 {
        Case::create().validate(&webhooks).await.unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    assert_eq!(server.requests.entries(), ["/allow?timeout=3s"; 3]);
}

#[tokio::test]
async fn answers_over_the_network() {
    let server = server("127.0.0.1").await;
    let url = |path: &str| format!("https://{}{path}", server.address);
    let deny = at(url("/deny"), &server.ca_bundle);
    assert_eq!(failure(&deny).await, r#"admission webhook "h.example.com" denied the request: no"#);
    let fail = at(url("/fail"), &server.ca_bundle);
    assert_eq!(
        failure(&fail).await,
        r#"an error on the server ("unknown") has prevented the request from succeeding"#
    );
    let gone = at(url("/gone"), &server.ca_bundle);
    assert_eq!(failure(&gone).await, "the server could not find the requested resource");
    let junk = failure(&at(url("/junk"), &server.ca_bundle)).await;
    assert!(junk.starts_with("couldn't get version/kind; json parse error: "), "{junk}");
}

#[tokio::test]
async fn a_service_may_be_at_an_address() {
    let server = server("hook.system.svc").await;
    let caller = Arc::new(Caller::default());
    caller.register_service("system", "hook", Endpoint::Address(server.address));
    let client = json!({"service": {"namespace": "system", "name": "hook", "path": "/v"}, "caBundle": server.ca_bundle});
    let config = configuration("c", &[webhook("h.example.com", json!({"clientConfig": client}))]);
    Case::create().validate(&Webhooks::compile([], [&config], caller)).await.unwrap();
    assert_eq!(server.requests.entries(), ["/v?timeout=10s"]);
}

#[tokio::test]
async fn certificates_are_checked() {
    let (mine, other) = (server("127.0.0.1").await, server("127.0.0.1").await);
    let url = format!("https://{}/allow", mine.address);
    let post = format!(r#"Post "{url}?timeout=3s": tls: failed to verify certificate: x509: "#);
    assert_eq!(
        failure(&at(url.clone(), &other.ca_bundle)).await,
        format!("{post}certificate signed by unknown authority")
    );
    let none = failure(&at(url, "")).await;
    assert!(none.starts_with(&format!("{post}certificate signed by unknown authority (")), "{none}");
    let misnamed = server("other.example.com").await;
    let wrong = failure(&at(format!("https://{}/allow", misnamed.address), &misnamed.ca_bundle)).await;
    assert!(
        wrong.contains("tls: failed to verify certificate: x509: certificate not valid for name"),
        "{wrong}"
    );
}

#[tokio::test]
async fn a_certificate_may_be_its_own_authority_but_not_for_another_name() {
    let own = self_signed_server("127.0.0.1").await;
    let webhooks = at(format!("https://{}/allow", own.address), &own.ca_bundle);
    Case::create().validate(&webhooks).await.unwrap();
    let misnamed = self_signed_server("other.example.com").await;
    let wrong = failure(&at(format!("https://{}/allow", misnamed.address), &misnamed.ca_bundle)).await;
    assert!(wrong.contains("x509: certificate not valid for name"), "{wrong}");
}

#[tokio::test]
async fn nobody_listens() {
    let server = server("127.0.0.1").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(
        failure(&at(format!("https://{free}"), &server.ca_bundle)).await,
        format!(r#"Post "https://{free}/?timeout=3s": dial tcp {free}: connect: connection refused"#)
    );
    assert_eq!(
        failure(&at("http://127.0.0.1:1/x".to_string(), &server.ca_bundle)).await,
        r#"Post "http://127.0.0.1:1/x?timeout=3s": unsupported protocol scheme "http""#
    );
}
