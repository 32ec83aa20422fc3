//! Spans of the manager's work and of its calls to the API server, sent to a collector by OTLP over HTTP.
//!
//! A thread of their own sends them in batches from a queue that has an end. A collector that is slow or away costs spans,
//! and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use rustls::crypto::ring::default_provider;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;
use usher_apply::spans;

/// A collector has so long to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The last spans have so long to leave when the manager ends.
const END_WITHIN: Duration = Duration::from_secs(3);
const LONGEST_ANSWER: usize = 64 * 1024;

/// Where spans go.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Traces to the collector at this address.
    pub fn start(endpoint: &Uri) -> anyhow::Result<Self> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(endpoint)?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.to_string())
            .with_timeout(ANSWER_WITHIN)
            .build()
            .context("traces cannot be sent to --otlp-endpoint")?;
        let resource = Resource::builder().with_service_name("usher-manager").build();
        let provider =
            SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
        Ok(Self { provider })
    }

    /// Takes the spans that are meant for it, and nothing of what is logged.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("usher"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(spans::TARGET, LevelFilter::TRACE))
    }

    /// Sends what is left, as far as there is time for it.
    pub async fn end(self) {
        // It blocks, and what it waits for runs here.
        let ending = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(END_WITHIN));
        match tokio::time::timeout(END_WITHIN + Duration::from_secs(1), ending).await {
            Ok(Ok(Ok(()))) => {}
            _ => tracing::warn!("the last spans could not be sent"),
        }
    }
}

/// Calls the collector from the threads of the manager: the one that has the spans cannot.
#[derive(Debug)]
struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    is_away: AtomicBool,
}

impl Collector {
    fn new(endpoint: &Uri) -> anyhow::Result<Self> {
        let tls = rustls::ClientConfig::builder_with_provider(default_provider().into());
        let builder = HttpsConnectorBuilder::new();
        let connector = if endpoint.scheme_str() == Some("https") {
            let with_roots = builder.with_provider_and_native_roots(default_provider());
            with_roots
                .context("this machine has no certificates to check --otlp-endpoint by")?
                .https_or_http()
        } else {
            let nobody = rustls::RootCertStore::empty();
            let tls = tls.with_safe_default_protocol_versions()?.with_root_certificates(nobody);
            builder.with_tls_config(tls.with_no_client_auth()).https_or_http()
        };
        let client = Client::builder(TokioExecutor::new()).build(connector.enable_http1().build());
        Ok(Self { client, runtime: Handle::current(), is_away: AtomicBool::new(false) })
    }

    /// Said once when it goes away, and once when it is back.
    fn log(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let why = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(why) => Some(reasons(&**why)),
        };
        let was_away = self.is_away.swap(why.is_some(), Ordering::Relaxed);
        match why {
            Some(why) if !was_away => {
                tracing::warn!(
                    why,
                    "the collector of traces cannot be reached: spans are dropped until it is"
                );
            }
            None if was_away => tracing::info!("the collector of traces is reached again"),
            _ => {}
        }
    }
}

fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let whole = async move {
            let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        let called = self.runtime.spawn(async { tokio::time::timeout(ANSWER_WITHIN, whole).await }).await;
        let answer = match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(format!("no answer within {ANSWER_WITHIN:?}").into()),
            Err(ended) => Err(ended.into()),
        };
        self.log(&answer);
        answer
    }
}
