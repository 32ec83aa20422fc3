//! Policies with the arguments of each plugin and of the default evictor.

use serde_json::{Map, Value, json};

use super::clusters::{NAMESPACES, TAINTS, selector};
use super::dice::{Dice, without_nulls};
use super::plugins::{PLUGINS, Subject, balances};

/// The one query of Prometheus that policies have.
pub const QUERY: &str = "usage";

/// A policy about the subject.
pub fn make(dice: &mut Dice, subject: Subject, roomy: bool) -> Value {
    let profiles: Vec<Value> = match subject.plugin() {
        Some(plugin) => vec![profile(dice, "one", &[plugin], roomy)],
        None => {
            let count = if dice.chance(70) { 1 } else { 2 };
            let names = ["one", "two"];
            names[..count]
                .iter()
                .map(|name| {
                    let mut plugins = dice.few(28, &PLUGINS);
                    // In any order.
                    if dice.chance(50) {
                        plugins.reverse();
                    }
                    profile(dice, name, &plugins, roomy)
                })
                .collect()
        }
    };
    let limit = |dice: &mut Dice, percent, most| {
        dice.maybe(percent, |dice| json!(if dice.chance(5) { 0 } else { dice.between(1, most) }))
    };
    without_nulls(json!({
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "nodeSelector": dice.maybe(8, |dice| json!(dice.pick(&["disk=ssd", "disk!=hdd", "cores in (4,8)", "!disk"]))),
        "maxNoOfPodsToEvictPerNode": limit(dice, 15, 3),
        "maxNoOfPodsToEvictPerNamespace": limit(dice, 12, 4),
        "maxNoOfPodsToEvictTotal": limit(dice, 12, 6),
        "metricsProviders": [{"source": "KubernetesMetrics"}, {"source": "Prometheus", "prometheus": {"url": "http://prometheus.example.com"}}],
        "profiles": profiles,
    }))
}

fn profile(dice: &mut Dice, name: &str, plugins: &[&str], roomy: bool) -> Value {
    let mut configs: Vec<Value> = Vec::new();
    // Policies that keep few pods show more of what plugins want.
    let keeps_few = dice.chance(55);
    if keeps_few {
        configs.push(json!({"name": "DefaultEvictor", "args": keeping_few(dice)}));
    } else if dice.chance(80) {
        configs.push(json!({"name": "DefaultEvictor", "args": evictor(dice)}));
    }
    for plugin in plugins {
        configs.push(json!({"name": plugin, "args": args(dice, plugin, !keeps_few, roomy)}));
    }
    let (balance, deschedule): (Vec<&str>, Vec<&str>) = plugins.iter().partition(|plugin| balances(plugin));
    json!({
        "name": name,
        "pluginConfig": configs,
        "plugins": {"deschedule": {"enabled": deschedule}, "balance": {"enabled": balance}},
    })
}

fn keeping_few(dice: &mut Dice) -> Value {
    let all = ["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"];
    without_nulls(json!({
        "nodeFit": dice.maybe(40, |_| json!(true)),
        "podProtections": {"defaultDisabled": dice.some(85, &all)},
    }))
}

fn evictor(dice: &mut Dice) -> Value {
    let mut args = json!({
        "nodeFit": dice.maybe(45, |_| json!(true)),
        "nodeSelector": dice.maybe(8, |dice| json!(dice.pick(&["disk=ssd", "disk", "cores in (8,16)"]))),
        "labelSelector": dice.maybe(8, selector),
        "namespaceLabelSelector": dice.maybe(10, |dice| json!({"matchLabels": {"team": dice.pick(&["red", "blue"])}})),
        "minReplicas": dice.maybe(12, |dice| json!(dice.between(0, 4))),
        "minPodAge": dice.maybe(8, |dice| json!(dice.pick(&["10m", "24h", "1h30m"]))),
        "noEvictionPolicy": dice.maybe(10, |dice| json!(dice.pick(&["Preferred", "Mandatory"]))),
        "priorityThreshold": dice.maybe(15, |dice| match dice.between(0, 4) {
            0 | 1 => json!({"value": 500}),
            _ => json!({"name": dice.pick(&["low", "mid", "high"])}),
        }),
    });
    if let Some(args) = args.as_object_mut() {
        if dice.chance(45) {
            protections(dice, args);
        } else {
            for older in [
                "evictLocalStoragePods",
                "evictDaemonSetPods",
                "evictSystemCriticalPods",
                "evictFailedBarePods",
                "ignorePvcPods",
                "ignorePodsWithoutPDB",
            ] {
                args.insert(older.to_owned(), dice.maybe(15, |_| json!(true)));
            }
        }
    }
    without_nulls(args)
}

