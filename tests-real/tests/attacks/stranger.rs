//! A stranger on the network: no name in the cluster, and all ports of the manager within reach.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::moves::World;
use super::tally::Move;

const PATIENCE: Duration = Duration::from_secs(10);
/// At a time. There are several strangers.
const CONNECTIONS: usize = 200;
const PATHS: [&str; 6] = [
    "/admit/evictionrequests",
    "/admit/nodemaintenances",
    "/validate/evictionrequests",
    "/validate/nodemaintenances",
    "/validate/pods",
    "/validate/nodes",
];

#[derive(Clone)]
pub struct Stranger {
    pub webhook: SocketAddr,
    pub health: SocketAddr,
    pub metrics: SocketAddr,
    tls: TlsConnector,
}

impl Stranger {
    /// The certificates are public: every client of the webhook gets them.
    pub fn new(webhook: SocketAddr, health: SocketAddr, metrics: SocketAddr, authority: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { webhook, health, metrics, tls: TlsConnector::from(Arc::new(config)) }
    }

    /// Does it, and gives back the status code (0: none) and all that was answered.
    pub async fn attempt(&self, of: Move, random: &mut Rng, world: &World) -> (u16, String) {
        match of {
            Move::ForgedReview => {
                let mut answers = (0, String::new());
                for path in PATHS {
                    let body = forged_review(random, world).to_string();
                    let (code, answer) = self.post(path, body.as_bytes()).await;
                    answers = (code, answers.1 + &answer);
                }
                answers
            }
            Move::SilentConnections => {
                let address =
                    random.choice([self.webhook, self.health, self.metrics]).unwrap_or(self.webhook);
                let mut silent = Vec::new();
                for _ in 0..CONNECTIONS {
                    silent.extend(
                        timeout(PATIENCE, TcpStream::connect(address)).await.ok().and_then(Result::ok),
                    );
                }
                sleep(Duration::from_millis(random.u64(200..2000))).await;
                drop(silent);
                (0, String::new())
            }
            Move::SlowConnections => {
                let mut slow = JoinSet::new();
                for _ in 0..20 {
                    let stranger = self.clone();
                    slow.spawn(async move { stranger.slow().await });
                }
                (0, slow.join_all().await.concat())
            }
            Move::LargeReviews => {
                let body = Arc::new(large_review(random));
                let mut large = JoinSet::new();
                for _ in 0..4 {
                    let (stranger, body) = (self.clone(), Arc::clone(&body));
                    let path = random.choice(PATHS).unwrap_or(PATHS[0]);
                    large.spawn(async move { stranger.post(path, body.as_bytes()).await });
                }
                let answers = large.join_all().await;
                (
                    answers.first().map_or(0, |first| first.0),
                    answers.into_iter().map(|answer| answer.1).collect(),
                )
            }
            Move::Garbage => {
                let address =
                    random.choice([self.webhook, self.health, self.metrics]).unwrap_or(self.webhook);
                let bytes: Vec<u8> = (0..random.usize(1..4096)).map(|_| random.u8(..)).collect();
                if address == self.webhook && random.bool() {
                    return self.post("/validate/pods", &bytes).await;
                }
                let Ok(Ok(mut stream)) = timeout(PATIENCE, TcpStream::connect(address)).await else {
                    return (0, String::new());
                };
                // It may hang up at any time.
                let _ = stream.write_all(&bytes).await;
                answer_of(&mut stream).await
            }
            // Metrics
            _ => {
                let token =
                    random.choice(["", "Authorization: Bearer x.y.z\r\n", "Authorization: Basic YTpi\r\n"]);
                let request = format!(
                    "GET /metrics HTTP/1.1\r\nHost: m\r\n{}Connection: close\r\n\r\n",
                    token.unwrap_or("")
                );
                let Some(mut stream) = self.connect(self.metrics).await else { return (0, String::new()) };
                let _ = stream.write_all(request.as_bytes()).await;
                answer_of(&mut stream).await
            }
        }
    }

    async fn connect(&self, address: SocketAddr) -> Option<TlsStream<TcpStream>> {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.ok()?.ok()?;
        let name = "localhost".try_into().ok()?;
        timeout(PATIENCE, self.tls.connect(name, stream)).await.ok()?.ok()
    }

    async fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let Some(mut stream) = self.connect(self.webhook).await else { return (0, String::new()) };
        let head = format!(
            "POST {path}?timeout=10s HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // It may answer and hang up before it has read all.
        let _ = timeout(PATIENCE, stream.write_all(head.as_bytes())).await;
        let _ = timeout(PATIENCE, stream.write_all(body)).await;
        answer_of(&mut stream).await
    }

    /// A review that comes letter by letter.
    async fn slow(&self) -> String {
        let Some(mut stream) = self.connect(self.webhook).await else { return String::new() };
        let head = "POST /validate/pods HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes()).await;
        for _ in 0..20 {
            if stream.write_all(b"{").await.is_err() {
                break;
            }
            let _ = stream.flush().await;
            sleep(Duration::from_millis(100)).await;
        }
        String::new()
    }
}

async fn answer_of(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let answer = String::from_utf8_lossy(&bytes).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, answer)
}

/// A review about something that there is, or with a name that would become a path, by whoever one would like to be.
fn forged_review(random: &mut Rng, world: &World) -> Value {
    let pod = random.choice(&world.pods).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("x").to_owned();
    let odd = random.choice(["x/secrets/y?z=", "shop/secrets/plans?x=", "../..", "a%2fb", ""]).unwrap_or("");
    let is_odd = random.bool();
    let namespace = if is_odd { odd.to_owned() } else { text(&pod["metadata"]["namespace"]) };
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let user = random.choice([
        json!({"username": "admin", "groups": ["system:masters"]}),
        json!({"username": "system:serviceaccount:usher-system:usher-manager"}),
        json!({"username": "nobody-cluster", "groups": ["a\nb"], "extra": {"x/y": ["z"]}}),
        Value::Null,
    ]);
    // He names none of the nodes that he is not to hear of.
    let term = random.choice([
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0001"]}]}),
        json!({"matchExpressions": [{"key": "pool", "operator": "In", "values": ["rack"]}]}),
        json!({"matchExpressions": [{"key": "example.com/plan", "operator": "Exists"}]}),
    ]);
    let selector = json!({"nodeSelectorTerms": [term]});
    let object = json!({
        "apiVersion": "v1", "kind": "X", "metadata": {"name": uid, "namespace": namespace, "annotations": {
            "interceptor.evictionrequest.coordination.k8s.io/priority_a.example.com": "1",
        }},
        "spec": {"podRef": {"name": name, "uid": uid}, "stage": "Drain", "nodeSelector": selector},
        "status": {"evictionRequestCancellationPolicy": "Forbid"},
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": random.choice(["CREATE", "UPDATE", "DELETE"]), "namespace": namespace, "name": uid,
        "userInfo": user, "object": object, "oldObject": object, "dryRun": random.bool(),
    }})
}

/// Of 8 MiB, whose parts take more memory than their letters.
fn large_review(random: &mut Rng) -> String {
    let part = random.choice(["[[],{}],", "{\"a\":null},", "\"x\","]).unwrap_or("\"x\",");
    let values = part.repeat((8 << 20) / part.len());
    format!(
        "{{\"request\": {{\"uid\": \"1\", \"operation\": \"CREATE\", \"object\": {{\"spec\": [{values} 1]}}}}}}"
    )
}
