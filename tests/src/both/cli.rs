//! Commands that people type at the same time.

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use usher_api::EvictionRequest;
use usher_cli::Environment;

use crate::typed::{self, Printed};

/// Runs a command line on a cluster.
pub async fn usher(client: &Client, line: &str) -> Printed {
    let environment = Environment { cluster: Some(client.clone()), ..Environment::plain() };
    typed::usher(line, &environment).await.unwrap()
}

/// Eight requesters ask for one pod at the same time, and seven take it back at the same time: no request is lost.
pub async fn everybody_is_heard(client: &Client) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "many", "labels": {"app": "many"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 1},
    });
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let uid = pod.uid().unwrap();
    let requests: Api<EvictionRequest> = Api::default_namespaced(client.clone());
    let evict: Vec<String> =
        (0..8).map(|number| format!("evict many --requester r{number}.example.com")).collect();
    let asked = futures::future::join_all(evict.iter().map(|line| usher(client, line))).await;
    assert!(asked.iter().all(|printed| printed.code() == 0), "{asked:?}");
    let request = requests.get(&uid).await.unwrap();
    assert_eq!(request.finalizers().len(), 8, "{:?}", request.finalizers());
    let cancel: Vec<String> =
        (1..8).map(|number| format!("cancel many --requester r{number}.example.com")).collect();
    let taken_back = futures::future::join_all(cancel.iter().map(|line| usher(client, line))).await;
    assert!(taken_back.iter().all(|printed| printed.code() == 0), "{taken_back:?}");
    let request = requests.get(&uid).await.unwrap();
    assert_eq!(request.finalizers(), ["requester.evictionrequest.coordination.k8s.io/name_r0.example.com"]);
}
