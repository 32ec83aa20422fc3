//! Each plugin by its rules: given these pods and args, these pods are proposed.

use serde_json::{Value, json};

use crate::plan::Reason;
use crate::testing::{ago, cluster, node, now, plan_as_go, plan_of, pod, policy, policy_with, proposed};
use crate::{Cluster, InProgress, Plan, Stop, Usage};

fn two_nodes() -> Vec<k8s_openapi::api::core::v1::Node> {
    vec![node("a", json!({})), node("b", json!({}))]
}

/// What one plugin proposes of pods that are all on node `a`, by name.
fn of_pods(plugin: &str, args: Value, pods: &[(&str, Value)]) -> Vec<String> {
    let pods = pods.iter().map(|(name, more)| pod(name, "a", more.clone())).collect();
    let plan = plan_of(&cluster(two_nodes(), pods), &policy(json!({}), plugin, args));
    proposed(&plan).into_iter().map(str::to_owned).collect()
}

fn status(status: Value) -> Value {
    json!({"status": status})
}

#[test]
fn pod_life_time_takes_pods_older_than_the_limit_the_oldest_first() {
    let created = |seconds| json!({"metadata": {"creationTimestamp": ago(seconds)}});
    let pods =
        [("at", created(600)), ("over", created(601)), ("oldest", created(700)), ("future", created(-5))];
    assert_eq!(of_pods("PodLifeTime", json!({"maxPodLifeTimeSeconds": 600}), &pods), ["oldest", "over"]);
}

