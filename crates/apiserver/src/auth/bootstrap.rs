//! The cluster roles and bindings that a fresh cluster has, for the kinds served here.

use serde_json::{Value, json};

use super::rbac::resolve_cluster_roles;
use super::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

/// A rule about resources: verbs, groups, resources.
type Rule = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const AGGREGATE_TO_ADMIN: &[Rule] = &[
    (CREATE, &["authorization.k8s.io"], &["localsubjectaccessreviews"]),
    (ALL, &["rbac.authorization.k8s.io"], &["rolebindings", "roles"]),
];

const AGGREGATE_TO_EDIT: &[Rule] = &[
    (
        READ,
        &[""],
        &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"],
    ),
    (&["impersonate"], &[""], &["serviceaccounts"]),
    (WRITE, &[""], &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]),
    (CREATE, &[""], &["pods/eviction"]),
    (
        WRITE,
        &[""],
        &[
            "configmaps",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
    ),
    (CREATE, &[""], &["serviceaccounts/token"]),
    (WRITE, &["", "events.k8s.io"], &["events"]),
    (
        WRITE,
        &["apps"],
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
    ),
    (WRITE, &["autoscaling"], &["horizontalpodautoscalers"]),
    (WRITE, &["batch"], &["cronjobs", "jobs"]),
    (WRITE, &["policy"], &["poddisruptionbudgets"]),
    (WRITE, &["networking.k8s.io"], &["ingresses", "networkpolicies"]),
    (ALL, &["coordination.k8s.io"], &["leases"]),
    (WRITE, &["resource.k8s.io"], &["resourceclaims", "resourceclaimtemplates"]),
];

const AGGREGATE_TO_VIEW: &[Rule] = &[
    (
        READ,
        &[""],
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    (
        READ,
        &[""],
        &[
            "bindings",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
    ),
    (READ, &[""], &["namespaces"]),
    (READ, &["", "events.k8s.io"], &["events"]),
    (READ, &["discovery.k8s.io"], &["endpointslices"]),
    (
        READ,
        &["apps"],
        &[
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    (READ, &["autoscaling"], &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
    (READ, &["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
    (READ, &["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    (READ, &["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"]),
    (READ, &["resource.k8s.io"], &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
];

const AUTH_DELEGATOR: &[Rule] = &[
    (CREATE, &["authentication.k8s.io"], &["tokenreviews"]),
    (CREATE, &["authorization.k8s.io"], &["subjectaccessreviews"]),
];

const BASIC_USER: &[Rule] = &[
    (CREATE, &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
    (CREATE, &["authentication.k8s.io"], &["selfsubjectreviews"]),
];

const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

const PUBLIC_INFO: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// All of them, complete but for what the server adds to every object (uid, creationTimestamp, ...). The
/// aggregated roles already hold the rules that they aggregate.
pub(crate) fn bootstrap_objects() -> Vec<Value> {
    let everything = json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    let mut objects = vec![
        role("cluster-admin", everything),
        aggregated("admin", "admin", None),
        aggregated("edit", "edit", Some("admin")),
        aggregated("view", "view", Some("edit")),
        part("admin", AGGREGATE_TO_ADMIN),
        part("edit", AGGREGATE_TO_EDIT),
        part("view", AGGREGATE_TO_VIEW),
        role("system:auth-delegator", rules(AUTH_DELEGATOR)),
        role("system:basic-user", rules(BASIC_USER)),
        role("system:discovery", paths(DISCOVERY)),
        role("system:public-info-viewer", paths(PUBLIC_INFO)),
    ];
    let resolved = resolve_cluster_roles(&objects);
    for object in &mut objects {
        if object.get("aggregationRule").is_some()
            && let Some(rules) = object["metadata"]["name"].as_str().and_then(|name| resolved.get(name))
        {
            object["rules"] = json!(rules.as_ref());
        }
    }
    objects.extend([
        binding("cluster-admin", &[MASTERS]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]);
    objects
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata(name), "rules": rules})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn aggregation_label(to: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{to}")
}

/// A role that gathers the roles labelled for `from`, and is itself labelled for `to`.
fn aggregated(name: &str, from: &str, to: Option<&str>) -> Value {
    let mut object = role(name, Value::Null);
    object["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {aggregation_label(from): "true"}}]});
    if let Some(to) = to {
        object["metadata"]["labels"][aggregation_label(to)] = "true".into();
    }
    object
}

fn part(of: &str, table: &[Rule]) -> Value {
    let mut object = role(&format!("system:aggregate-to-{of}"), rules(table));
    object["metadata"]["labels"][aggregation_label(of)] = "true".into();
    object
}

fn rules(table: &[Rule]) -> Value {
    table
        .iter()
        .map(
            |(verbs, groups, resources)| json!({"verbs": verbs, "apiGroups": groups, "resources": resources}),
        )
        .collect()
}

fn paths(paths: &[&str]) -> Value {
    json!([{"verbs": ["get"], "nonResourceURLs": paths}])
}

fn binding(name: &str, groups: &[&str]) -> Value {
    let group = "rbac.authorization.k8s.io";
    let subjects: Vec<Value> =
        groups.iter().map(|name| json!({"kind": "Group", "apiGroup": group, "name": name})).collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata(name),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": subjects})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attributes, User};
    use crate::auth::Rbac;

    fn may(role: &str, verb: &str, group: &str, resource: &str, subresource: &str) -> bool {
        let objects = bootstrap_objects();
        let bound = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "u"}]});
        let roles = objects.iter().filter(|o| o["kind"] == "ClusterRole");
        let attributes = Attributes {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: "default".into(),
            ..Default::default()
        };
        let user = User { name: "u".into(), ..Default::default() };
        Rbac::build([], [], roles, [&bound]).authorize(&user, &attributes).allowed
    }

    #[test]
    fn what_the_default_roles_may_do() {
        let cases = [
            ("view reads pods", "view", "list", "", "pods", "", true),
            ("view does not read secrets", "view", "get", "", "secrets", "", false),
            ("view does not write", "view", "delete", "", "pods", "", false),
            ("view does not read roles", "view", "get", "rbac.authorization.k8s.io", "roles", "", false),
            ("edit evicts pods", "edit", "create", "", "pods", "eviction", true),
            ("edit reads what view reads", "edit", "list", "apps", "deployments", "", true),
            ("edit scales", "edit", "patch", "apps", "deployments", "scale", true),
            ("edit does not grant roles", "edit", "create", "rbac.authorization.k8s.io", "roles", "", false),
            ("edit does not touch nodes", "edit", "patch", "", "nodes", "", false),
            ("admin grants roles", "admin", "create", "rbac.authorization.k8s.io", "rolebindings", "", true),
            ("admin reads what view reads", "admin", "watch", "", "pods", "", true),
            ("cluster-admin drains nodes", "cluster-admin", "patch", "", "nodes", "", true),
            ("cluster-admin has every group", "cluster-admin", "x", "any.example.com", "things", "", true),
        ];
        for (rule, role, verb, group, resource, subresource, expected) in cases {
            assert_eq!(may(role, verb, group, resource, subresource), expected, "{rule}");
        }
    }

    #[test]
    fn aggregated_roles_come_with_their_rules() {
        for object in bootstrap_objects() {
            if object["kind"] == "ClusterRole" {
                assert!(!object["rules"].as_array().unwrap().is_empty(), "{}", object["metadata"]["name"]);
            }
        }
    }
}
