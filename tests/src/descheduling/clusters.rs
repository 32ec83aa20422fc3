//! Small clusters that have a bit of everything that decisions look at.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::dice::{Dice, without_nulls};
use super::plugins::Subject;

/// The objects of a cluster, as JSON, and what is used of it.
#[derive(Debug, Default)]
pub struct Objects {
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    pub namespaces: Vec<Value>,
    pub budgets: Vec<Value>,
    pub priority_classes: Vec<Value>,
    pub claims: Vec<Value>,
    pub usage_of_nodes: BTreeMap<String, BTreeMap<String, String>>,
    pub usage_of_pods: BTreeMap<String, BTreeMap<String, String>>,
    pub fractions: BTreeMap<String, f64>,
    /// Nodes are large, so that little of them is used.
    pub roomy: bool,
}

pub const NAMESPACES: [&str; 4] = ["a", "b", "c", "kube-system"];
pub const APPS: [&str; 4] = ["web", "db", "cache", "batch"];
pub const TAINTS: [(&str, &str, &str); 6] = [
    ("dedicated", "gpu", "NoSchedule"),
    ("dedicated", "db", "NoSchedule"),
    ("maintenance", "", "NoSchedule"),
    ("spot", "", "NoExecute"),
    ("soft", "x", "PreferNoSchedule"),
    ("zone-down", "a", "NoSchedule"),
];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

impl Objects {
    pub fn make(dice: &mut Dice, subject: Subject, now: Timestamp) -> Self {
        let mut objects = Self::default();
        let nodes = dice.between(3, 8);
        // Where there is little room, most of what plugins do is to leave pods alone.
        objects.roomy = dice.chance(65);
        for number in 1..=nodes {
            objects.nodes.push(node(dice, subject, number, objects.roomy));
        }
        for name in NAMESPACES {
            let labels = json!({"team": dice.pick(&["red", "blue"]), "env": dice.maybe(60, |dice| json!(dice.pick(&["prod", "test"])))});
            objects.namespaces.push(json!({"metadata": {"name": name, "labels": without_nulls(labels)}}));
        }
        for (name, value) in [("low", 10), ("mid", 500), ("high", 10_000), ("top", 2_000_000_001)] {
            objects.priority_classes.push(json!({"metadata": {"name": name}, "value": value}));
        }
        for name in ["data-0", "data-1", "data-2"] {
            for namespace in &NAMESPACES[..3] {
                if dice.chance(75) {
                    objects.claims.push(claim(dice, namespace, name));
                }
            }
        }
        for number in 0..dice.between(0, 3) {
            objects.budgets.push(budget(dice, number));
        }
        let target = dice.between(if subject.is_about_groups() { 15 } else { 5 }, 40);
        let mut workload = 0;
        while objects.pods.len() < usize::try_from(target).unwrap_or(5) {
            workload += 1;
            let template = Template::make(dice, subject, workload);
            let share = if subject.is_about_groups() { dice.between(3, 12) } else { dice.between(1, 9) };
            // Most crowd on a few nodes, as there would be nothing to do else.
            let favourites = dice.between(1, 3.min(nodes));
            for _ in 0..share {
                let at = if dice.chance(60) { dice.between(1, favourites) } else { dice.between(1, nodes) };
                let number = objects.pods.len() + 1;
                let name = objects.name(dice, template.namespace, number);
                let pod = template.pod(dice, subject, number, &name, at, now);
                objects.pods.push(pod);
            }
        }
        objects.measure(dice);
        objects
    }

    /// Pods of two namespaces have the same name now and then.
    fn name(&self, dice: &mut Dice, namespace: &str, number: usize) -> String {
        let own = format!("p{number:02}");
        if number == 1 || !dice.chance(4) {
            return own;
        }
        let other = dice.pick(&self.pods)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_there = |pod: &Value| {
            pod["metadata"]["namespace"] == namespace && pod["metadata"]["name"] == other.as_str()
        };
        if self.pods.iter().any(is_there) { own } else { other }
    }

