//! What nodes and pods really use, read before a cycle: by metrics.k8s.io, or by a query of Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use http::Request;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde::Deserialize;
use usher_apply::kind_of;
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

/// What was read.
#[derive(Debug, Default)]
pub struct Read {
    nodes: Vec<(String, Usage)>,
    pods: Vec<(String, String, Usage)>,
}

impl Read {
    /// What was known before is forgotten.
    pub fn tell(&self, cluster: &mut Cluster) {
        cluster.clear_usage();
        for (name, usage) in &self.nodes {
            cluster.set_usage_of_node(name, usage);
        }
        for (namespace, name, usage) in &self.pods {
            cluster.set_usage_of_pod(namespace, name, usage);
        }
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

    /// # Errors
    /// It cannot be read, in words that say what to look at.
    pub async fn read(self, client: Client) -> Result<Read, String> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.ask_all(client)).await;
        answer.map_err(|_| format!("usage is not told within {} seconds", ANSWER_WITHIN.as_secs()))?
    }

    async fn ask_all(self, client: Client) -> Result<Read, String> {
        let mut read = Read::default();
        if self.kubernetes_metrics {
            let (nodes, pods): (List, List) =
                futures::future::try_join(list(&client, "nodes"), list(&client, "pods")).await?;
            read.nodes.extend(nodes.items.into_iter().map(|item| {
                let usage = Usage::Resources(item.usage);
                (item.metadata.name, usage)
            }));
            read.pods.extend(pods.items.into_iter().map(|item| {
                let usage = Usage::Resources(sum(item.containers));
                (item.metadata.namespace, item.metadata.name, usage)
            }));
        }
        if self.queries.is_empty() {
            return Ok(read);
        }
        let provider = self.prometheus.ok_or("the policy names no Prometheus server")?;
        let prometheus = provider_client(&client, &provider).await?;
        let answers = try_join_all(self.queries.iter().map(|query| ask(&prometheus, query))).await?;
        read.nodes.extend(answers.into_iter().flatten());
        Ok(read)
    }
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
    get(client, &path).await.map_err(|why| {
        format!("metrics.k8s.io does not tell the usage of {plural} ({why}): see whether a metrics server is installed")
    })
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|why| why.to_string())?;
    client.request(request).await.map_err(|why| kind_of(&why))
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

/// A client of a Prometheus server, with the token that the policy names, or that of this account.
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
        None => std::fs::read_to_string(OWN_TOKEN).ok(),
    };
    config.auth_info =
        AuthInfo { token: token.map(|token| token.trim().to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).map_err(|why| kind_of(&why))
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

async fn ask(prometheus: &Client, query: &str) -> Result<Vec<(String, Usage)>, String> {
    let path = format!("/api/v1/query?query={}", escaped(query));
    let answer: Answer = get(prometheus, &path).await.map_err(|why| {
        let why = why.replace("the API server", "it");
        format!("Prometheus does not answer the query {query:?}: {why}")
    })?;
    fractions(answer, query)
}

/// By node, whose name is the label `instance`. One sample that cannot be right, and none is believed.
fn fractions(answer: Answer, query: &str) -> Result<Vec<(String, Usage)>, String> {
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
    fn a_query_is_escaped() {
        assert_eq!(
            escaped("avg by (instance) (a{b=\"c\"})"),
            "avg%20by%20%28instance%29%20%28a%7Bb%3D%22c%22%7D%29"
        );
    }
}
