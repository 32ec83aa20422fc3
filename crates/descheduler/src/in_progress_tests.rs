//! Pods that are leaving count for what they are about to be.

use serde_json::{Value, json};

use super::*;
use crate::Cluster;
use crate::policy::{PluginName, Policy};
use crate::requester::{AskOutcome, PodId, Requester};
use crate::testing::{cluster, node, now, plan_of, pod, policy, policy_with, proposed};

fn leaving(pods: &[&str]) -> InProgress {
    let mut in_progress = InProgress::default();
    for name in pods {
        in_progress.set_leaving("default", name, &format!("uid-{name}"), "somebody", asked());
    }
    in_progress
}

/// When pods were asked that are leaving.
fn asked() -> Timestamp {
    now() - jiff::SignedDuration::from_secs(60)
}

fn plan(cluster: &Cluster, policy: &Policy, pods: &[&str]) -> crate::Plan {
    crate::plan(cluster, policy, &leaving(pods), now())
}

fn tainted(name: &str) -> k8s_openapi::api::core::v1::Node {
    node(name, json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}}))
}

fn sized(name: &str, node: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
    pod(name, node, json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}))
}

fn taints(evictor: Value) -> Policy {
    policy(evictor, "RemovePodsViolatingNodeTaints", json!({}))
}

#[test]
fn a_pod_whose_replacement_took_the_room_is_still_wanted() {
    let nodes = || vec![tainted("a"), node("b", json!({}))];
    let policy = taints(json!({"nodeFit": true}));
    let before = cluster(nodes(), vec![sized("old", "a", "3")]);
    assert_eq!(proposed(&plan_of(&before, &policy)), ["old"]);
    // Its surge pod runs where it would have fit.
    let surged = cluster(nodes(), vec![sized("old", "a", "3"), sized("new", "b", "3")]);
    assert_eq!(plan(&surged, &policy, &["old"]).still_wanted, ["uid-old"]);
    let mut cools = leaving(&["old"]);
    cools.set_cool_down("default", "old", "uid-old", now() + jiff::SignedDuration::from_secs(60));
    let plan = crate::plan(&surged, &policy, &cools, now());
    assert_eq!(plan.still_wanted, ["uid-old"], "a pause says when it is asked, not whether it is wanted");
}

/// As where a webhook refuses some of the evictions.
#[test]
fn pods_that_were_asked_in_a_cycle_and_have_gone_keep_their_places_while_it_goes_on() {
    for limit in ["maxNoOfPodsToEvictTotal", "maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace"] {
        let pods = (0..6).map(|i| pod(&format!("p{i}"), "a", json!({}))).collect();
        let mut cluster = cluster(vec![tainted("a"), node("b", json!({}))], pods);
        let plugin = ("RemovePodsViolatingNodeTaints", json!({}));
        let policy = policy_with(json!({limit: 2}), json!({}), &[plugin]);
        let mut requester = Requester::default();
        let mut round = |in_progress: fn(&mut Requester, Timestamp) -> InProgress, refused: &[&str]| {
            let plan = crate::plan(&cluster, &policy, &in_progress(&mut requester, now()), now());
            for proposal in &plan.proposals {
                let pod = &proposal.pod;
                if refused.contains(&&*pod.name) {
                    requester.asked(proposal, &AskOutcome::Refused, now());
                } else {
                    requester.asked(proposal, &AskOutcome::Evicted, now());
                    cluster.remove_pod(&pod.namespace, &pod.name);
                    requester.pod_gone(&PodId::from(pod), now());
                }
            }
            proposed(&plan).join(" ")
        };
        assert_eq!(round(Requester::in_progress, &["p1"]), "p0 p1", "{limit}");
        assert_eq!(round(Requester::still_in_progress, &["p2"]), "p2", "{limit}");
        assert_eq!(round(Requester::still_in_progress, &[]), "p3", "{limit}");
        assert_eq!(round(Requester::still_in_progress, &[]), "", "{limit}");
        assert_eq!(round(Requester::in_progress, &[]), "p4 p5", "another cycle: {limit}");
    }
}

