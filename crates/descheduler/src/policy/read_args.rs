//! The arguments of each plugin, checked as the Go descheduler checks them.

use super::args::{
    DefaultEvictorArgs, HighNodeUtilizationArgs, InterPodAntiAffinityArgs, LowNodeUtilizationArgs,
    MetricsSource, Namespaces, NodeAffinityArgs, NodeAffinityType, NodeTaintsArgs, PodConditionFilter,
    PodLifeTimeArgs, PodProtections, PodScope, PriorityThreshold, RemoveDuplicatesArgs, RemoveFailedPodsArgs,
    SYSTEM_CRITICAL_PRIORITY, Thresholds, TooManyRestartsArgs, TopologySpreadArgs, UsageSource,
};
use super::read::{Fields, Reader};
use super::schema;
use super::tree::{Tree, Value};
use super::{MetricsProvider, duration};
use crate::selector::{Requirement, Selector, Test};

/// The resource under which a query's value of a node goes.
pub const METRIC_RESOURCE: &str = "MetricResource";

const LIFE_TIME_STATES: [&str; 24] = [
    "Running",
    "Pending",
    "Succeeded",
    "Failed",
    "Unknown",
    "NodeAffinity",
    "NodeLost",
    "Shutdown",
    "UnexpectedAdmissionError",
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
];

impl Reader {
    fn scope(&mut self, fields: &Fields<'_>) -> PodScope {
        PodScope {
            namespaces: self.namespaces(fields, "namespaces"),
            label_selector: self.label_selector(fields, "labelSelector"),
        }
    }

    fn namespaces(&mut self, fields: &Fields<'_>, key: &str) -> Namespaces {
        let Some(tree) = fields.get(key) else {
            return Namespaces::default();
        };
        let section = if key == "ownerKinds" { &schema::OWNER_KINDS } else { &schema::NAMESPACES };
        let inner = self.fields(tree, &fields.path(key), section);
        let include = self.texts(&inner, "include").unwrap_or_default();
        let exclude = self.texts(&inner, "exclude").unwrap_or_default();
        if !include.is_empty() && !exclude.is_empty() {
            self.error(fields.line(key), fields.path(key), "only one of include and exclude may be given");
        }
        Namespaces { include, exclude }
    }

    /// Namespaces that may only be excluded.
    fn excluded_namespaces(&mut self, fields: &Fields<'_>) -> Vec<String> {
        let namespaces = self.namespaces(fields, "evictableNamespaces");
        if !namespaces.include.is_empty() && namespaces.exclude.is_empty() {
            let path = fields.path("evictableNamespaces");
            self.error(fields.line("evictableNamespaces"), path, "only exclude may be given here");
        }
        namespaces.exclude
    }

    /// None if it is not there; everything if it is empty.
    fn label_selector(&mut self, fields: &Fields<'_>, key: &str) -> Option<Selector> {
        let tree = fields.get(key)?;
        let inner = self.fields(tree, &fields.path(key), &schema::LABEL_SELECTOR);
        let mut requirements = Vec::new();
        if let Some(labels) = inner.get("matchLabels") {
            match &labels.value {
                Value::Map(entries) => {
                    for entry in entries {
                        match &entry.value.value {
                            Value::Text(value) => requirements.push(Requirement {
                                key: entry.key.clone(),
                                test: Test::In(vec![value.clone()]),
                            }),
                            other => {
                                let message =
                                    format!("the value of a label must be a text, and is {}", other.kind());
                                self.error(entry.line, inner.path("matchLabels"), message);
                            }
                        }
                    }
                }
                other => {
                    let message = format!("this must be a map, and is {}", other.kind());
                    self.error(labels.line, inner.path("matchLabels"), message);
                }
            }
        }
        for (index, tree) in self.list(&inner, "matchExpressions").unwrap_or_default().iter().enumerate() {
            let path = format!("{}[{index}]", inner.path("matchExpressions"));
            let one = self.fields(tree, &path, &schema::REQUIREMENT);
            let label = self.text(&one, "key").unwrap_or_default();
            let operator = self.text(&one, "operator").unwrap_or_default();
            let values = self.texts(&one, "values").unwrap_or_default();
            if matches!(operator.as_str(), "Gt" | "Lt") {
                self.error(
                    one.line("operator"),
                    path,
                    format!("{operator} is not an operator of label selectors"),
                );
                continue;
            }
            match Requirement::new(&label, &operator, &values) {
                Ok(requirement) => requirements.push(requirement),
                Err(why) => self.error(tree.line, path, why.to_string()),
            }
        }
        let selector = Selector::new(requirements);
        for why in selector.wrong_labels() {
            self.error(fields.line(key), fields.path(key), why);
        }
        Some(selector)
    }

