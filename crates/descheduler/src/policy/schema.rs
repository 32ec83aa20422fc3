//! Which keys belong where, and what somebody meant who wrote another one.

/// A part of a policy, and the keys that it takes.
#[derive(Debug)]
pub struct Section {
    /// As in "this key belongs to ...".
    pub name: &'static str,
    pub keys: &'static [&'static str],
}

pub const TOP: Section = Section {
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
pub const PROFILE: Section = Section { name: "a profile", keys: &["name", "pluginConfig", "plugins"] };
pub const PLUGIN_CONFIG: Section = Section { name: "an entry of pluginConfig", keys: &["name", "args"] };
pub const POINTS: Section = Section {
    name: "plugins of a profile",
    keys: &["presort", "sort", "deschedule", "balance", "filter", "preevictionfilter"],
};
pub const POINT: Section =
    Section { name: "an extension point under plugins", keys: &["enabled", "disabled"] };
pub const METRICS_COLLECTOR: Section = Section { name: "metricsCollector", keys: &["enabled"] };
pub const METRICS_PROVIDER: Section =
    Section { name: "an entry of metricsProviders", keys: &["source", "prometheus"] };
pub const PROMETHEUS_PROVIDER: Section =
    Section { name: "prometheus of an entry of metricsProviders", keys: &["url", "authToken"] };
pub const AUTH_TOKEN: Section = Section { name: "authToken", keys: &["secretReference"] };
pub const SECRET_REFERENCE: Section = Section { name: "secretReference", keys: &["namespace", "name"] };
pub const NAMESPACES: Section = Section { name: "namespaces", keys: &["include", "exclude"] };
pub const OWNER_KINDS: Section = Section { name: "ownerKinds", keys: &["include", "exclude"] };
pub const LABEL_SELECTOR: Section =
    Section { name: "a label selector", keys: &["matchLabels", "matchExpressions"] };
pub const REQUIREMENT: Section =
    Section { name: "an entry of matchExpressions", keys: &["key", "operator", "values"] };
pub const CONDITION: Section = Section {
    name: "an entry of conditions of PodLifeTime",
    keys: &["type", "status", "reason", "minTimeSinceLastTransitionSeconds"],
};
pub const PRIORITY_THRESHOLD: Section = Section { name: "priorityThreshold", keys: &["value", "name"] };
pub const POD_PROTECTIONS: Section =
    Section { name: "podProtections", keys: &["extraEnabled", "defaultDisabled", "config"] };
pub const PROTECTIONS_CONFIG: Section = Section { name: "config of podProtections", keys: &["PodsWithPVC"] };
pub const PVC_CONFIG: Section =
    Section { name: "PodsWithPVC in config of podProtections", keys: &["protectedStorageClasses"] };
pub const STORAGE_CLASS: Section = Section { name: "an entry of protectedStorageClasses", keys: &["name"] };
pub const METRICS_UTILIZATION: Section =
    Section { name: "metricsUtilization", keys: &["metricsServer", "source", "prometheus"] };
pub const PROMETHEUS_QUERY: Section = Section { name: "prometheus of metricsUtilization", keys: &["query"] };
pub const EVICTION_LIMITS: Section = Section { name: "evictionLimits", keys: &["node"] };

pub const DEFAULT_EVICTOR: Section = Section {
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
pub const POD_LIFE_TIME: Section = Section {
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
pub const FAILED_PODS: Section = Section {
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
pub const TOO_MANY_RESTARTS: Section = Section {
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
pub const NODE_TAINTS: Section = Section {
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
pub const NODE_AFFINITY: Section = Section {
    name: "the args of RemovePodsViolatingNodeAffinity",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector", "nodeAffinityType"],
};
pub const ANTI_AFFINITY: Section = Section {
    name: "the args of RemovePodsViolatingInterPodAntiAffinity",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector"],
};
pub const DUPLICATES: Section = Section {
    name: "the args of RemoveDuplicates",
    keys: &["apiVersion", "kind", "namespaces", "excludeOwnerKinds"],
};
pub const TOPOLOGY_SPREAD: Section = Section {
    name: "the args of RemovePodsViolatingTopologySpreadConstraint",
    keys: &["apiVersion", "kind", "namespaces", "labelSelector", "constraints", "topologyBalanceNodeFit"],
};
pub const LOW_NODE_UTILIZATION: Section = Section {
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
pub const HIGH_NODE_UTILIZATION: Section = Section {
    name: "the args of HighNodeUtilization",
    keys: &["apiVersion", "kind", "thresholds", "numberOfNodes", "evictionModes", "evictableNamespaces"],
};

const SECTIONS: [&Section; 33] = [
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

/// Keys that people know from elsewhere, and what takes their place.
const KNOWN_ELSEWHERE: [(&str, &str); 4] = [
    ("maxNoOfPodsEvacuationsTotal", "did you mean maxNoOfPodsToEvictTotal? It counts requests too"),
    ("deschedulingInterval", "this is a flag of the descheduler: --descheduling-interval"),
    ("dryRun", "this is a flag of the descheduler: --dry-run"),
    ("includeSoftConstraints", "this is older: write constraints: [DoNotSchedule, ScheduleAnyway]"),
];

/// What was meant by a key that is unknown in a section: a key of the section that is written almost so, else the section that it belongs to.
pub fn meant(key: &str, section: &Section) -> Option<String> {
    let is_it = |(known, _): &&(&str, &str)| known.eq_ignore_ascii_case(key);
    if let Some((_, meant)) = KNOWN_ELSEWHERE.iter().find(is_it) {
        return Some((*meant).to_owned());
    }
    if let Some(same) = section.keys.iter().find(|one| one.eq_ignore_ascii_case(key)) {
        return Some(format!("did you mean {same}?"));
    }
    let homes: Vec<&str> =
        SECTIONS.iter().filter(|one| one.keys.contains(&key)).map(|one| one.name).take(3).collect();
    if !homes.is_empty() {
        return Some(format!("this key belongs to {}", homes.join(", ")));
    }
    if let Some(near) = nearest(key, section.keys.iter().copied()) {
        return Some(format!("did you mean {near}?"));
    }
    let elsewhere = SECTIONS.iter().flat_map(|one| one.keys.iter().map(move |key| (*key, one.name)));
    let near = nearest(key, elsewhere.clone().map(|(key, _)| key))?;
    let (_, home) = elsewhere.into_iter().find(|(one, _)| *one == near)?;
    Some(format!("did you mean {near}? That key belongs to {home}"))
}

/// The name that differs the least, if it differs little: a short one, by no more than half of it.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let allowed = 2.max(length / 4).min(length / 2);
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
