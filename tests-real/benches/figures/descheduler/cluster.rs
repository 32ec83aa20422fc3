//! A cluster of any size in which most is as it should be, and every plugin finds something.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_tests::descheduling::Objects;

pub const PODS_OF_NODE: usize = 30;
/// Pods of a Deployment.
const REPLICAS: usize = 300;

/// All ten plugins, with room looked for.
pub fn policy() -> String {
    let plugins = [
        ("PodLifeTime", json!({"maxPodLifeTimeSeconds": 2_592_000})),
        ("RemoveFailedPods", json!({})),
        ("RemovePodsHavingTooManyRestarts", json!({"podRestartThreshold": 100})),
        ("RemovePodsViolatingNodeTaints", json!({})),
        (
            "RemovePodsViolatingNodeAffinity",
            json!({"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}),
        ),
        ("RemovePodsViolatingInterPodAntiAffinity", json!({})),
        ("RemoveDuplicates", json!({})),
        ("RemovePodsViolatingTopologySpreadConstraint", json!({})),
        ("LowNodeUtilization", json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 70}})),
        ("HighNodeUtilization", json!({"thresholds": {"cpu": 3}})),
    ];
    let mut configs = vec![json!({"name": "DefaultEvictor", "args": {"nodeFit": true}})];
    configs.extend(plugins.iter().map(|(name, args)| json!({"name": name, "args": args})));
    let names: Vec<&str> = plugins.iter().map(|(name, _)| *name).collect();
    json!({
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [{
            "name": "all",
            "pluginConfig": configs,
            "plugins": {"deschedule": {"enabled": names[..6]}, "balance": {"enabled": names[6..]}},
        }],
    })
    .to_string()
}

/// What is special about a node, of which there are 1 % each.
fn is_hot(node: usize) -> bool {
    node % 100 == 7
}

fn is_nearly_empty(node: usize) -> bool {
    node % 100 == 9
}

pub fn node(number: usize) -> Value {
    let taints =
        if number % 100 == 11 { json!([{"key": "broken", "effect": "NoSchedule"}]) } else { json!([]) };
    let size = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    json!({
        "metadata": {"name": format!("node-{number:05}"), "labels": {
            "kubernetes.io/hostname": format!("node-{number:05}"),
            "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
            "disk": if number % 100 == 13 { "hdd" } else { "ssd" },
        }},
        "spec": {"taints": taints},
        "status": {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub fn namespaces() -> impl Iterator<Item = Value> {
    (0..20).map(|number| json!({"metadata": {"name": format!("team-{number}"), "labels": {"team": number.to_string()}}}))
}

/// The node of a replica: an even share of all of them, but for those that are special.
fn place(deployment: usize, replica: usize, nodes: usize) -> usize {
    if deployment % 200 == 3 {
        let hot = nodes.div_ceil(100).max(1);
        return ((replica % hot) * 100 + 7) % nodes;
    }
    let mut node = (replica + deployment * 7) % nodes;
    // On to one of the same zone where no other replica is.
    while is_hot(node) || (is_nearly_empty(node) && !deployment.is_multiple_of(40)) {
        node = (node + REPLICAS + 3) % nodes;
    }
    node
}

/// A pod. In another round it is newer, and a bit otherwise.
pub fn pod(number: usize, nodes: usize, round: usize, now: Timestamp) -> Value {
    let deployments = (nodes * PODS_OF_NODE / REPLICAS).max(1);
    let (deployment, replica) = (number % deployments, number / deployments);
    let app = format!("app-{deployment}");
    // Half of the nodes have one of these, but the first two share a node.
    let solo = deployment % 25 == 5 && replica < nodes / 2;
    let node = place(deployment, if solo && replica == 1 { 0 } else { replica }, nodes);
    let (cpu, memory) = if deployment % 200 == 3 { ("4", "4Gi") } else { ("500m", "1Gi") };
    let days: i64 = if (number + round).is_multiple_of(1000) { 200 } else { 10 };
    let minutes = days * 1440 + i64::try_from(number % 1440).unwrap_or(0);
    let created = now.saturating_sub(SignedDuration::from_mins(minutes)).unwrap_or(now).to_string();
    let restarts = if (number + round) % 500 == 17 { 150 } else { round };
    let phase = if (number + round) % 300 == 31 { "Failed" } else { "Running" };
    let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    ]}}});
    let alone = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app, "role": "solo"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let affinity = match deployment % 20 {
        _ if solo => alone,
        1 => required,
        _ => json!({}),
    };
    json!({
        "metadata": {
            "namespace": format!("team-{}", deployment % 20),
            "name": format!("{app}-{replica:05}"),
            "uid": format!("00000000-0000-0000-0000-{number:012x}"),
            "labels": {"app": app, "role": if solo { "solo" } else { "any" }},
            "creationTimestamp": created,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}],
        },
        "spec": {
            "nodeName": format!("node-{node:05}"),
            "priority": 0,
            "affinity": affinity,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "topologySpreadConstraints": [{
                "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }],
            "containers": [{
                "name": "main", "image": format!("registry.example.com/{app}:1"),
                "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
            }],
        },
        "status": {
            "phase": phase,
            "startTime": created,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}],
            "containerStatuses": [{
                "name": "main", "image": app, "imageID": "", "ready": true, "restartCount": restarts,
                "state": {"running": {"startedAt": created}},
            }],
        },
    })
}

pub fn objects(nodes: usize) -> Objects {
    let now = Timestamp::now();
    Objects {
        nodes: (0..nodes).map(node).collect(),
        pods: (0..nodes * PODS_OF_NODE).map(|number| pod(number, nodes, 0, now)).collect(),
        namespaces: namespaces().collect(),
        ..Objects::default()
    }
}