    fn exit_codes(&mut self, fields: &Fields<'_>) -> Vec<i32> {
        let mut codes = Vec::new();
        for tree in self.list(fields, "exitCodes").unwrap_or_default() {
            codes.extend(self.whole::<i32>(tree, &fields.path("exitCodes")));
        }
        codes
    }

    pub(super) fn pod_life_time(&mut self, tree: &Tree, path: &str) -> PodLifeTimeArgs {
        let fields = self.fields(tree, path, &schema::POD_LIFE_TIME);
        let mut conditions = Vec::new();
        for (index, tree) in self.list(&fields, "conditions").unwrap_or_default().iter().enumerate() {
            let path = format!("{}[{index}]", fields.path("conditions"));
            let one = self.fields(tree, &path, &schema::CONDITION);
            let filter = PodConditionFilter {
                kind: self.text(&one, "type").unwrap_or_default(),
                status: self.text(&one, "status").unwrap_or_default(),
                reason: self.text(&one, "reason").unwrap_or_default(),
                min_time_since_last_transition_seconds: self
                    .number(&one, "minTimeSinceLastTransitionSeconds"),
            };
            if filter == PodConditionFilter::default() {
                let message = "this wants type, status, reason or minTimeSinceLastTransitionSeconds";
                self.error(tree.line, path, message);
            }
            conditions.push(filter);
        }
        let args = PodLifeTimeArgs {
            scope: self.scope(&fields),
            owner_kinds: self.namespaces(&fields, "ownerKinds"),
            max_pod_life_time_seconds: self.number(&fields, "maxPodLifeTimeSeconds"),
            states: self.chosen(&fields, "states", &LIFE_TIME_STATES),
            conditions,
            exit_codes: self.exit_codes(&fields),
            including_init_containers: self.boolean(&fields, "includingInitContainers").unwrap_or(false),
            including_ephemeral_containers: self
                .boolean(&fields, "includingEphemeralContainers")
                .unwrap_or(false),
        };
        let is_bounded = fields.get("maxPodLifeTimeSeconds").is_some()
            || !args.states.is_empty()
            || !args.conditions.is_empty()
            || !args.exit_codes.is_empty();
        if !is_bounded {
            let message =
                "PodLifeTime wants at least one of maxPodLifeTimeSeconds, states, conditions and exitCodes";
            self.error(fields.line, path, message);
        }
        args
    }

    pub(super) fn failed_pods(&mut self, tree: &Tree, path: &str) -> RemoveFailedPodsArgs {
        let fields = self.fields(tree, path, &schema::FAILED_PODS);
        RemoveFailedPodsArgs {
            scope: self.scope(&fields),
            exclude_owner_kinds: self.texts(&fields, "excludeOwnerKinds").unwrap_or_default(),
            min_pod_lifetime_seconds: self.number(&fields, "minPodLifetimeSeconds").unwrap_or(3600),
            reasons: self.texts(&fields, "reasons").unwrap_or_default(),
            exit_codes: self.exit_codes(&fields),
            including_init_containers: self.boolean(&fields, "includingInitContainers").unwrap_or(false),
        }
    }