#[test]
fn room_is_kept_for_pods_that_are_leaving() {
    let pods = (0..3).map(|i| sized(&format!("p{i}"), "a", "1")).collect();
    let cluster =
        cluster(vec![tainted("a"), node("b", json!({"status": {"allocatable": {"cpu": "2"}}}))], pods);
    let policy = taints(json!({"nodeFit": true}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["p0", "p1"]);
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0"])), ["p1"], "not one more in each cycle");
    assert_eq!(proposed(&plan(&cluster, &policy, &["p0", "p1"])), [] as [&str; 0]);
}

#[test]
fn replicas_that_are_leaving_are_not_there() {
    let names = ["a", "b", "c"];
    let pods = names.iter().enumerate().map(|(i, node)| pod(&format!("p{i}"), node, json!({}))).collect();
    let nodes = names.iter().map(|name| tainted(name)).chain([node("d", json!({}))]).collect();
    let cluster = cluster(nodes, pods);
    let policy = taints(json!({"minReplicas": 2}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)).len(), 2);
    let plan = plan(&cluster, &policy, &["p2"]);
    assert_eq!((proposed(&plan).len(), plan.still_wanted), (1, vec!["uid-p2".to_owned()]));
}

#[test]
fn a_pod_that_is_leaving_is_in_nobodys_way() {
    let away = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}}});
    let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    let nodes = vec![zone("a", "x"), zone("b", "x"), zone("c", "y")];
    let cluster = cluster(nodes, vec![pod("first", "a", away.clone()), pod("second", "b", away)]);
    let policy = policy(json!({}), "RemovePodsViolatingInterPodAntiAffinity", json!({}));
    assert_eq!(proposed(&plan_of(&cluster, &policy)), ["first"]);
    let plan_ = plan(&cluster, &policy, &["second"]);
    assert_eq!((proposed(&plan_), &plan_.still_wanted[..]), (vec![], &["uid-second".to_owned()][..]));
    let both = plan(&cluster, &policy, &["first", "second"]);
    assert_eq!(both.still_wanted, ["uid-first"], "one of them may stay");
}

#[test]
fn who_is_still_wanted_is_known_also_where_a_limit_is_reached() {
    let pods = vec![pod("free", "a", json!({})), pod("p", "b", json!({})), pod("q", "b", json!({}))];
    let cluster = cluster(vec![node("a", json!({})), tainted("b"), node("c", json!({}))], pods);
    let plugins = [("RemovePodsViolatingNodeTaints", json!({}))];
    let policy = policy_with(json!({"maxNoOfPodsToEvictTotal": 2}), json!({}), &plugins);
    // The limit is full with one that nobody wants any more and one that is wanted, and the latter comes last.
    let plan = plan(&cluster, &policy, &["free", "q"]);
    assert_eq!((proposed(&plan), plan.still_wanted.len()), (vec![], 1), "{plan:?}");
    assert_eq!(plan.still_wanted, ["uid-q"]);
}

#[test]
fn of_pods_on_nodes_that_are_not_ready_nobody_knows() {
    let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
    let silent = node("s", json!({"status": {"conditions": conditions}}));
    let nodes = vec![node("a", json!({})), node("b", json!({})), silent];
    let cluster = cluster(nodes, vec![pod("p", "s", json!({})), pod("q", "a", json!({}))]);
    assert_eq!(plan(&cluster, &taints(json!({})), &["p", "q"]).still_wanted, ["uid-p"]);
}

/// A pod that came after others were asked.
fn young(mut pod: k8s_openapi::api::core::v1::Pod) -> k8s_openapi::api::core::v1::Pod {
    pod.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    pod
}