    /// What metrics say: nearly always something of everything.
    fn measure(&mut self, dice: &mut Dice) {
        let amounts = |dice: &mut Dice, cpu: u64, memory: u64| {
            let mut usage = BTreeMap::new();
            usage.insert("cpu".to_owned(), format!("{}m", dice.between(1, cpu)));
            usage.insert("memory".to_owned(), format!("{}Mi", dice.between(1, memory)));
            usage
        };
        for node in &self.nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if !dice.chance(1) {
                self.usage_of_nodes.insert(name.clone(), amounts(dice, 5000, 9000));
            }
            if !dice.chance(1) {
                #[allow(clippy::cast_precision_loss)]
                self.fractions.insert(name, dice.between(0, 1000) as f64 / 1000.0);
            }
        }
        for pod in &self.pods {
            if dice.chance(93) {
                let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
                let key = format!("{}/{}", text("namespace"), text("name"));
                self.usage_of_pods.insert(key, amounts(dice, 600, 800));
            }
        }
    }
}

fn node(dice: &mut Dice, subject: Subject, number: u64, roomy: bool) -> Value {
    let name = format!("n{number}");
    let labels = json!({
        HOST: dice.maybe(97, |_| json!(name)),
        ZONE: dice.maybe(90, |dice| json!(dice.pick(&["a", "b", "c"]))),
        "disk": dice.maybe(70, |dice| json!(dice.pick(&["ssd", "hdd"]))),
        "cores": dice.maybe(50, |dice| json!(dice.pick(&["4", "8", "16"]))),
    });
    let taints: Vec<Value> = dice
        .some(if subject.is("RemovePodsViolatingNodeTaints") { 25 } else { 10 }, &TAINTS)
        .into_iter()
        .map(|(key, value, effect)| match value {
            "" => json!({"key": key, "effect": effect}),
            _ => json!({"key": key, "value": value, "effect": effect}),
        })
        .collect();
    let allocatable = json!({
        "cpu": if roomy { dice.pick(&["8", "16"]) } else { dice.pick(&["2", "4", "3500m", "8"]) },
        "memory": if roomy { dice.pick(&["16Gi", "20000M"]) } else { dice.pick(&["4Gi", "8Gi", "8000M", "16Gi"]) },
        "pods": if roomy { dice.pick(&["20", "110"]) } else { dice.pick(&["6", "10", "20"]) },
        "example.com/gpu": dice.maybe(if roomy { 60 } else { 25 }, |dice| json!(dice.pick(&["1", "4"]))),
        "ephemeral-storage": dice.maybe(50, |_| json!("50Gi")),
    });
    let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let ready = dice.weighted(&[(90, "True"), (4, "False"), (3, "Unknown"), (3, "")]);
    let conditions = match ready {
        "" => json!([{"type": "MemoryPressure", "status": "False"}]),
        ready => json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]),
    };
    without_nulls(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": dice.maybe(8, |_| json!(true))},
        "status": {"allocatable": dice.maybe(97, |_| allocatable), "capacity": capacity, "conditions": conditions},
    }))
}

fn claim(dice: &mut Dice, namespace: &str, name: &str) -> Value {
    let class = dice.maybe(85, |dice| json!(dice.pick(&["fast", "slow", ""])));
    without_nulls(
        json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"storageClassName": class}}),
    )
}

fn budget(dice: &mut Dice, number: u64) -> Value {
    let selector = dice.maybe(92, selector);
    without_nulls(json!({
        "metadata": {"namespace": dice.pick(&NAMESPACES), "name": format!("budget-{number}")},
        "spec": {"minAvailable": 1, "selector": selector},
    }))
}

/// A selector of pods, now and then of all of them.
pub fn selector(dice: &mut Dice) -> Value {
    match dice.between(0, 9) {
        0 => json!({}),
        1..=5 => json!({"matchLabels": {"app": dice.pick(&APPS)}}),
        6 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": dice.few(50, &APPS)}]}),
        7 => {
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": dice.few(30, &APPS)}]})
        }
        8 => {
            json!({"matchExpressions": [{"key": "tier", "operator": dice.pick(&["Exists", "DoesNotExist"])}]})
        }
        _ => json!({"matchLabels": {"app": dice.pick(&APPS), "tier": dice.pick(&["front", "back"])}}),
    }
}

/// What pods of a workload have in common.
struct Template {
    namespace: &'static str,
    app: &'static str,
    owners: Vec<Value>,
    annotations: Value,
    spec: Value,
}

