//! What is counted as objects come and go is what is counted of those that are there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::tally::{Change, Tally};
use crate::maintenance::nodes::Pods;
use crate::snapshot::{Key, Pod, PodOnWire, Request, RequestOnWire};

const NODES: [&str; 3] = ["", "n1", "n2"];
const BLOCKED: [&str; 4] = ["", "DaemonSetPod", "DaemonSetStays", "DisruptionBudget"];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    /// A pod of one of a few names, of one of two UIDs.
    Pod {
        name: u8,
        uid: u8,
        node: usize,
        priority: i32,
        has_ended: bool,
        label: bool,
    },
    PodGone(u8),
    Request {
        name: u8,
        uid: u8,
        created: i64,
        blocked: usize,
        finish: Option<i64>,
    },
    RequestGone {
        name: u8,
        uid: u8,
    },
    Labels(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 0..2_u8, 0..3_usize, 0..2_i32, any::<bool>(), any::<bool>()).prop_map(
            |(name, uid, node, priority, has_ended, label)| Step::Pod { name, uid, node, priority, has_ended, label }
        ),
        1 => (0..4_u8).prop_map(Step::PodGone),
        4 => (0..4_u8, 0..2_u8, 0..3_i64, 0..4_usize, proptest::option::of(0..3_i64)).prop_map(
            |(name, uid, created, blocked, finish)| Step::Request { name, uid, created, blocked, finish }
        ),
        2 => (0..4_u8, 0..2_u8).prop_map(|(name, uid)| Step::RequestGone { name, uid }),
        1 => any::<bool>().prop_map(Step::Labels),
    ]
}

fn pod(name: u8, uid: u8, node: &str, priority: i32, has_ended: bool, label: bool) -> Arc<Pod> {
    let object = json!({
        "metadata": {"name": format!("p{name}"), "namespace": "ns", "uid": format!("u{name}-{uid}"), "labels": {"app": label.to_string()}},
        "spec": {"nodeName": node, "priority": priority},
        "status": {"phase": if has_ended { "Succeeded" } else { "Running" }},
    });
    Arc::new(serde_json::from_value::<PodOnWire>(object).unwrap().into())
}

fn request(name: u8, uid: u8, created: i64, blocked: &str, finish: Option<i64>) -> Arc<Request> {
    let uid = format!("u{name}-{uid}");
    let condition = json!({
        "type": "EvictionBlocked", "status": if blocked.is_empty() { "False" } else { "True" }, "reason": blocked, "message": "",
        "lastTransitionTime": at(0).to_string(),
    });
    let object = json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": format!("r-{uid}"), "creationTimestamp": at(created).to_string()},
        "spec": {"podRef": {"name": format!("p{name}"), "uid": uid}},
        "status": {"conditions": [condition], "expectedInterceptorFinishTime": finish.map(|second| at(second).to_string())},
    });
    Arc::new(serde_json::from_value::<RequestOnWire>(object).unwrap().into())
}

/// All that a tally tells of a node.
#[derive(Debug, PartialEq)]
struct Announced {
    pods: BTreeSet<Key>,
    staying: BTreeSet<Key>,
    kept: u32,
    sum: Pods,
    counts: BTreeMap<String, Pods>,
    groups: u32,
    announced: Option<Timestamp>,
}

fn announced(tally: &Tally, node: &str) -> Announced {
    let by_class = tally.counts_on(node).into_iter();
    Announced {
        pods: tally.pods_on(node).cloned().collect(),
        staying: tally.staying_on(node).map(|(pod, _)| pod.key.clone()).collect(),
        kept: tally.count_kept_on(node),
        sum: tally.sum_on(node),
        counts: by_class.map(|(class, pods)| (format!("{:?}", tally.classes()[class]), pods)).collect(),
        groups: tally.groups_on(node).map(|(_, pods)| pods).sum(),
        announced: tally.announced_after(at(-1), &[Arc::from(node)].into()),
    }
}

proptest! {
    #[test]
    fn counts_that_follow_events_are_those_of_what_is_there(steps in proptest::collection::vec(step(), 1..40)) {
        let mut tally = Tally::default();
        let (mut pods, mut requests) = (HashMap::<Key, Arc<Pod>>::new(), HashMap::<Key, Arc<Request>>::new());
        let mut labels = BTreeSet::new();
        let mut summed = BTreeMap::<(Arc<str>, usize), (i64, i64)>::new();
        for step in steps {
            let changes: Vec<Change> = match step {
                Step::Pod { name, uid, node, priority, has_ended, label } => {
                    let pod = pod(name, uid, NODES[node], priority, has_ended, label);
                    pods.insert(pod.key.clone(), pod.clone());
                    tally.pod_seen(pod)
                }
                Step::PodGone(name) => {
                    let key = Key::new("ns", format!("p{name}"));
                    pods.remove(&key);
                    tally.pod_gone(&key).into_iter().collect()
                }
                Step::Request { name, uid, created, blocked, finish } => {
                    let request = request(name, uid, created, BLOCKED[blocked], finish);
                    requests.insert(request.key.clone(), request.clone());
                    tally.request_seen(request).1.into_iter().collect()
                }
                Step::RequestGone { name, uid } => {
                    let key = Key::new("ns", format!("u{name}-{uid}"));
                    requests.remove(&key);
                    tally.request_gone(&key).and_then(|(_, change)| change).into_iter().collect()
                }
                Step::Labels(are_read) => {
                    labels = are_read.then(|| "app".to_owned()).into_iter().collect();
                    if tally.set_label_keys(labels.clone()) {
                        summed.clear();
                        for node in &NODES[1..] {
                            let counts = tally.counts_on(node).into_iter();
                            let sums = counts.map(|(class, it)| ((Arc::from(*node), class), (it.there.into(), it.evicting.into())));
                            summed.extend(sums);
                        }
                    }
                    Vec::new()
                }
            };
            for change in changes {
                let sum = summed.entry((change.node, change.class)).or_default();
                *sum = (sum.0 + change.there, sum.1 + change.evicting);
            }
            let mut anew = Tally::default();
            anew.set_label_keys(labels.clone());
            for request in requests.values() {
                anew.request_seen(request.clone());
            }
            for pod in pods.values() {
                anew.pod_seen(pod.clone());
            }
            for node in &NODES[1..] {
                prop_assert_eq!(announced(&tally, node), announced(&anew, node), "{}", node);
                let counts = tally.counts_on(node).into_iter();
                let counts: BTreeMap<usize, (i64, i64)> =
                    counts.map(|(class, it)| (class, (it.there.into(), it.evicting.into()))).collect();
                let told: BTreeMap<usize, (i64, i64)> = summed
                    .iter()
                    .filter(|((of, _), sum)| **of == **node && **sum != (0, 0))
                    .map(|((_, class), sum)| (*class, *sum))
                    .collect();
                prop_assert_eq!(told, counts, "the changes of {} add up", node);
            }
        }
    }
}
