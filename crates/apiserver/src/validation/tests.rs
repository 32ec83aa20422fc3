//! The rules of built-in kinds that no recorded request breaks, each with the server's words.

use serde_json::{Value, json};

use super::*;
use crate::error::words;

fn meta() -> Value {
    json!({"name": "x", "namespace": "n", "resourceVersion": "1"})
}

fn patched(mut object: Value, patch: Value) -> Value {
    object = crate::patch::merge_patch(&object, &patch).unwrap();
    object
}

fn pod() -> Value {
    json!({"metadata": meta(), "spec": {
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    }})
}

fn deployment() -> Value {
    json!({"metadata": meta(), "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "w"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}},
    }})
}

fn webhook() -> Value {
    json!({"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://h/p"},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
}

fn created(group: &str, kind: &str, object: Value) -> Vec<String> {
    let namespaced = object["metadata"]["namespace"].is_string();
    words(&validate_create(group, kind, &object, namespaced))
}

#[test]
fn pods() {
    let c = |container: Value| json!({"spec": {"containers": [container]}});
    let cases = [
        (json!({}), ""),
        (
            c(json!({"name": "c", "image": "i", "volumeMounts": [{"name": "w", "mountPath": "/w"}]})),
            r#"spec.containers[0].volumeMounts[0].name: Not found: "w""#,
        ),
        (
            c(json!({"name": "c", "image": "i", "ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            c(json!({"name": "c", "image": "i", "ports": [{"containerPort": 1, "protocol": "ICMP"}]})),
            r#"spec.containers[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
        ),
        (
            c(json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": "-1"}}})),
            r#"spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#,
        ),
        (
            json!({"spec": {"tolerations": [{"operator": "Equal"}]}}),
            r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}}),
            r#"spec.volumes[1].name: Duplicate value: "v""#,
        ),
    ];
    for (patch, expected) in cases {
        let expected: Vec<String> = if expected.is_empty() { vec![] } else { vec![expected.to_string()] };
        assert_eq!(created("", "Pod", patched(pod(), patch.clone())), expected, "{patch}");
    }
}

#[test]
fn pods_hardly_change() {
    let old = patched(pod(), json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}));
    let changed = |patch: Value| words(&validate_update("", "Pod", &old, &patched(old.clone(), patch)));
    assert_eq!(changed(json!({"metadata": {"labels": {"a": "b"}}})), Vec::<String>::new());
    let new_image = json!({"spec": {"containers": [{"name": "c", "image": "j", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}});
    assert_eq!(changed(new_image), Vec::<String>::new());
    let more = json!({"spec": {"tolerations": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}});
    assert_eq!(changed(more), Vec::<String>::new());
    assert_eq!(
        changed(json!({"spec": {"tolerations": null}})),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
    let moved = changed(json!({"spec": {"nodeName": "other"}}));
    assert!(moved[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.init"), "{moved:?}");
    assert_eq!(
        changed(json!({"spec": {"containers": []}})),
        [
            "spec.containers: Required value",
            "spec.containers: Forbidden: pod updates may not add or remove containers"
        ]
    );
}

#[test]
fn workloads() {
    let cases = [
        (json!({}), ""),
        (
            json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "150%"}}}}),
            r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "150%": must not be greater than 100%"#,
        ),
    ];
    for (patch, expected) in cases {
        let found = created("apps", "Deployment", patched(deployment(), patch.clone()));
        let expected: Vec<String> = if expected.is_empty() { vec![] } else { vec![expected.to_string()] };
        assert_eq!(found, expected, "{patch}");
    }
    let unreadable =
        json!({"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}});
    assert_eq!(
        created("apps", "Deployment", patched(deployment(), unreadable)),
        [
            r#"spec.selector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator"#,
            r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"Like"}],"matchLabels":{"app":"w"}}: invalid label selector"#,
        ]
    );
    let old = deployment();
    let labels = json!({"app": "z"});
    let new = patched(
        deployment(),
        json!({"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}),
    );
    assert_eq!(
        words(&validate_update("apps", "Deployment", &old, &new)),
        [r#"spec.selector: Invalid value: {"matchLabels":{"app":"z"}}: field is immutable"#]
    );
}

#[test]
fn other_kinds() {
    let cluster = json!({"name": "x", "resourceVersion": "1"});
    let cases: Vec<(&str, &str, Value, Vec<&str>)> = vec![
        (
            "",
            "Service",
            json!({"metadata": meta(), "spec": {"type": "Magic", "ports": [{"port": 80}]}}),
            vec![
                r#"spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
            ],
        ),
        (
            "",
            "Service",
            json!({"metadata": meta(), "spec": {"ports": [{"port": 80}, {"port": 81}]}}),
            vec!["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
        (
            "",
            "ConfigMap",
            json!({"metadata": meta(), "data": {"a/b": "c"}}),
            vec![
                r#"data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#,
            ],
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"metadata": meta(), "spec": {"minAvailable": 1, "maxUnavailable": 1}}),
            vec![
                r#"spec: Invalid value: {"maxUnavailable":1,"minAvailable":1}: minAvailable and maxUnavailable cannot be both set"#,
            ],
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"metadata": meta(), "spec": {"minAvailable": "x"}}),
            vec![
                r#"spec.minAvailable: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
            ],
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"metadata": meta(), "spec": {"minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
            vec!["spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`"],
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"metadata": meta(), "spec": {"leaseDurationSeconds": 0}}),
            vec!["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            "rbac.authorization.k8s.io",
            "ClusterRole",
            json!({"metadata": {"name": "system:x"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
            vec!["rules[0].verbs: Required value"],
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            json!({"metadata": cluster, "webhooks": [webhook()]}),
            vec![],
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            json!({"metadata": cluster, "webhooks": [patched(webhook(), json!({"name": "short", "sideEffects": null, "clientConfig": null, "admissionReviewVersions": null}))]}),
            vec![
                r#"webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots"#,
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ],
        ),
        (
            "",
            "Namespace",
            json!({"metadata": {"name": "a.b"}}),
            vec![r#"metadata.name: Invalid value: "a.b": must not contain dots"#],
        ),
    ];
    for (group, kind, object, expected) in cases {
        assert_eq!(created(group, kind, object.clone()), expected, "{kind} {object}");
    }
}

#[test]
fn what_is_fixed_stays_fixed() {
    let binding = |name: &str| json!({"metadata": meta(), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
    assert_eq!(
        words(&validate_update("rbac.authorization.k8s.io", "RoleBinding", &binding("a"), &binding("b"))),
        [
            r#"roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: field is immutable"#
        ]
    );
    let map = |value: &str| json!({"metadata": meta(), "immutable": true, "data": {"a": value}});
    assert_eq!(
        words(&validate_update("", "ConfigMap", &map("1"), &map("2"))),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
}
