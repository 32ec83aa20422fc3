//! What nodes and pods really use, read before a plan is made: by metrics.k8s.io, or by a query of Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::AsyncReadExt as _;
use futures::future::{join_all, try_join};
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use usher_client::failure::kind_of_answer;
use usher_client::kind_of;
use usher_descheduler::Usage;
use usher_descheduler::policy::PrometheusProvider;
use usher_descheduler::quantity::parse_milli;
use usher_descheduler::usage::{MetricsOfKubernetes, UsageReading, UsageSamples, UsageSources, fractions};

/// Where an account that runs in the cluster has its token.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Under which key a Secret has the token for Prometheus.
const TOKEN_KEY: &str = "prometheusAuthToken";

/// Usage that is not told within this is not known in this cycle.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Answers are read so far, in bytes. metrics.k8s.io has all pods in one, and Prometheus a number for each node.
const LONGEST_OF_METRICS: u64 = 256 * 1024 * 1024;
const LONGEST_OF_PROMETHEUS: u64 = 16 * 1024 * 1024;

/// Asks all of them at once. One that does not answer says nothing of the others.
pub async fn read(sources: UsageSources, client: Client) -> UsageReading {
    let kubernetes = async {
        match sources.kubernetes_metrics {
            true => Some(in_time("metrics.k8s.io", metrics_of_kubernetes(&client)).await),
            false => None,
        }
    };
    let queries = sources.queries.iter().map(|query| async {
        let answer = in_time("Prometheus", ask_prometheus(&sources, &client, query)).await;
        (query.clone(), answer)
    });
    let (kubernetes, prometheus) = futures::future::join(kubernetes, join_all(queries)).await;
    UsageReading { kubernetes, prometheus }
}

async fn ask_prometheus(
    sources: &UsageSources,
    client: &Client,
    query: &str,
) -> Result<UsageSamples, String> {
    let provider = sources.prometheus.as_ref().ok_or("the policy names no Prometheus server")?;
    ask(&provider_client(client, provider).await?, query).await
}

async fn in_time<T>(who: &str, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
    answer.map_err(|_| format!("{who} does not tell the usage within {} seconds", ANSWER_WITHIN.as_secs()))?
}

async fn metrics_of_kubernetes(client: &Client) -> Result<MetricsOfKubernetes, String> {
    let (nodes, pods): (List, List) = try_join(list(client, "nodes"), list(client, "pods")).await?;
    let nodes = nodes.items.into_iter().map(|item| (item.metadata.name, Usage::Resources(item.usage)));
    let pods = pods.items.into_iter().map(|item| {
        let usage = Usage::Resources(sum(item.containers));
        (item.metadata.namespace, item.metadata.name, usage)
    });
    Ok(MetricsOfKubernetes { nodes: nodes.collect(), pods: pods.collect() })
}

/// A list of metrics.k8s.io, as far as it matters.
#[derive(Debug, Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: Named,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct Container {
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

async fn list(client: &Client, plural: &str) -> Result<List, String> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/{plural}");
    get(client, "the API server", &path, LONGEST_OF_METRICS).await.map_err(|why| {
        format!("metrics.k8s.io does not tell the usage of {plural} ({why}): see whether a metrics server is installed")
    })
}

async fn get<T: DeserializeOwned>(client: &Client, who: &str, path: &str, longest: u64) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|why| why.to_string())?;
    let body = client.request_stream(request).await.map_err(|why| kind_of_answer(&why, who))?;
    let mut text = Vec::new();
    // Longer ones are not read to their end.
    body.take(longest + 1).read_to_end(&mut text).await.map_err(|why| why.to_string())?;
    if text.len() as u64 > longest {
        return Err(format!("the answer has more than {longest} bytes"));
    }
    serde_json::from_slice(&text).map_err(|why| format!("the answer cannot be understood: {why}"))
}

