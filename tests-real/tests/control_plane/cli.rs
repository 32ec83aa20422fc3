//! The commands that people type, on the real control plane.

use serde_json::json;
use usher_apply::Clock;
use usher_cli::Environment;
use usher_controllers::{eviction_request, run_all};
use usher_tests::both::cli::{everybody_is_heard, usher};
use usher_tests::cluster::ADMIN;
use usher_tests::living::{DEPLOYMENTS, NODES, PODS, bare_pod, node, workload};
use usher_tests::scenario::beside::WITHOUT_SURGES;
use usher_tests::{TestCluster, crds, typed};
use usher_tests_real::RealCluster as _;

#[tokio::test]
async fn the_real_server_is_understood_as_well() {
    let cluster = TestCluster::real().await.unwrap();
    let client = cluster.client(ADMIN).unwrap();
    for line in ["requests", "requests -w"] {
        let missing = usher(&client, line).await.error();
        assert!(
            missing.starts_with("Usher is not installed in this cluster, which knows no "),
            "{line}: {missing}"
        );
    }
    crds::install(&cluster).await.unwrap();
    everybody_is_heard(&client).await;
    let explained = usher(&client, "explain many").await;
    assert!(explained.out.contains("Requested by  r0.example.com\n"), "{explained:?}");
    assert!(usher(&client, "explain nope").await.error().starts_with("pod \"nope\" is not in namespace"));
    assert!(usher(&client, "requests -l app=)").await.error().contains("is not understood"));
    let controller = tokio::spawn(eviction_request::run(client.clone(), Clock::system()));
    let waited = usher(&client, "evict many --wait").await;
    assert_eq!(waited.code(), 0, "{waited:?}");
    assert!(waited.out.ends_with("s\n") && waited.out.contains("the pod is gone after "), "{waited:?}");
    controller.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_control_plane_is_drained_as_well() {
    let cluster = TestCluster::real_living().await.unwrap();
    let client = cluster.client(ADMIN).unwrap();
    let environment = Environment { cluster: Some(client.clone()), ..Environment::plain() };
    let missing = typed::usher("maintenance list", &environment).await.unwrap().error();
    assert!(missing.starts_with("Usher is not installed in this cluster, which knows no "), "{missing}");
    crds::install(&cluster).await.unwrap();
    for number in 1..=4 {
        let mut node = node(&format!("n{number}"));
        node["metadata"]["annotations"] = json!({"kwok.x-k8s.io/node": "fake"});
        cluster.created(NODES, &node).await.unwrap();
    }
    cluster.created(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 6}))).await.unwrap();
    let all_ready = |answer: &usher_tests::Answer| answer.body["status"]["availableReplicas"] == 6;
    cluster.until(&format!("{DEPLOYMENTS}/web"), all_ready).await.unwrap();
    let manager = tokio::spawn(run_all(client, Clock::system(), &WITHOUT_SURGES));

    assert_eq!(typed::usher("cordon n2", &environment).await.unwrap().out, "node/n2: cordoned\n");
    for (line, name) in
        [("drain n1 --timeout 3m", "drain-n1"), ("drain n2 n3 --timeout 3m", "drain-n2-and-1-more")]
    {
        let drained = typed::usher(line, &environment).await.unwrap();
        assert_eq!(drained.code(), 0, "{drained:?}");
        assert!(drained.out.starts_with(&format!("maintenance {name} created: it drains ")), "{drained:?}");
    }
    let list = typed::usher("maintenance list", &environment).await.unwrap().out;
    assert!(list.contains("drain-n2-and-1-more   Drained   2       2/2       0         0"), "{list}");
    let described = typed::usher("maintenance describe drain-n1", &environment).await.unwrap().out;
    assert!(described.contains("all pods have left 1 node\n"), "events: {described}");
    assert_eq!(typed::usher("uncordon n1", &environment).await.unwrap().code(), 1);
    let back = typed::usher("maintenance cordon drain-n1", &environment).await.unwrap().error();
    assert!(back.contains("stages never go back"), "{back}");
    let completed = typed::usher("maintenance complete drain-n1 --timeout 1m", &environment).await.unwrap();
    assert!(completed.out.ends_with("node/n1: uncordoned\n"), "{completed:?}");
    let cancelled =
        typed::usher("maintenance cancel drain-n2-and-1-more --timeout 1m", &environment).await.unwrap();
    assert!(
        cancelled
            .out
            .ends_with("node/n2: stays cordoned, as it was before the maintenance\nnode/n3: uncordoned\n"),
        "{cancelled:?}"
    );
    assert_eq!(
        typed::usher("maintenance describe drain-n2-and-1-more", &environment).await.unwrap().code(),
        1
    );
    manager.abort();
}

/// What a real API server sends is read as well: nodes, pods and budgets that no controller has looked at.
#[tokio::test]
async fn a_dry_run_and_an_explanation_on_a_real_api_server() {
    let cluster = TestCluster::real().await.unwrap();
    let client = cluster.client("admin").unwrap();
    crds::install(&cluster).await.unwrap();
    for name in ["n1", "n2"] {
        cluster.created(NODES, &node(name)).await.unwrap();
    }
    let mut pod = bare_pod("solo", "n1");
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi".into();
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    cluster.created(PODS, &pod).await.unwrap();

    let environment = Environment { cluster: Some(client.clone()), ..Environment::plain() };
    let printed = typed::usher("drain n1 --dry-run", &environment).await.unwrap();
    let text = &printed.out;
    assert_eq!(printed.code(), 1, "it would be refused: {text}");
    assert!(text.starts_with("Dry run: 1 node with 1 pod would be drained at once."), "{text}");
    assert!(text.contains("- 1 pod has no controller and will not be recreated\n"), "{text}");
    assert!(text.contains("- 1 pod has emptyDir data, which is deleted with the pod\n"), "{text}");
    let refused = typed::usher("drain n1 --force", &environment).await.unwrap().error();
    assert!(refused.contains("add --delete-emptydir-data\n  default/solo: "), "{refused}");

    let text = typed::usher("explain node/n1", &environment).await.unwrap().out;
    assert!(text.starts_with("Node n1 is in no maintenance, and has 1 pod.\n"), "{text}");
    assert!(text.contains("Evictable     1 pod: it would be evicted at once"), "{text}");
}