impl Template {
    fn make(dice: &mut Dice, subject: Subject, number: u64) -> Self {
        let first = if subject.is_about_groups() { 400 } else { 45 };
        let namespace = dice.weighted(&[(first, "a"), (25, "b"), (20, "c"), (10, "kube-system")]);
        let app = *dice.pick(if subject.is_about_groups() { &APPS[..2] } else { &APPS });
        let kinds = dice.weighted(&[
            (60, &["ReplicaSet"][..]),
            (12, &["StatefulSet"]),
            (8, &["DaemonSet"]),
            (8, &["Job"]),
            (8, &[]),
            (4, &["ReplicaSet", "Custom"]),
        ]);
        // Some workloads share their owner, with other images or demands.
        let owner = if dice.chance(25) { number.saturating_sub(1) } else { number };
        let owners = kinds
            .iter()
            .map(|kind| {
                let name = format!("{}-{owner}", kind.to_lowercase());
                json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("{namespace}-{name}")})
            })
            .collect();
        let annotations = json!({
            "descheduler.alpha.kubernetes.io/evict": dice.maybe(4, |_| json!("true")),
            "descheduler.alpha.kubernetes.io/prefer-no-eviction": dice.maybe(8, |_| json!("true")),
            "kubernetes.io/config.mirror": dice.maybe(3, |_| json!("x")),
            "kubernetes.io/config.source": dice.maybe(4, |dice| json!(dice.pick(&["api", "file"]))),
        });
        Self {
            namespace,
            app,
            owners,
            annotations: without_nulls(annotations),
            spec: spec(dice, subject, app),
        }
    }

    fn pod(
        &self,
        dice: &mut Dice,
        subject: Subject,
        number: usize,
        name: &str,
        at: u64,
        now: Timestamp,
    ) -> Value {
        let node =
            dice.maybe(96, |dice| json!(if dice.chance(99) { format!("n{at}") } else { "gone".into() }));
        let mut spec = self.spec.clone();
        spec["nodeName"] = node;
        let ago = |seconds: u64| {
            let second = now.as_second() - i64::try_from(seconds).unwrap_or(0);
            Timestamp::from_second(second).unwrap_or(now).to_string()
        };
        // Half a minute away from all that policies say, which are whole minutes.
        let age = dice.between(1, 5000) * 60 + 30;
        let labels = json!({
            "app": dice.maybe(97, |_| json!(self.app)),
            "tier": dice.maybe(40, |dice| json!(dice.pick(&["front", "back"]))),
            "version": dice.maybe(40, |dice| json!(dice.pick(&["1", "2"]))),
        });
        without_nulls(json!({
            "metadata": {
                "namespace": self.namespace,
                "name": name,
                "uid": format!("00000000-0000-0000-0000-{number:012}"),
                "labels": labels,
                "annotations": self.annotations,
                "ownerReferences": self.owners,
                "creationTimestamp": ago(age),
                "deletionTimestamp": dice.maybe(3, |_| json!(ago(10))),
            },
            "spec": spec,
            "status": status(dice, subject, &ago, age),
        }))
    }
}

fn spec(dice: &mut Dice, subject: Subject, app: &str) -> Value {
    let images: &[&str] = if dice.chance(80) { &["main"] } else { &["main", "helper"] };
    let containers: Vec<Value> = images
        .iter()
        .map(|image| json!({"name": image, "image": format!("{app}-{image}:{}", dice.pick(&[1, 1, 1, 2])), "resources": resources(dice)}))
        .collect();
    let initial: Vec<Value> = if dice.chance(12) {
        let always = dice.maybe(40, |_| json!("Always"));
        vec![json!({"name": "init", "image": "init", "restartPolicy": always, "resources": resources(dice)})]
    } else {
        Vec::new()
    };
    let mut volumes = Vec::new();
    if dice.chance(6) {
        volumes.push(json!({"name": "tmp", "emptyDir": {}}));
    }
    if dice.chance(4) {
        volumes.push(json!({"name": "host", "hostPath": {"path": "/"}}));
    }
    if dice.chance(14) {
        let claim = dice.pick(&["data-0", "data-1", "data-2"]);
        volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}));
    }
    let spread = if subject.is("RemovePodsViolatingTopologySpreadConstraint") { 85 } else { 15 };
    json!({
        "containers": containers,
        "initContainers": initial,
        "volumes": volumes,
        "priority": dice.maybe(60, |dice| json!(dice.weighted(&[(30, 0), (20, 100), (20, 600), (15, 20_000), (5, 2_000_000_000), (10, -5)]))),
        "tolerations": tolerations(dice),
        "nodeSelector": dice.maybe(12, |dice| json!({"disk": dice.pick(&["ssd", "hdd"])})),
        "affinity": affinity(dice, subject),
        "topologySpreadConstraints": if dice.chance(spread) { constraints(dice, app) } else { Value::Null },
        "resourceClaims": dice.maybe(3, |_| json!([{"name": "gpu", "resourceClaimName": "gpu"}])),
        "overhead": dice.maybe(4, |_| json!({"cpu": "50m", "memory": "20Mi"})),
        "resources": dice.maybe(4, |_| json!({"requests": {"cpu": "700m", "memory": "600Mi"}})),
    })
}