#[test]
fn pod_life_time_takes_pods_by_all_its_filters_together() {
    let waiting = |reason| json!({"state": {"waiting": {"reason": reason}}, "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""});
    let ended = |reason, code| json!({"state": {"terminated": {"reason": reason, "exitCode": code}}, "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""});
    let transition = |seconds| json!([{"type": "Ready", "status": "False", "reason": "X", "lastTransitionTime": ago(seconds)}]);
    let pods = [
        ("pending", status(json!({"phase": "Pending"}))),
        ("lost", status(json!({"reason": "NodeLost"}))),
        ("crashing", status(json!({"containerStatuses": [waiting("CrashLoopBackOff")]}))),
        ("init", status(json!({"initContainerStatuses": [waiting("CrashLoopBackOff")]}))),
        ("debugged", status(json!({"ephemeralContainerStatuses": [ended("OOMKilled", 137)]}))),
        ("ended", status(json!({"containerStatuses": [ended("Error", 3)]}))),
        ("unready", status(json!({"conditions": transition(100)}))),
        (
            "job",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "j"}]}}),
        ),
    ];
    let cases: [(Value, &[&str]); 11] = [
        (json!({"states": ["Pending", "NodeLost"]}), &["lost", "pending"]),
        (json!({"states": ["CrashLoopBackOff"]}), &["crashing"]),
        (json!({"states": ["CrashLoopBackOff"], "includingInitContainers": true}), &["crashing", "init"]),
        (json!({"states": ["OOMKilled"]}), &[]),
        (json!({"states": ["OOMKilled"], "includingEphemeralContainers": true}), &["debugged"]),
        (json!({"exitCodes": [3, 137]}), &["ended"]),
        (json!({"conditions": [{"type": "Ready", "status": "False"}]}), &["unready"]),
        (json!({"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 100}]}), &["unready"]),
        (json!({"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 101}]}), &[]),
        (json!({"maxPodLifeTimeSeconds": 1, "ownerKinds": {"include": ["Job"]}}), &["job"]),
        (json!({"exitCodes": [3], "states": ["Pending"]}), &[]),
    ];
    for (args, expected) in cases {
        assert_eq!(of_pods("PodLifeTime", args.clone(), &pods), expected, "{args}");
    }
    let without_jobs = of_pods(
        "PodLifeTime",
        json!({"maxPodLifeTimeSeconds": 1, "ownerKinds": {"exclude": ["Job"]}}),
        &pods,
    );
    assert_eq!(without_jobs.len(), pods.len() - 1);
}

#[test]
fn plugins_look_only_at_their_namespaces_and_labels() {
    let pods = [
        ("here", json!({})),
        ("there", json!({"metadata": {"namespace": "other"}})),
        ("db", json!({"metadata": {"labels": {"app": "db"}}})),
    ];
    let with = |scope: Value| {
        let mut args = json!({"maxPodLifeTimeSeconds": 1});
        crate::testing::merge(&mut args, scope);
        let mut found = of_pods("PodLifeTime", args, &pods);
        found.sort();
        found
    };
    assert_eq!(with(json!({})), ["db", "here", "there"]);
    assert_eq!(with(json!({"namespaces": {"include": ["other"]}})), ["there"]);
    assert_eq!(with(json!({"namespaces": {"exclude": ["other"]}})), ["db", "here"]);
    assert_eq!(with(json!({"labelSelector": {"matchLabels": {"app": "db"}}})), ["db"]);
}

#[test]
fn remove_failed_pods_waits_an_hour_and_goes_by_reasons_and_exit_codes() {
    let ended = |reason: &str, code: i32| json!([{"state": {"terminated": {"reason": reason, "exitCode": code}}, "name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""}]);
    let failed = |more: Value| {
        let mut all = json!({"status": {"phase": "Failed"}});
        crate::testing::merge(&mut all, more);
        all
    };
    let pods = [
        ("running", json!({})),
        ("young", failed(json!({"metadata": {"creationTimestamp": ago(3599)}}))),
        ("evicted", failed(json!({"status": {"reason": "Evicted"}}))),
        ("oom", failed(json!({"status": {"containerStatuses": ended("OOMKilled", 137)}}))),
        ("init", failed(json!({"status": {"initContainerStatuses": ended("Error", 1)}}))),
        (
            "job",
            failed(
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "j"}]}}),
            ),
        ),
    ];
    let cases: [(Value, &[&str]); 6] = [
        (json!({}), &["evicted", "init", "job", "oom"]),
        (
            json!({"minPodLifetimeSeconds": 3599, "excludeOwnerKinds": ["Job"]}),
            &["evicted", "init", "oom", "young"],
        ),
        (json!({"reasons": ["Evicted", "OOMKilled"]}), &["evicted", "oom"]),
        (json!({"reasons": ["Error"]}), &[]),
        (json!({"reasons": ["Error"], "includingInitContainers": true}), &["init"]),
        (json!({"exitCodes": [137]}), &["oom"]),
    ];
    for (args, expected) in cases {
        assert_eq!(of_pods("RemoveFailedPods", args.clone(), &pods), expected, "{args}");
    }
}

#[test]
fn too_many_restarts_takes_pods_at_the_threshold_those_with_most_first() {
    let restarts = |main: i32, init: i32, more: Value| {
        let one = |count: i32, state: Value| json!([{"name": "c", "restartCount": count, "state": state, "ready": true, "image": "", "imageID": ""}]);
        json!({"status": {"containerStatuses": one(main, more), "initContainerStatuses": one(init, json!({}))}})
    };
    let pods = [
        ("few", restarts(4, 0, json!({}))),
        ("at", restarts(5, 0, json!({}))),
        ("most", restarts(9, 0, json!({"waiting": {"reason": "CrashLoopBackOff"}}))),
        ("init", restarts(1, 6, json!({}))),
    ];
    let cases: [(Value, &[&str]); 4] = [
        (json!({"podRestartThreshold": 5}), &["most", "at"]),
        (json!({"podRestartThreshold": 5, "includingInitContainers": true}), &["most", "init", "at"]),
        (json!({"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]}), &["most"]),
        (json!({"podRestartThreshold": 5, "states": ["Running"]}), &["most", "at"]),
    ];
    for (args, expected) in cases {
        assert_eq!(of_pods("RemovePodsHavingTooManyRestarts", args.clone(), &pods), expected, "{args}");
    }
}

#[test]
fn node_taints_take_pods_that_do_not_tolerate_them() {
    let taints = json!({"spec": {"taints": [
        {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "away", "effect": "NoExecute"},
    ]}});
    let tolerating = |list: Value| json!({"spec": {"tolerations": list}});
    let dedicated = json!({"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"});
    let pods = || {
        vec![
            pod("none", "a", json!({})),
            pod("equal", "a", tolerating(json!([dedicated]))),
            pod("other", "a", tolerating(json!([{"key": "dedicated", "value": "x"}]))),
            pod("all", "a", tolerating(json!([{"operator": "Exists"}]))),
            pod("elsewhere", "b", json!({})),
            pod("over", "a", status(json!({"phase": "Succeeded"}))),
        ]
    };
    let cases: [(Value, &[&str]); 6] = [
        (json!({}), &["none", "other"]),
        (json!({"includePreferNoSchedule": true}), &["equal", "none", "other"]),
        (json!({"excludedTaints": ["dedicated"]}), &[]),
        (
            json!({"excludedTaints": ["dedicated=db"], "includePreferNoSchedule": true}),
            &["equal", "none", "other"],
        ),
        (json!({"includedTaints": ["dedicated=x"]}), &[]),
        (json!({"includedTaints": ["dedicated=db"]}), &["none", "other"]),
    ];
    for (args, expected) in cases {
        let cluster = cluster(vec![node("a", taints.clone()), node("b", json!({}))], pods());
        let plan = plan_of(&cluster, &policy(json!({}), "RemovePodsViolatingNodeTaints", args.clone()));
        assert_eq!(proposed(&plan), expected, "{args}");
    }
    let cluster = cluster(vec![node("a", taints), node("b", json!({}))], pods());
    let plan = plan_of(&cluster, &policy(json!({}), "RemovePodsViolatingNodeTaints", json!({})));
    assert_eq!(plan.proposals[0].reason, Reason::Taint { taint: "dedicated=db:NoSchedule".to_owned() });
    assert_eq!(
        plan.proposals[0].reason.to_string(),
        "does not tolerate the taint dedicated=db:NoSchedule of its node"
    );
}

fn zone(name: &str, zone: &str) -> k8s_openapi::api::core::v1::Node {
    node(name, json!({"metadata": {"labels": {"zone": zone}}}))
}

fn required_zone(zone: &str) -> Value {
    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]},
    ]}}}}})
}

