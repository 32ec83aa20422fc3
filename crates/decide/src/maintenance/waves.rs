//! Which nodes are drained at once, where a maintenance limits that.

use std::collections::BTreeMap;
use std::sync::Arc;

use usher_api::DrainLimit;

/// A node of the maintenance.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub name: Arc<str>,
    /// The value of the label by which the limit is counted; empty without one.
    pub domain: String,
    /// It belongs to this wave, or an earlier one.
    pub is_taken: bool,
    pub pods: u32,
}

/// The nodes of the next wave, if its time has come: no pod is left on those of the last. Nodes with the fewest pods
/// come first: they are ready soonest.
pub fn next(limit: &DrainLimit, nodes: &[Candidate]) -> Vec<Arc<str>> {
    if nodes.iter().any(|node| node.is_taken && node.pods > 0) {
        return Vec::new();
    }
    let lines = lines(limit, nodes).into_iter();
    lines.flat_map(|(at_once, line)| line.into_iter().take(at_once)).map(|node| node.name.clone()).collect()
}

/// All waves that are still to come, if every node is empty when the next one is taken.
pub fn all(limit: &DrainLimit, nodes: &[Candidate]) -> Vec<Vec<Arc<str>>> {
    let mut waves: Vec<Vec<Arc<str>>> = Vec::new();
    for (at_once, line) in lines(limit, nodes) {
        for (number, wave) in line.chunks(at_once).enumerate() {
            if waves.len() == number {
                waves.push(Vec::new());
            }
            waves[number].extend(wave.iter().map(|node| node.name.clone()));
        }
    }
    waves
}

/// For each domain: how many of its nodes go at once, and the waiting ones in their order.
fn lines<'a>(limit: &DrainLimit, nodes: &'a [Candidate]) -> Vec<(usize, Vec<&'a Candidate>)> {
    let mut domains: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for node in nodes {
        domains.entry(&node.domain).or_default().push(node);
    }
    let line = |nodes: Vec<&'a Candidate>| {
        let at_once = limit.of(nodes.len());
        let mut waiting: Vec<&Candidate> = nodes.into_iter().filter(|node| !node.is_taken).collect();
        waiting.sort_by(|a, b| (a.pods, &a.name).cmp(&(b.pods, &b.name)));
        (at_once, waiting)
    };
    domains.into_values().map(line).collect()
}

/// How many waves are still to come, with the present one.
pub fn left(limit: &DrainLimit, nodes: &[Candidate]) -> usize {
    let mut domains: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for node in nodes {
        let (all, waiting) = domains.entry(&node.domain).or_default();
        *all += 1;
        *waiting += usize::from(!node.is_taken);
    }
    let to_come = domains.values().map(|(all, waiting)| waiting.div_ceil(limit.of(*all))).max();
    to_come.unwrap_or(0) + usize::from(nodes.iter().any(|node| node.is_taken && node.pods > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use proptest::strategy::Strategy as _;

    fn node(name: &str, domain: &str, is_taken: bool, pods: u32) -> Candidate {
        Candidate { name: name.into(), domain: domain.into(), is_taken, pods }
    }

    fn limit(max_nodes: IntOrString) -> DrainLimit {
        DrainLimit { max_nodes, topology_key: String::new() }
    }

    #[test]
    fn a_wave_starts_when_the_last_one_is_drained_with_the_emptiest_nodes_of_each_domain() {
        let two = limit(IntOrString::Int(2));
        let nodes = [
            node("a", "", false, 9),
            node("b", "", false, 1),
            node("c", "", false, 5),
            node("d", "", false, 5),
        ];
        assert_eq!(next(&two, &nodes), ["b".into(), "c".into()] as [Arc<str>; 2]);
        let mut taken = nodes.clone();
        taken[1].is_taken = true;
        assert!(next(&two, &taken).is_empty(), "b has a pod left");
        taken[1].pods = 0;
        assert_eq!(next(&two, &taken), ["c".into(), "d".into()] as [Arc<str>; 2]);
        assert_eq!((left(&two, &nodes), left(&two, &taken)), (2, 2));
        taken[1].pods = 1;
        assert_eq!(left(&two, &taken), 3, "the present one, and two more");
        let zones = [node("a", "x", false, 1), node("b", "x", false, 2), node("c", "y", false, 3)];
        let one = limit(IntOrString::String("50%".into()));
        assert_eq!(next(&one, &zones), ["a".into(), "c".into()] as [Arc<str>; 2]);
        assert_eq!(left(&one, &zones), 2, "zones go side by side");
    }
    proptest::proptest! {
        /// Wave after wave, with every node empty in time, is the same as all at once.
        #[test]
        fn all_waves_are_the_next_ones_one_by_one(
            nodes in proptest::collection::vec((0..4_u8, 0..3_u32, proptest::bool::weighted(0.1)), 0..40),
            max_nodes in proptest::prop_oneof![
                (1..6_i32).prop_map(IntOrString::Int),
                (1..100_u8).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
            ],
        ) {
            let limit = limit(max_nodes);
            let mut nodes: Vec<Candidate> = nodes
                .into_iter()
                .enumerate()
                .map(|(number, (domain, pods, is_taken))| {
                    node(&format!("n{number}"), &domain.to_string(), is_taken, if is_taken { 0 } else { pods })
                })
                .collect();
            let planned = all(&limit, &nodes);
            for wave in &planned {
                proptest::prop_assert_eq!(&next(&limit, &nodes), wave);
                for node in nodes.iter_mut().filter(|node| wave.contains(&node.name)) {
                    (node.is_taken, node.pods) = (true, 0);
                }
            }
            proptest::prop_assert!(next(&limit, &nodes).is_empty());
        }
    }
}