    pub(super) fn too_many_restarts(&mut self, tree: &Tree, path: &str) -> TooManyRestartsArgs {
        let fields = self.fields(tree, path, &schema::TOO_MANY_RESTARTS);
        let threshold = self.number::<i32>(&fields, "podRestartThreshold");
        if threshold.is_none_or(|threshold| threshold < 1) {
            let message = "podRestartThreshold must be at least 1";
            self.error(fields.line("podRestartThreshold"), path, message);
        }
        TooManyRestartsArgs {
            scope: self.scope(&fields),
            pod_restart_threshold: threshold.unwrap_or(1),
            including_init_containers: self.boolean(&fields, "includingInitContainers").unwrap_or(false),
            states: self.chosen(&fields, "states", &["Running", "CrashLoopBackOff"]),
        }
    }

    pub(super) fn node_taints(&mut self, tree: &Tree, path: &str) -> NodeTaintsArgs {
        let fields = self.fields(tree, path, &schema::NODE_TAINTS);
        let args = NodeTaintsArgs {
            scope: self.scope(&fields),
            include_prefer_no_schedule: self.boolean(&fields, "includePreferNoSchedule").unwrap_or(false),
            excluded_taints: self.texts(&fields, "excludedTaints").unwrap_or_default(),
            included_taints: self.texts(&fields, "includedTaints"),
        };
        if !args.excluded_taints.is_empty()
            && args.included_taints.as_ref().is_some_and(|list| !list.is_empty())
        {
            let line = fields.line("includedTaints").max(fields.line("excludedTaints"));
            self.error(line, path, "only one of includedTaints and excludedTaints may be given");
        }
        args
    }

    pub(super) fn node_affinity(&mut self, tree: &Tree, path: &str) -> NodeAffinityArgs {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        let fields = self.fields(tree, path, &schema::NODE_AFFINITY);
        let types = self.chosen(&fields, "nodeAffinityType", &[REQUIRED, PREFERRED]);
        if types.is_empty()
            && !fields.get("nodeAffinityType").is_some_and(|tree| !matches!(tree.value, Value::List(_)))
        {
            let message = format!("nodeAffinityType must be given: {REQUIRED}, {PREFERRED} or both");
            self.error(fields.line("nodeAffinityType"), path, message);
        }
        let types = types.iter().filter_map(|one| match one.as_str() {
            REQUIRED => Some(NodeAffinityType::Required),
            PREFERRED => Some(NodeAffinityType::Preferred),
            _ => None,
        });
        NodeAffinityArgs { types: types.collect(), scope: self.scope(&fields) }
    }

    pub(super) fn anti_affinity(&mut self, tree: &Tree, path: &str) -> InterPodAntiAffinityArgs {
        let fields = self.fields(tree, path, &schema::ANTI_AFFINITY);
        InterPodAntiAffinityArgs { scope: self.scope(&fields) }
    }

    pub(super) fn duplicates(&mut self, tree: &Tree, path: &str) -> RemoveDuplicatesArgs {
        let fields = self.fields(tree, path, &schema::DUPLICATES);
        RemoveDuplicatesArgs {
            namespaces: self.namespaces(&fields, "namespaces"),
            exclude_owner_kinds: self.texts(&fields, "excludeOwnerKinds").unwrap_or_default(),
        }
    }

    pub(super) fn topology_spread(&mut self, tree: &Tree, path: &str) -> TopologySpreadArgs {
        let fields = self.fields(tree, path, &schema::TOPOLOGY_SPREAD);
        let constraints = self.chosen(&fields, "constraints", &["DoNotSchedule", "ScheduleAnyway"]);
        let has = |kind: &str| constraints.iter().any(|one| one == kind);
        TopologySpreadArgs {
            do_not_schedule: constraints.is_empty() || has("DoNotSchedule"),
            schedule_anyway: has("ScheduleAnyway"),
            topology_balance_node_fit: self.boolean(&fields, "topologyBalanceNodeFit").unwrap_or(true),
            scope: self.scope(&fields),
        }
    }

