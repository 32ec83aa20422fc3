//! The nodes of a control plane. They are played by kwok, and look like nodes of one size in several zones.

use crate::binaries::KUBERNETES_VERSION;
use crate::credentials::KWOK;
use serde_json::{Value, json};

/// Marks the nodes that kwok plays; nodes without it are left to their own kubelet.
pub(crate) const FAKE_NODE_ANNOTATION: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// What kwok does with nodes and pods: see the file.
pub(crate) const STAGES: &str = include_str!("stages.yaml");

/// kwok removes pods by name, and on a busy machine so late that it would hit the next pod of the name, which nobody has deleted.
pub(crate) fn removal_policy() -> [Value; 2] {
    let name = "kwok-removes-terminating-pods.testbed";
    let group = "admissionregistration.k8s.io/v1";
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]});
    let policy = json!({
        "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "kwok", "expression": format!("request.userInfo.username == '{KWOK}'")}],
            "validations": [{
                "expression": "has(oldObject.metadata.deletionTimestamp)",
                "message": "nobody has deleted this pod",
            }],
        },
    });
    let binding = json!({
        "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

/// Node number `number`, counted from 1.
pub(crate) fn fake_node(number: usize, zones: usize) -> Value {
    let name = format!("node-{number:04}");
    let zone = format!("zone-{}", (number - 1) % zones.max(1) + 1);
    let (high, low) = (number / 256 % 64, number % 256);
    let size = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"});
    let (annotation, value) = FAKE_NODE_ANNOTATION;
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {annotation: value},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "testbed.fake",
                "topology.kubernetes.io/region": "testbed",
                "topology.kubernetes.io/zone": zone,
            },
        },
        // A range per node, because kwok gives out pod addresses from it.
        "spec": {"podCIDR": format!("10.{}.{low}.0/24", 64 + high), "podCIDRs": [format!("10.{}.{low}.0/24", 64 + high)]},
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [
                {"type": "InternalIP", "address": format!("10.32.{high}.{low}")},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": KUBERNETES_VERSION,
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "fake://kwok",
                "osImage": "fake",
                "kernelVersion": "fake",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    })
}

/// Lists for `kubectl create`, of a size at which several run side by side.
pub(crate) fn node_lists(nodes: usize, zones: usize) -> Vec<String> {
    let numbers: Vec<usize> = (1..=nodes).collect();
    numbers
        .chunks(100)
        .map(|numbers| {
            let items: Vec<Value> = numbers.iter().map(|number| fake_node(*number, zones)).collect();
            json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nodes_take_turns_in_the_zones() {
        let zone = |number| fake_node(number, 3)["metadata"]["labels"]["topology.kubernetes.io/zone"].clone();
        assert_eq!([zone(1), zone(2), zone(3), zone(4)], ["zone-1", "zone-2", "zone-3", "zone-1"]);
    }

    #[test]
    fn no_two_of_five_thousand_nodes_share_a_name_or_address() {
        let nodes: Vec<Value> = (1..=5000).map(|number| fake_node(number, 3)).collect();
        for pointer in ["/metadata/name", "/spec/podCIDR", "/status/addresses/0/address"] {
            let values: BTreeSet<_> =
                nodes.iter().map(|node| node.pointer(pointer).unwrap().to_string()).collect();
            assert_eq!(values.len(), nodes.len(), "{pointer}");
        }
    }

    #[test]
    fn every_node_is_in_exactly_one_list() {
        let lists = node_lists(501, 3);
        assert_eq!(lists.len(), 6);
        assert_eq!(lists.concat().matches("\"kind\":\"Node\"").count(), 501);
        assert!(node_lists(0, 3).is_empty());
    }
}
