//! What the scheduler chooses, and what it says when it cannot.

use super::*;
use crate::controllers::testing::{at, changed_node, node, pod, view};
use serde_json::{Value, json};

fn waiting(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod("p", "");
    pod["status"] = json!({"phase": "Pending"});
    change(&mut pod);
    pod
}

/// The node that is chosen, or the reason for none.
fn outcome(objects: &[Value]) -> String {
    let plan = decide(&view(objects), &Key::new("default", "p"), at(0));
    match &plan.actions[..] {
        [Action::Bind { node, .. }] => node.clone(),
        [Action::Patch { patch, .. }] => {
            patch["status"]["conditions"][0]["message"].as_str().unwrap().to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_least_used_node_wins() {
    let mut busy = pod("q", "a");
    busy["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    assert_eq!(outcome(&[node("a"), node("b"), busy, waiting(|_| {})]), "b");
}

#[test]
fn each_rule_against_a_node_is_counted_in_the_reason() {
    let cordoned = changed_node("a", |node| node["spec"]["unschedulable"] = true.into());
    let tainted = changed_node("b", |node| {
        node["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}])
    });
    let small = changed_node("c", |node| node["status"]["allocatable"]["cpu"] = "100m".into());
    let full = changed_node("d", |node| node["status"]["allocatable"]["pods"] = "0".into());
    let big = waiting(|pod| pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}));
    assert_eq!(
        outcome(&[cordoned, tainted, small, full, big]),
        "0/4 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint(s), \
         1 node(s) were unschedulable. preemption: 0/4 nodes are available: 1 No preemption victims found for incoming \
         pod, 3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn selectors_and_required_affinity_must_match() {
    let blue = changed_node("b", |node| node["metadata"]["labels"]["color"] = "blue".into());
    let nodes = [node("a"), blue];
    let with = |spec: Value| {
        let pod = waiting(|pod| {
            for (field, value) in spec.as_object().unwrap() {
                pod["spec"][field] = value.clone();
            }
        });
        outcome(&[nodes[0].clone(), nodes[1].clone(), pod])
    };
    let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    assert_eq!(with(json!({"nodeSelector": {"color": "blue"}})), "b");
    assert_eq!(with(required(json!([{"matchExpressions": [{"key": "color", "operator": "Exists"}]}]))), "b");
    assert_eq!(
        with(required(
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}])
        )),
        "b"
    );
    assert_eq!(
        with(json!({"nodeSelector": {"color": "red"}})),
        format!(
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. {}",
            no_use(2)
        )
    );
}

#[test]
fn anti_affinity_of_a_pod_that_runs_holds_too() {
    let mut shy = pod("q", "a");
    shy["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
    }]}});
    assert_eq!(
        outcome(&[node("a"), shy, waiting(|_| {})]),
        format!(
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. {}",
            no_victims(1)
        )
    );
}

#[test]
fn affinity_needs_company_except_for_the_first_of_its_kind() {
    let together = |app: &str| {
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }]}})
    };
    let near = waiting(|pod| pod["spec"]["affinity"] = together("web"));
    assert_eq!(outcome(&[node("a"), node("b"), pod("q", "b"), near.clone()]), "b");
    assert_eq!(outcome(&[node("a"), near]), "a", "it matches its own rule");
    assert_eq!(
        outcome(&[node("a"), waiting(|pod| pod["spec"]["affinity"] = together("db"))]),
        format!("0/1 nodes are available: 1 node(s) didn't match pod affinity rules. {}", no_use(1))
    );
}

#[test]
fn gated_pods_and_those_of_other_schedulers_are_left_alone() {
    for change in [json!({"schedulingGates": [{"name": "g"}]}), json!({"schedulerName": "mine"})] {
        let pod = waiting(|pod| {
            for (field, value) in change.as_object().unwrap() {
                pod["spec"][field] = value.clone();
            }
        });
        assert_eq!(decide(&view(&[node("a"), pod]), &Key::new("default", "p"), at(0)), Plan::nothing());
    }
}

/// A waiting pod with these fields in its spec.
fn waiting_with(spec: Value) -> Value {
    waiting(|pod| {
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
    })
}

/// A node in a zone.
fn in_zone(name: &str, zone: &str) -> Value {
    changed_node(name, |node| node["metadata"]["labels"]["zone"] = zone.into())
}

