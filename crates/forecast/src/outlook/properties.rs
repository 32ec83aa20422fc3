//! What holds for all outlooks: who is said to fit does fit, and the order is the controller's.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use serde_json::json;
use usher_decide::maintenance::waves::{self, Candidate};
use usher_decide::snapshot::Key;

use super::samples::{cluster, maintenance, node, now, pod, read_maintenance, with};
use super::{Node, Pod, outlook};

/// Nodes by CPUs, pods and cordon; pods by node, CPU in tenths and pool.
type Drawn = (Vec<(i64, i64, bool)>, Vec<(usize, i64, u8)>, usize, i32);

fn drawn() -> impl Strategy<Value = Drawn> {
    let node = (1..8_i64, 0..6_i64, prop::bool::weighted(0.2));
    let pod = (0..8_usize, 0..30_i64, 0..3_u8);
    (prop::collection::vec(node, 1..8), prop::collection::vec(pod, 0..30), 0..8_usize, 0..4_i32)
}

proptest! {
    /// No node gets more than it has, each pod that somebody makes anew has one place or none, nobody goes to a node
    /// that is drained, cordoned or not for him, and who finds no place has indeed none in the end.
    #[test]
    fn whoever_is_said_to_fit_does_fit((nodes, pods, drained, limit) in drawn()) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
        let objects = nodes.iter().zip(&names).enumerate().map(|(number, ((cpu, room, cordoned), name))| {
            let node = with(node(name, &cpu.to_string()), "/status/allocatable/pods", json!(room.to_string()));
            let node = with(node, "/metadata/labels/pool", json!(["blue", "red"][number % 2]));
            with(node, "/spec/unschedulable", json!(cordoned))
        });
        let pods = pods.iter().enumerate().map(|(number, (on, cpu, pool))| {
            let pod = pod(&format!("p{number}"), &names[on % names.len()]);
            let pod = with(pod, "/spec/containers/0/resources/requests/cpu", json!(format!("{}m", cpu * 100)));
            match pool {
                0 => with(pod, "/spec/nodeSelector", json!({"pool": "blue"})),
                1 => with(pod, "/spec/nodeSelector", json!({"pool": "red"})),
                _ => pod,
            }
        });
        let cluster = cluster(objects.collect(), pods.collect(), vec![]);
        let drained: Vec<&str> = names.iter().take(drained).map(String::as_str).collect();
        let mut new = maintenance("new", &drained);
        if limit > 0 {
            new["spec"]["drainLimit"] = json!({"maxNodes": limit});
        }
        let outlook = outlook(&read_maintenance(new), &cluster, now());

        let by_key: HashMap<&Key, &Pod> = cluster.pods.iter().map(|pod| (&pod.pod.key, pod)).collect();
        let mut used: HashMap<&str, (i64, i64)> = HashMap::new();
        for pod in &cluster.pods {
            let (cpu, count) = used.entry(&pod.pod.node).or_default();
            (*cpu, *count) = (*cpu + pod.wants.cpu, *count + 1);
        }
        let node_of = |name: &str| cluster.nodes.iter().find(|node| *node.node.name == *name).unwrap();
        let suits = |pod: &Pod, node: &Node| {
            !drained.contains(&&*node.node.name) && pod.rules.against(node, node.node.unschedulable).is_none()
        };
        let mut seen = BTreeSet::new();
        for (key, to) in &outlook.fit.places {
            let (pod, node) = (by_key[key], node_of(to));
            prop_assert!(suits(pod, node) && seen.insert(key));
            let (cpu, count) = used.entry(&node.node.name).or_default();
            (*cpu, *count) = (*cpu + pod.wants.cpu, *count + 1);
            prop_assert!(*cpu <= node.offers.cpu || pod.wants.cpu == 0, "{to} is over its CPU");
            prop_assert!(*count <= node.pods, "{to} has too many pods");
        }
        for key in outlook.fit.misfits.iter().flat_map(|misfit| &misfit.pods) {
            prop_assert!(seen.insert(key));
            for node in cluster.nodes.iter().filter(|node| suits(by_key[key], node)) {
                let (cpu, count) = used.get(&*node.node.name).copied().unwrap_or_default();
                let wants = by_key[key].wants.cpu;
                let lacks_cpu = wants > 0 && cpu + wants > node.offers.cpu;
                prop_assert!(lacks_cpu || count + 1 > node.pods, "{key} fits on {}", node.node.name);
            }
        }
        let leaving = cluster.pods.iter().filter(|pod| drained.contains(&&*pod.pod.node)).count();
        prop_assert_eq!(seen.len(), leaving);
        prop_assert_eq!(outlook.pods(), leaving);
    }

    /// The order is the controller's: asked for the next wave when the last is empty, it gives the same.
    #[test]
    fn the_order_is_that_of_the_controller((nodes, pods, drained, limit) in drawn()) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
        let objects = names.iter().map(|name| node(name, "4")).collect();
        let pods = pods.iter().enumerate().map(|(number, (on, ..))| pod(&format!("p{number}"), &names[on % names.len()]));
        let cluster = cluster(objects, pods.collect(), vec![]);
        let mut new = maintenance("new", &names.iter().take(drained).map(String::as_str).collect::<Vec<_>>());
        new["spec"]["drainLimit"] = json!({"maxNodes": limit + 1});
        let new = read_maintenance(new);
        let outlook = outlook(&new, &cluster, now());
        let mut candidates: Vec<Candidate> = names
            .iter()
            .take(drained)
            .map(|name| Candidate {
                name: name.as_str().into(),
                domain: String::new(),
                is_taken: false,
                pods: u32::try_from(cluster.pods.iter().filter(|pod| *pod.pod.node == **name).count()).unwrap(),
            })
            .collect();
        for wave in &outlook.waves {
            let next = waves::next(new.limit.as_ref().unwrap(), &candidates);
            prop_assert_eq!(&next, &wave.iter().map(|stop| stop.node.clone()).collect::<Vec<_>>());
            for node in candidates.iter_mut().filter(|node| next.contains(&node.name)) {
                (node.is_taken, node.pods) = (true, 0);
            }
        }
        prop_assert!(candidates.iter().all(|node| node.is_taken));
    }
}