    fn thresholds(&mut self, fields: &Fields<'_>, key: &str) -> Thresholds {
        let mut thresholds = Thresholds::new();
        let path = fields.path(key);
        match fields.get(key).map(|tree| (&tree.value, tree.line)) {
            Some((Value::Map(entries), _)) => {
                for entry in entries {
                    let percent = match &entry.value.value {
                        #[allow(clippy::cast_precision_loss)]
                        Value::Int(number) => *number as f64,
                        Value::Float(number) => *number,
                        other => {
                            let message = format!("a threshold must be a number, and is {}", other.kind());
                            self.error(entry.line, &path, message);
                            continue;
                        }
                    };
                    if !(0.0..=100.0).contains(&percent) {
                        let message = format!("the threshold of {} must be between 0 and 100", entry.key);
                        self.error(entry.line, &path, message);
                    }
                    thresholds.insert(entry.key.clone(), percent);
                }
                if entries.is_empty() {
                    self.error(fields.line(key), path, "at least one resource must have a threshold");
                }
            }
            Some((other, line)) => {
                let message = format!("this must be a map of resources, and is {}", other.kind());
                self.error(line, path, message);
            }
            None => self.error(fields.line, path, "at least one resource must have a threshold"),
        }
        thresholds
    }

    pub(super) fn low_utilization(
        &mut self,
        tree: &Tree,
        path: &str,
        providers: &[MetricsProvider],
    ) -> LowNodeUtilizationArgs {
        let fields = self.fields(tree, path, &schema::LOW_NODE_UTILIZATION);
        let mut eviction_limit_per_node = None;
        if let Some(tree) = fields.get("evictionLimits") {
            let limits = self.fields(tree, &fields.path("evictionLimits"), &schema::EVICTION_LIMITS);
            eviction_limit_per_node = self.number(&limits, "node");
        }
        let args = LowNodeUtilizationArgs {
            use_deviation_thresholds: self.boolean(&fields, "useDeviationThresholds").unwrap_or(false),
            thresholds: self.thresholds(&fields, "thresholds"),
            target_thresholds: self.thresholds(&fields, "targetThresholds"),
            number_of_nodes: self.number(&fields, "numberOfNodes").unwrap_or(0),
            usage: self.usage_source(&fields, providers),
            excluded_namespaces: self.excluded_namespaces(&fields),
            eviction_limit_per_node,
        };
        let line = fields.line("targetThresholds");
        let same = args.thresholds.keys().eq(args.target_thresholds.keys());
        if !same {
            self.error(line, path, "thresholds and targetThresholds must name the same resources");
        } else if !args.use_deviation_thresholds {
            for (resource, percent) in &args.thresholds {
                if args.target_thresholds.get(resource).is_some_and(|target| percent > target) {
                    let message = format!("the threshold of {resource} is above its target");
                    self.error(line, path, message);
                }
            }
        }
        if matches!(args.usage, UsageSource::Prometheus { .. })
            && (args.thresholds.len() != 1 || !args.thresholds.contains_key(METRIC_RESOURCE))
        {
            let message =
                format!("with a Prometheus query, thresholds name {METRIC_RESOURCE} and nothing else");
            self.error(fields.line("thresholds"), path, message);
        }
        args
    }

    fn usage_source(&mut self, fields: &Fields<'_>, providers: &[MetricsProvider]) -> UsageSource {
        let Some(tree) = fields.get("metricsUtilization") else {
            return UsageSource::Requests;
        };
        let line = fields.line("metricsUtilization");
        let metrics = self.fields(tree, &fields.path("metricsUtilization"), &schema::METRICS_UTILIZATION);
        let path = metrics.path.clone();
        let older = self.boolean(&metrics, "metricsServer").unwrap_or(false);
        let source = self.metrics_source(&metrics);
        let query = metrics.get("prometheus").and_then(|tree| {
            let inner = self.fields(tree, &metrics.path("prometheus"), &schema::PROMETHEUS_QUERY);
            self.text(&inner, "query")
        });
        let wanted = match source {
            Some(MetricsSource::KubernetesMetrics) if older => {
                self.error(
                    line,
                    &path,
                    "metricsServer is the older form of the source KubernetesMetrics: keep one of them",
                );
                return UsageSource::KubernetesMetrics;
            }
            Some(MetricsSource::KubernetesMetrics) if metrics.get("prometheus").is_some() => {
                self.error(line, &path, "the source KubernetesMetrics takes no key prometheus");
                return UsageSource::KubernetesMetrics;
            }
            Some(source) if !older => source,
            Some(_) => {
                self.error(line, &path, "metricsServer and the source Prometheus contradict each other");
                return UsageSource::Requests;
            }
            None if older => MetricsSource::KubernetesMetrics,
            None => {
                if metrics.get("source").is_none() {
                    self.error(line, &path, "this wants a source: KubernetesMetrics or Prometheus");
                }
                return UsageSource::Requests;
            }
        };
        if !providers.iter().any(|one| one.source == wanted) {
            let name = if wanted == MetricsSource::Prometheus { "Prometheus" } else { "KubernetesMetrics" };
            let message = format!(
                "this source is not among the metricsProviders of the policy: add source: {name} there"
            );
            self.error(line, &path, message);
        }
        match wanted {
            MetricsSource::KubernetesMetrics => UsageSource::KubernetesMetrics,
            MetricsSource::Prometheus => {
                let query = query.unwrap_or_default();
                if query.is_empty() {
                    self.error(line, &path, "the source Prometheus wants a query under prometheus");
                }
                UsageSource::Prometheus { query }
            }
        }
    }

