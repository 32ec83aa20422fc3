//! Twenty users of few rights, and what each of them may know.

use serde_json::{Value, json};

use super::common::Scene;

/// Parts of names and values that are told to nobody who may not read where they stand.
pub const IN_SECRETS: &str = "marker-of-the-secrets";
pub const IN_ENVIRONMENTS: &str = "marker-of-the-environments";
pub const IN_NODE_LABELS: &str = "marker-of-the-node-labels";
pub const IN_NODE_NAMES: &str = "marker-of-the-node-names";
pub const MARKERS: [&str; 4] = [IN_SECRETS, IN_ENVIRONMENTS, IN_NODE_LABELS, IN_NODE_NAMES];

/// The administrator's, whose pods are on the nodes that are maintained.
pub const SHOP: &str = "shop";
/// Whoever has budgets may hold up a drain by them, as Kubernetes wants it: its pods are elsewhere.
pub const BUDGETS: &str = "budgets";
/// These two, and those of tenants, who have pods on the same nodes as the administrator.
pub const NAMESPACES: [&str; 6] = [SHOP, BUDGETS, "t0", "t1", "t2", "t3"];
/// The nodes that are maintained, and one beside them.
pub const RACK: [&str; 2] = ["rack-1-marker-of-the-node-names", "rack-2-marker-of-the-node-names"];
pub const EDGE: &str = "edge-1";

#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    /// Where he has something to say, if anywhere.
    pub namespace: &'static str,
    pub may_read: Vec<&'static str>,
}

impl User {
    /// What of the answer he may not know, and has not said himself.
    pub fn learns(&self, answer: &str, said: &str) -> Option<&'static str> {
        let is_new = |marker: &&str| !self.may_read.contains(marker) && !said.contains(marker);
        MARKERS.into_iter().filter(is_new).find(|marker| answer.contains(marker))
    }
}

const EVICTIONS: &str = "evictionrequest.coordination.k8s.io";
const MAINTENANCES: &str = "nodemaintenance.k8s.io";

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn named(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names})
}

/// A user for each line: a name, where (nowhere is everywhere in the cluster), what he may do, and read.
fn lines() -> Vec<(&'static str, &'static str, Vec<Value>, Vec<&'static str>)> {
    let everything = ["get", "list", "create", "update", "patch", "delete", "deletecollection"];
    let requests = rule(EVICTIONS, &["evictionrequests", "evictionrequests/status"], &everything);
    let pods = rule("", &["pods", "pods/status"], &everything);
    let ask = named(EVICTIONS, &["requesters"], &["use"], &["tenant.example.com"]);
    let answer = named(EVICTIONS, &["interceptorclasses"], &["intercept"], &["c0.example.com"]);
    let events = rule("", &["events"], &["get", "list"]);
    let owner = vec![pods.clone(), requests.clone(), ask, answer.clone(), events.clone()];
    let budgets = rule("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"], &everything);
    let status = rule(EVICTIONS, &["evictionrequests/status"], &["get", "update", "patch"]);
    let deletes = rule("", &["pods"], &["delete"]);
    let maintenances = rule(MAINTENANCES, &["nodemaintenances", "nodemaintenances/status"], &everything);
    let knows_nodes = vec![IN_NODE_NAMES];
    vec![
        // His own pods tell him where they are.
        ("owner", "t0", owner.clone(), knows_nodes.clone()),
        ("owner", "t1", owner.clone(), knows_nodes.clone()),
        ("owner", "t2", owner.clone(), knows_nodes.clone()),
        ("owner", "t3", owner.clone(), knows_nodes.clone()),
        ("owner", BUDGETS, [owner, vec![budgets.clone()]].concat(), knows_nodes.clone()),
        ("budgets-only", BUDGETS, vec![budgets], vec![]),
        ("writes-requests", SHOP, vec![requests.clone()], vec![]),
        ("writes-requests-too", SHOP, vec![requests.clone()], vec![]),
        ("writes-requests", "t0", vec![requests], vec![]),
        ("writes-status", SHOP, vec![status.clone()], vec![]),
        // The answer to a deletion is the pod.
        ("interceptor", "t1", vec![status.clone(), deletes.clone(), answer.clone()], knows_nodes.clone()),
        ("interceptor", "t2", vec![status, deletes, answer], knows_nodes.clone()),
        (
            "writes-pods-and-autoscalers",
            SHOP,
            vec![
                rule("", &["pods"], &["create"]),
                rule("autoscaling", &["horizontalpodautoscalers"], &everything),
            ],
            vec![],
        ),
        // The scheduler's events tell where pods are.
        (
            "reads",
            SHOP,
            vec![rule(EVICTIONS, &["evictionrequests"], &["get", "list"]), events],
            knows_nodes.clone(),
        ),
        ("maintains", "", vec![maintenances.clone()], knows_nodes.clone()),
        ("maintains-too", "", vec![maintenances], knows_nodes.clone()),
        (
            "maintenance-status",
            "",
            vec![rule(MAINTENANCES, &["nodemaintenances/status"], &["get", "patch"])],
            knows_nodes,
        ),
        ("edge", "", vec![named("", &["nodes", "nodes/status"], &["get", "patch"], &[EDGE])], vec![]),
        (
            "rack",
            "",
            vec![named("", &["nodes"], &["get", "patch"], &RACK)],
            vec![IN_NODE_NAMES, IN_NODE_LABELS],
        ),
        ("nobody", "", vec![], vec![]),
    ]
}

/// Gives them their rights.
pub async fn create(scene: &Scene) -> Vec<User> {
    let mut users = Vec::new();
    let mut objects = Vec::new();
    let group = "rbac.authorization.k8s.io";
    for (name, namespace, rules, may_read) in lines() {
        let name = format!("{name}-{}", if namespace.is_empty() { "cluster" } else { namespace });
        let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        let mut binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        });
        if !namespace.is_empty() {
            binding["metadata"]["namespace"] = namespace.into();
        }
        objects.push(json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        }));
        objects.push(binding);
        users.push(User { name, namespace, may_read });
    }
    scene
        .kubectl(&["create", "-f", "-"], Some(&json!({"apiVersion": "v1", "kind": "List", "items": objects})))
        .await;
    users
}
