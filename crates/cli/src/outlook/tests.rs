//! The dry run as people read it.

use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::Maintenance;
use usher_forecast::outlook::{Cluster, NodeOnWire, PodOnWire, Workloads, outlook};

use super::{Context, text};
use crate::Environment;
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
        workloads: Workloads::default(),
    }
}

fn rendered(cluster: &Cluster, nodes: &[&str], limit: Option<i32>) -> String {
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
    text::render(&outlook, &context(&[]), &Environment::plain())
}

fn context(missing: &[&'static str]) -> Context {
    Context { missing: missing.to_vec(), ignores_daemons: false, budgets_are_hidden: false }
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
Dry run: 2 nodes with 3 pods would be drained in 2 waves. 2 pods cannot be evicted.

Order
  WAVE   NODE   PODS   BY STEP   NOW
  1      n2     1      1: 1      cordoned
  2      n1     2      1: 2      -

Plan
  STEP   PODS   TYPE      UP TO PRIORITY                       LABELS
  1      3      Default   1000000000 (highest user priority)   -

Findings, most severe first
- 2 pods cannot be evicted: budget shop/web has minAvailable 3 and 3 pods
    shop/web-1, shop/web-2
    you can: scale up to 4 pods or more, or lower minAvailable
- 1 pod has no controller and will not be recreated
    shop/alone
    you can: save what you need; drain them with --force

Capacity: 2 of 2 pods that will be recreated fit on the 1 remaining schedulable node.
  filled one node after the other: n3 2
  by requests, node affinity and taints; not considered: pod affinity and spreading, volumes, preemption

Nothing was changed. To do it, run the same command without --dry-run.
";
    assert_eq!(rendered(&cluster, &["n1", "n2"], Some(1)), wanted);
}

#[test]
fn an_easy_drain_and_one_of_nothing_are_told_in_few_lines() {
    let cluster = cluster(&[node("n1"), node("n2")], &[], &[]);
    let easy = rendered(&cluster, &["n1"], None);
    assert!(
        easy.starts_with("Dry run: 1 node with 0 pods would be drained at once. Nothing is in the way.\n")
    );
    assert!(easy.contains("Capacity: no pod will be recreated elsewhere.\n"), "{easy}");
    let nothing = rendered(&cluster, &["n9"], None);
    assert!(nothing.starts_with("Dry run: no node is selected, so nothing would be done.\n"), "{nothing}");
}

#[test]
fn what_is_long_is_cut_and_counted() {
    let nodes: Vec<Value> = (0..60).map(|number| node(&format!("n{number:02}"))).collect();
    let names: Vec<String> = (0..60).map(|number| format!("n{number:02}")).collect();
    let pods: Vec<Value> = (0..9).map(|number| pod(&format!("web-{number}"), "n00")).collect();
    let text = rendered(
        &cluster(&nodes, &pods, &[budget("web", 0)]),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        None,
    );
    assert!(text.contains("  and 20 more nodes\n"), "{text}");
    assert!(text.contains("shop/web-3, shop/web-4 and 4 more\n"), "{text}");
    assert!(text.contains("9 pods will not fit: no node remains\n"), "{text}");
}

#[test]
fn what_the_flags_of_the_drain_change_is_told() {
    let mut agent = pod("agent-1", "n1");
    agent["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "m"});
    agent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1", "controller": true}]);
    let cluster = cluster(&[node("n1"), node("n2")], &[agent], &[]);
    let maintenance: NodeMaintenance = serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "new"},
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]},
        ]}},
    }))
    .unwrap();
    let outlook = outlook(&Maintenance::from(maintenance), &cluster, NOW.parse().unwrap());
    let rendered = |context: &Context| text::render(&outlook, context, &Environment::plain());
    assert!(rendered(&context(&[])).contains(" 1 pod cannot be evicted.\n"));
    let ignored = rendered(&Context { ignores_daemons: true, ..context(&[]) });
    assert!(ignored.contains(" Nothing is in the way.\n"), "{ignored}");
    let hidden = rendered(&Context { ignores_daemons: true, budgets_are_hidden: true, ..context(&[]) });
    assert!(
        hidden.contains(
            " Disruption budgets are not considered, as you may not list them. Nothing else is in the way.\n"
        ),
        "{hidden}"
    );
    let ignored = rendered(&Context { ignores_daemons: true, ..context(&[]) });
    assert!(
        ignored.contains(
            "    you can: run the node agent there (deploy/node-agent), or remove the manifests on the node\n"
        ),
        "what is given already is not advised: {ignored}"
    );
    let refused = rendered(&Context { ignores_daemons: true, ..context(&["--force"]) });
    let head = "Dry run: 1 node with 1 pod would be drained at once. Without --force it would be refused.\n";
    assert!(refused.starts_with(head), "{refused}");
    let refused = rendered(&context(&["--force"]));
    assert!(
        refused.contains(" 1 pod cannot be evicted. Without --force it would be refused.\n"),
        "{refused}"
    );
    assert!(
        refused.ends_with("\nNothing was changed. Without --force the drain would be refused.\n"),
        "{refused}"
    );
}
