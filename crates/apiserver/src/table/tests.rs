use super::*;

fn now() -> Timestamp {
    "2026-01-10T00:00:00Z".parse().unwrap()
}

fn cells(group: &str, resource: &str, object: Value) -> Vec<Value> {
    let printer = Printer::built_in(group, resource);
    let row = printer.row(&object, now(), IncludeObject::None);
    let cells = row["cells"].as_array().cloned().unwrap();
    assert_eq!(
        cells.len(),
        printer.columns().as_array().unwrap().len(),
        "a cell for every column of {resource}"
    );
    cells
}

#[test]
fn durations_have_kubectls_precision() {
    let day = 86_400;
    let cases = [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_000, "3h3m"),
        (8 * 3600, "8h"),
        (47 * 3600 + 3599, "47h"),
        (2 * day, "2d"),
        (2 * day + 3600, "2d1h"),
        (8 * day, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (731 * day, "2y1d"),
        (8 * 365 * day, "8y"),
    ];
    for (seconds, text) in cases {
        assert_eq!(human_duration(seconds), text, "{seconds}");
    }
}

fn pod_with(patch: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2026-01-09T23:55:00Z"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    pod = crate::patch::merge_patch(&pod, &patch).unwrap();
    pod
}

#[test]
fn a_pods_status_is_its_most_telling_reason() {
    let running = json!({"ready": true, "state": {"running": {}}});
    let cases = [
        (json!({"status": {"containerStatuses": [running, running]}}), "2/2", "Running", "0"),
        (json!({"status": {"phase": "Pending"}}), "0/2", "Pending", "0"),
        (json!({"status": {"reason": "Evicted", "phase": "Failed"}}), "0/2", "Evicted", "0"),
        (
            json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
            "0/2",
            "SchedulingGated",
            "0",
        ),
        (
            json!({"status": {"containerStatuses": [
                {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"finishedAt": "2026-01-09T23:58:00Z"}}}, running]}}),
            "1/2",
            "CrashLoopBackOff",
            "3 (2m ago)",
        ),
        (
            json!({"status": {"phase": "Succeeded", "containerStatuses": [
                {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}}),
            "0/2",
            "Completed",
            "0",
        ),
        (
            json!({"status": {"containerStatuses": [
                {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}, running]}}),
            "1/2",
            "NotReady",
            "0",
        ),
        (
            json!({"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}}),
            "0/2",
            "Signal:9",
            "0",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "i"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}}),
            "0/2",
            "Init:0/1",
            "0",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "i"}]}, "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 1, "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}}),
            "0/2",
            "Init:Error",
            "1",
        ),
        (
            json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}, "status": {
                "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "state": {"running": {}}}],
                "containerStatuses": [running, running]}}),
            "3/3",
            "Running",
            "0",
        ),
        (json!({"metadata": {"deletionTimestamp": "2026-01-10T00:00:00Z"}}), "0/2", "Terminating", "0"),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-10T00:00:00Z"}, "status": {"phase": "Succeeded"}}),
            "0/2",
            "Succeeded",
            "0",
        ),
    ];
    for (patch, ready, status, restarts) in cases {
        let row = cells("", "pods", pod_with(patch.clone()));
        assert_eq!(row[1..4], [json!(ready), json!(status), json!(restarts)], "{patch}");
        assert_eq!(row[4..8], [json!("5m"), json!("10.0.0.1"), json!("n1"), json!("<none>")]);
    }
}

