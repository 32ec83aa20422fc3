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
use usher_client::kind_of;
use usher_descheduler::policy::args::{Balance, UsageSource};
use usher_descheduler::policy::{Policy, PrometheusProvider};
use usher_descheduler::quantity::parse_milli;
use usher_descheduler::{Cluster, Usage};

/// Where an account that runs in the cluster has its token.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Under which key a Secret has the token for Prometheus.
const TOKEN_KEY: &str = "prometheusAuthToken";

/// Usage that is not told within this is not known in this cycle.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Answers are read so far, in bytes. metrics.k8s.io has all pods in one, and Prometheus a number for each node.
const LONGEST_OF_METRICS: u64 = 256 * 1024 * 1024;
const LONGEST_OF_PROMETHEUS: u64 = 16 * 1024 * 1024;

/// So many labels are told where none is the name of a node.
const SHOWN_AT_MOST: usize = 5;

/// What was read, source by source, or why it was not.
#[derive(Debug, Default)]
pub struct Read {
    kubernetes: Option<Result<Measured, String>>,
    /// With their queries.
    prometheus: Vec<(String, Result<Samples, String>)>,
}

/// Nodes, by the label that names them.
type Samples = Vec<(String, Usage)>;

/// What metrics.k8s.io tells.
#[derive(Debug, Default)]
struct Measured {
    nodes: Vec<(String, Usage)>,
    pods: Vec<(String, String, Usage)>,
}

impl Read {
    /// What was known before is forgotten. Says what is not known now, in words that say what to look at.
    pub fn tell(&self, cluster: &mut Cluster) -> Vec<String> {
        cluster.clear_usage();
        let mut unknown = Vec::new();
        match &self.kubernetes {
            Some(Ok(measured)) => {
                for (name, usage) in &measured.nodes {
                    cluster.set_usage_of_node(name, usage);
                }
                for (namespace, name, usage) in &measured.pods {
                    cluster.set_usage_of_pod(namespace, name, usage);
                }
            }
            Some(Err(why)) => unknown.push(why.clone()),
            None => {}
        }
        for (query, answer) in &self.prometheus {
            match answer {
                Ok(samples) => {
                    if !samples.iter().any(|(name, _)| cluster.has_node(name)) {
                        unknown.push(strangers(query, samples));
                    }
                    for (name, usage) in samples {
                        cluster.set_usage_of_node(name, usage);
                    }
                }
                Err(why) => unknown.push(why.clone()),
            }
        }
        unknown
    }
}

/// None of these is a node.
fn strangers(query: &str, samples: &[(String, Usage)]) -> String {
    let some: Vec<&str> = samples.iter().take(SHOWN_AT_MOST).map(|(name, _)| name.as_str()).collect();
    match samples.len() {
        0 => format!("the query {query:?} of Prometheus gives nothing"),
        all => format!(
            "the query {query:?} of Prometheus gives {all} samples, and no label instance is the name of a node ({})",
            some.join(", ")
        ),
    }
}

/// What the policy measures by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    kubernetes_metrics: bool,
    queries: Vec<String>,
    prometheus: Option<PrometheusProvider>,
}

impl Sources {
    pub fn of(policy: &Policy) -> Self {
        let mut sources = Self {
            prometheus: policy.metrics_providers.iter().find_map(|provider| provider.prometheus.clone()),
            ..Self::default()
        };
        for plugin in policy.profiles.iter().flat_map(|profile| &profile.balance) {
            let Balance::LowNodeUtilization(args) = plugin else { continue };
            match &args.usage {
                UsageSource::Requests => {}
                UsageSource::KubernetesMetrics => sources.kubernetes_metrics = true,
                UsageSource::Prometheus { query } => sources.queries.push(query.clone()),
            }
        }
        sources
    }

    pub fn is_empty(&self) -> bool {
        !self.kubernetes_metrics && self.queries.is_empty()
    }

    /// Asks all of them at once. One that does not answer says nothing of the others.
    pub async fn read(self, client: Client) -> Read {
        let kubernetes = async {
            match self.kubernetes_metrics {
                true => Some(in_time("metrics.k8s.io", measured(&client)).await),
                false => None,
            }
        };
        let queries = self.queries.iter().map(|query| async {
            let answer = in_time("Prometheus", self.ask_prometheus(&client, query)).await;
            (query.clone(), answer)
        });
        let (kubernetes, prometheus) = futures::future::join(kubernetes, join_all(queries)).await;
        Read { kubernetes, prometheus }
    }

    async fn ask_prometheus(&self, client: &Client, query: &str) -> Result<Samples, String> {
        let provider = self.prometheus.as_ref().ok_or("the policy names no Prometheus server")?;
        ask(&provider_client(client, provider).await?, query).await
    }
}

async fn in_time<T>(who: &str, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
    answer.map_err(|_| format!("{who} does not tell the usage within {} seconds", ANSWER_WITHIN.as_secs()))?
}

