//! The dry run as people read it.

use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::outlook::{Cluster, NodeOnWire, PodOnWire, outlook};
use usher_decide::snapshot::Maintenance;

use super::text;
use crate::Surroundings;
use crate::samples::{NOW, budget, pod};

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}},
    })
}

fn cluster(nodes: &[Value], pods: &[Value], budgets: &[Value]) -> Cluster {
    let node = |node: &Value| serde_json::from_value::<NodeOnWire>(node.clone()).unwrap().into();
    let pod = |pod: &Value| serde_json::from_value::<PodOnWire>(pod.clone()).unwrap().into();
    let budget = |budget: &Value| {
        serde_json::from_value::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(budget.clone())
            .unwrap()
            .into()
    };
    Cluster {
        nodes: nodes.iter().map(node).collect(),
        pods: pods.iter().map(pod).collect(),
        budgets: budgets.iter().map(budget).collect(),
        maintenances: Vec::new(),
    }
}

fn told(cluster: &Cluster, nodes: &[&str], limit: Option<i32>) -> String {
    let mut maintenance = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "new"},
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]},
        ]}},
    });
    if let Some(limit) = limit {
        maintenance["spec"]["drainLimit"] = json!({"maxNodes": limit});
    }
    let maintenance: NodeMaintenance = serde_json::from_value(maintenance).unwrap();
    let outlook = outlook(&Maintenance::from(maintenance), cluster, NOW.parse().unwrap());
    text::render(&outlook, &Surroundings::plain())
}

#[test]
fn order_plan_findings_and_places_are_told() {
    let mut alone = pod("alone", "n2");
    alone["metadata"]["ownerReferences"] = json!([]);
    alone["metadata"]["labels"] = json!({});
    let mut cordoned = node("n2");
    cordoned["spec"] = json!({"unschedulable": true});
    let pods = [pod("web-1", "n1"), pod("web-2", "n1"), pod("web-3", "n3"), alone];
    let cluster = cluster(&[node("n1"), cordoned, node("n3")], &pods, &[budget("web", 0)]);
    let wanted = "\
Dry run: 2 nodes with 3 pods would be drained in 2 waves. 2 pods would not leave by themselves.

Order
  WAVE   NODE   PODS   BY STEP   NOW
  1      n2     1      1: 1      cordoned
  2      n1     2      1: 2      -

Plan
  STEP   PODS   TYPE      UP TO PRIORITY                  LABELS
  1      3      Default   1000000000 (highest of users)   -

What it would meet, worst first
- 2 pods cannot leave: budget shop/web (minAvailable 1) wants 3 healthy and has no more than 3
    shop/web-1, shop/web-2
    you can: add a replica, or allow a disruption in the budget
- 1 pod has no controller: once gone, nobody makes a new one
    shop/alone
    you can: save what you need of them, or have a Deployment run them

Places: 2 of 2 pods that somebody makes anew would fit on the 1 node that stays and takes pods.
  packed one node after the other: n3 2
  by requests, node selectors and taints; not looked at: rules about other pods, volumes, preemption

Nothing was changed. To do it, run the same command without --dry-run.
";
    assert_eq!(told(&cluster, &["n1", "n2"], Some(1)), wanted);
}

#[test]
fn an_easy_drain_and_one_of_nothing_are_told_in_few_lines() {
    let cluster = cluster(&[node("n1"), node("n2")], &[], &[]);
    let easy = told(&cluster, &["n1"], None);
    assert!(
        easy.starts_with(
            "Dry run: 1 node with 0 pods would be drained at once. Nothing stands in the way.\n"
        )
    );
    assert!(easy.contains("Places: no pod that leaves is made anew elsewhere.\n"), "{easy}");
    let nothing = told(&cluster, &["n9"], None);
    assert!(nothing.starts_with("Dry run: no node is selected, so nothing would be done.\n"), "{nothing}");
}

#[test]
fn what_is_long_is_cut_and_counted() {
    let nodes: Vec<Value> = (0..60).map(|number| node(&format!("n{number:02}"))).collect();
    let names: Vec<String> = (0..60).map(|number| format!("n{number:02}")).collect();
    let pods: Vec<Value> = (0..9).map(|number| pod(&format!("web-{number}"), "n00")).collect();
    let text = told(
        &cluster(&nodes, &pods, &[budget("web", 0)]),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        None,
    );
    assert!(text.contains("  and 20 more nodes\n"), "{text}");
    assert!(text.contains("shop/web-3, shop/web-4 and 4 more\n"), "{text}");
    assert!(text.contains("9 pods would have nowhere to go: no node stays\n"), "{text}");
}
