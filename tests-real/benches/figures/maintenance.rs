//! The time that node maintenance takes to decide, with 5,000 nodes, 150,000 pods and 50 overlapping maintenances: a plan from scratch,
//! and one event of a pod that gets its request or ends.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::{Value, json};
use usher_decide::maintenance::index::Index;
use usher_decide::snapshot::{Maintenance, Node, NodeOnWire, Pod, PodOnWire, Request, RequestOnWire};

use crate::report::{Figure, Report};

const NODES: usize = 5000;
const PODS: usize = 150_000;
const MAINTENANCES: usize = 50;
const EVENTS: usize = 20_000;
const DECISIONS: u32 = 20;

/// Milliseconds: a plan holds up the loop of all maintenances.
const PLAN_AIM: f64 = 200.0;
/// Milliseconds: a cluster of this size has hundreds of pod events in a second.
const EVENT_AIM: f64 = 1.0;

fn read<W: DeserializeOwned>(object: Value) -> Result<W> {
    Ok(serde_json::from_value(object)?)
}

/// Each maintenance covers a window of nodes that overlaps with those of its neighbours, and every tenth one all nodes.
fn covers(maintenance: usize, node: usize) -> bool {
    let width = NODES / MAINTENANCES;
    let from = maintenance * width;
    maintenance.is_multiple_of(10) || (from..from + 2 * width).contains(&node)
}

fn maintenance(number: usize) -> Result<Maintenance> {
    let plan = json!([
        {"podPriority": 1000 * (number % 7), "podType": "Default"},
        {"podPriority": 8000, "podType": "Default", "podSelector": {"matchLabels": {"app": format!("app-{}", number % 5)}}},
        {"podPriority": 8000, "podType": "Default"},
    ]);
    let object = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {
            "name": format!("m{number:02}"), "uid": format!("m{number}"), "resourceVersion": "1",
            "creationTimestamp": Timestamp::from_second(1_800_000_000 + i64::try_from(number)?)?.to_string(),
            "finalizers": ["nodemaintenance.k8s.io/maintenance-completion"],
        },
        "spec": {"stage": "Drain", "drainPlan": plan, "nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": format!("m{number:02}"), "operator": "Exists"}]},
        ]}},
    });
    Ok(Maintenance::from(read::<usher_api::NodeMaintenance>(object)?))
}

fn node(number: usize) -> Result<Node> {
    let covering: Vec<String> =
        (0..MAINTENANCES).filter(|m| covers(*m, number)).map(|m| format!("m{m:02}")).collect();
    let labels: Value = covering.iter().map(|name| (name.clone(), json!(""))).collect();
    let object = json!({
        "metadata": {
            "name": format!("n{number:04}"), "uid": format!("n{number}"), "resourceVersion": "1", "labels": labels,
            "annotations": {"nodemaintenance.k8s.io/held-by": covering.join(",")},
        },
        "spec": {"unschedulable": true},
    });
    Ok(Node::from(read::<NodeOnWire>(object)?))
}

fn pod(number: usize, phase: &str) -> Result<Pod> {
    let object = json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": format!("ns-{}", number % 100), "uid": format!("p{number}"),
            "labels": {"app": format!("app-{}", number % 20), "pod-template-hash": format!("{}", number % 300)},
        },
        "spec": {"nodeName": format!("n{:04}", number % NODES), "priority": 1000 * (number % 11)},
        "status": {"phase": phase},
    });
    Ok(Pod::from(read::<PodOnWire>(object)?))
}

fn request(number: usize) -> Result<Request> {
    let object = json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": format!("ns-{}", number % 100), "uid": format!("r{number}"),
            "resourceVersion": "1",
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_nodemaintenance.k8s.io"],
        },
        "spec": {"podRef": {"name": format!("p{number}"), "uid": format!("p{number}")}},
    });
    Ok(Request::from(read::<RequestOnWire>(object)?))
}

pub fn measure(report: &mut Report) -> Result<()> {
    let (nodes, pods) = (report.size().of(NODES), report.size().of(PODS));
    let events = report.size().of(EVENTS);
    let now = Timestamp::from_second(1_800_000_000)?;
    let mut index = Index::default();
    for number in 0..MAINTENANCES {
        index.maintenance_seen(maintenance(number)?);
    }
    for number in 0..nodes {
        index.node_seen(node(number)?, now);
    }
    for number in 0..pods {
        index.pod_seen(pod(number, "Running")?);
    }
    let started = Instant::now();
    index.resolve(now);
    let first = started.elapsed();
    index.concerned();
    // A changed maintenance makes everything be planned again.
    index.maintenance_gone(&"m07".into());
    index.maintenance_seen(maintenance(7)?);
    let started = Instant::now();
    index.resolve(now);
    let again = started.elapsed();
    index.concerned();
    let plan = first.max(again);

    // Pods that get their requests, and pods that end, one at a time.
    let mut changes = Vec::with_capacity(events);
    for number in 0..events / 2 {
        changes.push((Some(request(number * 3)?), None));
        changes.push((None, Some(pod(number * 3, "Succeeded")?)));
    }
    let mut slowest = Duration::ZERO;
    let started = Instant::now();
    for (request, pod) in changes {
        let one = Instant::now();
        request.into_iter().for_each(|request| index.request_seen(request));
        pod.into_iter().for_each(|pod| index.pod_seen(pod));
        index.resolve(now);
        let (soon, _) = index.concerned();
        std::hint::black_box(soon);
        slowest = slowest.max(one.elapsed());
    }
    let event = started.elapsed() / u32::try_from(events).context("too many events")?;
    // What is written of a maintenance of all nodes, with when it will be done.
    let mut decision = Duration::ZERO;
    for second in 0..DECISIONS {
        let started = Instant::now();
        let decided = index.decide_maintenance(&"m00".into(), now + SignedDuration::from_secs(second.into()));
        decision += started.elapsed() / DECISIONS;
        std::hint::black_box(decided.context("nothing was decided")?);
    }
    println!("{nodes} nodes, {pods} pods, {MAINTENANCES} overlapping maintenances");
    println!("a full plan: first {first:.2?}, again {again:.2?}; the slowest event: {slowest:.2?}");
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    report.add(Figure::measured("a full plan", milliseconds(plan), "ms").at_most(PLAN_AIM));
    report.add(Figure::measured("one event of a pod", milliseconds(event), "ms").at_most(EVENT_AIM));
    report.add(Figure::measured(
        "one decision on the maintenance of all nodes",
        milliseconds(decision),
        "ms",
    ));
    Ok(())
}