/// The cluster of these pods, once more with a replacement on node b for each that is leaving.
fn plans_with_replacements(
    nodes: &[k8s_openapi::api::core::v1::Node],
    pods: &[k8s_openapi::api::core::v1::Pod],
    policy: &Policy,
) {
    let first = plan_of(&cluster(nodes.to_vec(), pods.to_vec()), policy);
    let leaving = proposed(&first);
    assert!(!leaving.is_empty(), "{first:?}");
    let mut wanted: Vec<String> = leaving.iter().map(|name| format!("uid-{name}")).collect();
    wanted.sort();
    let mut pods = pods.to_vec();
    for number in 0..=leaving.len() {
        let plan = plan(&cluster(nodes.to_vec(), pods.clone()), policy, &leaving);
        let mut still_wanted = plan.still_wanted.clone();
        still_wanted.sort();
        assert_eq!(still_wanted, wanted, "with {number} replacements");
        assert_eq!(proposed(&plan), [] as [&str; 0], "with {number} replacements");
        let mut replacement = young(pods[0].clone());
        replacement.metadata.name = Some(format!("new-{number}"));
        replacement.metadata.uid = Some(format!("uid-new-{number}"));
        replacement.spec.as_mut().unwrap().node_name = Some("b".to_owned());
        pods.push(replacement);
    }
}

fn two_nodes() -> Vec<k8s_openapi::api::core::v1::Node> {
    vec![node("a", json!({})), node("b", json!({}))]
}

#[test]
fn pods_whose_replacements_balance_the_cluster_are_still_wanted() {
    let on_a = |count: usize, cpu: &str| -> Vec<_> {
        (0..count).map(|i| sized(&format!("p{i}"), "a", cpu)).collect()
    };
    for count in [2, 4, 5] {
        plans_with_replacements(
            &two_nodes(),
            &on_a(count, "100m"),
            &policy(json!({}), "RemoveDuplicates", json!({})),
        );
    }
    let constraint = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let spread: Vec<_> = (0..4)
        .map(|i| pod(&format!("p{i}"), "a", json!({"spec": {"topologySpreadConstraints": constraint}})))
        .collect();
    let by_spread = policy(json!({}), "RemovePodsViolatingTopologySpreadConstraint", json!({}));
    plans_with_replacements(&two_nodes(), &spread, &by_spread);
    let low = json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}});
    plans_with_replacements(&two_nodes(), &on_a(4, "800m"), &policy(json!({}), "LowNodeUtilization", low));
    let mut hardly_used = vec![sized("p0", "a", "100m"), sized("p1", "a", "100m")];
    hardly_used.extend((0..4).map(|i| sized(&format!("q{i}"), "b", "500m")));
    let high = policy(json!({}), "HighNodeUtilization", json!({"thresholds": {"cpu": 20}}));
    plans_with_replacements(&two_nodes(), &hardly_used, &high);
}

#[test]
fn pods_whose_replacements_are_measured_are_still_wanted() {
    let usage = |cpu: &str| {
        let quantity = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        let of = [("cpu", cpu), ("memory", "1Mi")].map(|(name, text)| (name.to_owned(), quantity(text)));
        crate::Usage::Resources(of.into())
    };
    let args = |source: Value| json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metricsUtilization": source});
    let top = json!({"metricsProviders": [{"source": "KubernetesMetrics"}]});
    let plugins = [("LowNodeUtilization", args(json!({"source": "KubernetesMetrics"})))];
    let measured = policy_with(top, json!({}), &plugins);
    let pods = vec![sized("p0", "a", "1m"), sized("p1", "a", "1m"), young(sized("new", "b", "1m"))];
    let mut cluster = cluster(two_nodes(), pods);
    cluster.set_usage_of_node("a", &usage("3"));
    cluster.set_usage_of_node("b", &usage("1600m"));
    for name in ["p0", "p1", "new"] {
        cluster.set_usage_of_pod("default", name, &usage("1500m"));
    }
    assert_eq!(plan(&cluster, &measured, &["p0"]).still_wanted, ["uid-p0"]);
    // A query tells nothing of single pods.
    let top = json!({"metricsProviders": [{"source": "Prometheus", "prometheus": {"url": "https://p.example.com"}}]});
    let queried = json!({"thresholds": {"MetricResource": 20}, "targetThresholds": {"MetricResource": 50},
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "q"}}});
    let queried = policy_with(top, json!({}), &[("LowNodeUtilization", queried)]);
    for (name, fraction) in [("a", 0.9), ("b", 0.4)] {
        cluster.set_usage_of_node(name, &crate::Usage::Fraction { query: "q".to_owned(), fraction });
    }
    assert_eq!(plan(&cluster, &queried, &["p0"]).still_wanted, ["uid-p0"]);
}

