//! Claims are bound at once, each to a volume made for it: storage is never what a workload waits for here.

use serde_json::json;

use crate::plan::{Action, Plan};
use crate::view::{Resource, View};
use embedded_apiserver::Key;

pub(crate) fn decide(view: &View, key: &Key) -> Plan {
    let mut plan = Plan::nothing();
    let Some(claim) = view.claims.get(key).filter(|claim| !claim.is_deleting()) else { return plan };
    let (meta, spec) = (&claim.metadata, &claim.spec);
    let volume = format!("pvc-{}", meta.uid);
    // A claim that names a volume itself is somebody else's.
    if claim.status.phase == "Bound" || ![String::new(), volume.clone()].contains(&spec.volume_name) {
        return plan;
    }
    let capacity = json!({"storage": spec.resources["requests"]["storage"]});
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "capacity": capacity, "accessModes": spec.access_modes, "volumeMode": spec.volume_mode,
            "storageClassName": spec.storage_class_name, "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": format!("/var/lib/volumes/{volume}")},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name,
                "uid": meta.uid,
            },
        },
    });
    plan.act(Action::Ensure { resource: Resource::Volumes, namespace: String::new(), object });
    plan.act(Action::patch(Resource::Claims, meta, json!({"spec": {"volumeName": volume}})));
    let bound = json!({"phase": "Bound", "accessModes": spec.access_modes, "capacity": capacity});
    plan.act(Action::status(Resource::Claims, meta, bound));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{set_status, view};

    #[test]
    fn a_claim_gets_a_volume_of_its_own_once() {
        let mut claim = json!({
            "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"},
        });
        let plan =
            |claim: &serde_json::Value| decide(&view(std::slice::from_ref(claim)), &Key::new("default", "c"));
        let bound = plan(&claim);
        assert_eq!((bound.actions.len(), set_status(&bound)["phase"].as_str()), (3, Some("Bound")));
        claim["status"]["phase"] = "Bound".into();
        assert_eq!(plan(&claim), Plan::nothing());
    }
}