    pub(super) fn high_utilization(&mut self, tree: &Tree, path: &str) -> HighNodeUtilizationArgs {
        let fields = self.fields(tree, path, &schema::HIGH_NODE_UTILIZATION);
        let modes = self.chosen(&fields, "evictionModes", &["OnlyThresholdingResources"]);
        HighNodeUtilizationArgs {
            thresholds: self.thresholds(&fields, "thresholds"),
            number_of_nodes: self.number(&fields, "numberOfNodes").unwrap_or(0),
            only_thresholding_resources: !modes.is_empty(),
            excluded_namespaces: self.excluded_namespaces(&fields),
        }
    }

    pub(super) fn default_evictor(&mut self, tree: &Tree, path: &str) -> DefaultEvictorArgs {
        let fields = self.fields(tree, path, &schema::DEFAULT_EVICTOR);
        let min_pod_age = self.text(&fields, "minPodAge").and_then(|text| {
            let age = duration::parse(&text);
            let message = match age {
                None => format!("{text:?} is not a duration such as 90s or 1h30m"),
                Some(age) if age.is_negative() => format!("{text} is negative, and no pod is that young"),
                Some(_) => return age,
            };
            self.error(fields.line("minPodAge"), fields.path("minPodAge"), message);
            None
        });
        let policy = self.text(&fields, "noEvictionPolicy").unwrap_or_default();
        if !matches!(policy.as_str(), "" | "Preferred" | "Mandatory") {
            let message = format!("{policy:?} is not one of Preferred, Mandatory");
            self.error(fields.line("noEvictionPolicy"), fields.path("noEvictionPolicy"), message);
        }
        let everything = |selector: &Selector| !selector.is_everything();
        DefaultEvictorArgs {
            node_selector: self.node_selector(&fields),
            label_selector: self.label_selector(&fields, "labelSelector").filter(everything),
            namespace_label_selector: self
                .label_selector(&fields, "namespaceLabelSelector")
                .filter(everything),
            priority_threshold: self.priority_threshold(&fields),
            node_fit: self.boolean(&fields, "nodeFit").unwrap_or(false),
            min_replicas: self.number(&fields, "minReplicas").unwrap_or(0),
            min_pod_age,
            no_eviction_is_mandatory: policy == "Mandatory",
            protections: self.protections(&fields),
        }
    }

    fn priority_threshold(&mut self, fields: &Fields<'_>) -> PriorityThreshold {
        let default = PriorityThreshold::Value(SYSTEM_CRITICAL_PRIORITY);
        let Some(tree) = fields.get("priorityThreshold") else {
            return default;
        };
        let path = fields.path("priorityThreshold");
        let inner = self.fields(tree, &path, &schema::PRIORITY_THRESHOLD);
        let value = self.number::<i32>(&inner, "value");
        let name = self.text(&inner, "name").filter(|name| !name.is_empty());
        match (value, name) {
            (Some(_), Some(_)) => {
                self.error(fields.line("priorityThreshold"), path, "only one of value and name may be given");
                default
            }
            (Some(value), None) => {
                if value > SYSTEM_CRITICAL_PRIORITY {
                    let message = format!(
                        "{value} is above {SYSTEM_CRITICAL_PRIORITY}, where those of the system begin"
                    );
                    self.error(inner.line("value"), path, message);
                }
                PriorityThreshold::Value(value)
            }
            (None, Some(name)) => PriorityThreshold::Class(name),
            (None, None) => default,
        }
    }