fn resources(dice: &mut Dice) -> Value {
    let requests = without_nulls(json!({
        "cpu": dice.maybe(75, |dice| json!(dice.pick(&["0", "50m", "200m", "0.5", "1", "1500m"]))),
        "memory": dice.maybe(70, |dice| json!(dice.pick(&["64Mi", "256Mi", "1Gi", "1500M"]))),
        "example.com/gpu": dice.maybe(6, |_| json!("1")),
        "ephemeral-storage": dice.maybe(6, |_| json!("1Gi")),
    }));
    match dice.between(0, 9) {
        0 => json!({}),
        1 | 2 => json!({"requests": requests, "limits": requests}),
        3 => json!({"requests": requests, "limits": {"cpu": "2", "memory": "2Gi"}}),
        _ => json!({"requests": requests}),
    }
}

fn tolerations(dice: &mut Dice) -> Value {
    let all = [
        json!({"operator": "Exists"}),
        json!({"key": "dedicated", "operator": "Exists"}),
        json!({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}),
        json!({"key": "dedicated", "value": "db"}),
        json!({"key": "maintenance", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
        json!({"key": "soft", "operator": "Exists"}),
        json!({"operator": "Exists", "effect": "NoExecute"}),
    ];
    json!(dice.some(9, &all))
}

fn affinity(dice: &mut Dice, subject: Subject) -> Value {
    let of_nodes = if subject.is("RemovePodsViolatingNodeAffinity") { 60 } else { 8 };
    let of_pods = if subject.is("RemovePodsViolatingInterPodAntiAffinity") { 65 } else { 8 };
    let required = dice.maybe(of_nodes, |dice| {
        let terms: Vec<Value> =
            (0..dice.weighted(&[(70, 1), (25, 2), (5, 0)])).map(|_| node_term(dice)).collect();
        json!({"nodeSelectorTerms": terms})
    });
    let preferred = dice.maybe(of_nodes, |dice| {
        let terms: Vec<Value> = (0..dice.between(1, 3))
            .map(|_| json!({"weight": dice.between(1, 100), "preference": node_term(dice)}))
            .collect();
        json!(terms)
    });
    let against = dice.maybe(of_pods, |dice| {
        let terms: Vec<Value> = (0..dice.weighted(&[(80, 1), (20, 2)]))
            .map(|_| {
                json!({
                    "labelSelector": dice.maybe(96, selector),
                    "topologyKey": dice.weighted(&[(60, HOST), (35, ZONE), (5, "rack")]),
                    "namespaces": dice.maybe(15, |dice| json!(dice.few(40, &NAMESPACES))),
                    "namespaceSelector": dice.maybe(4, |_| json!({})),
                })
            })
            .collect();
        json!(terms)
    });
    let soft = dice.maybe(5, |dice| {
        json!([{"weight": 1, "podAffinityTerm": {"labelSelector": selector(dice), "topologyKey": HOST}}])
    });
    let affinity = without_nulls(json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": against,
            "preferredDuringSchedulingIgnoredDuringExecution": soft,
        },
    }));
    let mut kept = serde_json::Map::new();
    for key in ["nodeAffinity", "podAntiAffinity"] {
        if affinity[key].as_object().is_some_and(|fields| !fields.is_empty()) {
            kept.insert(key.to_owned(), affinity[key].clone());
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn node_term(dice: &mut Dice) -> Value {
    let requirement = |dice: &mut Dice| match dice.between(0, 7) {
        0 => json!({"key": ZONE, "operator": "In", "values": dice.few(40, &["a", "b", "c"])}),
        1 => json!({"key": ZONE, "operator": "NotIn", "values": dice.few(30, &["a", "b", "c"])}),
        2 | 3 => json!({"key": "disk", "operator": "In", "values": [dice.pick(&["ssd", "hdd"])]}),
        4 => json!({"key": "disk", "operator": dice.pick(&["Exists", "DoesNotExist"])}),
        5 => json!({"key": "cores", "operator": "Gt", "values": ["4"]}),
        6 => json!({"key": "cores", "operator": "Lt", "values": ["16"]}),
        _ => json!({"key": HOST, "operator": "In", "values": dice.few(40, &["n1", "n2", "n3", "n4"])}),
    };
    if dice.chance(6) {
        return json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [dice.pick(&["n1", "n2", "n3"])]}]});
    }
    let requirements: Vec<Value> =
        (0..dice.weighted(&[(72, 1), (25, 2), (3, 0)])).map(|_| requirement(dice)).collect();
    json!({"matchExpressions": requirements})
}

