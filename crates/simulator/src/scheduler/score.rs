//! Which of the nodes that will do is the best.
//!
//! Each view of the matter gives 0 to 100, and they are added with the weights that kube-scheduler gives them.

use super::fit::{Guest, term_matches, tolerates};
use super::neighbours::Neighbours;
use super::spread::Spreading;
use crate::view::{Node, NodeInfo, Requests};

/// What a pod that asks for nothing counts as when nodes are compared.
const USUAL: Requests = Requests { cpu: 100, memory: 200 << 20 };

/// The best one: the highest score, then the fewest pods, then the first.
pub(super) fn best<'a>(
    guest: &Guest<'_>,
    neighbours: &Neighbours<'_>,
    spreading: &Spreading<'_>,
    nodes: &[&'a NodeInfo],
) -> Option<&'a NodeInfo> {
    let mut scores: Vec<i64> = nodes.iter().map(|node_info| room(node_info, guest.wants)).collect();
    let mut add = |weight: i64, more: Vec<i64>| {
        scores.iter_mut().zip(more).for_each(|(score, more)| *score += weight * more);
    };
    if nodes.iter().any(|node_info| !node_info.is_open) {
        let unwelcome = nodes.iter().map(|node_info| unwelcome(guest, &node_info.node)).collect();
        add(3, few_is_good(unwelcome));
    }
    if !guest.pod.spec.affinity.node_affinity.preferred.is_empty() {
        add(2, many_is_good(nodes.iter().map(|node_info| preferred(guest, &node_info.node)).collect()));
    }
    if spreading.has_preferences() {
        add(2, evenness(&spreading.raw_scores(nodes)));
    }
    if neighbours.have_likes() {
        add(
            2,
            between(&nodes.iter().map(|node_info| neighbours.liking(&node_info.node)).collect::<Vec<_>>()),
        );
    }
    let mut best: Option<((i64, i64), &NodeInfo)> = None;
    for (score, node_info) in scores.into_iter().zip(nodes) {
        let rank = (score, -node_info.used.pods);
        if best.as_ref().is_none_or(|(most, _)| rank > *most) {
            best = Some((rank, node_info));
        }
    }
    best.map(|(_, node_info)| node_info)
}

/// How much of the node would be left, in hundredths, the mean of CPU and memory.
fn room(node_info: &NodeInfo, wants: Requests) -> i64 {
    let (has, used) = (node_info.has.requests, node_info.used.requests);
    let or_usual = |given: i64, usual: i64| if given == 0 { usual } else { given };
    let free = |has: i64, used: i64, wants: i64| {
        if has <= 0 { 0 } else { (has - used - wants).max(0).saturating_mul(100) / has }
    };
    let cpu = free(has.cpu, used.cpu, or_usual(wants.cpu, USUAL.cpu));
    let memory = free(has.memory, used.memory, or_usual(wants.memory, USUAL.memory));
    (cpu + memory) / 2
}

/// Taints that would rather not have the pod.
fn unwelcome(guest: &Guest<'_>, node: &Node) -> i64 {
    let soft = node.spec.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| !tolerates(&guest.pod.spec.tolerations, taint)).count() as i64
}

fn preferred(guest: &Guest<'_>, node: &Node) -> i64 {
    let terms = guest.pod.spec.affinity.node_affinity.preferred.iter();
    terms.filter(|term| term_matches(&term.preference, node)).map(|term| term.weight).sum()
}

fn many_is_good(values: Vec<i64>) -> Vec<i64> {
    let most = values.iter().copied().max().unwrap_or_default();
    values.into_iter().map(|value| if most == 0 { 0 } else { value * 100 / most }).collect()
}

fn few_is_good(values: Vec<i64>) -> Vec<i64> {
    many_is_good(values).into_iter().map(|value| 100 - value).collect()
}

/// From the worst to the best.
fn between(values: &[i64]) -> Vec<i64> {
    let least = values.iter().copied().min().unwrap_or_default();
    let range = values.iter().copied().max().unwrap_or_default() - least;
    values.iter().map(|value| if range == 0 { 0 } else { (value - least) * 100 / range }).collect()
}

/// The less crowded the better; nothing for nodes that the constraints do not know.
fn evenness(crowding: &[Option<i64>]) -> Vec<i64> {
    let known = || crowding.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or_default(), known().max().unwrap_or_default());
    let one = |pod_group: &Option<i64>| match pod_group {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(pod_group) => 100 * (most + least - pod_group) / most,
    };
    crowding.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_gives_nought_to_a_hundred() {
        assert_eq!(many_is_good(vec![0, 5, 10]), [0, 50, 100]);
        assert_eq!(few_is_good(vec![0, 1]), [100, 0]);
        assert_eq!(between(&[-10, 0, 10]), [0, 50, 100]);
        assert_eq!(between(&[7, 7]), [0, 0]);
        assert_eq!(evenness(&[Some(2), Some(4), None]), [100, 50, 0]);
        assert_eq!(evenness(&[Some(0), Some(0)]), [100, 100]);
    }
}