async fn measured(client: &Client) -> Result<Measured, String> {
    let (nodes, pods): (List, List) = try_join(list(client, "nodes"), list(client, "pods")).await?;
    let nodes = nodes.items.into_iter().map(|item| (item.metadata.name, Usage::Resources(item.usage)));
    let pods = pods.items.into_iter().map(|item| {
        let usage = Usage::Resources(sum(item.containers));
        (item.metadata.namespace, item.metadata.name, usage)
    });
    Ok(Measured { nodes: nodes.collect(), pods: pods.collect() })
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
    get(client, &path, LONGEST_OF_METRICS).await.map_err(|why| {
        format!("metrics.k8s.io does not tell the usage of {plural} ({why}): see whether a metrics server is installed")
    })
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str, longest: u64) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|why| why.to_string())?;
    let body = client.request_stream(request).await.map_err(|why| kind_of(&why))?;
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

async fn ask(prometheus: &Client, query: &str) -> Result<Samples, String> {
    let path = format!("/api/v1/query?query={}", escaped(query));
    let answer: Answer = get(prometheus, &path, LONGEST_OF_PROMETHEUS).await.map_err(|why| {
        let why = why.replace("the API server", "it");
        format!("Prometheus does not answer the query {query:?}: {why}")
    })?;
    fractions(answer, query)
}

/// By node, whose name is the label `instance`. One sample that cannot be right, and none is believed.
fn fractions(answer: Answer, query: &str) -> Result<Samples, String> {
    let read = |mut sample: Sample| {
        let wrong = |what: &str| format!("the query {query:?} of Prometheus gives {what}");
        let instance = sample.metric.remove("instance");
        let node =
            instance.ok_or_else(|| wrong("a sample without the label instance, the name of its node"))?;
        let fraction = sample.value.1.parse().ok().filter(|value| (0.0..=1.0).contains(value));
        let fraction = fraction.ok_or_else(|| {
            wrong(&format!("{:?} for {node}, and should give a number from 0 to 1", sample.value.1))
        })?;
        Ok((node, Usage::Fraction { query: query.to_owned(), fraction }))
    };
    answer.data.result.into_iter().map(read).collect()
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
    fn prometheus_tells_by_instance_and_what_cannot_be_right_is_not_believed() {
        let read = |metric: serde_json::Value, value: &str| {
            let answer = json!({"status": "success", "data": {"resultType": "vector", "result": [
                {"metric": {"instance": "n-1"}, "value": [1_700_000_000.1, "0.25"]},
                {"metric": metric, "value": [1_700_000_000.1, value]},
            ]}});
            fractions(serde_json::from_value(answer).unwrap(), "q")
        };
        let usage = |fraction| Usage::Fraction { query: "q".to_owned(), fraction };
        let told = read(json!({"instance": "n-2"}), "1").unwrap();
        assert_eq!(told, [("n-1".to_owned(), usage(0.25)), ("n-2".to_owned(), usage(1.0))]);
        for value in ["NaN", "-5", "1.5", "9223372036854775808"] {
            let why = read(json!({"instance": "n-2"}), value).unwrap_err();
            assert!(why.contains("for n-2, and should give a number from 0 to 1"), "{why}");
        }
        assert!(read(json!({"job": "n-2"}), "0.5").unwrap_err().contains("the label instance"));
    }

    #[test]
    fn the_own_token_is_for_encrypted_connections_only() {
        assert!(takes_own_token("https://prometheus.monitoring:9090"));
        assert!(!takes_own_token("http://prometheus.monitoring:9090"));
    }

    fn cluster_of(node: &str) -> Cluster {
        let mut cluster = Cluster::default();
        let node = json!({"metadata": {"name": node}, "status": {"allocatable": {"cpu": "1"}}});
        cluster.set_node(&serde_json::from_value(node).unwrap());
        cluster
    }

    #[test]
    fn one_source_that_fails_leaves_the_others_known_and_labels_that_are_no_nodes_are_told() {
        let sample = |query: &str, node: &str| {
            (node.to_owned(), Usage::Fraction { query: query.to_owned(), fraction: 0.5 })
        };
        let read = Read {
            kubernetes: Some(Err("no metrics server".to_owned())),
            prometheus: vec![
                ("a".to_owned(), Ok(vec![sample("a", "n-1"), sample("a", "n-9")])),
                ("b".to_owned(), Err("no answer".to_owned())),
                ("c".to_owned(), Ok(vec![sample("c", "10.0.0.1:9100"), sample("c", "10.0.0.2:9100")])),
                ("d".to_owned(), Ok(vec![])),
            ],
        };
        let told = read.tell(&mut cluster_of("n-1"));
        assert_eq!(
            told,
            [
                "no metrics server",
                "no answer",
                "the query \"c\" of Prometheus gives 2 samples, and no label instance is the name of a node (10.0.0.1:9100, 10.0.0.2:9100)",
                "the query \"d\" of Prometheus gives nothing",
            ]
        );
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
        let sources = Sources { kubernetes_metrics: true, queries: vec!["q".to_owned()], prometheus: None };
        let usage = json!({"items": [{"metadata": {"name": "n-1"}, "usage": {"cpu": "1"}}]});
        let read = sources.read(server(move |_| usage.to_string().into_bytes())).await;
        assert_eq!(read.kubernetes.unwrap().unwrap().nodes.len(), 1);
        assert!(read.prometheus[0].1.as_ref().unwrap_err().contains("names no Prometheus"));
        let ten =
            |longest| async move { get::<u64>(&server(|_| b"1234567890".to_vec()), "/", longest).await };
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
