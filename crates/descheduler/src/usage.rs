//! What nodes and pods really use: which sources a policy measures by, and what their answers say of the cluster.

use crate::policy::args::{Balance, UsageSource};
use crate::policy::{Policy, PrometheusProvider};
use crate::{Cluster, Usage};

/// So many labels are named where none is the name of a node.
const SHOWN_AT_MOST: usize = 5;

/// What the policy measures by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageSources {
    /// metrics.k8s.io.
    pub kubernetes_metrics: bool,
    /// Queries of Prometheus.
    pub queries: Vec<String>,
    pub prometheus: Option<PrometheusProvider>,
}

impl UsageSources {
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
}

/// Nodes, by the label that names them.
pub type UsageSamples = Vec<(String, Usage)>;

/// What metrics.k8s.io says.
#[derive(Debug, Default)]
pub struct MetricsOfKubernetes {
    pub nodes: Vec<(String, Usage)>,
    /// By namespace and name.
    pub pods: Vec<(String, String, Usage)>,
}

/// What was read, source by source, or why it was not.
#[derive(Debug, Default)]
pub struct UsageReading {
    pub kubernetes: Option<Result<MetricsOfKubernetes, String>>,
    /// With their queries.
    pub prometheus: Vec<(String, Result<UsageSamples, String>)>,
}

impl UsageReading {
    /// Sets the usage of all that is in the cluster; what was known before is forgotten. The answer says what is not known now, in words
    /// that say what to look at.
    pub fn set_in(&self, cluster: &mut Cluster) -> Vec<String> {
        cluster.clear_usage();
        let mut unknown = Vec::new();
        match &self.kubernetes {
            Some(Ok(metrics)) => {
                for (name, usage) in &metrics.nodes {
                    cluster.set_usage_of_node(name, usage);
                }
                for (namespace, name, usage) in &metrics.pods {
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
                        unknown.push(samples_of_no_node(query, samples));
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

fn samples_of_no_node(query: &str, samples: &[(String, Usage)]) -> String {
    let some: Vec<&str> = samples.iter().take(SHOWN_AT_MOST).map(|(name, _)| name.as_str()).collect();
    match samples.len() {
        0 => format!("the query {query:?} of Prometheus gives nothing"),
        all => format!(
            "the query {query:?} of Prometheus gives {all} samples, and no label instance is the name of a node ({})",
            some.join(", ")
        ),
    }
}

/// By node, from the samples of a query: their label `instance`, which names the node, and their value, from 0 to 1.
///
/// # Errors
/// A sample cannot be right. Then none is believed.
pub fn fractions(
    samples: impl IntoIterator<Item = (Option<String>, String)>,
    query: &str,
) -> Result<UsageSamples, String> {
    let read = |(instance, value): (Option<String>, String)| {
        let wrong = |what: &str| format!("the query {query:?} of Prometheus gives {what}");
        let node =
            instance.ok_or_else(|| wrong("a sample without the label instance, the name of its node"))?;
        let fraction = value.parse().ok().filter(|value| (0.0..=1.0).contains(value));
        let fraction = fraction
            .ok_or_else(|| wrong(&format!("{value:?} for {node}, and should give a number from 0 to 1")))?;
        Ok((node, Usage::Fraction { query: query.to_owned(), fraction }))
    };
    samples.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samples_name_their_node_and_what_cannot_be_right_is_not_believed() {
        let read = |instance: Option<&str>, value: &str| {
            let samples = [
                (Some("n-1".to_owned()), "0.25".to_owned()),
                (instance.map(str::to_owned), value.to_owned()),
            ];
            fractions(samples, "q")
        };
        let usage = |fraction| Usage::Fraction { query: "q".to_owned(), fraction };
        let samples = read(Some("n-2"), "1").unwrap();
        assert_eq!(samples, [("n-1".to_owned(), usage(0.25)), ("n-2".to_owned(), usage(1.0))]);
        for value in ["NaN", "-5", "1.5", "9223372036854775808"] {
            let why = read(Some("n-2"), value).unwrap_err();
            assert!(why.contains("for n-2, and should give a number from 0 to 1"), "{why}");
        }
        assert!(read(None, "0.5").unwrap_err().contains("the label instance"));
    }

    fn cluster_of(node: &str) -> Cluster {
        let mut cluster = Cluster::default();
        let node = json!({"metadata": {"name": node}, "status": {"allocatable": {"cpu": "1"}}});
        cluster.set_node(&serde_json::from_value(node).unwrap());
        cluster
    }

    #[test]
    fn one_source_that_fails_leaves_the_others_known_and_labels_that_are_no_nodes_are_named() {
        let sample = |query: &str, node: &str| {
            (node.to_owned(), Usage::Fraction { query: query.to_owned(), fraction: 0.5 })
        };
        let reading = UsageReading {
            kubernetes: Some(Err("no metrics server".to_owned())),
            prometheus: vec![
                ("a".to_owned(), Ok(vec![sample("a", "n-1"), sample("a", "n-9")])),
                ("b".to_owned(), Err("no answer".to_owned())),
                ("c".to_owned(), Ok(vec![sample("c", "10.0.0.1:9100"), sample("c", "10.0.0.2:9100")])),
                ("d".to_owned(), Ok(vec![])),
            ],
        };
        assert_eq!(
            reading.set_in(&mut cluster_of("n-1")),
            [
                "no metrics server",
                "no answer",
                "the query \"c\" of Prometheus gives 2 samples, and no label instance is the name of a node (10.0.0.1:9100, 10.0.0.2:9100)",
                "the query \"d\" of Prometheus gives nothing",
            ]
        );
    }
}