#[test]
fn replacements_may_ask_for_and_use_more_than_can_be_counted() {
    let most = i64::MAX.to_string();
    let mut pods: Vec<_> = (0..3).map(|i| sized(&format!("p{i}"), "a", "1")).collect();
    pods.extend(["new-0", "new-1"].map(|name| young(sized(name, "b", &most))));
    let mut cluster = cluster(two_nodes(), pods);
    let usage = |cpu: &str| {
        serde_json::from_value(json!({"cpu": cpu, "memory": "1Mi"})).map(crate::Usage::Resources).unwrap()
    };
    for name in ["a", "b"] {
        cluster.set_usage_of_node(name, &usage("3"));
    }
    for name in ["p0", "p1", "p2", "new-0", "new-1"] {
        cluster.set_usage_of_pod("default", name, &usage(&most));
    }
    let args = |source: Value| json!({"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "metricsUtilization": source});
    let top = json!({"metricsProviders": [{"source": "KubernetesMetrics"}]});
    for source in [Value::Null, json!({"source": "KubernetesMetrics"})] {
        let policy = policy_with(top.clone(), json!({}), &[("LowNodeUtilization", args(source))]);
        let plan = plan(&cluster, &policy, &["p0", "p1"]);
        assert_eq!(proposed(&plan), [] as [&str; 0]);
    }
}

#[test]
fn only_as_many_as_are_leaving_and_only_what_came_later_are_replacements() {
    let policy = policy(json!({}), "RemoveDuplicates", json!({}));
    let wanted =
        |pods: Vec<_>, leaving: &[&str]| plan(&cluster(two_nodes(), pods), &policy, leaving).still_wanted;
    let two = || vec![pod("p0", "a", json!({})), pod("p1", "a", json!({}))];
    let with = |more: Vec<_>| two().into_iter().chain(more).collect::<Vec<_>>();
    // It was there before: one on each node would do, and there are two nodes for three.
    assert_eq!(wanted(with(vec![pod("old", "b", json!({}))]), &["p1"]), [] as [&str; 0]);
    let scaled = vec![young(pod("new", "b", json!({}))), young(pod("newer", "b", json!({})))];
    assert_eq!(wanted(with(scaled), &["p1"]), [] as [&str; 0], "one of them is more than a replacement");
    let other =
        json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "other", "uid": "other"}]}});
    assert_eq!(
        wanted(with(vec![young(pod("new", "b", other))]), &["p1"]),
        ["uid-p1"],
        "and it counts for others only"
    );
}

#[test]
fn another_pod_of_the_same_name_leaves_the_first_one_leaving() {
    let cluster = cluster(vec![tainted("a"), node("b", json!({}))], vec![pod("db-0", "a", json!({}))]);
    let mut in_progress = leaving(&["db-0"]);
    in_progress.set_leaving("default", "db-0", "uid-zzz", "somebody", asked());
    in_progress.set_cool_down("default", "db-0", "uid-zzz", now());
    let plan = crate::plan(&cluster, &taints(json!({})), &in_progress, now());
    assert_eq!(proposed(&plan), [] as [&str; 0]);
    assert_eq!(plan.still_wanted, ["uid-db-0"]);
}