#[test]
fn required_node_affinity_takes_pods_whose_node_does_not_match_and_that_fit_elsewhere() {
    let args = json!({"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]});
    let policy = policy(json!({}), "RemovePodsViolatingNodeAffinity", args);
    let pods = || {
        vec![
            pod("wrong", "a", required_zone("y")),
            pod("right", "a", required_zone("x")),
            pod("nowhere", "a", required_zone("z")),
            pod("selector", "a", json!({"spec": {"nodeSelector": {"zone": "y"}}})),
        ]
    };
    let plan = plan_of(&cluster(vec![zone("a", "x"), zone("b", "y")], pods()), &policy);
    assert_eq!(proposed(&plan), ["wrong"], "a node selector alone is not looked at, as in Go");
    let full =
        node("b", json!({"metadata": {"labels": {"zone": "y"}}, "status": {"allocatable": {"cpu": "10m"}}}));
    assert_eq!(proposed(&plan_of(&cluster(vec![zone("a", "x"), full], pods()), &policy)), [] as [&str; 0]);
}

#[test]
fn preferred_node_affinity_takes_pods_for_which_a_node_weighs_more() {
    let prefers = |zone: &str, weight: i32| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}},
        ]}}}})
    };
    let pods = vec![
        pod("better", "a", prefers("y", 5)),
        pod("best", "a", prefers("x", 5)),
        pod("none", "a", json!({})),
    ];
    let args = json!({"nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]});
    let cluster = cluster(vec![zone("a", "x"), zone("b", "y")], pods);
    let plan = plan_of(&cluster, &policy(json!({}), "RemovePodsViolatingNodeAffinity", args));
    assert_eq!(proposed(&plan), ["better"]);
    assert_eq!(plan.proposals[0].reason, Reason::PreferredNodeAffinity { weight: 0, best: 5 });
}

fn keeps_away_from(app: &str, key: &str) -> Value {
    json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}},
    ]}}}})
}

fn with_priority(mut pod: Value, priority: i32) -> Value {
    crate::testing::merge(&mut pod, json!({"spec": {"priority": priority}}));
    pod
}

#[test]
fn anti_affinity_takes_the_lowest_priority_first_and_only_as_many_as_needed() {
    let host = "kubernetes.io/hostname";
    let pods = vec![
        pod("p1", "a", with_priority(keeps_away_from("web", host), 1)),
        pod("p0", "a", with_priority(keeps_away_from("web", host), 0)),
        pod("p2", "a", with_priority(keeps_away_from("web", host), 2)),
        pod("alone", "b", with_priority(keeps_away_from("web", host), 0)),
    ];
    let policy = policy(json!({}), "RemovePodsViolatingInterPodAntiAffinity", json!({}));
    let plan = plan_of(&cluster(two_nodes(), pods), &policy);
    assert_eq!(proposed(&plan), ["p0", "p1"], "the last one is alone then");
}