fn constraints(dice: &mut Dice, app: &str) -> Value {
    let count = dice.weighted(&[(60, 1), (30, 2), (10, 3)]);
    let constraints: Vec<Value> = (0..count)
        .map(|_| {
            let own = json!({"matchLabels": {"app": app}});
            json!({
                "maxSkew": dice.weighted(&[(65, 1), (25, 2), (10, 3)]),
                "topologyKey": dice.weighted(&[(50, ZONE), (40, HOST), (10, "disk")]),
                "whenUnsatisfiable": dice.weighted(&[(75, "DoNotSchedule"), (25, "ScheduleAnyway")]),
                "labelSelector": if dice.chance(70) { own } else { dice.maybe(92, selector) },
                "minDomains": dice.maybe(10, |dice| json!(dice.between(1, 4))),
                "matchLabelKeys": dice.maybe(15, |_| json!(["version"])),
                "nodeAffinityPolicy": dice.maybe(25, |dice| json!(dice.pick(&["Honor", "Ignore"]))),
                "nodeTaintsPolicy": dice.maybe(25, |dice| json!(dice.pick(&["Honor", "Ignore"]))),
            })
        })
        .collect();
    json!(constraints)
}

fn status(dice: &mut Dice, subject: Subject, ago: &dyn Fn(u64) -> String, age: u64) -> Value {
    let failed = if subject.is("RemoveFailedPods") { 160 } else { 10 };
    let phase = dice.weighted(&[
        (75, "Running"),
        (8, "Pending"),
        (failed, "Failed"),
        (4, "Succeeded"),
        (2, "Unknown"),
        (1, ""),
    ]);
    let restarting = if subject.is("RemovePodsHavingTooManyRestarts") { 60 } else { 15 };
    let state = |dice: &mut Dice| match dice.between(0, 9) {
        0 => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        1 => json!({"waiting": {"reason": dice.pick(&["ImagePullBackOff", "ContainerCreating"])}}),
        2 | 3 => {
            json!({"terminated": {"exitCode": dice.pick(&[0, 1, 137]), "reason": dice.pick(&["Error", "OOMKilled", "Completed"])}})
        }
        4 => json!({"terminated": {"exitCode": 2}}),
        _ => json!({"running": {"startedAt": ago(age)}}),
    };
    let container = |dice: &mut Dice, name: &str| {
        let restarts = if dice.chance(restarting) { dice.between(1, 40) } else { 0 };
        json!({"name": name, "image": name, "imageID": "", "ready": true, "restartCount": restarts, "state": state(dice)})
    };
    let main: Vec<Value> =
        (0..dice.weighted(&[(75, 1), (15, 2), (10, 0)])).map(|_| container(dice, "main")).collect();
    let initial: Vec<Value> =
        (0..dice.weighted(&[(80, 0), (20, 1)])).map(|_| container(dice, "init")).collect();
    let ephemeral: Vec<Value> =
        (0..dice.weighted(&[(95, 0), (5, 1)])).map(|_| container(dice, "debug")).collect();
    let conditions: Vec<Value> = ["Ready", "PodScheduled", "DisruptionTarget"]
        .into_iter()
        .filter_map(|kind| {
            if !dice.chance(35) {
                return None;
            }
            let since = age.saturating_sub(dice.between(0, 10) * 60);
            Some(json!({
                "type": kind,
                "status": dice.pick(&["True", "False"]),
                "reason": dice.maybe(40, |dice| json!(dice.pick(&["PodCompleted", "Unschedulable"]))),
                "lastTransitionTime": dice.maybe(90, |_| json!(ago(since))),
            }))
        })
        .collect();
    json!({
        "phase": phase,
        "reason": dice.maybe(15, |dice| json!(dice.pick(&["Evicted", "NodeAffinity", "OutOfcpu"]))),
        "startTime": dice.maybe(94, |_| json!(ago(age))),
        "containerStatuses": main,
        "initContainerStatuses": initial,
        "ephemeralContainerStatuses": ephemeral,
        "conditions": conditions,
    })
}