#[test]
fn where_nobody_has_room_any_more_those_who_are_leaving_are_still_wanted() {
    // Room for one on b, and its replacement has taken it.
    let nodes = || {
        let small = json!({"metadata": {"labels": {"disk": "ssd"}}, "status": {"allocatable": {"cpu": "3"}}});
        vec![node("a", json!({"spec": {"unschedulable": true}})), node("b", small)]
    };
    let check = |more: Value, policy: &Policy, name: &str| {
        let mut more = more;
        let resources = json!({"requests": {"cpu": "2", "memory": "1Mi"}});
        crate::testing::merge(
            &mut more,
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}),
        );
        let pods = vec![pod("p0", "a", more.clone()), pod("p1", "a", more.clone())];
        let first = plan_of(&cluster(nodes(), pods.clone()), policy);
        assert_eq!(proposed(&first), [name]);
        let alone = plan(&cluster(nodes(), pods.clone()), policy, &[name]);
        assert_eq!(alone.still_wanted, [format!("uid-{name}")], "before its replacement comes");
        let pods = pods.into_iter().chain([young(pod("new", "b", more))]).collect();
        let surged = plan(&cluster(nodes(), pods), policy, &[name]);
        assert_eq!(surged.still_wanted, [format!("uid-{name}")]);
        assert_eq!(proposed(&surged), [] as [&str; 0], "{surged:?}");
    };
    let fits = json!({"nodeFit": true});
    check(json!({}), &policy(fits.clone(), "RemoveDuplicates", json!({})), "p1");
    let spread = json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    check(spread, &policy(fits.clone(), "RemovePodsViolatingTopologySpreadConstraint", json!({})), "p1");
    for kind in
        ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"]
    {
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
        let terms = match kind.starts_with("required") {
            true => json!({"nodeSelectorTerms": [term]}),
            false => json!([{"weight": 1, "preference": term}]),
        };
        let by_affinity =
            policy(fits.clone(), "RemovePodsViolatingNodeAffinity", json!({"nodeAffinityType": [kind]}));
        check(json!({"spec": {"affinity": {"nodeAffinity": {kind: terms}}}}), &by_affinity, "p0");
    }
}

/// A pod of a ReplicaSet that was made so many seconds after the first one was asked to leave, or before.
fn made(name: &str, node: &str, after: i64) -> k8s_openapi::api::core::v1::Pod {
    let created = asked() + jiff::SignedDuration::from_secs(after);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
    pod(name, node, json!({"metadata": {"creationTimestamp": created.to_string(), "ownerReferences": owner}}))
}

/// Pods that a plugin has asked to leave, each so many seconds after the first.
fn moved(pods: &[(&str, i64)], plugin: PluginName) -> InProgress {
    let mut in_progress = InProgress::default();
    for (name, after) in pods {
        let moved = Moved {
            until: now() + jiff::SignedDuration::from_secs(600),
            asked: asked() + jiff::SignedDuration::from_secs(*after),
            plugin,
            owner: "rs".into(),
        };
        in_progress.set_moved("default", name, &format!("uid-{name}"), moved);
    }
    in_progress
}

/// What it shows, the pods and when they were made, who was asked, and who is proposed.
type Case<'a> = (&'a str, &'a [(&'a str, i64)], InProgress, &'a [&'a str]);

