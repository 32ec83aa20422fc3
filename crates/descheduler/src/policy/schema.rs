//! Which keys belong where, and what somebody meant who wrote another one.

/// A place in a policy, and the keys that it takes.
#[derive(Debug)]
pub struct Place {
    /// As in "this key belongs to ...".
    pub name: &'static str,
    pub keys: &'static [&'static str],
}

pub const TOP: Place = Place {
    name: "the top level of the policy",
    keys: &[
        "apiVersion",
        "kind",
        "nodeSelector",
        "maxNoOfPodsToEvictPerNode",
        "maxNoOfPodsToEvictPerNamespace",
        "maxNoOfPodsToEvictTotal",
        "maxNoOfPodsEvacuationsPerNode",
        "maxNoOfPodsEvacuationsPerNamespace",
        "evictionFailureEventNotification",
        "gracePeriodSeconds",
        "metricsCollector",
        "metricsProviders",
        "evictionMessagePrefixes",
        "profiles",
    ],
};
pub const PROFILE: Place = Place { name: "a profile", keys: &["name", "pluginConfig", "plugins"] };
pub const PLUGIN_CONFIG: Place = Place { name: "an entry of pluginConfig", keys: &["name", "args"] };
pub const POINTS: Place = Place {
    name: "plugins of a profile",
    keys: &["presort", "sort", "deschedule", "balance", "filter", "preevictionfilter"],
};
pub const POINT: Place = Place { name: "an extension point under plugins", keys: &["enabled", "disabled"] };
pub const METRICS_COLLECTOR: Place = Place { name: "metricsCollector", keys: &["enabled"] };
pub const METRICS_PROVIDER: Place =
    Place { name: "an entry of metricsProviders", keys: &["source", "prometheus"] };
pub const PROMETHEUS_PROVIDER: Place =
    Place { name: "prometheus of an entry of metricsProviders", keys: &["url", "authToken"] };
pub const AUTH_TOKEN: Place = Place { name: "authToken", keys: &["secretReference"] };
pub const SECRET_REFERENCE: Place = Place { name: "secretReference", keys: &["namespace", "name"] };
pub const NAMESPACES: Place = Place { name: "namespaces", keys: &["include", "exclude"] };
pub const OWNER_KINDS: Place = Place { name: "ownerKinds", keys: &["include", "exclude"] };
pub const LABEL_SELECTOR: Place =
    Place { name: "a label selector", keys: &["matchLabels", "matchExpressions"] };
pub const REQUIREMENT: Place =
    Place { name: "an entry of matchExpressions", keys: &["key", "operator", "values"] };
pub const CONDITION: Place = Place {
    name: "an entry of conditions of PodLifeTime",
    keys: &["type", "status", "reason", "minTimeSinceLastTransitionSeconds"],
};
pub const PRIORITY_THRESHOLD: Place = Place { name: "priorityThreshold", keys: &["value", "name"] };
pub const POD_PROTECTIONS: Place =
    Place { name: "podProtections", keys: &["extraEnabled", "defaultDisabled", "config"] };
pub const PROTECTIONS_CONFIG: Place = Place { name: "config of podProtections", keys: &["PodsWithPVC"] };
pub const PVC_CONFIG: Place =
    Place { name: "PodsWithPVC in config of podProtections", keys: &["protectedStorageClasses"] };
pub const STORAGE_CLASS: Place = Place { name: "an entry of protectedStorageClasses", keys: &["name"] };
pub const METRICS_UTILIZATION: Place =
    Place { name: "metricsUtilization", keys: &["metricsServer", "source", "prometheus"] };
pub const PROMETHEUS_QUERY: Place = Place { name: "prometheus of metricsUtilization", keys: &["query"] };
pub const EVICTION_LIMITS: Place = Place { name: "evictionLimits", keys: &["node"] };

