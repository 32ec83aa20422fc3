//! Arguments that several commands share, read into what they mean.

use std::path::PathBuf;

use jiff::SignedDuration;
use usher_api::names::requester_finalizer;

use crate::span;

/// The requester that people are, unless they say otherwise.
pub const DEFAULT_REQUESTER: &str = "admin.usher.dev";

/// The range of `spec.progressDeadlineSeconds`.
const DEADLINE_MIN: i64 = 600;
const DEADLINE_MAX: i64 = 21_600;

/// How to reach the cluster, as with kubectl.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct Connection {
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig file; by default $KUBECONFIG, ~/.kube/config, or the service account in a pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Which pods are meant.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
pub struct PodArguments {
    /// Pods by name, as NAME or pod/NAME.
    #[arg(value_name = "POD", value_parser = pod_name, conflicts_with = "selector")]
    pub pods: Vec<String>,
    /// Pods by their labels, such as app=web.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector)]
    pub selector: Option<String>,
}

/// A requester that can have a finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub name: String,
    pub finalizer: String,
}

pub fn requester(text: &str) -> Result<Requester, String> {
    let finalizer = requester_finalizer(text).map_err(|why| why.to_string())?;
    Ok(Requester { name: text.to_string(), finalizer })
}

/// An empty selector would mean every pod, which nobody means who writes it.
pub fn selector(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the selector is empty: write for example app=web".to_string()),
        text => Ok(text.to_string()),
    }
}

/// `pod/web-1`, and also `Pod/web-1`: kubectl takes kinds in any case.
pub fn kind_and_name(text: &str) -> Option<(String, &str)> {
    text.split_once('/').map(|(kind, name)| (kind.to_lowercase(), name))
}

/// `web-1` or `pod/web-1`.
pub fn pod_name(text: &str) -> Result<String, String> {
    let (kind, name) = kind_and_name(text).unwrap_or(("pod".to_string(), text));
    match kind.as_str() {
        "pod" | "pods" | "po" if usher_api::domain::is_subdomain(name) => Ok(name.to_string()),
        "pod" | "pods" | "po" => {
            Err(format!("{name:?} cannot be the name of a pod: see kubectl get pods for the names"))
        }
        "node" | "nodes" | "no" => Err(format!("{name} is a node: to drain it, use usher drain {name}")),
        other => Err(format!("{other:?} cannot be evicted: name a pod, as in pod/{name}")),
    }
}

pub fn deadline(text: &str) -> Result<i32, String> {
    let seconds = span::parse(text)?.as_secs();
    if !(DEADLINE_MIN..=DEADLINE_MAX).contains(&seconds) {
        return Err("the deadline must be from 10m to 6h".to_string());
    }
    i32::try_from(seconds).map_err(|why| why.to_string())
}

pub fn timeout(text: &str) -> Result<SignedDuration, String> {
    span::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_may_be_named_as_kubectl_prints_it() {
        for text in ["web-1", "pod/web-1", "pods/web-1", "po/web-1"] {
            assert_eq!(pod_name(text).as_deref(), Ok("web-1"));
        }
        for (text, part) in [
            ("node/n1", "use usher drain n1"),
            ("deployment/web", "cannot be evicted"),
            ("Web_1", "cannot be the name of a pod"),
            ("", "cannot be the name of a pod"),
            ("pod/", "cannot be the name of a pod"),
        ] {
            let message = pod_name(text).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_requester_is_a_subdomain_that_fits() {
        let requester = self::requester(DEFAULT_REQUESTER).unwrap();
        assert_eq!(requester.finalizer, "requester.evictionrequest.coordination.k8s.io/name_admin.usher.dev");
        assert!(self::requester("Not A Domain").is_err());
        assert!(self::requester(&"a".repeat(80)).is_err());
    }

    #[test]
    fn a_deadline_is_within_what_the_api_allows() {
        assert_eq!(deadline("30m"), Ok(1800));
        assert_eq!((deadline("10m"), deadline("6h")), (Ok(600), Ok(21_600)));
        for wrong in ["9m59s", "6h1s", "0"] {
            assert_eq!(deadline(wrong), Err("the deadline must be from 10m to 6h".to_string()));
        }
    }
}