#[test]
fn anti_affinity_holds_for_a_whole_domain_other_namespaces_and_nodes_without_the_label() {
    let policy = policy(json!({}), "RemovePodsViolatingInterPodAntiAffinity", json!({}));
    let db = |more: Value| {
        let mut all = json!({"metadata": {"labels": {"app": "db"}}});
        crate::testing::merge(&mut all, more);
        all
    };
    let nodes =
        || vec![zone("a", "x"), zone("b", "x"), zone("c", "y"), node("d", json!({})), node("e", json!({}))];
    let other_namespace = json!({"metadata": {"namespace": "other", "labels": {"app": "db"}}});
    let listed = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "namespaces": ["other"], "labelSelector": {"matchLabels": {"app": "db"}}},
    ]}}}});
    let cases = [
        (
            "in its zone",
            vec![pod("w", "a", keeps_away_from("db", "zone")), pod("d", "b", db(json!({})))],
            true,
        ),
        (
            "in another zone",
            vec![pod("w", "a", keeps_away_from("db", "zone")), pod("d", "c", db(json!({})))],
            false,
        ),
        (
            "on its node without a zone",
            vec![pod("w", "d", keeps_away_from("db", "zone")), pod("d", "d", db(json!({})))],
            true,
        ),
        (
            "both without a zone",
            vec![pod("w", "d", keeps_away_from("db", "zone")), pod("d", "e", db(json!({})))],
            false,
        ),
        (
            "in another namespace",
            vec![pod("w", "a", keeps_away_from("db", "zone")), pod("d", "b", other_namespace.clone())],
            false,
        ),
        ("in a listed namespace", vec![pod("w", "a", listed), pod("d", "b", other_namespace)], true),
        (
            "over",
            vec![
                pod("w", "a", keeps_away_from("db", "zone")),
                pod("d", "b", db(status(json!({"phase": "Failed"})))),
            ],
            false,
        ),
    ];
    for (case, pods, expected) in cases {
        let plan = plan_of(&cluster(nodes(), pods), &policy);
        assert_eq!(proposed(&plan) == ["w"], expected, "{case}");
    }
}

#[test]
fn duplicates_take_what_is_above_an_even_share() {
    let many = |on_a: usize, on_b: usize| -> Vec<_> {
        let on = |node: &'static str, count: usize| {
            (0..count).map(move |i| pod(&format!("{node}{i}"), node, json!({})))
        };
        on("a", on_a).chain(on("b", on_b)).collect()
    };
    let three = || vec![node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    let policy_of = |args| policy(json!({}), "RemoveDuplicates", args);
    let cases: [(usize, usize, &[&str]); 4] =
        [(1, 1, &[]), (2, 0, &["a1"]), (4, 0, &["a2", "a3"]), (3, 3, &["a2", "b2"])];
    for (on_a, on_b, expected) in cases {
        let plan = plan_of(&cluster(three(), many(on_a, on_b)), &policy_of(json!({})));
        assert_eq!(proposed(&plan), expected, "{on_a} and {on_b}");
    }
    let excluded =
        plan_of(&cluster(three(), many(4, 0)), &policy_of(json!({"excludeOwnerKinds": ["ReplicaSet"]})));
    assert_eq!(proposed(&excluded), [] as [&str; 0]);
    let tainted = node("b", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    let plan = plan_of(&cluster(vec![node("a", json!({})), tainted], many(4, 0)), &policy_of(json!({})));
    assert_eq!(proposed(&plan), [] as [&str; 0], "one feasible node is not two");
}

#[test]
fn duplicates_have_the_same_owner_and_the_same_images() {
    let image = |image: &str| json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    let owner = |name: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ReplicaSet", "name": name, "uid": name}]}});
    let differ = vec![
        pod("a", "a", image("x")),
        pod("b", "a", image("y")),
        pod("c", "a", owner("other")),
        pod("d", "a", json!({"metadata": {"namespace": "n"}})),
    ];
    let plan = plan_of(&cluster(two_nodes(), differ), &policy(json!({}), "RemoveDuplicates", json!({})));
    assert_eq!(proposed(&plan), [] as [&str; 0]);
}

#[test]
fn duplicates_are_counted_before_the_first_one_goes() {
    let of = |owner: &str, name: &str, node: &str, cpu: &str| {
        let owner = json!([{"apiVersion": "v1", "kind": "ReplicaSet", "name": owner, "uid": owner}]);
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        pod(name, node, json!({"metadata": {"ownerReferences": owner}, "spec": {"containers": [container]}}))
    };
    let mut pods: Vec<_> = (1..=3).map(|i| of("large", &format!("large{i}"), "a", "2")).collect();
    pods.extend((1..=3).map(|i| of("small", &format!("small{i}"), "b", "100m")));
    // It fits nowhere as long as the large ones are there, and so is no reason to leave more of the small ones on b.
    pods.push(of("small", "small4", "c", "100m"));
    let closed = node("b", json!({"spec": {"unschedulable": true}}));
    let nodes = vec![node("a", json!({})), closed, node("c", json!({}))];
    let plan =
        plan_as_go(&cluster(nodes, pods), &policy(json!({"nodeFit": true}), "RemoveDuplicates", json!({})));
    assert_eq!(proposed(&plan), ["large2", "large3", "small2", "small3"]);
}

fn spread(key: &str, skew: i32) -> Value {
    json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}})
}