    fn protections(&mut self, fields: &Fields<'_>) -> PodProtections {
        const OLDER: [&str; 6] = [
            "evictLocalStoragePods",
            "evictDaemonSetPods",
            "evictSystemCriticalPods",
            "evictFailedBarePods",
            "ignorePvcPods",
            "ignorePodsWithoutPDB",
        ];
        let [local_storage, daemon_sets, system_critical, failed_bare, pvc, without_pdb] =
            OLDER.map(|key| self.boolean(fields, key).unwrap_or(false));
        let mut protections = PodProtections {
            local_storage: !local_storage,
            daemon_sets: !daemon_sets,
            system_critical: !system_critical,
            failed_bare: !failed_bare,
            pvc,
            without_pdb,
            ..PodProtections::default()
        };
        let Some(tree) = fields.get("podProtections") else {
            return protections;
        };
        let inner = self.fields(tree, &fields.path("podProtections"), &schema::POD_PROTECTIONS);
        let extra = ["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"];
        let enabled = self.chosen(&inner, "extraEnabled", &extra);
        let default = ["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"];
        let disabled = self.chosen(&inner, "defaultDisabled", &default);
        for (key, list) in [("extraEnabled", &enabled), ("defaultDisabled", &disabled)] {
            if let Some(twice) =
                list.iter().enumerate().find_map(|(i, one)| list[..i].contains(one).then_some(one))
            {
                self.error(inner.line(key), inner.path(key), format!("{twice} is listed twice"));
            }
        }
        if !enabled.is_empty() || !disabled.is_empty() {
            let set = [local_storage, daemon_sets, system_critical, failed_bare, pvc, without_pdb];
            for (key, _) in OLDER.iter().zip(set).filter(|(_, set)| *set) {
                let message =
                    format!("{key} is an older form of podProtections, and both may not be used together");
                self.error(fields.line(key), fields.path(key), message);
            }
            let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
            protections.local_storage = !has(&disabled, "PodsWithLocalStorage");
            protections.daemon_sets = !has(&disabled, "DaemonSetPods");
            protections.system_critical = !has(&disabled, "SystemCriticalPods");
            protections.failed_bare = !has(&disabled, "FailedBarePods");
            protections.pvc = has(&enabled, "PodsWithPVC");
            protections.without_pdb = has(&enabled, "PodsWithoutPDB");
            protections.resource_claims = has(&enabled, "PodsWithResourceClaims");
        }
        protections.protected_storage_classes = self.storage_classes(&inner);
        if !protections.protected_storage_classes.is_empty() && !protections.pvc {
            let message = "its storage classes protect nothing: add PodsWithPVC to extraEnabled";
            self.error(inner.line("config"), inner.path("config"), message);
        }
        protections
    }

    fn storage_classes(&mut self, protections: &Fields<'_>) -> Vec<String> {
        let Some(tree) = protections.get("config") else {
            return Vec::new();
        };
        let config = self.fields(tree, &protections.path("config"), &schema::PROTECTIONS_CONFIG);
        let Some(tree) = config.get("PodsWithPVC") else {
            return Vec::new();
        };
        let pvc = self.fields(tree, &config.path("PodsWithPVC"), &schema::PVC_CONFIG);
        let mut classes = Vec::new();
        for (index, tree) in self.list(&pvc, "protectedStorageClasses").unwrap_or_default().iter().enumerate()
        {
            let path = format!("{}[{index}]", pvc.path("protectedStorageClasses"));
            let class = self.fields(tree, &path, &schema::STORAGE_CLASS);
            match self.text(&class, "name").filter(|name| !name.is_empty()) {
                Some(name) => classes.push(name),
                None => self.error(tree.line, path, "this has no name of a storage class"),
            }
        }
        classes
    }
}
