//! A planner that goes on from the last cycle plans what one plans that has seen nothing before.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use usher_descheduler::{Cluster, Differences, InProgress, Plan, Planner, Policy, Proposal, Reason};
use usher_tests::descheduling::{Snapshot, Subject, fixed_now};
use usher_tests::seeds;

/// Snapshots of each plugin, and of several together; `USHER_SEEDS` says otherwise.
const SEEDS: u64 = 12;
const CYCLES: usize = 6;

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Changes the snapshot, and the cluster that a planner knows already in the same way.
fn change(rng: &mut fastrand::Rng, now: &mut Snapshot, cluster: &mut Cluster, other: &Snapshot) {
    let objects = &mut now.objects;
    objects.pods.retain(|pod| {
        let stays = rng.u32(0..100) >= 12;
        if !stays {
            cluster.remove_pod(text(pod, "namespace"), text(pod, "name"));
        }
        stays
    });
    for pod in &other.objects.pods {
        if rng.u32(0..100) >= 20 {
            continue;
        }
        let same = |one: &&mut Value| {
            text(one, "namespace") == text(pod, "namespace") && text(one, "name") == text(pod, "name")
        };
        match objects.pods.iter_mut().find(same) {
            Some(known) => *known = pod.clone(),
            None => objects.pods.push(pod.clone()),
        }
        cluster.set_pod(&Deserialize::deserialize(pod).unwrap());
    }
    for node in &other.objects.nodes {
        if rng.u32(0..100) >= 15 {
            continue;
        }
        match objects.nodes.iter_mut().find(|one| text(one, "name") == text(node, "name")) {
            Some(known) => *known = node.clone(),
            None => objects.nodes.push(node.clone()),
        }
        cluster.set_node(&Deserialize::deserialize(node).unwrap());
    }
    if rng.u32(0..100) < 10 && objects.nodes.len() > 2 {
        let gone = objects.nodes.swap_remove(rng.usize(0..objects.nodes.len()));
        cluster.remove_node(text(&gone, "name"));
        objects.usage_of_nodes.remove(text(&gone, "name"));
        objects.fractions.remove(text(&gone, "name"));
    }
    for budget in &other.objects.budgets {
        let key = |one: &Value| (text(one, "namespace").to_owned(), text(one, "name").to_owned());
        objects.budgets.retain(|one| key(one) != key(budget));
        if rng.bool() {
            objects.budgets.push(budget.clone());
            cluster.set_budget(&Deserialize::deserialize(budget).unwrap());
        } else {
            cluster.remove_budget(text(budget, "namespace"), text(budget, "name"));
        }
    }
    objects.usage_of_pods.clear();
}

/// Most of what was proposed in the last cycle, and whatever others ask for.
fn leaving(rng: &mut fastrand::Rng, snapshot: &Snapshot, last: &[Proposal], now: Timestamp) -> InProgress {
    let mut in_progress = InProgress::default();
    for Proposal { pod, .. } in last.iter().filter(|_| rng.u32(0..100) < 80) {
        in_progress.set_leaving(&pod.namespace, &pod.name, &pod.uid, "ours", now);
    }
    for pod in &snapshot.objects.pods {
        let (namespace, name, uid) = (text(pod, "namespace"), text(pod, "name"), text(pod, "uid"));
        match rng.u32(0..100) {
            0..5 => {
                let since = now - SignedDuration::from_hours(rng.i64(0..100));
                in_progress.set_leaving(namespace, name, uid, "somebody", since);
            }
            5..8 => in_progress.set_cool_down(namespace, name, uid, now + SignedDuration::from_mins(10)),
            _ => {}
        }
    }
    in_progress
}

/// Of several pods that one wants to be away from, any may be named.
fn comparable(mut plan: Plan) -> Plan {
    for proposal in &mut plan.proposals {
        if let Reason::AntiAffinity { other, .. } = &mut proposal.reason {
            other.clear();
        }
    }
    plan
}