fn spread_pods(node: &str, count: usize, constraints: &Value) -> Vec<k8s_openapi::api::core::v1::Pod> {
    let spec = json!({"spec": {"topologySpreadConstraints": constraints}});
    (0..count).map(|i| pod(&format!("{node}{i}"), node, spec.clone())).collect()
}

fn spread_plan(
    nodes: Vec<k8s_openapi::api::core::v1::Node>,
    counts: &[(&str, usize)],
    constraints: Value,
    args: Value,
) -> Plan {
    let pods = counts.iter().flat_map(|(node, count)| spread_pods(node, *count, &constraints)).collect();
    plan_of(&cluster(nodes, pods), &policy(json!({}), "RemovePodsViolatingTopologySpreadConstraint", args))
}

#[test]
fn topology_spread_moves_as_few_pods_as_bring_domains_within_the_skew() {
    let zones = || vec![zone("a", "x"), zone("b", "y"), zone("c", "z")];
    let cases = [
        ([("a", 2), ("b", 1), ("c", 1)], 1, 0),
        ([("a", 3), ("b", 1), ("c", 1)], 1, 1),
        ([("a", 4), ("b", 0), ("c", 0)], 1, 3),
        ([("a", 4), ("b", 0), ("c", 0)], 2, 2),
        ([("a", 6), ("b", 0), ("c", 0)], 1, 4),
        ([("a", 5), ("b", 5), ("c", 2)], 1, 2),
        ([("a", 5), ("b", 5), ("c", 2)], 3, 0),
    ];
    for (counts, skew, expected) in cases {
        let plan = spread_plan(zones(), &counts, json!([spread("zone", skew)]), json!({}));
        assert_eq!(plan.proposals.len(), expected, "{counts:?} {skew}: {:?}", proposed(&plan));
    }
}

/// No server takes it, but a dump may have it.
#[test]
fn a_skew_below_zero_moves_nobody_where_there_are_no_domains() {
    let plan = spread_plan(two_nodes(), &[("a", 2)], json!([spread("zone", -1)]), json!({}));
    assert_eq!(proposed(&plan), [] as [&str; 0]);
}

#[test]
fn topology_spread_looks_at_listed_constraints_and_nodes_that_count() {
    let zones = || vec![zone("a", "x"), zone("b", "y")];
    let mut anyway = spread("zone", 1);
    anyway["whenUnsatisfiable"] = json!("ScheduleAnyway");
    let plan = |constraint: Value, args: Value| {
        spread_plan(zones(), &[("a", 4)], json!([constraint]), args).proposals.len()
    };
    assert_eq!(plan(anyway.clone(), json!({})), 0);
    assert_eq!(plan(anyway, json!({"constraints": ["ScheduleAnyway"]})), 2);
    let full =
        node("b", json!({"metadata": {"labels": {"zone": "y"}}, "status": {"allocatable": {"cpu": "1m"}}}));
    let without_room =
        |args| spread_plan(vec![zone("a", "x"), full.clone()], &[("a", 4)], json!([spread("zone", 1)]), args);
    assert_eq!(without_room(json!({})).proposals.len(), 0);
    assert_eq!(without_room(json!({"topologyBalanceNodeFit": false})).proposals.len(), 2);
    let tainted = node(
        "b",
        json!({"metadata": {"labels": {"zone": "y"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
    );
    let mut honoring = spread("zone", 1);
    honoring["nodeTaintsPolicy"] = json!("Honor");
    let without_fit = json!({"topologyBalanceNodeFit": false});
    let nodes = || vec![zone("a", "x"), tainted.clone()];
    assert_eq!(spread_plan(nodes(), &[("a", 4)], json!([honoring]), without_fit.clone()).proposals.len(), 0);
    assert_eq!(spread_plan(nodes(), &[("a", 4)], json!([spread("zone", 1)]), without_fit).proposals.len(), 2);
}

#[test]
fn topology_spread_lets_one_move_serve_several_constraints() {
    // Two pods in zone x share the host a. The zone wants one of four to move, and so does the host.
    let nodes = || vec![zone("a", "x"), zone("b", "x"), zone("c", "y"), zone("d", "y")];
    let counts = [("a", 3), ("b", 1)];
    let both = json!([spread("zone", 2), spread("kubernetes.io/hostname", 2)]);
    let pods: Vec<_> = counts.iter().flat_map(|(node, count)| spread_pods(node, *count, &both)).collect();
    let policy = policy(json!({}), "RemovePodsViolatingTopologySpreadConstraint", json!({}));
    let better = plan_of(&cluster(nodes(), pods.clone()), &policy);
    let as_go = plan_as_go(&cluster(nodes(), pods), &policy);
    assert_eq!(better.proposals.len(), 1, "{:?}", proposed(&better));
    assert!(as_go.proposals.len() >= better.proposals.len());
}

fn sized(name: &str, node: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
    pod(
        name,
        node,
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}),
    )
}

#[test]
fn low_node_utilization_takes_from_nodes_above_the_target_until_they_are_below() {
    let args = json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}});
    let pods = || (0..4).map(|i| sized(&format!("p{i}"), "a", "800m")).collect::<Vec<_>>();
    let plan = plan_of(&cluster(two_nodes(), pods()), &policy(json!({}), "LowNodeUtilization", args.clone()));
    assert_eq!(proposed(&plan), ["p0", "p1"], "3200m of 4000m are 80 %, and 1600m are below half");
    assert!(
        matches!(&plan.proposals[0].reason, Reason::Overutilized { resource, percent } if resource == "cpu" && (*percent - 80.0).abs() < 0.01)
    );
    let plan_with = |nodes, pods, args| {
        proposed(&plan_of(&cluster(nodes, pods), &policy(json!({}), "LowNodeUtilization", args))).len()
    };
    let mut few = args.clone();
    few["numberOfNodes"] = json!(1);
    assert_eq!(plan_with(two_nodes(), pods(), few), 0, "not more nodes than numberOfNodes are below");
    let mut limited = args.clone();
    limited["evictionLimits"] = json!({"node": 1});
    assert_eq!(plan_with(two_nodes(), pods(), limited), 1);
    let mut excluded = args.clone();
    excluded["evictableNamespaces"] = json!({"exclude": ["default"]});
    assert_eq!(plan_with(two_nodes(), pods(), excluded), 0);
    let cordoned = vec![node("a", json!({})), node("b", json!({"spec": {"unschedulable": true}}))];
    assert_eq!(plan_with(cordoned, pods(), args.clone()), 0, "nobody takes them");
    let tainted = vec![
        node("a", json!({})),
        node("b", json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})),
    ];
    assert_eq!(plan_with(tainted, pods(), args), 0, "as in Go, every taint counts here");
}

