//! The workload controllers, as kube-controller-manager runs them. Each is a pure function from the view to a plan.

pub(crate) mod adoption;
pub(crate) mod autoscaler;
pub(crate) mod claims;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod disruption;
pub(crate) mod job;
pub(crate) mod node_lifecycle;
pub(crate) mod pod_gc;
pub(crate) mod replica_set;
pub(crate) mod revisions;
pub(crate) mod stateful_set;
pub(crate) mod taint_eviction;
#[cfg(test)]
pub(crate) mod testing;

use serde_json::{Value, json};

use super::view::{Meta, Pod};
use jiff::Timestamp;

/// Creates or deletes that one decision may ask for; the rest follows in the next.
pub(crate) const BURST: usize = 500;

/// The reference by which a controller owns what it makes.
pub(crate) fn owned_by(api_version: &str, kind: &str, owner: &Meta) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A pod as the template says; its name is the server's to find, unless the caller sets one.
pub(crate) fn pod_from(template: &Value, owner: &Meta, owners: Value) -> Value {
    let mut metadata = json!({"generateName": format!("{}-", owner.name), "ownerReferences": owners});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// A short name for a template: the same template always gets the same one.
pub(crate) fn hash_of(template: &Value) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a: stable across versions and machines, unlike the hashers of the standard library.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in template.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (0..10).map(|place| ALPHABET[(hash >> (place * 6)) as usize % ALPHABET.len()] as char).collect()
}

/// Whether the pod is available now; where it only has to stay ready for a while, `recheck` learns until when.
pub(crate) fn is_available(
    pod: &Pod,
    min_ready: i64,
    now: Timestamp,
    mut recheck: impl FnMut(Timestamp),
) -> bool {
    match pod.available_from(min_ready) {
        Some(from) if min_ready <= 0 || from <= now => true,
        Some(from) => {
            recheck(from);
            false
        }
        None => false,
    }
}