#[test]
fn nodes_show_readiness_and_cordon() {
    let node = json!({
        "metadata": {"name": "n", "creationTimestamp": "2026-01-07T00:00:00Z",
            "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "db"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"kubeletVersion": "v1.37.1", "kernelVersion": "6.1", "architecture": "amd64"}},
    });
    assert_eq!(
        cells("", "nodes", node),
        [
            json!("n"),
            json!("Ready,SchedulingDisabled"),
            json!("control-plane,db"),
            json!("3d"),
            json!("v1.37.1"),
            json!("1.2.3.4"),
            json!("<none>"),
            json!("<unknown>"),
            json!("6.1 (amd64)"),
            json!("<unknown>"),
        ]
    );
}

#[test]
fn everyday_kinds_have_kubectls_cells() {
    let meta = json!({"name": "x", "creationTimestamp": "2026-01-09T23:00:00Z"});
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "b"}}});
    let cases = [
        (
            "apps",
            "deployments",
            json!({"metadata": meta, "spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"app": "w"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["z", "a"]}]}},
                "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}}),
            json!(["x", "2/3", 3, 2, "60m", "c", "i", "app=w,tier in (a,z)"]),
        ),
        (
            "apps",
            "daemonsets",
            json!({"metadata": meta, "spec": {"template": template}, "status": {"desiredNumberScheduled": 2, "numberReady": 1}}),
            json!(["x", 2, 0, 1, 0, 0, "a=b", "60m", "c", "i", "<none>"]),
        ),
        (
            "",
            "services",
            json!({"metadata": meta, "spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            json!(["x", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "60m", "<none>"]),
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"metadata": meta, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]}}),
            json!(["x", "Deployment/d", "cpu: <unknown>/80%", "<unset>", 5, 0, "60m"]),
        ),
        (
            "batch",
            "jobs",
            json!({"metadata": meta, "spec": {"completions": 2, "template": template},
                "status": {"succeeded": 1, "startTime": "2026-01-09T23:59:00Z"}}),
            json!(["x", "Running", "1/2", "60s", "60m", "c", "i", "<none>"]),
        ),
        (
            "batch",
            "cronjobs",
            json!({"metadata": meta, "spec": {"schedule": "* * * * *", "suspend": false}}),
            json!(["x", "* * * * *", "<none>", "False", 0, "<none>", "60m", "", "", "<none>"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"metadata": meta, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
            json!(["x", "Role/r", "60m", "u", "", "n/s"]),
        ),
        (
            "",
            "events",
            json!({"metadata": meta, "involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R",
                "message": "m ", "firstTimestamp": "2026-01-09T23:00:00Z", "lastTimestamp": "2026-01-09T23:59:50Z",
                "count": 4, "source": {"component": "kubelet", "host": "n1"}}),
            json!(["10s", "Normal", "R", "pod/p", "", "kubelet, n1", "m", "60m", 4, "x"]),
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({"metadata": meta, "spec": {"group": "e.com", "scope": "Cluster", "names": {"kind": "W", "shortNames": ["w"]},
                "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v0", "served": false}]},
                "status": {"conditions": [{"type": "Established", "status": "True"}]}}),
            json!(["x", "Cluster", "v1(storage)", "2026-01-09T23:00:00Z", "e.com", "W", "w", true]),
        ),
    ];
    for (group, resource, object, expected) in cases {
        assert_eq!(Value::Array(cells(group, resource, object)), expected, "{resource}");
    }
}

#[test]
fn custom_columns_follow_their_types() {
    let crd = json!({
        "spec": {"group": "e.com", "names": {"kind": "W", "plural": "ws"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [
                {"name": "S", "type": "string", "jsonPath": ".spec.any"},
                {"name": "I", "type": "integer", "jsonPath": ".spec.int"},
                {"name": "B", "type": "boolean", "jsonPath": ".spec.int", "priority": 1},
                {"name": "Since", "type": "date", "jsonPath": ".spec.when"},
                {"name": "Bad", "type": "date", "jsonPath": ".spec.any"},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
            ],
        }]},
    });
    let kind = CustomKind::parse(&crd).remove(0);
    let printer = Printer::custom(&kind);
    let object = json!({
        "metadata": {"name": "w"}, "spec": {"any": "text", "int": 3, "when": "2026-01-09T23:59:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let row = printer.row(&object, now(), IncludeObject::None);
    assert_eq!(row["cells"], json!(["w", "text", 3, null, "60s", "<invalid>", "True"]));
    assert_eq!(printer.columns()[3]["priority"], 1);
}
