//! The policies of the Pod Evict Policy: which words it knows, whose the marks are, and whom the taint eviction controller must not delete.

use super::*;

const POLICY: &str = "evictionrequest.coordination.k8s.io/evict-policy";
const AT_A_TIME: &str = "evictionrequest.coordination.k8s.io/evict-max-unavailable";
const WANTED: &str = "kubernetes.io/pod-evict-wanted";
const SINCE: &str = "evictionrequest.coordination.k8s.io/evict-wanted";
const TAINT_EVICTION: &str = "system:serviceaccount:kube-system:node-controller";

fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
    })
}

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

pub async fn an_evict_policy_is_one_of_two_words_wherever_it_is_written(servers: &Servers) {
    let scene = Scene::new(servers, &[]).await;
    let apps = |plural: &str| scene.of("apps/v1", plural);
    let workload = |kind: &str, own: &Value, of_template: &Value| {
        let labels = json!({"app": "web"});
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.to_lowercase(), "annotations": own},
            "spec": {"selector": {"matchLabels": labels}, "serviceName": (kind == "StatefulSet").then_some("web"), "template": {
                "metadata": {"labels": labels, "annotations": of_template},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        })
    };
    // One that was there before can still be changed.
    scene.cluster.created(&scene.pods, &pod("old", &json!({POLICY: "whatever"}))).await.unwrap();
    scene.install(&["policies.yaml"]).await;
    let old = format!("{}/old", scene.pods);
    scene.until_refused(ADMIN, &old, &annotated(&json!({POLICY: "other"}))).await;
    let (words, number) = ("use Default or ControllerTakeOver", "use a number such as 1");
    let (none, bad) = (json!({}), json!({POLICY: "takeover"}));
    scene.expect("a label", ADMIN, &old, &json!({"metadata": {"labels": {"a": "b"}}}), 200, "").await;
    scene.expect("another word", ADMIN, &old, &annotated(&json!({POLICY: "x"})), 422, words).await;
    scene.expect("no word", ADMIN, &old, &annotated(&json!({POLICY: null})), 200, "").await;
    scene.expect("a new pod", ADMIN, &scene.pods, &pod("new", &bad), 422, words).await;
    for word in ["Default", "ControllerTakeOver"] {
        let name = word.to_lowercase();
        scene.expect(word, ADMIN, &scene.pods, &pod(&name, &json!({POLICY: word})), 201, "").await;
    }
    let namespace = &format!("/api/v1/namespaces/{}", scene.namespace);
    scene.expect("a namespace", ADMIN, namespace, &annotated(&bad), 422, words).await;
    scene.expect("a namespace", ADMIN, namespace, &annotated(&json!({POLICY: "Default"})), 200, "").await;
    for (kind, plural) in [
        ("Deployment", "deployments"),
        ("ReplicaSet", "replicasets"),
        ("StatefulSet", "statefulsets"),
        ("DaemonSet", "daemonsets"),
    ] {
        let path = apps(plural);
        scene.expect("a template", ADMIN, &path, &workload(kind, &none, &bad), 422, words).await;
        for wrong in ["0", "-1", "one", "1.5", "5 %", ""] {
            let object = workload(kind, &json!({AT_A_TIME: wrong}), &none);
            scene.expect(wrong, ADMIN, &path, &object, 422, number).await;
        }
        let right = workload(kind, &json!({AT_A_TIME: "25%"}), &json!({POLICY: "ControllerTakeOver"}));
        scene.expect("both", ADMIN, &path, &right, 201, "").await;
    }
    let job = |policy: &Value| {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
        json!({"template": {"metadata": {"annotations": policy}, "spec": pod}})
    };
    let batch = |plural: &str| scene.of("batch/v1", plural);
    let object =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": job(&bad)});
    scene.expect("a Job", ADMIN, &batch("jobs"), &object, 422, words).await;
    let spec = json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": job(&bad)}});
    let object =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "j"}, "spec": spec});
    scene.expect("a CronJob", ADMIN, &batch("cronjobs"), &object, 422, words).await;
}

