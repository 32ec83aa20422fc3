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
    let mut domains: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for node in nodes {
        domains.entry(&node.domain).or_default().push(node);
    }
    let mut wave = Vec::new();
    for (_, nodes) in domains {
        let at_once = limit.of(nodes.len());
        let mut waiting: Vec<&Candidate> = nodes.into_iter().filter(|node| !node.is_taken).collect();
        waiting.sort_by_key(|node| (node.pods, node.name.clone()));
        wave.extend(waiting.into_iter().take(at_once).map(|node| node.name.clone()));
    }
    wave
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
}
