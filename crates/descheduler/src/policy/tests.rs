use super::args::{Balance, Deschedule, NodeAffinityType, PriorityThreshold, UsageSource};
use super::*;

/// A policy whose only profile is as given, indented below `profiles:`.
fn with_profile(profile: &str) -> String {
    format!("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n{profile}")
}

/// A policy in which one plugin has these args, each on its line from line 8 on.
fn with_args(plugin: &str, args: &str) -> String {
    let lines: String = args.lines().map(|line| format!("          {line}\n")).collect();
    with_profile(&format!("  - name: p\n    pluginConfig:\n      - name: {plugin}\n        args:\n{lines}"))
}

fn errors(text: &str) -> Vec<String> {
    match Policy::read(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_policy_of_all_ten_plugins_is_read_with_the_defaults_of_each() {
    let text = "
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: pool in (a, b)
maxNoOfPodsToEvictPerNode: 10
maxNoOfPodsEvacuationsPerNode: 4
maxNoOfPodsToEvictPerNamespace: 20
maxNoOfPodsToEvictTotal: 30
evictionFailureEventNotification: true
gracePeriodSeconds: 0
metricsProviders:
  - source: KubernetesMetrics
  - source: Prometheus
    prometheus: {url: https://prometheus.example, authToken: {secretReference: {namespace: a, name: b}}}
profiles:
  - name: all
    pluginConfig:
      - name: DefaultEvictor
        args:
          nodeFit: true
          minReplicas: 2
          minPodAge: 1h
          priorityThreshold: {value: 1000}
          namespaceLabelSelector: {matchLabels: {team: x}}
          evictDaemonSetPods: true
          ignorePvcPods: true
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: 86400, states: [Running, CrashLoopBackOff]}
      - name: RemoveFailedPods
      - name: RemovePodsHavingTooManyRestarts
        args: {podRestartThreshold: 100}
      - name: RemovePodsViolatingNodeTaints
        args: {excludedTaints: [dedicated=special]}
      - name: RemovePodsViolatingNodeAffinity
        args: {nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}
      - name: RemovePodsViolatingInterPodAntiAffinity
      - name: RemoveDuplicates
      - name: RemovePodsViolatingTopologySpreadConstraint
      - name: LowNodeUtilization
        args:
          thresholds: {MetricResource: 20.5}
          targetThresholds: {MetricResource: 70}
          metricsUtilization: {source: Prometheus, prometheus: {query: node_load}}
      - name: HighNodeUtilization
        args: {thresholds: {cpu: 20}}
    plugins:
      deschedule:
        enabled:
          - RemovePodsViolatingNodeTaints
          - PodLifeTime
          - RemoveFailedPods
          - RemovePodsHavingTooManyRestarts
          - RemovePodsViolatingNodeAffinity
          - RemovePodsViolatingInterPodAntiAffinity
      balance:
        enabled: [RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization, HighNodeUtilization]
      filter: {enabled: [DefaultEvictor]}
";
    let policy = Policy::read(text).unwrap();
    assert_eq!(policy.limits, Limits { per_node: Some(4), per_namespace: Some(20), total: Some(30) });
    assert_eq!(policy.eviction_message_prefixes, ["Eviction triggered"]);
    assert_eq!(policy.metrics_providers.len(), 2);
    let profile = &policy.profiles[0];
    let names: Vec<_> = profile.deschedule.iter().map(|one| one.name().as_str()).collect();
    assert_eq!(names[..2], ["RemovePodsViolatingNodeTaints", "PodLifeTime"]);
    assert_eq!((profile.deschedule.len(), profile.balance.len()), (6, 4));
    let evictor = &profile.evictor;
    assert!(evictor.node_fit && !evictor.protections.daemon_sets && evictor.protections.pvc);
    assert!(evictor.protections.local_storage && evictor.protections.failed_bare);
    assert_eq!(evictor.priority_threshold, PriorityThreshold::Value(1000));
    let failed = profile.deschedule.iter().find_map(|one| match one {
        Deschedule::RemoveFailedPods(args) => Some(args),
        _ => None,
    });
    assert_eq!(failed.unwrap().min_pod_lifetime_seconds, 3600);
    for plugin in &profile.balance {
        match plugin {
            Balance::TopologySpread(args) => {
                assert!(args.do_not_schedule && !args.schedule_anyway && args.topology_balance_node_fit);
            }
            Balance::LowNodeUtilization(args) => {
                assert_eq!(args.usage, UsageSource::Prometheus { query: "node_load".to_owned() });
            }
            _ => {}
        }
    }
    let Deschedule::NodeAffinity(args) = &profile.deschedule[4] else {
        panic!("{:?}", profile.deschedule[4])
    };
    assert_eq!(args.types, [NodeAffinityType::Required]);
}

#[test]
fn a_key_that_does_not_belong_is_refused_with_its_line_and_what_was_meant() {
    let cases: [(String, &str); 12] = [
        (
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nmaxNoOfPodsToEvictPerNod: 1\n"
                .to_owned(),
            "line 3: the top level of the policy takes no key maxNoOfPodsToEvictPerNod (did you mean maxNoOfPodsToEvictPerNode?)",
        ),
        (
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nnodeFit: true\n".to_owned(),
            "line 3: the top level of the policy takes no key nodeFit (this key belongs to the args of DefaultEvictor)",
        ),
        (
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nnodeselector: a=b\n".to_owned(),
            "line 3: the top level of the policy takes no key nodeselector (did you mean nodeSelector?)",
        ),
        (
            with_args("PodLifeTime", "maxPodLifeTimeSeconds: 1\nminPodLifetimeSeconds: 1"),
            "line 9: profiles[0].pluginConfig[0].args: the args of PodLifeTime takes no key minPodLifetimeSeconds (this key belongs to the args of RemoveFailedPods)",
        ),
        (
            with_args("RemoveDuplicates", "excludeOwnerKind: [Job]"),
            "line 8: profiles[0].pluginConfig[0].args: the args of RemoveDuplicates takes no key excludeOwnerKind (did you mean excludeOwnerKinds?)",
        ),
        (
            with_args("RemoveDuplicate", ""),
            "line 6: profiles[0].pluginConfig[0].name: there is no plugin RemoveDuplicate (did you mean RemoveDuplicates?)",
        ),
        (
            with_args("DefaultEvictor", "thresholdPriority: 5"),
            "line 8: profiles[0].pluginConfig[0].args: the args of DefaultEvictor takes no key thresholdPriority",
        ),
        (
            with_args("DefaultEvictor", "maxNoOfPodsToEvictPerNode: 5"),
            "line 8: profiles[0].pluginConfig[0].args: the args of DefaultEvictor takes no key maxNoOfPodsToEvictPerNode (this key belongs to the top level of the policy)",
        ),
        (
            with_profile("  - name: p\n    plugin:\n      deschedule: {}\n"),
            "line 5: profiles[0]: a profile takes no key plugin (did you mean plugins?)",
        ),
        (
            with_profile("  - name: p\n    plugins:\n      deschedule: {enabled: [LowNodeUtilization]}\n"),
            "line 6: profiles[0].plugins.deschedule.enabled: LowNodeUtilization does not work at deschedule (it belongs to balance)",
        ),
        (
            with_profile("  - name: p\n    plugins:\n      deschedule: {enabled: [PodLifeTime]}\n"),
            "line 6: profiles[0].plugins.deschedule.enabled: PodLifeTime is enabled and has no entry in pluginConfig (add one with name: PodLifeTime)",
        ),
        (
            "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n".to_owned(),
            "line 1: apiVersion: this must be descheduler/v1alpha2, and is \"descheduler/v1alpha1\" (strategies of v1alpha1 are plugins of profiles in v1alpha2)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(&text), [expected], "{text}");
    }
}

#[test]
fn a_key_that_is_there_twice_is_refused_with_its_line() {
    let found = errors(
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\ngracePeriodSeconds: 1\ngracePeriodSeconds: 2\n",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("line 4: ") && found[0].contains("gracePeriodSeconds"), "{found:?}");
}

#[test]
fn a_file_that_is_no_yaml_is_refused_in_words_that_say_what_to_look_at() {
    let base = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n";
    let cases = [
        ("profiles:\n\t- name: p\n", "line 4: this line is indented by a tab (YAML wants spaces)"),
        ("kind: Other\n", "line 3: the key kind is there twice"),
        ("nodeSelector: *all\n", "line 3: an alias names nothing (a text that begins with * needs quotes)"),
        (
            "---\nkind: Other\n",
            "there is more than one document, and a policy is one (leave out what follows ---)",
        ),
        (
            "profiles: [{name: p}\n",
            "from here on this is not YAML (look at the indentation, and for a colon, a quote or a bracket that is missing or too many)",
        ),
        (
            "profiles:\n- name: p\n pluginConfig: []\n",
            "from here on this is not YAML (look at the indentation, and for a colon, a quote or a bracket that is missing or too many)",
        ),
    ];
    for (text, message) in cases {
        let found = errors(&format!("{base}{text}"));
        assert!(found.len() == 1 && found[0].ends_with(message), "{text:?}: {found:?}");
    }
}

#[test]
fn a_whole_number_may_have_a_point_as_go_reads_it() {
    let policy = |number: &str| {
        Policy::read(&format!(
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nmaxNoOfPodsToEvictPerNode: {number}\n"
        ))
    };
    for (number, read) in [("5", 5), ("5.0", 5), ("1e3", 1000)] {
        assert_eq!(policy(number).unwrap().limits.per_node, Some(read), "{number}");
    }
    for number in ["5.5", "-5.0", "1e30", ".nan", ".inf"] {
        assert!(policy(number).is_err(), "{number}");
    }
}

#[test]
fn contradictions_and_values_out_of_range_are_refused() {
    let cases = [
        (
            "PodLifeTime",
            "maxPodLifeTimeSeconds: 1\nnamespaces: {include: [a], exclude: [b]}",
            9,
            "only one of include and exclude",
        ),
        ("PodLifeTime", "namespaces: {include: [a]}", 8, "at least one of maxPodLifeTimeSeconds"),
        ("PodLifeTime", "states: [Runing]", 8, "did you mean Running?"),
        ("PodLifeTime", "maxPodLifeTimeSeconds: -1", 8, "out of range"),
        ("PodLifeTime", "maxPodLifeTimeSeconds: \"1\"", 8, "must be a whole number, and is a text"),
        ("PodLifeTime", "conditions: [{}]", 8, "this wants type, status, reason"),
        (
            "PodLifeTime",
            "maxPodLifeTimeSeconds: 1\nownerKinds: {include: [Job], exclude: [Pod]}",
            9,
            "only one of include",
        ),
        (
            "RemovePodsHavingTooManyRestarts",
            "includingInitContainers: true",
            8,
            "podRestartThreshold must be at least 1",
        ),
        (
            "RemovePodsHavingTooManyRestarts",
            "podRestartThreshold: 0",
            8,
            "podRestartThreshold must be at least 1",
        ),
        (
            "RemovePodsHavingTooManyRestarts",
            "podRestartThreshold: 1\nstates: [Pending]",
            9,
            "not one of Running, CrashLoopBackOff",
        ),
        (
            "RemovePodsViolatingNodeTaints",
            "excludedTaints: [a]\nincludedTaints: [b]",
            9,
            "only one of includedTaints",
        ),
        ("RemovePodsViolatingNodeAffinity", "labelSelector: {}", 8, "nodeAffinityType must be given"),
        ("RemovePodsViolatingNodeAffinity", "nodeAffinityType: [required]", 8, "is not one of"),
        (
            "RemovePodsViolatingTopologySpreadConstraint",
            "constraints: [Never]",
            8,
            "is not one of DoNotSchedule, ScheduleAnyway",
        ),
        ("LowNodeUtilization", "thresholds: {cpu: 20}", 8, "targetThresholds"),
        (
            "LowNodeUtilization",
            "thresholds: {cpu: 20}\ntargetThresholds: {memory: 50}",
            9,
            "must name the same resources",
        ),
        (
            "LowNodeUtilization",
            "thresholds: {cpu: 60}\ntargetThresholds: {cpu: 50}",
            9,
            "is above its target",
        ),
        (
            "LowNodeUtilization",
            "thresholds: {cpu: 101}\ntargetThresholds: {cpu: 102}",
            8,
            "between 0 and 100",
        ),
        (
            "LowNodeUtilization",
            "thresholds: {cpu: 1}\ntargetThresholds: {cpu: 2}\nmetricsUtilization: {source: KubernetesMetrics}",
            10,
            "not among the metricsProviders",
        ),
        (
            "LowNodeUtilization",
            "thresholds: {cpu: 1}\ntargetThresholds: {cpu: 2}\nevictableNamespaces: {include: [a]}",
            10,
            "only exclude may be given",
        ),
        ("HighNodeUtilization", "numberOfNodes: 1", 8, "at least one resource must have a threshold"),
        (
            "HighNodeUtilization",
            "thresholds: {cpu: 1}\nevictionModes: [Some]",
            9,
            "is not one of OnlyThresholdingResources",
        ),
        ("DefaultEvictor", "priorityThreshold: {value: 1, name: high}", 8, "only one of value and name"),
        ("DefaultEvictor", "priorityThreshold: {value: 2000000001}", 8, "above 2000000000"),
        ("DefaultEvictor", "minPodAge: 5", 8, "must be a text"),
        ("DefaultEvictor", "minPodAge: 5d", 8, "is not a duration"),
        ("DefaultEvictor", "noEvictionPolicy: Never", 8, "not one of Preferred, Mandatory"),
        (
            "DefaultEvictor",
            "evictDaemonSetPods: true\npodProtections: {extraEnabled: [PodsWithPVC]}",
            8,
            "older form",
        ),
        ("DefaultEvictor", "podProtections: {extraEnabled: [DaemonSetPods]}", 8, "is not one of"),
        (
            "DefaultEvictor",
            "nodeFit: true\npodProtections: {config: {PodsWithPVC: {protectedStorageClasses: [{name: gold}]}}}",
            9,
            "add PodsWithPVC to extraEnabled",
        ),
        ("DefaultEvictor", "podProtections: {extraEnabled: [PodsWithPVC, PodsWithPVC]}", 8, "listed twice"),
        ("DefaultEvictor", "labelSelector: {matchExpressions: [{key: a, operator: In}]}", 8, "wants values"),
        ("DefaultEvictor", "nodeSelector: a in b", 8, "not understood"),
        ("DefaultEvictor", "nodeSelector: a/b/c=d", 8, "\"a/b/c\" is no key of a label"),
        (
            "DefaultEvictor",
            "labelSelector: {matchLabels: {\"app name\": web}}",
            8,
            "\"app name\" is no key of a label",
        ),
        (
            "DefaultEvictor",
            "labelSelector: {matchLabels: {app: \"a web\"}}",
            8,
            "\"a web\" is no value of a label",
        ),
        (
            "PodLifeTime",
            "maxPodLifeTimeSeconds: 1\nlabelSelector: {matchExpressions: [{key: Example.com/a, operator: Exists}]}",
            9,
            "\"Example.com/a\" is no key of a label",
        ),
        ("PodLifeTime", "maxPodLifeTimeSeconds: 5.5", 8, "must be a whole number, and is 5.5"),
    ];
    for (plugin, args, line, part) in cases {
        let found = errors(&with_args(plugin, args));
        let start = format!("line {line}: ");
        assert!(
            found.iter().any(|one| one.starts_with(&start) && one.contains(part)),
            "{plugin} {args}: {found:?}"
        );
    }
}

#[test]
fn plugins_that_are_configured_or_enabled_twice_or_both_ways_are_refused() {
    let twice = with_profile(
        "  - name: p\n    pluginConfig:\n      - name: RemoveDuplicates\n      - name: RemoveDuplicates\n",
    );
    assert!(errors(&twice)[0].starts_with("line 7: "), "{:?}", errors(&twice));
    let config = "  - name: p\n    pluginConfig: [{name: RemoveDuplicates}]\n    plugins:\n";
    for (point, part) in [
        ("{enabled: [RemoveDuplicates, RemoveDuplicates]}", "enabled twice"),
        ("{enabled: [RemoveDuplicates], disabled: [RemoveDuplicates]}", "both enabled and disabled"),
    ] {
        let found = errors(&with_profile(&format!("{config}      balance: {point}\n")));
        assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    }
    let evictor = errors(&with_profile(&format!("{config}      filter: {{disabled: [DefaultEvictor]}}\n")));
    assert!(evictor[0].contains("cannot be disabled"), "{evictor:?}");
}

#[test]
fn metrics_providers_are_checked() {
    let base = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n";
    let cases = [
        (
            "metricsProviders: [{source: KubernetesMetrics}, {source: KubernetesMetrics}]",
            "configured already",
        ),
        ("metricsProviders: [{source: Prometheus}]", "wants a key prometheus"),
        ("metricsProviders: [{source: Prometheus, prometheus: {}}]", "url of a Prometheus server is missing"),
        (
            "metricsProviders: [{source: Prometheus, prometheus: {url: 'http://a', authToken: {}}}]",
            "wants a secretReference",
        ),
        ("metricsProviders: [{source: KubernetesMetrics}]\nmetricsCollector: {enabled: true}", "older form"),
        ("metricsProviders: [{}]", "has no source"),
        ("metricsProviders: [{source: Prometheus, prometheus: {url: 'http://a:90900'}}]", "is no port"),
        ("metricsProviders: [{source: Prometheus, prometheus: {url: 'https://[::1]:x/p'}}]", "is no port"),
        ("metricsProviders: [{source: Prometheus, prometheus: {url: 'https:///p'}}]", "has no server"),
        (
            "metricsProviders: [{source: Prometheus, prometheus: {url: 'http://a', authToken: {secretReference: {namespace: monitoring, name: s}}}}]",
            "write an https url, or leave authToken out",
        ),
    ];
    for (text, part) in cases {
        let found = errors(&format!("{base}{text}\n"));
        assert!(found.iter().any(|one| one.contains(part)), "{text}: {found:?}");
    }
    for url in ["https://a", "http://a:9090/p?q=1:2", "https://[::1]:9090", "https://u@[::1]/"] {
        let text = format!("metricsProviders: [{{source: Prometheus, prometheus: {{url: '{url}'}}}}]");
        assert!(Policy::read(&format!("{base}{text}\n")).is_ok(), "{url}");
    }
    let older = Policy::read(&format!("{base}metricsCollector: {{enabled: true}}\n")).unwrap();
    assert_eq!(older.metrics_providers.len(), 1);
}