/// Together, over the containers of a pod.
fn sum(containers: Vec<Container>) -> BTreeMap<String, Quantity> {
    let mut sums: BTreeMap<String, i128> = BTreeMap::new();
    for (resource, quantity) in containers.into_iter().flat_map(|container| container.usage) {
        let sum = sums.entry(resource).or_default();
        *sum = sum.saturating_add(parse_milli(&quantity.0).unwrap_or(0));
    }
    sums.into_iter().map(|(resource, milli)| (resource, Quantity(format!("{milli}m")))).collect()
}

/// A client of a Prometheus server, with the token that the policy names, or that of this account, which is for encrypted connections only.
async fn provider_client(client: &Client, provider: &PrometheusProvider) -> Result<Client, String> {
    let url = provider.url.parse().map_err(|_| format!("{} is no URL", provider.url))?;
    let mut config = Config::new(url);
    // In a pod, servers are known by the cluster's authority, as the Go descheduler has it.
    config.root_cert = Config::incluster().ok().and_then(|own| own.root_cert);
    let token = match &provider.auth_token {
        Some((namespace, name)) => {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let hint =
                |why: &str| format!("the Secret {namespace}/{name} with the token for Prometheus {why}");
            let secret =
                secrets.get(name).await.map_err(|why| hint(&format!("cannot be read: {}", kind_of(&why))))?;
            let token = secret.data.and_then(|mut data| data.remove(TOKEN_KEY));
            let token = token.ok_or_else(|| hint(&format!("has no key {TOKEN_KEY}")))?;
            Some(String::from_utf8(token.0).map_err(|_| hint("is no text"))?)
        }
        None if takes_own_token(&provider.url) => std::fs::read_to_string(OWN_TOKEN).ok(),
        None => None,
    };
    config.auth_info =
        AuthInfo { token: token.map(|token| token.trim().to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).map_err(|why| kind_of(&why))
}

/// Who listens on the way reads what is sent over plain HTTP, and could act as this account.
fn takes_own_token(url: &str) -> bool {
    url.starts_with("https://")
}

/// What Prometheus answers.
#[derive(Debug, Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Debug, Deserialize)]
struct Data {
    result: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

async fn ask(prometheus: &Client, query: &str) -> Result<UsageSamples, String> {
    let path = format!("/api/v1/query?query={}", escaped(query));
    let answer: Answer = get(prometheus, "it", &path, LONGEST_OF_PROMETHEUS)
        .await
        .map_err(|why| format!("Prometheus does not answer the query {query:?}: {why}"))?;
    let samples = answer
        .data
        .result
        .into_iter()
        .map(|Sample { mut metric, value: (_, value) }| (metric.remove("instance"), value));
    fractions(samples, query)
}

/// For the query of a URL.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_own_token_is_for_encrypted_connections_only() {
        assert!(takes_own_token("https://prometheus.monitoring:9090"));
        assert!(!takes_own_token("http://prometheus.monitoring:9090"));
    }

    /// A server that answers each path with this.
    fn server(answer: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static) -> Client {
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let body = kube::client::Body::from(answer(request.uri().path()));
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn sources_are_asked_each_by_itself_and_an_answer_has_a_longest_length() {
        let sources =
            UsageSources { kubernetes_metrics: true, queries: vec!["q".to_owned()], prometheus: None };
        let usage = json!({"items": [{"metadata": {"name": "n-1"}, "usage": {"cpu": "1"}}]});
        let read = read(sources, server(move |_| usage.to_string().into_bytes())).await;
        assert_eq!(read.kubernetes.unwrap().unwrap().nodes.len(), 1);
        assert!(read.prometheus[0].1.as_ref().unwrap_err().contains("names no Prometheus"));
        let ten = |longest| async move {
            get::<u64>(&server(|_| b"1234567890".to_vec()), "it", "/", longest).await
        };
        assert_eq!(ten(10).await, Ok(1_234_567_890));
        assert_eq!(ten(9).await, Err("the answer has more than 9 bytes".to_owned()));
    }

    #[test]
    fn a_query_is_escaped() {
        assert_eq!(
            escaped("avg by (instance) (a{b=\"c\"})"),
            "avg%20by%20%28instance%29%20%28a%7Bb%3D%22c%22%7D%29"
        );
    }
}
