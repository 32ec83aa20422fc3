//! HorizontalPodAutoscalers over Deployments. There is no load here, so that they keep their limits and nothing else, as the real
//! controller does where it gets no metrics.

use serde_json::json;

use crate::plan::{Action, Plan};
use crate::status;
use crate::view::{Resource, View};
use embedded_apiserver::Key;

pub(crate) fn decide(view: &View, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(autoscaler) = view.autoscalers.get(key).filter(|it| !it.is_deleting()) else { return plan };
    let target = &autoscaler.spec.scale_target_ref;
    let deployment = view.deployments.get(&Key::new(&key.namespace, &target.name));
    let Some(deployment) = deployment.filter(|_| target.kind == "Deployment") else { return plan };
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let (least, most) = (autoscaler.spec.min_replicas.unwrap_or(1), autoscaler.spec.max_replicas);
    // Scaled to nothing by hand, it is left alone.
    let wanted = if replicas == 0 { 0 } else { replicas.max(least).min(most.max(least)) };
    if wanted != replicas {
        let patch = json!({"spec": {"replicas": wanted}});
        plan.act(Action::patch(Resource::Deployments, &deployment.metadata, patch));
    }
    let observed = json!({
        "observedGeneration": autoscaler.metadata.generation, "currentReplicas": replicas, "desiredReplicas": wanted,
    });
    if let Some(new) = status::difference(&autoscaler.status, observed) {
        plan.act(Action::status(Resource::Autoscalers, &autoscaler.metadata, new));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::view;

    fn scaled(replicas: i64, least: i64, most: i64) -> Option<i64> {
        let deployment = json!({
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d"}, "spec": {"replicas": replicas},
        });
        let autoscaler = json!({
            "kind": "HorizontalPodAutoscaler", "metadata": {"name": "hpa", "namespace": "default", "uid": "h", "generation": 2},
            "spec": {"minReplicas": least, "maxReplicas": most, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        });
        let plan = decide(&view(&[deployment, autoscaler]), &Key::new("default", "hpa"));
        let observes = |action: &Action| matches!(action, Action::Patch { subresource: Some("status"), patch, .. } if patch["status"]["observedGeneration"] == 2);
        assert!(plan.actions.iter().any(observes));
        plan.actions.iter().find_map(|action| match action {
            Action::Patch { subresource: None, patch, .. } => patch["spec"]["replicas"].as_i64(),
            _ => None,
        })
    }

    #[test]
    fn an_autoscaler_keeps_its_limits() {
        for (replicas, least, most, wanted) in
            [(1, 2, 5, Some(2)), (7, 2, 5, Some(5)), (3, 2, 5, None), (0, 2, 5, None)]
        {
            assert_eq!(scaled(replicas, least, most), wanted, "{replicas} within {least} and {most}");
        }
    }
}