pub async fn that_a_pod_is_wanted_gone_is_the_managers_to_say(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml", "evict-policy/role.yaml"]).await;
    scene
        .role(
            "patcher",
            &json!([{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "patch"]}]),
        )
        .await;
    scene.bind(None, "patcher", TENANT).await;
    scene.cluster.created(&scene.pods, &pod("web", &json!({}))).await.unwrap();
    let (web, status) = (format!("{}/web", scene.pods), format!("{}/web/status", scene.pods));
    let both = |value: Value| annotated(&json!({WANTED: value, SINCE: value}));
    scene.until_refused(TENANT, &web, &both(json!("true"))).await;
    let managers = "are the manager's";
    for path in [&web, &status] {
        for one in [annotated(&json!({WANTED: "true"})), annotated(&json!({SINCE: "{}"}))] {
            scene.expect("a mark", TENANT, path, &one, 422, managers).await;
        }
    }
    scene.expect("a mark", MANAGER, &web, &both(json!("true")), 200, "").await;
    scene.expect("another mark", TENANT, &web, &both(json!("false")), 422, managers).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    scene.expect("a label of a marked pod", TENANT, &web, &label, 200, "").await;
    scene.expect("no mark", TENANT, &web, &both(Value::Null), 200, "").await;
}

pub async fn taint_evictions_leave_pods_to_workloads_that_take_over(servers: &Servers) {
    let files = [
        "policies.yaml",
        "evict-policy/role.yaml",
        "evict-policy/policies.yaml",
        "workloads/deployment-limits.yaml",
        "workloads/hand-over-limits.yaml",
    ];
    let scene = Scene::new(servers, &files).await;
    let (other, manager) = ("/api/v1/namespaces/other/pods", "/api/v1/namespaces/usher-system/pods");
    for namespace in ["other", "usher-system"] {
        let account = json!({"metadata": {"name": "default"}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        scene.cluster.created(&path, &account).await.unwrap();
    }
    let takes_over = annotated(&json!({POLICY: "ControllerTakeOver"}));
    scene.expect("its namespace", ADMIN, "/api/v1/namespaces/other", &takes_over, 200, "").await;
    for user in [TAINT_EVICTION, "system:kube-controller-manager"] {
        scene.bind(None, "writer", user).await;
    }
    let taken = json!({POLICY: "ControllerTakeOver"});
    let pods = [
        (scene.pods.as_str(), "taken", &taken),
        (scene.pods.as_str(), "default", &json!({POLICY: "Default"})),
        (scene.pods.as_str(), "none", &json!({})),
        (other, "of-namespace", &json!({})),
        (other, "default", &json!({POLICY: "Default"})),
        (manager, "manager", &taken),
    ];
    for (path, name, annotations) in pods {
        scene.cluster.created(path, &pod(name, annotations)).await.unwrap();
    }
    let delete = async |user: &str, path: &str| scene.send(user, Method::DELETE, path, &Value::Null).await;
    // Where there is a body the server reads nothing else.
    let dry = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let dry_delete =
        async |user: &str| scene.send(user, Method::DELETE, &format!("{}/taken", scene.pods), &dry).await;
    let taken_path = format!("{}/taken", scene.pods);
    // The policies, the namespace's annotation and the rights of each come to the server one by one.
    let of_namespace = format!("{other}/of-namespace");
    for (user, path) in
        [(TAINT_EVICTION, &taken_path), (TAINT_EVICTION, &of_namespace), (MANAGER, &taken_path)]
    {
        scene.until_method_refused(user, Method::DELETE, path, &dry).await;
    }
    for (path, code) in [
        (&taken_path, 403),
        (&format!("{}/default", scene.pods), 200),
        (&format!("{}/none", scene.pods), 200),
        (&of_namespace, 403),
        (&format!("{other}/default"), 200),
        (&format!("{manager}/manager"), 200),
    ] {
        let answer = delete(TAINT_EVICTION, path).await;
        assert_eq!(answer.status, code, "{path}: {}", answer.body);
    }
    // Where all controllers are one user, the condition tells what it deletes for.
    let controllers = "system:kube-controller-manager";
    assert_eq!(dry_delete(controllers).await.status, 200, "a ReplicaSet is scaled down");
    let condition = json!({"status": {"conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},
    ]}});
    scene.expect("the condition", ADMIN, &format!("{taken_path}/status"), &condition, 200, "").await;
    assert_eq!(dry_delete(controllers).await.status, 403);

    // The manager deletes what is marked, and nothing else.
    let refused = delete(MANAGER, &taken_path).await;
    assert!(
        refused.body["message"].as_str().unwrap_or_default().contains("deletes only pods"),
        "{}",
        refused.body
    );
    let image = json!({"spec": {"containers": [{"name": "c", "image": "x"}]}});
    scene.expect("code", MANAGER, &taken_path, &image, 422, "nothing").await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    scene.expect("a label", MANAGER, &taken_path, &label, 422, "").await;
    scene
        .expect("a mark", MANAGER, &taken_path, &annotated(&json!({WANTED: "true", SINCE: "{}"})), 200, "")
        .await;
    assert_eq!(delete(MANAGER, &taken_path).await.status, 200);
}
