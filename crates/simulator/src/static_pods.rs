//! Static pods: what a kubelet runs without being told by the API. For each it keeps a mirror pod, so that others see it;
//! deleting that one ends nothing, and it is made anew.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::controllers::{hash_of, owned_by};
use super::kubelet::MIRROR;
use super::plan::{Action, Plan, Target};
use super::view::{Node, Pod, Resource, View};
use embedded_apiserver::Key;
use embedded_apiserver::clock::rfc3339;

/// A pod that a node runs by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StaticPod {
    pub node: String,
    manifest: Value,
    hash: String,
}

/// Those of all nodes, by the names of their mirrors.
#[derive(Debug, Default)]
pub(crate) struct StaticPods(BTreeMap<Key, StaticPod>);

impl StaticPods {
    /// A node runs this pod from now on, instead of one of the same name. The key of its mirror.
    pub(crate) fn run(&mut self, node: &str, manifest: Value) -> Key {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
        let key = mirror_key(node, text("namespace"), text("name"));
        let hash = hash_of(&manifest);
        self.0.insert(key.clone(), StaticPod { node: node.to_string(), manifest, hash });
        key
    }

    pub(crate) fn end(&mut self, node: &str, namespace: &str, name: &str) -> Key {
        let key = mirror_key(node, namespace, name);
        self.0.remove(&key);
        key
    }

    pub(crate) fn get(&self, mirror: &Key) -> Option<&StaticPod> {
        self.0.get(mirror)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    pub(crate) fn on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Key> {
        self.0.iter().filter(move |(_, pod)| pod.node == node).map(|(key, _)| key)
    }
}

fn mirror_key(node: &str, namespace: &str, name: &str) -> Key {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    Key::new(namespace, &format!("{name}-{node}"))
}

/// There is one mirror for each static pod of a node that is there, and it tells of the pod as it is now.
pub(crate) fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let pod = view.pods.get(key);
    let Some(runs) = view.static_pods.get(key) else {
        plan.actions.extend(pod.filter(|pod| is_mirror(pod)).map(|pod| removal(pod)));
        return plan;
    };
    let Some(node) = view.nodes.get(&Key::new("", &runs.node)) else { return plan };
    match pod {
        None => plan.act(Action::create(Resource::Pods, &key.namespace, mirror(runs, node, key, now))),
        Some(pod) if pod.metadata.annotations.get(MIRROR) != Some(&runs.hash) => plan.act(removal(pod)),
        Some(_) => {}
    }
    plan
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(MIRROR)
}

fn removal(pod: &Pod) -> Action {
    Action::Delete { target: Target::of(Resource::Pods, &pod.metadata), grace: Some(0) }
}

fn mirror(of: &StaticPod, node: &Node, key: &Key, now: Timestamp) -> Value {
    let mut owners = owned_by("v1", "Node", &node.metadata);
    if let Some(owner) = owners[0].as_object_mut() {
        owner.remove("blockOwnerDeletion");
    }
    let mut pod = of.manifest.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = (&*key.name).into();
    pod["metadata"]["namespace"] = (&*key.namespace).into();
    pod["metadata"]["ownerReferences"] = owners;
    for (annotation, value) in [
        (MIRROR, of.hash.clone()),
        ("kubernetes.io/config.hash", of.hash.clone()),
        ("kubernetes.io/config.source", "file".to_string()),
        ("kubernetes.io/config.seen", rfc3339(now)),
    ] {
        pod["metadata"]["annotations"][annotation] = value.into();
    }
    pod["spec"]["nodeName"] = of.node.clone().into();
    // No taint drives off what the node runs by itself.
    let any = json!({"operator": "Exists", "effect": "NoExecute"});
    match &mut pod["spec"]["tolerations"] {
        Value::Array(tolerations) => tolerations.push(any),
        other => *other = json!([any]),
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, created, deleted, node, pod, view};

    fn manifest(image: &str) -> Value {
        json!({"metadata": {"name": "proxy"}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    fn plan(objects: &[Value], runs: Option<&str>) -> Plan {
        let mut view = view(objects);
        if let Some(image) = runs {
            assert_eq!(view.static_pods.run("n", manifest(image)), Key::new("default", "proxy-n"));
        }
        decide(&view, &Key::new("default", "proxy-n"), at(100))
    }

    fn made(image: &str) -> Value {
        let mut pod = pod("proxy-n", "n");
        pod["metadata"]["annotations"] = json!({MIRROR: hash_of(&manifest(image))});
        pod
    }

    #[test]
    fn a_static_pod_has_a_mirror_on_its_node() {
        let plan = plan(&[node("n")], Some("i:1"));
        let mirror = created(&plan)[0];
        assert_eq!(
            (&mirror["metadata"]["name"], &mirror["spec"]["nodeName"]),
            (&json!("proxy-n"), &json!("n"))
        );
        let owner = &mirror["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"], &owner["controller"]),
            (&json!("Node"), &json!("n"), &json!(true))
        );
        assert_eq!(mirror["spec"]["tolerations"], json!([{"operator": "Exists", "effect": "NoExecute"}]));
        assert!(mirror["metadata"]["annotations"][MIRROR].is_string());
    }

    #[test]
    fn a_mirror_goes_with_its_static_pod_or_when_it_tells_of_another() {
        assert_eq!(plan(&[node("n"), made("i:1")], Some("i:1")), Plan::nothing());
        assert_eq!(deleted(&plan(&[node("n"), made("i:1")], Some("i:2"))), ["proxy-n"]);
        assert_eq!(deleted(&plan(&[node("n"), made("i:1")], None)), ["proxy-n"]);
        assert_eq!(plan(&[node("n"), pod("proxy-n", "n")], None), Plan::nothing(), "it is no mirror");
        assert_eq!(plan(&[], Some("i:1")), Plan::nothing(), "there is no node yet");
    }
}
