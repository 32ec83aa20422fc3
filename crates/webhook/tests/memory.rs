//! How much memory reviews take, however many come at once and whatever is in them. The most that a process has held counts for all of
//! it, so this test has one of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use usher_webhook::certificates::Certificates;
use usher_webhook::memory::REVIEW_MAX;
use usher_webhook::rotation::Lifetimes;
use usher_webhook::{Admission, ServingCertificate};

/// Of the 512 MiB that the manager has. The clients of this test, which hold their reviews, are in it as well.
const MOST_MIB: usize = 200;
const AT_A_TIME: usize = 24;

/// The most that this process has held since the last reset, and what it holds now.
fn resident_mib() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    };
    (field("VmHWM:"), field("VmRSS:"))
}

/// Reviews of the largest size, full of what takes the most memory for its length.
fn reviews() -> Vec<(&'static str, &'static str, String)> {
    let wrap = |operation: &str, object: &str| {
        format!(
            r#"{{"request":{{"uid":"1","operation":"{operation}","namespace":"shop","userInfo":{{"username":"eve"}},"object":{object},"oldObject":{object}}}}}"#
        )
    };
    let fill = |piece: &str, bytes: usize| vec![piece; bytes / (piece.len() + 1)].join(",");
    let numbered = |bytes: usize| {
        (0..bytes / 13).map(|number| format!(r#""{number:06}":"""#)).collect::<Vec<_>>().join(",")
    };
    let half = REVIEW_MAX / 2 - 4096;
    let request = |metadata: &str, spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"u",{metadata}}},"spec":{{"podRef":{{"name":"web","uid":"u"}}{spec}}}}}"#
        )
    };
    vec![
        ("nested lists", "/validate/evictionrequests", wrap("UPDATE", &format!("[{}]", fill("[]", half)))),
        (
            "annotations",
            "/admit/evictionrequests",
            wrap("CREATE", &request(&format!(r#""annotations":{{{}}}"#, numbered(500 << 10)), "")),
        ),
        (
            "interceptors",
            "/validate/evictionrequests",
            wrap(
                "UPDATE",
                &request(
                    r#""labels":{}"#,
                    &format!(
                        r#","interceptors":[{}]"#,
                        fill(r#"{"interceptorClass":"","priority":0}"#, 1000 << 10)
                    ),
                ),
            ),
        ),
        (
            "terms",
            "/validate/nodemaintenances",
            wrap(
                "UPDATE",
                &format!(
                    r#"{{"metadata":{{"name":"m"}},"spec":{{"nodeSelector":{{"nodeSelectorTerms":[{}]}}}}}}"#,
                    fill("{}", 1000 << 10)
                ),
            ),
        ),
        ("a pod", "/validate/pods", wrap("CREATE", &format!(r#"{{"spec":[{}]}}"#, fill("{}", half - 64)))),
    ]
}

async fn send(address: SocketAddr, tls: TlsConnector, path: &str, body: Arc<String>) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = tls.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
    let head = format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nhost: w\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.read_to_end(&mut answer).await
    };
    // Who is closed to make way for others has no answer.
    let _ = tokio::time::timeout(Duration::from_secs(30), exchange).await.unwrap();
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_of_the_largest_reviews_at_once_stay_within_the_memory_for_them() {
    let answers = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        // An API server that thinks for a while, so that reviews add up.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let body = br#"{"spec": {}, "status": {"allowed": true}, "metadata": {"uid": "u"}}"#.to_vec();
        Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(body)))
    });
    let admission = Arc::new(Admission::new(kube::Client::new(answers, "default")));
    let made = Certificates::create(&["127.0.0.1".to_owned()], &Lifetimes::default(), jiff::Timestamp::now())
        .unwrap();
    let serving = Arc::new(ServingCertificate::default());
    serving.replace(&made.serving.certificate, &made.serving.key).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(usher_webhook::serve(listener, admission, serving, std::future::pending()));
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(made.bundle().as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));

    for (what, path, body) in reviews() {
        assert!(body.len() <= REVIEW_MAX && body.len() > 900 << 10, "{what}: {}", body.len());
        let body = Arc::new(body);
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = resident_mib().1;
        let sent = (0..AT_A_TIME).map(|_| tokio::spawn(send(address, tls.clone(), path, body.clone())));
        let mut answered = 0;
        for answer in sent.collect::<Vec<_>>() {
            answered += usize::from(answer.await.unwrap() == "HTTP/1.1 200 OK");
        }
        let most = resident_mib().0.saturating_sub(before);
        println!(
            "{what}: {} KiB each, {answered} of {AT_A_TIME} answered, {most} MiB more",
            body.len() >> 10
        );
        assert!(answered > 0, "{what}");
        assert!(most < MOST_MIB, "{what}: {most} MiB");
    }
}