fn protections(dice: &mut Dice, args: &mut Map<String, Value>) {
    let extra = dice.some(30, &["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]);
    let disabled =
        dice.some(25, &["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"]);
    let config = dice.maybe(50, |dice| {
        let classes: Vec<Value> =
            dice.some(60, &["fast", "slow"]).iter().map(|name| json!({"name": name})).collect();
        json!({"PodsWithPVC": {"protectedStorageClasses": classes}})
    });
    let config = if extra.contains(&"PodsWithPVC") { config } else { Value::Null };
    args.insert(
        "podProtections".to_owned(),
        json!({"extraEnabled": extra, "defaultDisabled": disabled, "config": config}),
    );
}

fn namespaces(dice: &mut Dice, percent: u32) -> Value {
    dice.maybe(percent, |dice| {
        let some = dice.few(40, &NAMESPACES);
        if dice.chance(50) { json!({"include": some}) } else { json!({"exclude": some}) }
    })
}

fn args(dice: &mut Dice, plugin: &str, is_scoped: bool, roomy: bool) -> Value {
    let often = if is_scoped { 25 } else { 3 };
    let scope = json!({"namespaces": namespaces(dice, often), "labelSelector": dice.maybe(often, selector)});
    let mut args = match plugin {
        "PodLifeTime" => life_time(dice),
        "RemoveFailedPods" => json!({
            "reasons": dice.maybe(40, |dice| json!(dice.few(40, &["Error", "OOMKilled", "Evicted", "CrashLoopBackOff"]))),
            "exitCodes": dice.maybe(25, |dice| json!(dice.few(40, &[1, 2, 137]))),
            "excludeOwnerKinds": dice.maybe(25, |dice| json!(dice.few(40, &["Job", "ReplicaSet", "StatefulSet"]))),
            "minPodLifetimeSeconds": dice.maybe(50, |dice| json!(dice.pick(&[0, 60, 3600, 86_400, 172_800]))),
            "includingInitContainers": dice.maybe(40, |_| json!(true)),
        }),
        "RemovePodsHavingTooManyRestarts" => json!({
            "podRestartThreshold": dice.pick(&[1, 5, 10, 20, 30]),
            "includingInitContainers": dice.maybe(50, |_| json!(true)),
            "states": dice.maybe(35, |dice| json!(dice.few(40, &["Running", "CrashLoopBackOff"]))),
        }),
        "RemovePodsViolatingNodeTaints" => {
            let entries: Vec<String> = TAINTS
                .iter()
                .flat_map(|(key, value, _)| [(*key).to_owned(), format!("{key}={value}")])
                .collect();
            let listed = dice.maybe(35, |dice| json!(dice.few(20, &entries)));
            let key = if dice.chance(50) { "excludedTaints" } else { "includedTaints" };
            json!({"includePreferNoSchedule": dice.maybe(45, |_| json!(true)), key: listed})
        }
        "RemovePodsViolatingNodeAffinity" => {
            let types = [
                "requiredDuringSchedulingIgnoredDuringExecution",
                "preferredDuringSchedulingIgnoredDuringExecution",
            ];
            let mut types = dice.few(60, &types);
            if dice.chance(30) {
                types.reverse();
            }
            json!({"nodeAffinityType": types})
        }
        "RemovePodsViolatingInterPodAntiAffinity" => json!({}),
        "RemoveDuplicates" => {
            return without_nulls(json!({
                "namespaces": namespaces(dice, often),
                "excludeOwnerKinds": dice.maybe(25, |dice| json!(dice.few(40, &["Job", "ReplicaSet", "StatefulSet"]))),
            }));
        }
        "RemovePodsViolatingTopologySpreadConstraint" => json!({
            "constraints": dice.maybe(45, |dice| json!(dice.few(60, &["DoNotSchedule", "ScheduleAnyway"]))),
            "topologyBalanceNodeFit": dice.maybe(45, |dice| json!(dice.chance(30))),
        }),
        "LowNodeUtilization" => return low(dice, roomy),
        _ => return high(dice, roomy),
    };
    if let (Some(args), Value::Object(scope)) = (args.as_object_mut(), scope) {
        args.extend(scope);
    }
    without_nulls(args)
}

fn life_time(dice: &mut Dice) -> Value {
    let kinds = dice.maybe(20, |dice| {
        let some = dice.few(35, &["ReplicaSet", "Job", "StatefulSet", "DaemonSet"]);
        if dice.chance(50) { json!({"include": some}) } else { json!({"exclude": some}) }
    });
    let conditions = dice.maybe(15, |dice| {
        json!([{
            "type": dice.pick(&["Ready", "PodScheduled", "DisruptionTarget"]),
            "status": dice.maybe(50, |dice| json!(dice.pick(&["True", "False"]))),
            "reason": dice.maybe(20, |_| json!("PodCompleted")),
            "minTimeSinceLastTransitionSeconds": dice.maybe(50, |dice| json!(dice.pick(&[600, 86_400, 172_800]))),
        }])
    });
    let states = [
        "Running",
        "Pending",
        "Failed",
        "Succeeded",
        "Unknown",
        "Evicted",
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "OOMKilled",
        "Error",
        "ContainerCreating",
    ];
    json!({
        "maxPodLifeTimeSeconds": dice.pick(&[60, 3600, 86_400, 150_000, 259_200]),
        "states": dice.maybe(30, |dice| json!(dice.few(25, &states))),
        "ownerKinds": kinds,
        "conditions": conditions,
        "exitCodes": dice.maybe(10, |dice| json!(dice.few(40, &[1, 2, 137]))),
        "includingInitContainers": dice.maybe(40, |_| json!(true)),
        "includingEphemeralContainers": dice.maybe(30, |_| json!(true)),
    })
}

/// Two thresholds for each of some resources, the second above the first.
fn thresholds(dice: &mut Dice, most: u64, apart: u64) -> (Value, Value) {
    let mut low = Map::new();
    let mut high = Map::new();
    for resource in dice.few(35, &["cpu", "memory", "pods"]) {
        let first = dice.between(0, most);
        low.insert(resource.to_owned(), json!(first));
        high.insert(resource.to_owned(), json!(first + dice.between(0, apart)));
    }
    if dice.chance(10) {
        low.insert("example.com/gpu".to_owned(), json!(50));
        high.insert("example.com/gpu".to_owned(), json!(50 + apart));
    }
    (Value::Object(low), Value::Object(high))
}

fn low(dice: &mut Dice, roomy: bool) -> Value {
    let deviates = dice.chance(25);
    let (mut low, mut high) = match (deviates, roomy) {
        (true, _) => thresholds(dice, 10, 10),
        (false, true) => thresholds(dice, 12, 8),
        (false, false) => thresholds(dice, 40, 20),
    };
    let metrics = dice.maybe(35, |dice| {
        if dice.chance(50) {
            json!({"source": "KubernetesMetrics"})
        } else {
            json!({"source": "Prometheus", "prometheus": {"query": QUERY}})
        }
    });
    match metrics["source"].as_str() {
        Some("Prometheus") => {
            let first = dice.between(5, 60);
            low = json!({"MetricResource": first});
            high = json!({"MetricResource": first + dice.between(0, 25)});
        }
        // Metrics know of CPU and memory only.
        Some(_) => {
            for thresholds in [&mut low, &mut high] {
                if let Some(thresholds) = thresholds.as_object_mut() {
                    thresholds.remove("example.com/gpu");
                    thresholds.entry("cpu").or_insert(json!(50));
                }
            }
        }
        None => {}
    }
    without_nulls(json!({
        "thresholds": low,
        "targetThresholds": high,
        "useDeviationThresholds": if deviates { json!(true) } else { Value::Null },
        "numberOfNodes": dice.maybe(15, |dice| json!(dice.between(0, 2))),
        "metricsUtilization": metrics,
        "evictableNamespaces": dice.maybe(20, |dice| json!({"exclude": dice.few(30, &NAMESPACES)})),
        "evictionLimits": dice.maybe(25, |dice| json!({"node": dice.between(1, 3)})),
    }))
}

fn high(dice: &mut Dice, roomy: bool) -> Value {
    let (thresholds, _) = thresholds(dice, if roomy { 14 } else { 45 }, 0);
    without_nulls(json!({
        "thresholds": thresholds,
        "numberOfNodes": dice.maybe(15, |dice| json!(dice.between(0, 2))),
        "evictionModes": dice.maybe(30, |_| json!(["OnlyThresholdingResources"])),
        "evictableNamespaces": dice.maybe(20, |dice| json!({"exclude": dice.few(30, &NAMESPACES)})),
    }))
}