fn goes_on(subject: Subject, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut now = fixed_now();
    let mut snapshot = Snapshot::make(subject, seed, now);
    let mut policy = Policy::read(&snapshot.policy).unwrap();
    snapshot.objects.usage_of_pods.clear();
    let mut cluster = snapshot.objects.cluster().unwrap();
    let mut planner = Planner::new(Differences::default());
    let mut last = Vec::new();
    for cycle in 0..CYCLES {
        let in_progress = leaving(&mut rng, &snapshot, &last, now);
        let goes_on = comparable(planner.plan(&cluster, &policy, &in_progress, now));
        let fresh = usher_descheduler::plan(&snapshot.objects.cluster().unwrap(), &policy, &in_progress, now);
        assert_eq!(goes_on, comparable(fresh), "{} {seed}, cycle {cycle}", subject.name);
        last = goes_on.proposals;
        let other = Snapshot::make(subject, seed * 100 + cycle as u64, now);
        change(&mut rng, &mut snapshot, &mut cluster, &other);
        now += SignedDuration::from_secs(rng.i64(0..7200));
        if rng.u32(0..100) < 10 {
            policy = Policy::read(&other.policy).unwrap();
        }
    }
}

#[test]
fn a_cycle_that_goes_on_plans_as_one_that_begins() {
    let wanted = seeds::wanted(SEEDS).unwrap();
    for subject in Subject::all() {
        for seed in wanted.clone() {
            goes_on(subject, seed);
        }
    }
}

/// What a plugin decided on does not count for those after it, in the next cycle neither, whatever happens to it in between.
#[test]
fn a_pod_that_is_leaving_and_changes_does_not_count_again() {
    let policy = Policy::read(
        "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{name: p, pluginConfig: \
         [{name: RemovePodsViolatingNodeTaints}, {name: RemoveDuplicates}], plugins: \
         {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}, balance: {enabled: [RemoveDuplicates]}}}]}",
    )
    .unwrap();
    let node = |name: &str, taints: Value| {
        json!({
            "metadata": {"name": name}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let pod = |name: &str, node: &str, restarts: i32| {
        json!({
            "metadata": {
                "namespace": "a", "name": name, "uid": name,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}],
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": restarts},
            ]},
        })
    };
    let mut cluster = Cluster::default();
    let tainted = json!([{"key": "broken", "effect": "NoSchedule"}]);
    for node in [node("n1", tainted), node("n2", Value::Null), node("n3", Value::Null)] {
        cluster.set_node(&Deserialize::deserialize(node).unwrap());
    }
    for pod in [pod("x", "n1", 0), pod("y", "n2", 0), pod("z", "n2", 0)] {
        cluster.set_pod(&Deserialize::deserialize(pod).unwrap());
    }
    let names = |plan: Plan| plan.proposals.into_iter().map(|it| it.pod.name).collect::<Vec<_>>();
    let (mut planner, now) = (Planner::default(), fixed_now());
    // Of two pods on two nodes one is too many on one of them; of three it would not be.
    assert_eq!(names(planner.plan(&cluster, &policy, &InProgress::default(), now)), ["x", "z"]);
    let mut in_progress = InProgress::default();
    in_progress.set_leaving("a", "x", "x", "somebody", now);
    cluster.set_pod(&Deserialize::deserialize(pod("x", "n1", 1)).unwrap());
    assert_eq!(names(planner.plan(&cluster, &policy, &in_progress, now)), ["z"]);
    // It may stay after all, and counts.
    cluster.set_node(&Deserialize::deserialize(node("n1", Value::Null)).unwrap());
    assert_eq!(names(planner.plan(&cluster, &policy, &InProgress::default(), now)), ["z"]);
    cluster.remove_node("n3");
    assert_eq!(names(planner.plan(&cluster, &policy, &InProgress::default(), now)), [] as [&str; 0]);
}