#[test]
fn a_replacement_is_left_alone_by_the_plugin_that_moved_its_pod_and_nobody_else_is() {
    let duplicates = || policy(json!({}), "RemoveDuplicates", json!({}));
    let by = PluginName::RemoveDuplicates;
    let two = |pods: Vec<k8s_openapi::api::core::v1::Pod>| {
        cluster(vec![node("n1", json!({})), node("n2", json!({}))], pods)
    };
    // Of pods of one owner on a node all but the first by name leave, if there are as many nodes.
    let cases: [Case<'_>; 8] = [
        ("nobody was asked", &[("a", -9), ("b", 5)], InProgress::default(), &["b"]),
        ("it came in the place of one that was", &[("a", -9), ("b", 5)], moved(&[("x", 0)], by), &[]),
        ("it was there before", &[("a", -9), ("b", -1)], moved(&[("x", 0)], by), &["b"]),
        (
            "another plugin has asked",
            &[("a", -9), ("b", 5)],
            moved(&[("x", 0)], PluginName::LowNodeUtilization),
            &["b"],
        ),
        (
            "the first that came, and no more than were asked",
            &[("a", -9), ("b", 5), ("c", 6), ("d", 7)],
            moved(&[("x", 0)], by),
            &["c", "d"],
        ),
        ("two were", &[("a", -9), ("b", 5), ("c", 6), ("d", 7)], moved(&[("x", 0), ("y", 2)], by), &["d"]),
        (
            "it came after the first and before the second",
            &[("a", -9), ("b", 5)],
            moved(&[("y", 6)], by),
            &["b"],
        ),
        (
            "the one that was asked is still there, and stays",
            &[("a", -9), ("b", 5)],
            moved(&[("a", 0)], by),
            &["b"],
        ),
    ];
    for (case, pods, in_progress, expected) in cases {
        let cluster = two(pods.iter().map(|(name, after)| made(name, "n1", *after)).collect());
        let plan = crate::plan(&cluster, &duplicates(), &in_progress, now());
        assert_eq!(proposed(&plan), expected, "{case}");
    }
    // The one that was asked takes its grace period, and its replacement is there already.
    let mut going = made("x", "n2", -9);
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    let cluster = two(vec![made("a", "n1", -9), made("b", "n1", 5), going]);
    let plan = crate::plan(&cluster, &duplicates(), &moved(&[("x", 0)], by), now());
    assert_eq!(proposed(&plan), [] as [&str; 0]);
    let cluster = two(vec![made("a", "n1", -9), made("b", "n1", 5)]);
    let in_progress = moved(&[("x", 0)], by);
    let later = now() + jiff::SignedDuration::from_secs(600);
    assert_eq!(proposed(&crate::plan(&cluster, &duplicates(), &in_progress, later)), ["b"], "it is over");
    let told = crate::explain(&cluster, &duplicates(), &in_progress, now(), "default", "b");
    let crate::Explanation::Pod { plugins, .. } = told else { panic!("{told:?}") };
    assert_eq!(
        plugins[0].to_string(),
        "RemoveDuplicates of profile \"p\" wants it to leave (is one of 2 pods of its owner on the node, 1 would do), and it is kept: \
         it seems to have come in the place of default/x, which the plugin has asked to leave, and is not asked by it before 2026-01-01T00:10:00Z"
    );
}

/// Hard taints are heeded by the scheduler: a replacement on a node that got one now is in a new situation.
#[test]
fn what_the_scheduler_heeds_itself_is_no_loop() {
    let by = PluginName::RemovePodsViolatingNodeTaints;
    let on = |effect: &str| {
        let taints = json!({"spec": {"taints": [{"key": "broken", "effect": effect}]}});
        cluster(vec![node("n1", taints), node("n2", json!({}))], vec![made("b", "n1", 5)])
    };
    let policy = policy(json!({}), by.as_str(), json!({"includePreferNoSchedule": true}));
    let plan = |effect: &str| crate::plan(&on(effect), &policy, &moved(&[("x", 0)], by), now());
    assert_eq!(proposed(&plan("NoSchedule")), ["b"]);
    assert_eq!(proposed(&plan("PreferNoSchedule")), [] as [&str; 0]);
}

mod loops {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::requester::{Effect, Memory, Options};
    use jiff::SignedDuration;

    const COOL_DOWN: i64 = 3600;