pub const DEFAULT_EVICTOR: Place = Place {
    name: "the args of DefaultEvictor",
    keys: &[
        "apiVersion",
        "kind",
        "nodeSelector",
        "labelSelector",
        "namespaceLabelSelector",
        "priorityThreshold",
        "nodeFit",
        "minReplicas",
        "minPodAge",
        "noEvictionPolicy",
        "podProtections",
        "evictLocalStoragePods",
        "evictDaemonSetPods",
        "evictSystemCriticalPods",
        "ignorePvcPods",
        "ignorePodsWithoutPDB",
        "evictFailedBarePods",
    ],
};
pub const POD_LIFE_TIME: Place = Place {
    name: "the args of PodLifeTime",
    keys: &[
        "apiVersion",
        "kind",
        "namespaces",
        "labelSelector",
        "ownerKinds",
        "maxPodLifeTimeSeconds",
        "states",
        "conditions",
        "exitCodes",
        "includingInitContainers",
        "includingEphemeralContainers",
    ],
};
pub const FAILED_PODS: Place = Place {
    name: "the args of RemoveFailedPods",
    keys: &[
        "apiVersion",
        "kind",
        "namespaces",
        "labelSelector",
        "excludeOwnerKinds",
        "minPodLifetimeSeconds",
        "reasons",
        "exitCodes",
        "includingInitContainers",
    ],
};
pub const TOO_MANY_RESTARTS: Place = Place {
    name: "the args of RemovePodsHavingTooManyRestarts",
    keys: &[
        "apiVersion",
        "kind",
        "namespaces",
        "labelSelector",
        "podRestartThreshold",
        "includingInitContainers",
        "states",
    ],
};
pub const NODE_TAINTS: Place = Place {
    name: "the args of RemovePodsViolatingNodeTaints",
    keys: &[
        "apiVersion",
        "kind",
        "namespaces",
        "labelSelector",
        "includePreferNoSchedule",
        "excludedTaints",
        "includedTaints",
    ],
};
pub const NODE_AFFINITY: Place = Place {
    name: "the args of RemovePodsViolatingNodeAffinity",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector", "nodeAffinityType"],
};
pub const ANTI_AFFINITY: Place = Place {
    name: "the args of RemovePodsViolatingInterPodAntiAffinity",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector"],
};
pub const DUPLICATES: Place = Place {
    name: "the args of RemoveDuplicates",
    keys: &["apiVersion", "kind", "namespaces", "excludeOwnerKinds"],
};
pub const TOPOLOGY_SPREAD: Place = Place {
    name: "the args of RemovePodsViolatingTopologySpreadConstraint",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector", "constraints", "topologyBalanceNodeFit"],
};
pub const LOW_NODE_UTILIZATION: Place = Place {
    name: "the args of LowNodeUtilization",
    keys: &[
        "apiVersion",
        "kind",
        "useDeviationThresholds",
        "thresholds",
        "targetThresholds",
        "numberOfNodes",
        "metricsUtilization",
        "evictableNamespaces",
        "evictionLimits",
    ],
};
pub const HIGH_NODE_UTILIZATION: Place = Place {
    name: "the args of HighNodeUtilization",
    keys: &["apiVersion", "kind", "thresholds", "numberOfNodes", "evictionModes", "evictableNamespaces"],
};

const PLACES: [&Place; 33] = [
    &TOP,
    &PROFILE,
    &PLUGIN_CONFIG,
    &POINTS,
    &POINT,
    &DEFAULT_EVICTOR,
    &POD_LIFE_TIME,
    &FAILED_PODS,
    &TOO_MANY_RESTARTS,
    &NODE_TAINTS,
    &NODE_AFFINITY,
    &ANTI_AFFINITY,
    &DUPLICATES,
    &TOPOLOGY_SPREAD,
    &LOW_NODE_UTILIZATION,
    &HIGH_NODE_UTILIZATION,
    &METRICS_COLLECTOR,
    &METRICS_PROVIDER,
    &PROMETHEUS_PROVIDER,
    &AUTH_TOKEN,
    &SECRET_REFERENCE,
    &NAMESPACES,
    &OWNER_KINDS,
    &LABEL_SELECTOR,
    &REQUIREMENT,
    &CONDITION,
    &PRIORITY_THRESHOLD,
    &POD_PROTECTIONS,
    &PROTECTIONS_CONFIG,
    &PVC_CONFIG,
    &STORAGE_CLASS,
    &METRICS_UTILIZATION,
    &PROMETHEUS_QUERY,
];

/// What was meant by a key that is unknown at a place: a key of the place that is written almost so, else the place that it belongs to.
pub fn meant(key: &str, place: &Place) -> Option<String> {
    if let Some(same) = place.keys.iter().find(|one| one.eq_ignore_ascii_case(key)) {
        return Some(format!("did you mean {same}?"));
    }
    let homes: Vec<&str> =
        PLACES.iter().filter(|one| one.keys.contains(&key)).map(|one| one.name).take(3).collect();
    if !homes.is_empty() {
        return Some(format!("this key belongs to {}", homes.join(", ")));
    }
    if let Some(near) = nearest(key, place.keys.iter().copied()) {
        return Some(format!("did you mean {near}?"));
    }
    let elsewhere = PLACES.iter().flat_map(|one| one.keys.iter().map(move |key| (*key, one.name)));
    let near = nearest(key, elsewhere.clone().map(|(key, _)| key))?;
    let (_, home) = elsewhere.into_iter().find(|(one, _)| *one == near)?;
    Some(format!("did you mean {near}? That key belongs to {home}"))
}

/// The name that differs the least, if it differs little.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = 2.max(name.len() / 4);
    let distances = names.map(|one| (distance(name, one), one));
    distances.filter(|(distance, _)| *distance <= allowed).min().map(|(_, one)| one)
}

fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|one| one.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|one| one.to_ascii_lowercase()).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, one) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(one != other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
