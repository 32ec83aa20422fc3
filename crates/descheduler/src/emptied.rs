//! Nodes that a plan empties: of no pod it is said that it fits there.

use crate::cycle::Cycle;

/// Names another node, or none, for pods that fit on nodes that are emptied. Those may have been chosen before it was known. Nothing is
/// decided by it: whether a pod leaves is settled, and the search goes by what all decisions leave of the room.
pub fn name_other_nodes(
    cycle: &mut Cycle<'_>,
    mut node_that_stays: impl FnMut(&Cycle<'_>, &str, u32) -> Option<u32>,
) {
    if cycle.emptied.is_empty() {
        return;
    }
    let cluster = cycle.cluster;
    let find = |node: &str| cluster.find_node(node);
    for index in 0..cycle.plan.proposals.len() {
        let proposal = &cycle.plan.proposals[index];
        let is_emptied =
            proposal.fits_on.as_deref().and_then(find).is_some_and(|it| cycle.emptied.contains(&it));
        let slot = cluster.find(&proposal.pod.namespace, &proposal.pod.name).filter(|_| is_emptied);
        let Some(slot) = slot else { continue };
        let node = node_that_stays(cycle, &proposal.profile, slot);
        cycle.expect(slot, node);
        let name = node.and_then(|node| Some(cluster.node(node)?.name.to_string()));
        for view in cycle.views.iter_mut().filter(|view| view.proposed && cycle.watched == Some(slot)) {
            view.fits_on.clone_from(&name);
        }
        cycle.plan.proposals[index].fits_on = name;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{cluster, node, now, plan_of, pod, policy_with};
    use crate::{Cluster, Explanation, InProgress, Plan, Policy, explain};

    fn sized(name: &str, node: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
        let resources = json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
        pod(
            name,
            node,
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}),
        )
    }

    /// Two nodes that are hardly used, in the order of names before one of so many CPUs that is.
    fn hardly_used(cpus: &str) -> Cluster {
        let size = json!({"status": {"allocatable": {"cpu": cpus, "memory": "8Gi", "pods": "10"}}});
        let nodes = vec![node("a", json!({})), node("b", json!({})), node("c", size)];
        cluster(nodes, vec![sized("on-a", "a", "500m"), sized("on-b", "b", "500m"), sized("on-c", "c", "2")])
    }

    fn emptying(evictor: Value, more: &[(&str, Value)]) -> Policy {
        let high = ("HighNodeUtilization", json!({"thresholds": {"cpu": 20}}));
        policy_with(json!({}), evictor, &[more, &[high]].concat())
    }

    fn places(plan: &Plan) -> Vec<(&str, Option<&str>)> {
        plan.proposals.iter().map(|it| (it.pod.name.as_str(), it.fits_on.as_deref())).collect()
    }

    #[test]
    fn no_pod_is_said_to_fit_on_a_node_that_the_same_plan_empties() {
        for evictor in [json!({}), json!({"nodeFit": true})] {
            let policy = emptying(evictor, &[]);
            let plan = plan_of(&hardly_used("4"), &policy);
            assert_eq!(places(&plan), [("on-a", Some("c")), ("on-b", Some("c"))]);
            // There is room for one of them, and for the other only where it is about to be emptied.
            let plan = plan_of(&hardly_used("2600m"), &policy);
            assert_eq!(places(&plan), [("on-a", Some("c")), ("on-b", None)]);
        }
    }

    #[test]
    fn who_was_proposed_before_is_not_said_to_fit_there_either() {
        let old = (
            "PodLifeTime",
            json!({"maxPodLifeTimeSeconds": 1, "labelSelector": {"matchLabels": {"old": "y"}}}),
        );
        let mut known = hardly_used("4");
        let mut on_c = sized("on-c", "c", "2");
        on_c.metadata.labels = Some([("old".to_owned(), "y".to_owned())].into());
        known.set_pod(&on_c);
        known.set_pod(&sized("more-on-c", "c", "1"));
        let plan = plan_of(&known, &emptying(json!({}), &[old]));
        assert_eq!(places(&plan), [("on-c", None), ("on-a", Some("c")), ("on-b", Some("c"))]);
    }

    #[test]
    fn the_explanation_of_a_pod_names_no_such_node_either() {
        let policy = emptying(json!({}), &[]);
        let told = explain(&hardly_used("4"), &policy, &InProgress::default(), now(), "default", "on-a");
        let Explanation::Pod { plugins, .. } = told else { panic!("{told:?}") };
        assert_eq!((plugins[0].proposed, plugins[0].fits_on.as_deref()), (true, Some("c")));
    }
}