    /// What happens before a cycle.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Nothing,
        Restart,
        ScaleUp,
        /// Somebody deletes the oldest pod, which comes back.
        Replace,
    }

    /// A ReplicaSet whose pods all come back where the plugin does not want them, since there is no other room.
    struct Looping {
        cluster: Cluster,
        requester: Requester,
        memory: Memory,
        pods: BTreeMap<u32, String>,
        made: u32,
        /// How many pods are no replacement of another.
        own: usize,
        asked: Vec<i64>,
    }

    impl Looping {
        fn new(replicas: u32) -> Self {
            let slow = json!({"spec": {"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}});
            let cluster = cluster(vec![node("n1", slow), node("n2", json!({}))], Vec::new());
            let (requester, memory) = (requester(), Memory::default());
            let (pods, asked) = (BTreeMap::new(), Vec::new());
            let mut looping = Self { cluster, requester, memory, pods, made: 0, own: 0, asked };
            (0..replicas).for_each(|_| looping.make(-1000));
            looping.own = replicas as usize;
            looping
        }

        fn make(&mut self, second: i64) {
            let name = format!("p{}", self.made);
            self.cluster.set_pod(&made(&name, "n1", second));
            self.pods.insert(self.made, name);
            self.made += 1;
        }

        fn end(&mut self, name: &str, second: i64) {
            self.pods.retain(|_, one| one != name);
            self.cluster.remove_pod("default", name);
            self.requester.pod_gone(&PodId::new("default", name, &format!("uid-{name}")), at(second));
            self.make(second + 1);
        }

        fn cycle(&mut self, second: i64, policy: &Policy) {
            let in_progress = self.requester.in_progress(at(second));
            let plan = crate::plan(&self.cluster, policy, &in_progress, at(second));
            for effect in self.requester.decide(&plan, at(second)) {
                match effect {
                    Effect::Remember(memory) => {
                        self.memory = Memory::of_data(&memory.to_data());
                        self.requester.saved(&memory);
                    }
                    Effect::Ask { proposal, .. } => {
                        self.asked.push(second);
                        self.requester.asked(&proposal, &AskOutcome::Evicted, at(second));
                        self.end(&proposal.pod.name, second);
                    }
                    Effect::Withdraw { .. } => unreachable!("there are no requests"),
                }
            }
        }
    }

    fn at(second: i64) -> Timestamp {
        asked() + SignedDuration::from_secs(second)
    }

    fn requester() -> Requester {
        Requester::new(Options { requests: false, ..Options::default() })
    }

    proptest! {
        /// However often the process restarts: in any hour each pod is asked once, under whatever name it came back. And none is forgotten.
        #[test]
        fn pods_that_come_back_are_asked_once_in_a_cool_down(
            replicas in 1_u32..5,
            steps in prop::collection::vec((0_u8..6, 1_i64..900), 1..60),
        ) {
            let args = json!({"includePreferNoSchedule": true});
            let policy = policy(json!({}), "RemovePodsViolatingNodeTaints", args);
            let mut looping = Looping::new(replicas);
            let mut second = 0;
            for (step, pause) in steps {
                second += pause;
                let step = match step {
                    0 => Step::Restart,
                    1 => Step::ScaleUp,
                    2 => Step::Replace,
                    _ => Step::Nothing,
                };
                match step {
                    Step::Nothing => {}
                    Step::Restart => {
                        looping.requester = requester();
                        looping.requester.remembered(looping.memory.clone());
                    }
                    Step::ScaleUp => {
                        looping.make(second);
                        looping.own += 1;
                    }
                    Step::Replace => {
                        let oldest = looping.pods.values().next().cloned();
                        oldest.into_iter().for_each(|name| looping.end(&name, second));
                        looping.own += 1;
                    }
                }
                looping.cycle(second, &policy);
                let within = looping.asked.iter().filter(|one| **one > second - COOL_DOWN).count();
                prop_assert!(within <= looping.own, "{within} of {} at {second}", looping.own);
            }
            // When all of that is over, each is asked once more.
            let before = looping.asked.len();
            looping.cycle(second + 2 * COOL_DOWN, &policy);
            prop_assert_eq!(looping.asked.len() - before, looping.pods.len());
        }
    }
}