#[test]
fn low_node_utilization_can_go_by_the_distance_from_the_average() {
    let args =
        json!({"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 10}, "useDeviationThresholds": true});
    let pods =
        vec![sized("a0", "a", "1"), sized("a1", "a", "1"), sized("b0", "b", "1"), sized("c0", "c", "500m")];
    let nodes = vec![node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    // 50, 25 and 12.5 percent: 29 on average, so that a is above 39 and c below 19.
    let plan = plan_of(&cluster(nodes, pods), &policy(json!({}), "LowNodeUtilization", args));
    assert_eq!(proposed(&plan), ["a0"]);
}

#[test]
fn low_node_utilization_can_go_by_real_usage() {
    let top = json!({"metricsProviders": [{"source": "KubernetesMetrics"}]});
    let args = json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metricsUtilization": {"source": "KubernetesMetrics"}});
    let policy = policy_with(top, json!({}), &[("LowNodeUtilization", args)]);
    let mut cluster =
        cluster(two_nodes(), vec![sized("p0", "a", "1m"), sized("p1", "a", "1m"), sized("p2", "a", "1m")]);
    let unknown = plan_of(&cluster, &policy);
    assert_eq!(unknown.problems.len(), 1, "{:?}", unknown.problems);
    let usage = |cpu: &str| {
        serde_json::from_value(json!({"cpu": cpu, "memory": "1Mi"})).map(Usage::Resources).unwrap()
    };
    cluster.set_usage_of_node("a", &usage("3"));
    cluster.set_usage_of_node("b", &usage("100m"));
    cluster.set_usage_of_pod("default", "p1", &usage("1500m"));
    cluster.set_usage_of_pod("default", "p2", &usage("1500m"));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["p1"], "nothing is known of p0, and p1 is enough");
}

#[test]
fn low_node_utilization_can_go_by_a_query_one_pod_of_a_node_at_a_time() {
    let top = json!({"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "http://p"}}]});
    let args = |more: Value| {
        let mut args = json!({"thresholds": {"MetricResource": 20}, "targetThresholds": {"MetricResource": 50},
            "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "q"}}});
        crate::testing::merge(&mut args, more);
        args
    };
    let mut cluster = cluster(two_nodes(), (0..3).map(|i| sized(&format!("p{i}"), "a", "1m")).collect());
    let usage = |query: &str, fraction| Usage::Fraction { query: query.to_owned(), fraction };
    cluster.set_usage_of_node("a", &usage("q", 0.9));
    cluster.set_usage_of_node("b", &usage("q", 0.1));
    cluster.set_usage_of_node("a", &usage("another", 0.1));
    let plan = |cluster: &Cluster, args| {
        plan_of(cluster, &policy_with(top.clone(), json!({}), &[("LowNodeUtilization", args)]))
            .proposals
            .len()
    };
    assert_eq!(plan(&cluster, args(json!({}))), 1);
    assert_eq!(plan(&cluster, args(json!({"evictionLimits": {"node": 2}}))), 2);
    cluster.clear_usage();
    assert_eq!(plan(&cluster, args(json!({}))), 0, "nothing is known");
}

#[test]
fn high_node_utilization_empties_the_least_used_nodes_first() {
    let nodes = || vec![node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    let pods = || {
        vec![
            sized("a0", "a", "2"),
            sized("b0", "b", "400m"),
            sized("c0", "c", "200m"),
            sized("c1", "c", "100m"),
        ]
    };
    let plan_with = |nodes, pods, args| {
        let plan = plan_of(&cluster(nodes, pods), &policy(json!({}), "HighNodeUtilization", args));
        plan.proposals.iter().map(|one| one.pod.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(plan_with(nodes(), pods(), json!({"thresholds": {"cpu": 20}})), ["c0", "c1", "b0"]);
    assert_eq!(
        plan_with(nodes(), pods(), json!({"thresholds": {"cpu": 20}, "numberOfNodes": 2})),
        [] as [&str; 0]
    );
    let mut silent = pods();
    silent.push(pod(
        "silent",
        "c",
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": null}]}}),
    ));
    let only = json!({"thresholds": {"cpu": 20}, "evictionModes": ["OnlyThresholdingResources"]});
    assert!(!plan_with(nodes(), silent.clone(), only).contains(&"silent".to_owned()));
    assert!(plan_with(nodes(), silent, json!({"thresholds": {"cpu": 20}})).contains(&"silent".to_owned()));
}

#[test]
fn limits_hold_in_total_by_node_and_by_namespace() {
    let pods = || {
        let mut pods: Vec<_> = (0..3).map(|i| pod(&format!("a{i}"), "a", json!({}))).collect();
        pods.extend((0..3).map(|i| pod(&format!("b{i}"), "b", json!({"metadata": {"namespace": "other"}}))));
        pods
    };
    let cases: [(Value, &[&str], Stop); 3] = [
        (json!({"maxNoOfPodsToEvictTotal": 2}), &["a0", "a1"], Stop::TotalLimit { limit: 2 }),
        (
            json!({"maxNoOfPodsEvacuationsPerNode": 1}),
            &["a0", "b0"],
            Stop::NodeLimit { node: "a".to_owned(), limit: 1 },
        ),
        (
            json!({"maxNoOfPodsToEvictPerNamespace": 2}),
            &["a0", "a1", "b0", "b1"],
            Stop::NamespaceLimit { namespace: "default".to_owned(), limit: 2 },
        ),
    ];
    for (top, expected, stop) in cases {
        let policy =
            policy_with(top.clone(), json!({}), &[("PodLifeTime", json!({"maxPodLifeTimeSeconds": 1}))]);
        let plan = plan_of(&cluster(two_nodes(), pods()), &policy);
        assert_eq!(proposed(&plan), expected, "{top}");
        assert_eq!(plan.stops[0].by, stop, "{top}");
    }
}

#[test]
fn pods_that_are_leaving_count_against_limits_come_first_and_are_not_proposed_again() {
    let pods = (0..3).map(|i| pod(&format!("a{i}"), "a", json!({}))).collect();
    let cluster = cluster(two_nodes(), pods);
    let policy = policy_with(
        json!({"maxNoOfPodsToEvictTotal": 2}),
        json!({}),
        &[("PodLifeTime", json!({"maxPodLifeTimeSeconds": 1}))],
    );
    let mut in_progress = InProgress::default();
    in_progress.set_leaving("default", "a2", "uid-a2", "somebody", now());
    in_progress.set_leaving("default", "a1", "another uid", "somebody", now());
    let plan = crate::plan(&cluster, &policy, &in_progress, now());
    assert_eq!(proposed(&plan), ["a0"]);
    assert_eq!((plan.counts[0].wanted, plan.counts[0].leaving, plan.counts[0].proposed), (3, 1, 1));
    in_progress.set_cool_down("default", "a0", "uid-a0", now() + jiff::SignedDuration::from_secs(1));
    assert_eq!(proposed(&crate::plan(&cluster, &policy, &in_progress, now())), ["a1"]);
    in_progress.set_cool_down("default", "a0", "uid-a0", now());
    assert_eq!(proposed(&crate::plan(&cluster, &policy, &in_progress, now())), ["a0"]);
}

#[test]
fn a_duplicate_that_is_leaving_is_the_one_that_goes() {
    let cluster = cluster(two_nodes(), vec![pod("a0", "a", json!({})), pod("a1", "a", json!({}))]);
    let mut in_progress = InProgress::default();
    in_progress.set_leaving("default", "a0", "uid-a0", "somebody", now());
    let policy = policy(json!({}), "RemoveDuplicates", json!({}));
    assert_eq!(proposed(&crate::plan(&cluster, &policy, &in_progress, now())), [] as [&str; 0]);
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["a1"]);
}

#[test]
fn nothing_is_proposed_with_fewer_than_two_ready_nodes() {
    let unready = node("b", json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    let cluster = cluster(vec![node("a", json!({})), unready], vec![pod("p", "a", json!({}))]);
    let plan = plan_of(&cluster, &policy(json!({}), "PodLifeTime", json!({"maxPodLifeTimeSeconds": 1})));
    assert_eq!(plan.stops[0].by, Stop::FewerThanTwoReadyNodes { ready: 1 });
    assert!(plan.proposals.is_empty() && plan.counts.is_empty());
}

#[test]
fn all_deschedule_plugins_run_before_those_that_balance_and_what_they_took_is_gone() {
    // Too old are two of three duplicates; one is left, which is no duplicate.
    let old = |seconds| json!({"metadata": {"creationTimestamp": ago(seconds)}});
    let pods = vec![pod("a0", "a", old(1000)), pod("a1", "a", old(1000)), pod("a2", "a", old(10))];
    let plugins = [("RemoveDuplicates", json!({})), ("PodLifeTime", json!({"maxPodLifeTimeSeconds": 100}))];
    let plan = plan_of(&cluster(two_nodes(), pods), &policy_with(json!({}), json!({}), &plugins));
    assert_eq!(proposed(&plan), ["a0", "a1"]);
    let ran: Vec<_> = plan.counts.iter().map(|count| (count.plugin.as_str(), count.proposed)).collect();
    assert_eq!(ran, [("PodLifeTime", 2), ("RemoveDuplicates", 0)]);
}

#[test]
fn a_node_selector_of_the_policy_bounds_what_plugins_look_at() {
    let nodes = vec![zone("a", "x"), zone("b", "x"), zone("c", "y")];
    let pods = vec![pod("in", "a", json!({})), pod("out", "c", json!({})), pod("unbound", "", json!({}))];
    let plugin = [("PodLifeTime", json!({"maxPodLifeTimeSeconds": 1}))];
    let policy = policy_with(json!({"nodeSelector": "zone=x"}), json!({}), &plugin);
    assert_eq!(proposed(&plan_of(&cluster(nodes, pods), &policy)), ["in"]);
}

#[test]
fn a_threshold_of_a_resource_that_no_node_has_is_told() {
    let gpus = |count: &str| json!({"status": {"allocatable": {"example.com/gpu": count}}});
    let low = json!({"thresholds": {"example.com/gpu": 20}, "targetThresholds": {"example.com/gpu": 50}});
    let high = json!({"thresholds": {"example.com/gpu": 20, "cpu": 20}});
    for (plugin, args) in [("LowNodeUtilization", low), ("HighNodeUtilization", high)] {
        let policy = policy(json!({}), plugin, args);
        let told = |nodes: Vec<k8s_openapi::api::core::v1::Node>| -> Vec<String> {
            plan_of(&cluster(nodes, vec![]), &policy).problems.iter().map(ToString::to_string).collect()
        };
        let nowhere = told(vec![node("a", json!({})), node("b", json!({}))]);
        let expected = format!(
            "{plugin} of profile p does nothing: its thresholds name example.com/gpu, which no node has"
        );
        assert_eq!(nowhere, [expected]);
        assert!(told(vec![node("a", gpus("1")), node("b", json!({}))]).is_empty(), "{plugin}");
    }
}

#[test]
fn a_policy_that_can_do_nothing_is_told_with_every_plan_and_silences_no_plugin() {
    let policy =
        crate::Policy::read("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles: []\n")
            .unwrap();
    let plan = plan_of(&cluster(vec![node("a", json!({})), node("b", json!({}))], vec![]), &policy);
    let told: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["the policy, line 3: profiles: there is no profile, so that nothing is descheduled"]);
    assert!(!plan.problems[0].silences());
}