fn spread(when: &str, more: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    for (field, value) in more.as_object().unwrap() {
        constraint[field] = value.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

#[test]
fn required_spread_keeps_the_skew() {
    let nodes = [in_zone("a", "x"), in_zone("b", "y"), in_zone("c", "y")];
    let with = |more: Value, others: &[Value]| {
        let pod = waiting_with(spread("DoNotSchedule", more));
        outcome(&[&nodes[..], others, &[pod]].concat())
    };
    assert_eq!(with(json!({}), &[pod("q", "a")]), "b");
    assert_eq!(with(json!({}), &[pod("q", "b")]), "a");
    let mut leaving = pod("q", "a");
    leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
    assert_eq!(with(json!({}), &[leaving, pod("r", "b")]), "a", "who leaves does not count");
    assert_eq!(
        with(json!({"minDomains": 3}), &[pod("q", "a"), pod("r", "b")]),
        format!(
            "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints. {}",
            no_victims(3)
        )
    );
    assert_eq!(
        with(json!({"topologyKey": "rack"}), &[]),
        format!(
            "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints (missing required label). {}",
            no_use(3)
        )
    );
    let only_y = json!({"nodeSelector": {"zone": "y"}});
    let mut selecting = waiting_with(spread("DoNotSchedule", json!({})));
    selecting["spec"]["nodeSelector"] = only_y["nodeSelector"].clone();
    let full = [pod("q", "b"), pod("r", "b")];
    assert_eq!(
        outcome(&[&nodes[..], &full, std::slice::from_ref(&selecting)].concat()),
        "c",
        "the zone that it cannot go to does not count"
    );
    selecting["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore".into();
    assert!(outcome(&[&nodes[..], &full, &[selecting]].concat()).starts_with("0/3"));
}

#[test]
fn match_label_keys_narrow_the_pods_that_are_counted() {
    let mut old = pod("q", "a");
    old["metadata"]["labels"]["hash"] = "1".into();
    let mut new = waiting_with(spread("DoNotSchedule", json!({"matchLabelKeys": ["hash"]})));
    new["metadata"]["labels"]["hash"] = "2".into();
    let nodes = [
        in_zone("a", "x"),
        changed_node("b", |node| {
            node["metadata"]["labels"]["zone"] = "y".into();
            node["status"]["allocatable"]["pods"] = "0".into();
        }),
    ];
    assert_eq!(outcome(&[&nodes[..], &[old, new]].concat()), "a", "the old one is of another pod_group");
}

#[test]
fn preferences_outweigh_room() {
    let mut busy = pod("busy", "b");
    busy["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    busy["metadata"]["labels"]["app"] = "db".into();
    let with = |spec: Value, nodes: [Value; 2], others: &[Value]| {
        outcome(&[&nodes[..], others, &[busy.clone(), waiting_with(spec)]].concat())
    };
    let nodes = || [in_zone("a", "x"), in_zone("b", "y")];
    assert_eq!(with(json!({}), nodes(), &[]), "a");
    let term = |label: &str| json!({"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "zone"});
    let preferred = |weight: i64, term: Value| json!([{"weight": weight, "podAffinityTerm": term}]);
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let near = json!({"affinity": {"podAffinity": {PREFERRED: preferred(10, term("db"))}}});
    assert_eq!(with(near.clone(), nodes(), &[]), "b");
    let apart = json!({"affinity": {"podAntiAffinity": {PREFERRED: preferred(10, term("web"))}}});
    assert_eq!(with(apart, nodes(), &[pod("q", "a")]), "b");
    let mut host = pod("q", "b");
    host["spec"]["affinity"] = json!({"podAffinity": {PREFERRED: preferred(10, term("web"))}});
    assert_eq!(with(json!({}), nodes(), &[host]), "b", "who is there already has a say");
    let zone = json!({"affinity": {"nodeAffinity": {PREFERRED: [
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}},
    ]}}});
    assert_eq!(with(zone, nodes(), &[]), "b");
    assert_eq!(with(spread("ScheduleAnyway", json!({})), nodes(), &[pod("q", "a")]), "b");
    let [mut soft, other] = nodes();
    soft["spec"]["taints"] = json!([{"key": "k", "effect": "PreferNoSchedule"}]);
    assert_eq!(with(json!({}), [soft, other], &[]), "b");
}

#[test]
fn a_large_cluster_is_looked_at_in_part_and_pods_spread_over_it() {
    assert_eq!([50, 99, 100, 1000, 5000, 20_000].map(enough), [50, 99, 100, 420, 500, 1000]);
    let nodes: Vec<Value> = (0..400).map(|n| node(&format!("n{n:03}"))).collect();
    let mut chosen = std::collections::BTreeSet::new();
    for uid in 0..40 {
        let mut pod = waiting(|_| {});
        pod["metadata"]["uid"] = format!("uid-{uid}").into();
        chosen.insert(outcome(&[&nodes[..], &[pod]].concat()));
    }
    assert!(chosen.len() > 20, "{chosen:?}");
}

#[test]
fn a_pod_that_names_its_node_is_told_about_that_one() {
    let named = waiting_with(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}],
        }}}}),
    );
    assert_eq!(outcome(&[node("a"), node("b"), named.clone()]), "a");
    let cordoned = changed_node("a", |node| node["spec"]["unschedulable"] = true.into());
    assert_eq!(
        outcome(&[cordoned, node("b"), node("c"), named]),
        format!(
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. {}",
            no_use(3)
        )
    );
}

#[test]
fn pods_that_are_alike_get_one_answer_until_something_helps() {
    let mut small = node("a");
    small["status"]["allocatable"]["cpu"] = "0".into();
    let wants = |name: &str, uid: &str| {
        let mut pod = waiting_with(
            json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}),
        );
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["uid"] = uid.into();
        pod
    };
    let mut view = view(&[small, wants("p", "p"), wants("q", "q")]);
    let ask = |view: &View, name: &str| {
        let pod = view.pods.get(&Key::new("default", name)).unwrap();
        let mut looked = false;
        let answer = view.refusals().ask(pod, || {
            looked = true;
            choose(view, pod)
        });
        (answer.is_ok(), looked)
    };
    assert_eq!(ask(&view, "p"), (false, true));
    assert_eq!(ask(&view, "q"), (false, false));
    let mut large = node("b");
    large["metadata"]["resourceVersion"] = "100".into();
    view.written(Resource::Nodes, &large.to_string(), crate::view::Source::Watch).unwrap();
    assert_eq!(ask(&view, "q"), (true, true));
}

fn no_victims(nodes: usize) -> String {
    format!(
        "preemption: 0/{nodes} nodes are available: {nodes} No preemption victims found for incoming pod."
    )
}

fn no_use(nodes: usize) -> String {
    format!("preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.")
}
