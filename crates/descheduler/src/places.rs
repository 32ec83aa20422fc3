//! Places that others were to have, and that are not free after all.

use crate::Proposal;
use crate::policy::Limits;

/// Where a pod counts against the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub namespace: String,
    /// None if it is on no node, or nobody knows on which.
    pub node: Option<String>,
}

/// The proposals that have to wait because these places were counted as free and are not: the last ones that would have had them. Without
/// a limit nobody has to.
pub fn without_place<'a>(proposals: &[&'a Proposal], lost: &[Place], limits: Limits) -> Vec<&'a Proposal> {
    let mut rest = proposals.to_vec();
    let mut waiting = Vec::new();
    for place in lost {
        let of_node = |it: &Proposal| place.node.as_ref().is_none_or(|node| it.pod.node == *node);
        let of_namespace = |it: &Proposal| it.pod.namespace == place.namespace;
        // One that has the place by every limit frees it by every limit.
        let mut needs = [limits.per_node.is_some(), limits.per_namespace.is_some(), limits.total.is_some()];
        while needs.contains(&true) {
            let frees = |it: &Proposal| [of_node(it), of_namespace(it), true];
            let count = |it: &Proposal| {
                needs.iter().zip(frees(it)).filter(|(needs, frees)| **needs && *frees).count()
            };
            let best = (0..rest.len()).max_by_key(|index| (count(rest[*index]), *index));
            let Some(best) = best.filter(|index| count(rest[*index]) > 0) else {
                break;
            };
            let one = rest.remove(best);
            for (needs, frees) in needs.iter_mut().zip(frees(one)) {
                *needs &= !frees;
            }
            waiting.push(one);
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PodRef, Reason};
    use crate::policy::PluginName;

    fn proposal(name: &str) -> Proposal {
        let (namespace, node) = name.split_once('/').unwrap();
        Proposal {
            pod: PodRef {
                namespace: namespace.into(),
                name: name.into(),
                uid: name.into(),
                node: node.into(),
            },
            profile: "p".into(),
            plugin: PluginName::RemoveFailedPods,
            reason: Reason::Failed { reason: None },
            fits_on: None,
            owner: None,
        }
    }

    #[test]
    fn a_place_that_is_not_free_after_all_is_taken_from_those_who_would_have_had_it() {
        let proposals = ["x/a", "y/a", "x/b", "y/b"].map(proposal);
        let proposals: Vec<&Proposal> = proposals.iter().collect();
        let none = Limits::default();
        let (of_node, of_namespace, in_all) = (
            Limits { per_node: Some(2), ..none },
            Limits { per_namespace: Some(2), ..none },
            Limits { total: Some(4), ..none },
        );
        let waiting = |lost: &[(&str, Option<&str>)], limits: Limits| {
            let place = |(namespace, node): &(&str, Option<&str>)| Place {
                namespace: (*namespace).to_owned(),
                node: node.map(str::to_owned),
            };
            let lost: Vec<Place> = lost.iter().map(place).collect();
            let waiting = without_place(&proposals, &lost, limits);
            waiting.into_iter().map(|it| it.pod.name.clone()).collect::<Vec<_>>()
        };
        let nobody: [&str; 0] = [];
        assert_eq!(waiting(&[("x", Some("a"))], none), nobody, "there is no limit");
        assert_eq!(waiting(&[("x", Some("a"))], of_node), ["y/a"]);
        assert_eq!(waiting(&[("x", Some("c"))], of_node), nobody, "it was of another node");
        assert_eq!(waiting(&[("x", Some("a"))], of_namespace), ["x/b"]);
        assert_eq!(waiting(&[("z", Some("c"))], in_all), ["y/b"]);
        assert_eq!(waiting(&[("z", Some("c")), ("z", Some("c"))], in_all), ["y/b", "x/b"]);
        assert_eq!(
            waiting(&[("x", Some("a"))], Limits { total: Some(4), per_namespace: Some(2), ..of_node }),
            ["x/a"]
        );
        // One of the node and one of the namespace, where none is of both.
        assert_eq!(waiting(&[("z", Some("a"))], Limits { total: Some(4), ..of_node }), ["y/a"]);
        assert_eq!(waiting(&[("z", None)], of_node), ["y/b"], "it may have been any node");
    }
}
