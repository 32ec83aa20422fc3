//! Usher in an embedded cluster: its definitions, its policies, its webhook and its controllers, all in this process.

use std::sync::Arc;

use anyhow::Context as _;
use embedded_apiserver::in_process;
use embedded_apiserver::{Cluster, User};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use usher_api::gateway::GatewayMode;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::{Controllers, evict_policy};
use usher_webhook::configurations::{self, Target};
use usher_webhook::{Admission, Endpoint, GatewayOptions};

use crate::manifests;

/// Where the cluster believes the webhook to be; it is answered here instead.
const WEBHOOK: &str = "https://webhook.usher.internal";

/// What the API server itself enforces.
const POLICIES: [(&str, &str); 6] = [
    ("deploy/policies.yaml", include_str!("../../../deploy/policies.yaml")),
    (
        "deploy/workloads/daemonset-policies.yaml",
        include_str!("../../../deploy/workloads/daemonset-policies.yaml"),
    ),
    (
        "deploy/workloads/statefulset-policies.yaml",
        include_str!("../../../deploy/workloads/statefulset-policies.yaml"),
    ),
    (
        "deploy/workloads/deployment-limits.yaml",
        include_str!("../../../deploy/workloads/deployment-limits.yaml"),
    ),
    (
        "deploy/workloads/deployment-policies.yaml",
        include_str!("../../../deploy/workloads/deployment-policies.yaml"),
    ),
    ("deploy/evict-policy/policies.yaml", include_str!("../../../deploy/evict-policy/policies.yaml")),
];

/// Usher at work; it ends when this is dropped.
pub struct Resident {
    running: JoinHandle<()>,
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The cluster's time, which may go faster than that of this machine.
pub fn clock_of(cluster: &Cluster) -> Clock {
    let (now, timers) = (cluster.clone(), cluster.clone());
    Clock::with_timers(move || now.now(), move |at| timers.time_until(at))
}

/// Installs Usher and starts it.
pub async fn move_in(cluster: &Cluster) -> anyhow::Result<Resident> {
    for (_, definition) in usher_api::crd::crds() {
        manifests::create(cluster, &serde_json::to_value(definition)?).await?;
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": configurations::NAMESPACE}});
    manifests::create(cluster, &namespace).await?;
    for (file, text) in POLICIES {
        for policy in manifests::parse(text, file)? {
            manifests::create(cluster, &policy).await?;
        }
    }
    let manager = User {
        name: configurations::manager_user(configurations::NAMESPACE),
        groups: vec!["system:masters".to_owned()],
        ..User::default()
    };
    let client = Client::new(cluster.service_as(manager), "default");
    let clock = clock_of(cluster);
    let gateway = GatewayMode::Request;
    let controllers = Controllers {
        evict_timeout: Some(evict_policy::TIMEOUT),
        ..Controllers::with(&BundledInterceptor::ALL)
    };
    let options =
        GatewayOptions { evict_timeout: controllers.evict_timeout, ..GatewayOptions::in_mode(gateway) };
    let admission = Admission::new(client.clone()).with_clock(clock.clone()).with_gateway(options);
    let admission = Arc::new(admission);
    for endpoint in Endpoint::ALL {
        let admission = admission.clone();
        let answer = move |review: Value| {
            let admission = admission.clone();
            async move {
                let review = review.to_string();
                admission.answer(endpoint, review.as_bytes()).await.map_err(|why| why.to_string())
            }
        };
        let url = format!("{WEBHOOK}{}", endpoint.path());
        cluster.endpoints().register_url(&url, in_process(answer));
    }
    let target = Target::Url { base: WEBHOOK.to_string(), ca_bundle: None };
    for configuration in [
        configurations::mutating(&target),
        configurations::validating(&target, configurations::NAMESPACE, gateway),
    ] {
        manifests::create(cluster, &configuration).await.context("the webhook cannot be registered")?;
    }
    let running = tokio::spawn(controllers.run(client, clock));
    Ok(Resident { running })
}

#[cfg(test)]
mod tests {
    use embedded_apiserver::Options;
    use http::Request;
    use http_body_util::{BodyExt as _, Full};
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn the_sandbox_has_the_policies_and_limits_of_all_interceptors() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/workloads");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        // Those of handing over belong to a choice of the administrator, and to no interceptor.
        let of_interceptors = |file: &String| {
            let is_rule = file.ends_with("-policies.yaml") || file.ends_with("-limits.yaml");
            is_rule && file != "hand-over-limits.yaml"
        };
        let mut count = 0;
        for file in files.filter(of_interceptors) {
            count += 1;
            let path = format!("deploy/workloads/{file}");
            assert!(POLICIES.iter().any(|(listed, _)| *listed == path), "{path} is missing in POLICIES");
        }
        assert!(count >= BundledInterceptor::ALL.len(), "{count}");
    }

    #[tokio::test]
    async fn the_policies_of_an_installation_hold_in_the_sandbox_as_well() {
        let cluster = Cluster::new(Options::default());
        let _resident = move_in(&cluster).await.unwrap();
        let selector =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        let maintenance = json!({"apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": "m"}, "spec": {"nodeSelector": selector}});
        manifests::create(&cluster, &maintenance).await.unwrap();
        let drained = json!({"status": {"conditions": [{"type": "Drained", "status": "True", "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let request = Request::patch("/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances/m/status")
            .header("content-type", "application/merge-patch+json")
            .body(Full::new(bytes::Bytes::from(drained.to_string())))
            .unwrap();
        let Ok(response) = cluster.service().oneshot(request).await;
        assert_eq!(response.status(), 422);
        let Ok(body) = response.into_body().collect().await;
        let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(
            message.ends_with("the conditions Drained and StatusComplete are the manager's"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn workloads_take_over_pods_in_the_sandbox_as_well() {
        let cluster = Cluster::new(Options::default());
        let _resident = move_in(&cluster).await.unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "default",
                "annotations": {"evictionrequest.coordination.k8s.io/evict-policy": "ControllerTakeOver"},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        });
        manifests::create(&cluster, &pod).await.unwrap();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let path = "/api/v1/namespaces/default/pods/p";
        let request = Request::post(format!("{path}/eviction"))
            .header("content-type", "application/json")
            .body(Full::new(bytes::Bytes::from(eviction.to_string())))
            .unwrap();
        let Ok(response) = cluster.service().oneshot(request).await;
        assert_eq!(response.status(), 429);
        let request = Request::get(path).body(Full::new(bytes::Bytes::new())).unwrap();
        let Ok(response) = cluster.service().oneshot(request).await;
        let Ok(body) = response.into_body().collect().await;
        let marked: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        assert_eq!(marked["metadata"]["annotations"]["kubernetes.io/pod-evict-wanted"], "true", "{marked}");
    }
}
