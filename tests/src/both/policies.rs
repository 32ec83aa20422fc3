//! The policies of `deploy/` against users with few rights.
//!
//! Each test is a function of [`Servers`]. It asks for a server on which only certain files are installed, so that tests can share servers.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Answer, Request, TestCluster, crds, manifests};
use anyhow::Result;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use usher_api::PodType;
use usher_api::names::{SURGE_ANNOTATION, SURGE_LABEL};
use usher_decide::snapshot::{Pod, PodOnWire};

mod evict_policy;

pub use evict_policy::{
    an_evict_policy_is_one_of_two_words_wherever_it_is_written,
    taint_evictions_leave_pods_to_workloads_that_take_over, that_a_pod_is_wanted_gone_is_the_managers_to_say,
};

/// Between two looks at whether a right or a policy counts by now.
pub const PAUSE: Duration = Duration::from_millis(20);
pub const ADMIN: &str = "admin";
pub const MANAGER: &str = "system:serviceaccount:usher-system:usher-manager";
/// May delete pods and write requests, and has no role of the strict choice.
pub const TENANT: &str = "tenant";
/// May use the requester a.example.com in addition.
const ALICE: &str = "alice";
/// May answer for the class db.example.com in addition.
const DATABASE: &str = "database";
/// Has the roles of the strict choice for all names.
const OPERATOR: &str = "operator";

const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

fn requester(name: &str) -> String {
    format!("requester.evictionrequest.coordination.k8s.io/name_{name}")
}

/// Maximum number of servers at once.
const SERVERS: usize = 2;

type Start = Box<dyn Fn() -> LocalBoxFuture<'static, Result<TestCluster>> + Send + Sync>;

/// Servers that tests use one after the other. A test gets one on which nothing but its own files is installed.
pub struct Servers {
    start: Start,
    idle: Mutex<Vec<Server>>,
    in_use: Semaphore,
}

impl Servers {
    /// Servers on clusters that this function starts.
    pub fn new<F>(start: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<TestCluster>> + 'static,
    {
        let start: Start = Box::new(move || start().boxed_local());
        Self { start, idle: Mutex::default(), in_use: Semaphore::new(SERVERS) }
    }

    /// A server with these files or fewer, the one with most of them first. If no idle server will do, one of them ends and a new one starts.
    async fn take(&self, files: &[&str]) -> Server {
        let fits =
            |server: &Server| server.installed.lock().iter().all(|file| files.contains(&file.as_str()));
        let fitting = {
            let mut idle = self.idle.lock();
            let best = idle
                .iter()
                .enumerate()
                .filter(|(_, server)| fits(server))
                .max_by_key(|(_, server)| server.installed.lock().len())
                .map(|(at, _)| at);
            match best {
                Some(at) => Some(idle.swap_remove(at)),
                None => {
                    drop(idle.pop());
                    None
                }
            }
        };
        match fitting {
            Some(server) => server,
            None => Server::new((self.start)().await.unwrap()).await,
        }
    }
}

/// A cluster with the definitions and roles of Usher.
pub struct Server {
    pub cluster: TestCluster,
    /// The files of policies and choices that are installed.
    installed: Mutex<Vec<String>>,
    /// How many tests have used it.
    used: AtomicUsize,
}

impl Server {
    async fn new(cluster: TestCluster) -> Self {
        crds::install(&cluster).await.unwrap();
        for namespace in ["other", "usher-system"] {
            cluster.created("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.unwrap();
        }
        let roles =
            ["base/cluster-role.yaml", "base/role.yaml", "base/certificates-role.yaml", "strict/roles.yaml"];
        manifests::install(&cluster, &roles).await.unwrap();
        let server = Self { cluster, installed: Mutex::default(), used: AtomicUsize::new(0) };
        let writer = json!([
            {"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["evictionrequests", "evictionrequests/status"], "verbs": ["*"]},
            {"apiGroups": ["nodemaintenance.k8s.io"], "resources": ["nodemaintenances", "nodemaintenances/status"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]},
        ]);
        server.role("writer", &writer).await;
        let one = |resource: &str, verb: &str, name: &str| json!([{"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": [resource], "verbs": [verb], "resourceNames": [name]}]);
        server.role("use-a", &one("requesters", "use", "a.example.com")).await;
        server.role("intercept-db", &one("interceptorclasses", "intercept", "db.example.com")).await;
        for user in [TENANT, ALICE, DATABASE, OPERATOR] {
            server.bind(None, "writer", user).await;
        }
        server.bind(None, "usher-requester", OPERATOR).await;
        server.bind(None, "usher-interceptor", OPERATOR).await;
        server
    }

    /// Installs what is not there yet.
    pub async fn install(&self, files: &[&str]) {
        for file in files {
            if !self.installed.lock().iter().any(|there| there == file) {
                manifests::install(&self.cluster, &[file]).await.unwrap();
                self.installed.lock().push((*file).to_owned());
            }
        }
    }

    pub async fn role(&self, name: &str, rules: &Value) {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        manifests::create(&self.cluster, &role).await.unwrap();
    }

    pub async fn bind(&self, namespace: Option<&str>, role: &str, user: &str) {
        let group = "rbac.authorization.k8s.io";
        let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": format!("{role}-{user}"), "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        manifests::create(&self.cluster, &binding).await.unwrap();
    }
}

/// A test's own namespace on a server.
pub struct Scene<'a> {
    servers: &'a Servers,
    /// Returned to the others at the end.
    leased: Option<Server>,
    _lease: SemaphorePermit<'a>,
    pub namespace: String,
    pub pods: String,
    pub requests: String,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        // What a failed test has left on its server is unknown.
        if !std::thread::panicking() {
            self.servers.idle.lock().extend(self.leased.take());
        }
    }
}

impl Deref for Scene<'_> {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.leased.as_ref().unwrap()
    }
}

impl<'a> Scene<'a> {
    /// A namespace on a server where these files are installed, and no others.
    pub async fn new(servers: &'a Servers, files: &[&str]) -> Self {
        let lease = servers.in_use.acquire().await.unwrap();
        let server = servers.take(files).await;
        server.install(files).await;
        let namespace = format!("shop-{}", server.used.fetch_add(1, Ordering::AcqRel));
        let cluster = &server.cluster;
        cluster.created("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.unwrap();
        let account = json!({"metadata": {"name": "default"}});
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        cluster.created(&accounts, &account).await.unwrap();
        server.bind(Some(&namespace), "use-a", ALICE).await;
        server.bind(Some(&namespace), "intercept-db", DATABASE).await;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let requests = format!(
            "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/{namespace}/evictionrequests"
        );
        Self { servers, leased: Some(server), _lease: lease, namespace, pods, requests }
    }

    /// Where objects of this kind are, as `apps/v1` and `deployments`.
    pub fn of(&self, version: &str, plural: &str) -> String {
        format!("/apis/{version}/namespaces/{}/{plural}", self.namespace)
    }

    pub async fn send(&self, user: &str, method: Method, path: &str, body: &Value) -> Answer {
        let mut request = Request::with_json(method.clone(), path, body);
        if method == Method::PATCH {
            let kind = if body.is_array() { "json-patch" } else { "merge-patch" };
            request.headers = vec![("content-type".to_owned(), format!("application/{kind}+json"))];
        }
        if user != ADMIN {
            request.headers.push(("impersonate-user".to_owned(), user.to_owned()));
        }
        if user == MANAGER {
            request.headers.push(("impersonate-group".to_owned(), "system:serviceaccounts".to_owned()));
        }
        self.cluster.send(ADMIN, request).await.unwrap()
    }

    /// What is to be accepted waits for the right, which comes to the server some time after it was given.
    pub async fn expect(&self, what: &str, user: &str, path: &str, body: &Value, code: u16, part: &str) {
        let mut answer = self.send(user, method_of(body), path, body).await;
        for _ in 0..500 {
            if code >= 400 || !is_without_right(user, &answer) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            answer = self.send(user, method_of(body), path, body).await;
        }
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(
            answer.status == code && message.contains(part),
            "{what}, by {user}: {} {}",
            answer.status,
            answer.body
        );
    }

    /// A policy counts some seconds after it was created, and so does a right, without which no policy is asked.
    pub async fn until_refused(&self, user: &str, path: &str, body: &Value) {
        self.until_method_refused(user, method_of(body), path, body).await;
    }

    pub async fn until_method_refused(&self, user: &str, method: Method, path: &str, body: &Value) {
        for _ in 0..500 {
            let answer = self.send(user, method.clone(), &format!("{path}?dryRun=All"), body).await;
            if answer.status >= 400 && !is_without_right(user, &answer) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{path} is never refused to {user}");
    }

    /// A request for a pod, by an administrator. Its path.
    pub async fn request(&self, pod: &str, finalizers: &[String], interceptors: &Value) -> String {
        let object =
            json!({"metadata": {"name": pod}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let uid = self.cluster.created(&self.pods, &object).await.unwrap()["metadata"]["uid"].clone();
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": finalizers},
            "spec": {"podRef": {"name": pod, "uid": uid}, "interceptors": interceptors},
        });
        self.cluster.created(&self.requests, &request).await.unwrap();
        format!("{}/{}", self.requests, uid.as_str().unwrap())
    }
}

/// Refused by the roles, before any policy.
fn is_without_right(user: &str, answer: &Answer) -> bool {
    let message = answer.body["message"].as_str().unwrap_or_default();
    message.contains(&format!("User \"{user}\" cannot "))
}

fn condition(kind: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// What has a kind is a whole object.
fn method_of(body: &Value) -> Method {
    if body.get("kind").is_some() { Method::POST } else { Method::PATCH }
}

pub async fn conditions_are_limited_and_those_of_the_manager_are_its_own(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let path = scene.request("web", &[requester("a.example.com")], &json!([])).await + "/status";
    let many = |count: usize, letters: usize| -> Vec<Value> {
        (0..count).map(|number| condition(&format!("T{number}"), &"x".repeat(letters))).collect()
    };
    let status = |conditions: Vec<Value>| json!({"status": {"conditions": conditions}});
    scene.until_refused(TENANT, &path, &status(many(1, 1025))).await;
    let with_ours = [many(1, 1), vec![condition("EvictionBlocked", "mine")]].concat();
    for (what, user, conditions, code, part) in [
        ("as many as others need", TENANT, many(16, 1024), 200, ""),
        ("one too many", TENANT, many(17, 1), 422, "at most 16 items"),
        ("too long", TENANT, many(1, 1025), 422, "1024 letters at most"),
        (
            "the manager's own",
            TENANT,
            with_ours.clone(),
            422,
            "EvictionBlocked and SurgeFailed are the manager's",
        ),
        (
            "of its interceptors",
            TENANT,
            vec![condition("SurgeFailed", "")],
            422,
            "SurgeFailed are the manager's",
        ),
        ("the manager writes what it likes", MANAGER, with_ours.clone(), 200, ""),
        ("left as it is", TENANT, with_ours, 200, ""),
        ("removed", TENANT, many(1, 1), 422, "EvictionBlocked and SurgeFailed are the manager's"),
        ("the manager may say more", MANAGER, many(16, 2000), 200, ""),
    ] {
        scene.expect(what, user, &path, &status(conditions), code, part).await;
    }
    // What is there already is nobody's obstacle.
    scene.expect("progress", TENANT, &path, &json!({"status": {"message": "going on"}}), 200, "").await;
    // The last one of one's own may go, and the field with it.
    scene.expect("one", MANAGER, &path, &status(many(1, 1)), 200, "").await;
    scene.expect("none", TENANT, &path, &json!({"status": {"conditions": null}}), 200, "").await;

    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
    let maintenance = json!({"apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": "m"}, "spec": {"nodeSelector": selector}});
    scene.cluster.created(MAINTENANCES, &maintenance).await.unwrap();
    let path = format!("{MAINTENANCES}/m/status");
    for (what, user, conditions, code, part) in [
        ("not drained", TENANT, vec![condition("Drained", "lie")], 422, "are the manager's"),
        ("one too many", TENANT, many(17, 1), 422, "at most 16 items"),
        ("others", TENANT, many(16, 1), 200, ""),
        ("drained", MANAGER, vec![condition("Drained", "true")], 200, ""),
    ] {
        scene.expect(what, user, &path, &status(conditions), code, part).await;
    }
}

const GATEWAY: &str = "gateway.evictionrequest.coordination.k8s.io";

pub async fn the_manager_changes_nothing_of_webhook_configurations_but_the_bundle(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let bundle = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
    for object in manifests::objects("webhooks.yaml").unwrap() {
        // Nobody answers here, and nothing of this test is to wait for that.
        let mut object = object;
        for hook in object["webhooks"].as_array_mut().unwrap() {
            hook["failurePolicy"] = "Ignore".into();
        }
        manifests::create(&scene.cluster, &object).await.unwrap();
        let kind = object["kind"].as_str().unwrap().to_lowercase() + "s";
        let path = format!("{CONFIGURATIONS}/{kind}/usher");
        let url = json!([{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://evil.example.com/"}}]);
        scene.until_refused(MANAGER, &path, &url).await;
        let rule =
            json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]});
        let mut another = object["webhooks"][0].clone();
        another["name"] = "more.example.com".into();
        let refused = "can change nothing of webhook configurations but caBundle";
        for (what, patch) in [
            ("elsewhere", url.clone()),
            (
                "another service",
                json!([{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "evil"}]),
            ),
            ("more", json!([{"op": "add", "path": "/webhooks/0/rules/-", "value": rule}])),
            ("another hook", json!([{"op": "add", "path": "/webhooks/-", "value": another}])),
            ("no hook", json!([{"op": "remove", "path": "/webhooks/0"}])),
            ("failing", json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}])),
            (
                "all namespaces",
                json!([{"op": "replace", "path": "/webhooks/1/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}]),
            ),
            (
                "conditions",
                json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "a", "expression": "true"}]}]),
            ),
            ("slow", json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}])),
            (
                "an owner",
                json!([{"op": "add", "path": "/metadata/ownerReferences",
                "value": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]}]),
            ),
            (
                "a finalizer",
                json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stay"]}]),
            ),
        ] {
            scene.expect(&format!("{kind}: {what}"), MANAGER, &path, &patch, 403, refused).await;
        }
        if let Some(at) =
            object["webhooks"].as_array().unwrap().iter().position(|hook| hook["name"] == GATEWAY)
        {
            let of = |field: &str, value: Value| json!([{"op": "add", "path": format!("/webhooks/{at}/clientConfig/service/{field}"), "value": value}]);
            let path_of = of("path", json!("/gateway/evictions/key"));
            scene.expect("the gateway's path", MANAGER, &path, &path_of, 200, "").await;
            scene
                .expect("the gateway elsewhere", MANAGER, &path, &of("name", json!("evil")), 403, refused)
                .await;
            let mut other = of("path", json!("/elsewhere"));
            other[0]["path"] = "/webhooks/0/clientConfig/service/path".into();
            scene.expect("the path of another", MANAGER, &path, &other, 403, refused).await;
        }
        let trusted = json!([{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]);
        scene.expect(&format!("{kind}: the bundle"), MANAGER, &path, &trusted, 200, "").await;
        scene.expect(&format!("{kind}: the administrator"), ADMIN, &path, &url, 200, "").await;
        scene.cluster.delete(&path).await.unwrap().accepted().unwrap();
    }
}

pub async fn what_the_gateway_remembers_is_the_managers(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let path = scene.request("web", &[requester("a.user.gateway")], &json!([])).await;
    let asked = |at: &str| {
        let ask = json!({"by": "alice", "at": at}).to_string();
        json!({"metadata": {"annotations": {"gateway.evictionrequest.coordination.k8s.io/a.user.gateway": ask}}})
    };
    let (first, later) = (asked("2026-01-01T12:00:00Z"), asked("2026-01-01T13:00:00Z"));
    let none = json!({"metadata": {"annotations": {"gateway.evictionrequest.coordination.k8s.io/a.user.gateway": null}}});
    scene.until_refused(TENANT, &path, &first).await;
    let refused = "are the manager's";
    for (what, user, patch, code, part) in [
        ("made up", TENANT, &first, 422, refused),
        ("remembered", MANAGER, &first, 200, ""),
        ("another time", TENANT, &later, 422, refused),
        ("removed", TENANT, &none, 422, refused),
        ("another annotation", TENANT, &json!({"metadata": {"annotations": {"team": "shop"}}}), 200, ""),
        ("remembered again", MANAGER, &later, 200, ""),
    ] {
        scene.expect(what, user, &path, patch, code, part).await;
    }
}

pub async fn the_manager_needs_no_right_to_delete_pods_to_write_a_status(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let path = scene.request("web", &[requester("a.example.com")], &json!([])).await + "/status";
    let report = json!({"status": {"message": "going on"}});
    // Somebody with the manager's rights and another name may not.
    scene.bind(None, "usher-manager", "imitator").await;
    scene.until_refused("imitator", &path, &report).await;
    scene.expect("imitated", "imitator", &path, &report, 403, "may not delete pod web").await;
    scene.expect("written", MANAGER, &path, &report, 200, "").await;
}

/// Also while no webhook is registered, which checks the same and more.
pub async fn evictions_are_requested_by_who_may_delete_the_pod(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let rule = json!([{"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["evictionrequests"], "verbs": ["*"]}]);
    scene.role("asks", &rule).await;
    scene.bind(None, "asks", "asker").await;
    let path = scene.request("web", &[requester("a.example.com")], &json!([])).await;
    let mark = |value: Value| json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/interceptors-resolved": value}}});
    scene.until_refused("asker", &path, &mark(json!("true"))).await;
    for (what, user, patch, code, part) in [
        ("marked", "asker", mark(json!("true")), 422, "is set by admission alone"),
        ("marked", TENANT, mark(json!("true")), 422, "is set by admission alone"),
        ("another annotation", "asker", json!({"metadata": {"annotations": {"team": "shop"}}}), 200, ""),
        ("marked by the manager", MANAGER, mark(json!("true")), 200, ""),
        ("taken off", TENANT, mark(Value::Null), 422, "is set by admission alone"),
    ] {
        scene.expect(what, user, &path, &patch, code, part).await;
    }
    let request = |name: &str| {
        json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": name, "finalizers": [requester("a.example.com")]},
            "spec": {"podRef": {"name": "web", "uid": name}},
        })
    };
    let uid = "11111111-1111-4111-8111-111111111111";
    scene
        .expect(
            "asked",
            "asker",
            &scene.requests,
            &request(uid),
            403,
            &format!("may not delete pod web in namespace {}", scene.namespace),
        )
        .await;
    scene.expect("asked", TENANT, &scene.requests, &request(uid), 201, "").await;
    // Nor does who may not delete the pod decide what others have asked for.
    let (a, evil) = (requester("a.example.com"), requester("evil.example.com"));
    let hold = "example.com/hold".to_owned();
    let with = |finalizers: &[&String]| json!({"metadata": {"finalizers": finalizers}});
    let may_not = "may not delete pod web";
    for (what, user, finalizers, code, part) in [
        ("joined", "asker", with(&[&a, &evil]), 403, may_not),
        ("withdrawn", "asker", with(&[]), 403, may_not),
        ("held", "asker", with(&[&a, &hold]), 403, may_not),
        ("joined and held", TENANT, with(&[&a, &evil, &hold]), 200, ""),
        ("held no more", "asker", with(&[&a, &evil]), 200, ""),
        ("withdrawn", TENANT, with(&[&a]), 200, ""),
    ] {
        scene.expect(what, user, &path, &finalizers, code, part).await;
    }
    let orphaned = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": uid}]}});
    scene.expect("given an owner that is not there", "asker", &path, &orphaned, 403, may_not).await;
    scene.until_method_refused("asker", Method::DELETE, &path, &Value::Null).await;
    let refused = scene.send("asker", Method::DELETE, &path, &Value::Null).await;
    assert!(refused.status == 403 && refused.body.to_string().contains(may_not), "{}", refused.body);
    assert_eq!(scene.send(TENANT, Method::DELETE, &path, &Value::Null).await.status, 200);
    // Once it is withdrawn it goes.
    scene.expect("withdrawn", TENANT, &path, &with(&[]), 200, "").await;
}

pub async fn who_holds_a_node_is_the_managers_to_say(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let rules = json!([{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}]);
    scene.role("tends-nodes", &rules).await;
    scene.bind(None, "tends-nodes", "detector").await;
    let rules = json!([{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "create", "patch"]}]);
    scene.role("changes-nodes", &rules).await;
    scene.bind(None, "changes-nodes", "changer").await;
    let node = json!({"metadata": {"name": format!("held-{}", scene.namespace)}});
    scene.cluster.created("/api/v1/nodes", &node).await.unwrap();
    let path = format!("/api/v1/nodes/held-{}", scene.namespace);
    let status = format!("{path}/status");
    let held = |by: Value| json!({"metadata": {"annotations": {"nodemaintenance.k8s.io/held-by": by}}});
    let before = |said: Value| json!({"metadata": {"annotations": {"nodemaintenance.k8s.io/was-unschedulable": said}}});
    let ready = json!({"type": "Ready", "status": "True"});
    let told = |conditions: Value| json!({"status": {"conditions": conditions}});
    let maintained =
        |status: &str| json!({"type": "NodeMaintenance", "status": status, "reason": "Cordoned"});
    let otherwise =
        json!({"type": "NodeMaintenance", "status": "True", "reason": "Cordoned", "message": "ask me"});
    let made = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("made-{}", scene.namespace), "annotations": {"nodemaintenance.k8s.io/held-by": "ghost"}},
    });
    scene.until_refused("detector", &status, &held("ghost".into())).await;
    let theirs = "the manager's";
    let may_not = "may not delete node held-";
    scene.expect("made with marks", "changer", "/api/v1/nodes", &made, 422, theirs).await;
    for (what, user, path, patch, code, part) in [
        ("forged", "detector", &status, held("ghost".into()), 422, theirs),
        ("forged", "detector", &path, before("false".into()), 422, theirs),
        ("written", MANAGER, &path, held("m".into()), 200, ""),
        ("written", MANAGER, &path, before("false".into()), 200, ""),
        ("changed", "detector", &status, before("true".into()), 422, theirs),
        ("told to be ready", "detector", &status, told(json!([ready])), 200, ""),
        ("told to be maintained", "detector", &status, told(json!([ready, maintained("True")])), 422, theirs),
        ("maintained", MANAGER, &status, told(json!([maintained("True")])), 200, ""),
        ("told to be ready", "detector", &status, told(json!([ready, maintained("True")])), 200, ""),
        ("told not to be", "detector", &status, told(json!([ready, maintained("False")])), 422, theirs),
        ("told otherwise", "detector", &status, told(json!([ready, otherwise])), 422, theirs),
        ("taken off", "changer", &status, told(json!([ready])), 403, may_not),
        ("taken off", "changer", &path, held(Value::Null), 403, may_not),
        ("labelled", "changer", &path, json!({"metadata": {"labels": {"rack": "b"}}}), 200, ""),
        ("taken off", "detector", &status, told(json!([ready])), 200, ""),
        ("cordoned", "detector", &path, json!({"spec": {"unschedulable": true}}), 200, ""),
        ("taken off", "detector", &path, held(Value::Null), 200, ""),
    ] {
        scene.expect(what, user, path, &patch, code, part).await;
    }
}

pub async fn strict_requesters_are_who_they_say_they_are(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml", "strict/policies.yaml"]).await;
    let (a, b) = (requester("a.example.com"), requester("b.example.com"));
    let path = scene.request("web", &[], &json!([])).await;
    let with = |finalizers: &[&String]| json!({"metadata": {"finalizers": finalizers}});
    scene.until_refused(TENANT, &path, &with(&[&a])).await;
    let foreign = "example.com/stay".to_owned();
    let garbage = "foregroundDeletion".to_owned();
    for (what, user, finalizers, code, part) in [
        (
            "asks as another",
            TENANT,
            with(&[&a]),
            403,
            format!("tenant may not ask or withdraw as a.example.com in namespace {}", scene.namespace)
                .as_str(),
        ),
        ("asks as herself", ALICE, with(&[&a]), 200, ""),
        ("asks as another", ALICE, with(&[&a, &b]), 403, "may not ask or withdraw as b.example.com"),
        ("withdraws for another", TENANT, with(&[]), 403, "may not ask or withdraw as a.example.com"),
        (
            "withdraws in the place of another",
            DATABASE,
            with(&[&b]),
            403,
            "may not ask or withdraw as b.example.com, a.example.com",
        ),
        ("holds it up", TENANT, with(&[&a, &foreign]), 403, "only finalizers of requesters can be added"),
        ("holds it up", OPERATOR, with(&[&a, &foreign]), 403, "only finalizers of requesters can be added"),
        (
            "leaves them alone",
            TENANT,
            json!({"metadata": {"finalizers": [a], "labels": {"x": "y"}}}),
            200,
            "",
        ),
        ("is collected", TENANT, with(&[&a, &garbage]), 200, ""),
        ("asks for all", OPERATOR, with(&[&a, &b, &requester("c.example.com")]), 200, ""),
        ("withdraws for all", OPERATOR, with(&[]), 200, ""),
        ("asks as the manager", MANAGER, with(&[&requester("nodemaintenance.k8s.io")]), 200, ""),
        (
            "withdraws the manager's",
            ALICE,
            with(&[]),
            403,
            "may not ask or withdraw as nodemaintenance.k8s.io",
        ),
    ] {
        scene.expect(what, user, &path, &finalizers, code, part).await;
    }
    // A right in one namespace is none in another; and creating is asking as well.
    let request = json!({"apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": "u", "finalizers": [a]}, "spec": {"podRef": {"name": "p", "uid": "u"}}});
    let elsewhere = scene.requests.replace(&scene.namespace, "other");
    let refused = "may not ask or withdraw as a.example.com in namespace other";
    scene.expect("elsewhere", ALICE, &elsewhere, &request, 403, refused).await;
    scene.expect("created", ALICE, &scene.requests, &request, 201, "").await;
    // Many names cost no more than one.
    let many: Vec<String> = (0..100).map(|number| requester(&format!("r{number}.example.com"))).collect();
    let many = json!({"metadata": {"finalizers": many}});
    scene.expect("many", ALICE, &path, &many, 403, "may not ask or withdraw as").await;
    scene.expect("many", OPERATOR, &path, &many, 200, "").await;
    // Deleting is withdrawing for all of them.
    let deleted = scene.send(TENANT, Method::DELETE, &path, &json!({})).await;
    assert_eq!(deleted.status, 403, "{}", deleted.body);
    let deleted = scene.send(OPERATOR, Method::DELETE, &path, &json!({})).await;
    assert_eq!(deleted.status, 200, "{}", deleted.body);
}

pub async fn strict_interceptors_answer_for_their_own_class(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml", "strict/policies.yaml"]).await;
    let interceptors = json!([
        {"interceptorClass": "db.example.com", "priority": 200},
        {"interceptorClass": "web.example.com", "priority": 100},
    ]);
    let path = scene.request("web", &[requester("a.example.com")], &interceptors).await + "/status";
    let turn = json!({"status": {"activeInterceptorClass": "db.example.com", "progressTimestamp": Timestamp::now().to_string()}});
    scene.until_refused(DATABASE, &path, &turn).await;
    let report = json!({"status": {"message": "half done"}});
    let done = json!({"status": {"activeInterceptorCompleted": true}});
    let next =
        json!({"status": {"activeInterceptorClass": "web.example.com", "activeInterceptorCompleted": false}});
    for (what, user, status, code, part) in [
        ("takes the turn", DATABASE, &turn, 403, "turns are given by the manager"),
        ("before its turn", DATABASE, &report, 403, "nobody but the manager writes the status"),
        ("gives the turn", MANAGER, &turn, 200, ""),
        (
            "answers for another",
            TENANT,
            &done,
            403,
            format!("tenant may not answer for interceptor db.example.com in namespace {}", scene.namespace)
                .as_str(),
        ),
        ("answers for another", ALICE, &report, 403, "may not answer for interceptor db.example.com"),
        ("reports", DATABASE, &report, 200, ""),
        ("reports", OPERATOR, &report, 200, ""),
        ("completes", DATABASE, &done, 200, ""),
        ("passes the turn on", DATABASE, &next, 403, "turns are given by the manager"),
        ("gives the next turn", MANAGER, &next, 200, ""),
        ("after its turn", DATABASE, &done, 403, "database may not answer for interceptor web.example.com"),
        ("any class", OPERATOR, &done, 200, ""),
    ] {
        scene.expect(what, user, &path, status, code, part).await;
    }
}

pub async fn only_who_may_skip_interceptors_does_so(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let rule = json!([{
        "apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["evictionrequests/interceptors"], "verbs": ["skip"],
    }]);
    scene.role("skip", &rule).await;
    scene.bind(Some(&scene.namespace), "skip", ALICE).await;
    let path = scene.request("p", &[requester("a.example.com")], &json!([])).await;
    let skip = |why: Value| json!({"metadata": {"annotations": {"evictionrequest.coordination.k8s.io/skip-interceptors": why}}});
    let why = skip(json!("the rack burns"));
    scene.until_refused(TENANT, &path, &why).await;
    scene.expect("the annotation", TENANT, &path, &why, 403, "may not skip the interceptors of").await;
    let status = format!("{path}/status");
    scene.expect("a label", TENANT, &path, &json!({"metadata": {"labels": {"a": "b"}}}), 200, "").await;
    scene.expect("the annotation", ALICE, &path, &why, 200, "").await;
    scene.expect("another label", TENANT, &path, &json!({"metadata": {"labels": {"a": "c"}}}), 200, "").await;
    scene.expect("the status", TENANT, &status, &json!({"status": {"message": "m"}}), 200, "").await;
    scene.expect("another reason", TENANT, &path, &skip(json!("mine")), 403, "may not skip").await;
    scene.expect("no reason", TENANT, &path, &skip(Value::Null), 200, "").await;
    scene.expect("the annotation", ADMIN, &path, &why, 200, "").await;
}

pub async fn new_pods_of_workloads_have_their_interceptor_and_wait_for_held_nodes(servers: &Servers) {
    let scene =
        Scene::new(servers, &["workloads/daemonset-policies.yaml", "workloads/statefulset-policies.yaml"])
            .await;
    let held = json!({"metadata": {"name": "usher-held-nodes"}, "data": {"n1": "1000", "stays_special": ""}});
    scene.cluster.created("/api/v1/namespaces/usher-system/configmaps", &held).await.unwrap();
    let pod = |name: &str, kind: &str, uid: &str, node: &str, annotations: Value| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        let owner =
            json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": uid, "controller": true});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            // Pods that controllers make of DaemonSets and StatefulSets have it.
            "metadata": {
                "name": name, "ownerReferences": [owner], "annotations": annotations,
                "labels": {"controller-revision-hash": "6b59d9cb88"},
            },
            "spec": {"affinity": affinity, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let made = async |pod: Value| {
        let path = format!("{}?dryRun=All", scene.pods);
        scene.cluster.created(&path, &pod).await.unwrap()
    };
    let class =
        |of: &str| format!("interceptor.evictionrequest.coordination.k8s.io/priority_{of}.apps.k8s.io");
    // Policies count some seconds after they were created, and not all at once.
    for (kind, of) in [("DaemonSet", "daemonset"), ("StatefulSet", "statefulset")] {
        let annotated = async || made(pod("probe", kind, "u", "n1", Value::Null)).await;
        let is_done = |pod: &Value| {
            let gated = kind == "StatefulSet" || pod["spec"]["schedulingGates"].is_array();
            gated && pod["metadata"]["annotations"][class(of)] == "10000/controller"
        };
        let mut tries = 0;
        while !is_done(&annotated().await) {
            tries += 1;
            assert!(tries < 500, "{kind}: {}", annotated().await);
            tokio::time::sleep(PAUSE).await;
        }
    }
    let gates = json!([{"name": "nodemaintenance.k8s.io/held"}]);
    let own = json!({class("daemonset"): "5/controller"});
    let another =
        json!({"interceptor.evictionrequest.coordination.k8s.io/priority_x.example.com": "5/controller"});
    for (what, pod, annotation, gated) in [
        ("held", pod("a", "DaemonSet", "u", "n1", Value::Null), json!("10000/controller"), true),
        ("elsewhere", pod("a", "DaemonSet", "u", "n2", Value::Null), json!("10000/controller"), false),
        ("opted out", pod("a", "DaemonSet", "special", "n1", Value::Null), json!("10000/controller"), false),
        ("names its own", pod("a", "DaemonSet", "u", "n1", own), json!("5/controller"), true),
        ("names another", pod("a", "DaemonSet", "u", "n1", another), Value::Null, true),
        ("no daemon", pod("a", "StatefulSet", "u", "n1", Value::Null), Value::Null, false),
    ] {
        let made = made(pod).await;
        assert_eq!(made["metadata"]["annotations"][class("daemonset")], annotation, "{what}");
        let expected = if gated { &gates } else { &Value::Null };
        assert_eq!(made["spec"]["schedulingGates"], *expected, "{what}");
    }
}

/// The API server takes a mirror pod from everybody who may create pods: with the annotation alone it is an ordinary pod to Usher, and
/// with the node as its owner too, which takes the node's UID, only the strict choice stops it.
pub async fn strict_mirror_pods_are_made_by_their_node(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml"]).await;
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]);
    scene.role("maker", &pods).await;
    let (kubelet, other) = ("system:node:n1", "system:node:n2");
    for user in [TENANT, kubelet, other] {
        scene.bind(None, "maker", user).await;
    }
    let node = json!({"metadata": {"name": "n1"}});
    let uid = scene.cluster.created("/api/v1/nodes", &node).await.unwrap()["metadata"]["uid"].clone();
    let pod = |name: &str, annotations: Value, owners: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations, "ownerReferences": owners},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let mirror = || json!({"kubernetes.io/config.mirror": "h"});
    let owner =
        || json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}]);
    let kind = async |name: &str| {
        let path = format!("{}/{name}", scene.pods);
        let read = scene.send(ADMIN, Method::GET, &path, &Value::Null).await.body;
        Pod::from(serde_json::from_value::<PodOnWire>(read).unwrap()).kind()
    };
    scene.expect("annotated", TENANT, &scene.pods, &pod("a", mirror(), json!([])), 201, "").await;
    assert_eq!(kind("a").await, PodType::Default);
    scene.expect("owned too", TENANT, &scene.pods, &pod("b", mirror(), owner()), 201, "").await;
    assert_eq!(kind("b").await, PodType::Static);

    scene.install(&["strict/policies.yaml"]).await;
    scene.until_refused(TENANT, &scene.pods, &pod("d", mirror(), owner())).await;
    let refusal = "can be created by the kubelet of its node only";
    for (what, user, annotations, code, part) in [
        ("forged", TENANT, mirror(), 403, refusal),
        ("forged", ADMIN, mirror(), 403, refusal),
        ("of another node", other, mirror(), 403, refusal),
        ("its own", kubelet, mirror(), 201, ""),
    ] {
        scene.expect(what, user, &scene.pods, &pod("d", annotations, owner()), code, part).await;
    }
    scene.expect("ordinary", TENANT, &scene.pods, &pod("e", json!({}), json!([])), 201, "").await;
}

pub async fn the_manager_changes_nothing_of_workloads_but_how_many_pods_they_have(servers: &Servers) {
    let files = [
        "workloads/deployment-role.yaml",
        "workloads/deployment-limits.yaml",
        "workloads/deployment-policies.yaml",
    ];
    let scene = Scene::new(servers, &files).await;
    let surge = "evictionrequest.coordination.k8s.io/surge";
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "annotations": {"team": "shop"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web-5f7c", "uid": "u", "controller": true}]);
    let pod = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, "ownerReferences": owner("ReplicaSet")},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    };
    let (deployments, autoscalers) =
        (&scene.of("apps/v1", "deployments"), &scene.of("autoscaling/v2", "horizontalpodautoscalers"));
    scene.cluster.created(deployments, &deployment).await.unwrap();
    scene.cluster.created(autoscalers, &autoscaler).await.unwrap();
    scene.cluster.created(&scene.pods, &pod("a", json!({"app": "web"}))).await.unwrap();
    let (of_deployment, of_autoscaler, of_pod) =
        (format!("{deployments}/web"), format!("{autoscalers}/web"), format!("{}/a", scene.pods));
    let annotation = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    let image = |image: &str| json!([{"op": "replace", "path": "/spec/containers/0/image", "value": image}]);
    let of_template = |image: &str| json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]);
    for (path, probe) in [(&of_deployment, of_template("x")), (&of_pod, image("x"))] {
        scene.until_refused(MANAGER, path, &probe).await;
    }
    let max =
        json!({"metadata": {"annotations": {surge: "{}"}}, "spec": {"minReplicas": 2, "maxReplicas": 4}});
    scene
        .until_refused(MANAGER, &of_autoscaler, &json!({"spec": {"scaleTargetRef": {"name": "other"}}}))
        .await;
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    let grown = json!({"metadata": {"annotations": {surge: "{}"}, "labels": {surge: "1-2-0"}}, "spec": {"replicas": 2}});
    let end = json!({"metadata": {"annotations": {surge: null}, "labels": {surge: null}}});
    for (what, path, patch, code, part) in [
        ("a surge", &of_deployment, grown, 200, ""),
        ("its end", &of_deployment, end, 200, ""),
        ("code", &of_deployment, of_template("x"), 422, "nothing else of the spec"),
        ("a pause", &of_deployment, json!({"spec": {"paused": true}}), 422, "nothing else of the spec"),
        ("an annotation", &of_deployment, annotation("team", json!("x")), 422, "no other annotations"),
        ("no annotation", &of_deployment, annotation("team", Value::Null), 422, "no other annotations"),
        ("a label", &of_deployment, json!({"metadata": {"labels": {"a": "b"}}}), 422, "no labels"),
        ("limits", &of_autoscaler, max, 200, ""),
        (
            "a target",
            &of_autoscaler,
            json!({"spec": {"scaleTargetRef": {"name": "other"}}}),
            422,
            "nothing else",
        ),
        ("a mark", &of_pod, annotation(cost, json!("-5")), 200, ""),
        ("code of a pod", &of_pod, image("x"), 422, "nothing else of the spec"),
        ("a label of a pod", &of_pod, json!({"metadata": {"labels": {"app": null}}}), 422, "no labels"),
        ("another annotation of a pod", &of_pod, annotation("team", json!("x")), 422, "no other annotations"),
    ] {
        scene.expect(what, MANAGER, path, &patch, code, part).await;
    }
    scene.expect("code", ADMIN, &of_deployment, &of_template("x"), 200, "").await;
    scene.expect("code of a pod", ADMIN, &of_pod, &image("x"), 200, "").await;

    // New pods have the interceptors of their ReplicaSet, and of their Deployment.
    let class =
        |of: &str| format!("interceptor.evictionrequest.coordination.k8s.io/priority_{of}.apps.k8s.io");
    let both = json!({"app": "web", "pod-template-hash": "5f7c"});
    let made = async |labels: &Value| {
        let path = format!("{}?dryRun=All", scene.pods);
        scene.cluster.created(&path, &pod("b", labels.clone())).await.unwrap()["metadata"]["annotations"]
            .clone()
    };
    let wanted =
        json!({class("replicaset"): "10000/controller", class("deployment"): "10001/deployment-controller"});
    let mut tries = 0;
    while made(&both).await != wanted {
        tries += 1;
        assert!(tries < 500, "{}", made(&both).await);
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(made(&json!({"app": "web"})).await, json!({class("replicaset"): "10000/controller"}));
}

pub async fn the_manager_makes_no_pods_but_those_that_it_hands_over(servers: &Servers) {
    let files = [
        "policies.yaml",
        "workloads/daemonset-role.yaml",
        "workloads/deployment-role.yaml",
        "workloads/deployment-limits.yaml",
        "workloads/hand-over-role.yaml",
        "workloads/hand-over-limits.yaml",
    ];
    let scene = Scene::new(servers, &files).await;
    let mark = "evictionrequest.coordination.k8s.io/hand-over";
    let request = json!({"apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": "a", "uid": "u"});
    let owner = |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": true});
    let pod = |name: &str, owners: Value, labels: Value, annotations: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
        })
    };
    let (web, marked) = (json!({"app": "web"}), json!({mark: "web"}));
    let none = pod("none", json!([]), web.clone(), json!({}));
    scene.until_refused(MANAGER, &scene.pods, &none).await;
    let hashed = json!({"app": "web", "pod-template-hash": "1"});
    let only = "only pods that it hands over";
    for (what, object) in [
        ("no mark", pod("x", json!([request]), web.clone(), json!({}))),
        ("no owner", pod("x", Value::Null, web.clone(), marked.clone())),
        ("another owner", pod("x", json!([owner("ReplicaSet")]), web.clone(), marked.clone())),
        ("two owners", pod("x", json!([request, owner("ReplicaSet")]), web.clone(), marked.clone())),
        ("the label of a ReplicaSet", pod("x", json!([request]), hashed.clone(), marked.clone())),
    ] {
        scene.expect(what, MANAGER, &scene.pods, &object, 422, only).await;
    }
    let made = pod("made", json!([request]), web.clone(), marked.clone());
    scene.expect("a hand-over", MANAGER, &scene.pods, &made, 201, "").await;
    let of_set = pod("other", json!([owner("ReplicaSet")]), web.clone(), json!({}));
    scene.cluster.created(&scene.pods, &of_set).await.unwrap();
    let daemon = pod("daemon", json!([owner("DaemonSet")]), web.clone(), json!({}));
    scene.cluster.created(&scene.pods, &daemon).await.unwrap();

    let (made, other, daemon) =
        (format!("{}/made", scene.pods), format!("{}/other", scene.pods), format!("{}/daemon", scene.pods));
    let label = |labels: Value, annotations: Value| json!({"metadata": {"labels": labels, "annotations": annotations}});
    let hash = json!({"pod-template-hash": "1"});
    scene.until_refused(MANAGER, &other, &label(hash.clone(), json!({}))).await;
    for (what, path, patch, part) in [
        ("a label of another pod", &other, label(hash.clone(), json!({})), "no labels"),
        ("a mark on another pod", &other, label(json!({}), marked.clone()), "no other annotations"),
        ("another label", &made, label(json!({"team": "x"}), json!({})), "no labels"),
        (
            "a label less",
            &made,
            label(json!({"app": null, "pod-template-hash": "1"}), json!({})),
            "no labels",
        ),
        ("another owner", &made, json!({"metadata": {"ownerReferences": []}}), "owners"),
    ] {
        scene.expect(what, MANAGER, path, &patch, 422, part).await;
    }
    scene.expect("the hand-over", MANAGER, &made, &label(hash, json!({mark: null})), 200, "").await;
    // From here on it is its ReplicaSet's.
    for (what, path, code) in
        [("handed over", &made, 422), ("another", &other, 422), ("a daemon", &daemon, 200)]
    {
        let answer = scene.send(MANAGER, Method::DELETE, path, &Value::Null).await;
        assert_eq!(answer.status, code, "{what}: {}", answer.body);
    }
    let dropped = pod("dropped", json!([request]), web, marked);
    scene.expect("a hand-over", MANAGER, &scene.pods, &dropped, 201, "").await;
    let answer = scene.send(MANAGER, Method::DELETE, &format!("{}/dropped", scene.pods), &Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// As it is installed without any choice.
pub async fn the_manager_deletes_pods_of_daemon_sets_alone(servers: &Servers) {
    let scene = Scene::new(servers, &["policies.yaml", "workloads/daemonset-role.yaml"]).await;
    let pod = |name: &str, kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true},
            ]},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
        })
    };
    for (name, kind) in [("web", "ReplicaSet"), ("agent", "DaemonSet")] {
        scene.cluster.created(&scene.pods, &pod(name, kind)).await.unwrap();
    }
    let dry = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let delete =
        async |name: &str| scene.send(MANAGER, Method::DELETE, &format!("{}/{name}", scene.pods), &dry).await;
    let mut tries = 0;
    while delete("web").await.status < 400 {
        tries += 1;
        assert!(tries < 500, "it is never refused");
        tokio::time::sleep(PAUSE).await;
    }
    let refused = delete("web").await;
    let message = refused.body["message"].as_str().unwrap_or_default();
    assert!(message.contains("the manager deletes only pods of DaemonSets"), "{}", refused.body);
    assert_eq!(delete("agent").await.status, 200);
}

pub async fn by_how_much_limits_are_raised_is_the_managers_to_say(servers: &Servers) {
    let files = ["workloads/deployment-role.yaml", "workloads/deployment-limits.yaml"];
    let scene = Scene::new(servers, &files).await;
    let resources = ["horizontalpodautoscalers", "horizontalpodautoscalers/status"];
    let rules = json!([{"apiGroups": ["autoscaling"], "resources": resources, "verbs": ["*"]}]);
    scene.role("autoscales", &rules).await;
    scene.bind(Some(&scene.namespace), "autoscales", TENANT).await;
    let path = &scene.of("autoscaling/v2", "horizontalpodautoscalers");
    let record =
        |by: u32| json!({SURGE_ANNOTATION: format!(r#"{{"by":{by},"minReplicas":3,"of":"victim"}}"#)});
    let autoscaler = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        })
    };
    scene.until_refused(TENANT, path, &autoscaler("x", record(1))).await;
    let theirs = "is Usher's";
    let annotated = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let one = format!("{path}/web");
    scene.expect("made with one", TENANT, path, &autoscaler("web", record(1)), 403, theirs).await;
    scene.expect("made without", TENANT, path, &autoscaler("web", json!({"team": "x"})), 201, "").await;
    scene.expect("added", TENANT, &one, &annotated(record(1)), 403, theirs).await;
    let status = format!("{one}/status");
    scene.expect("added with the status", TENANT, &status, &annotated(record(1)), 403, theirs).await;
    scene.expect("written", MANAGER, &one, &annotated(record(1)), 200, "").await;
    scene.expect("changed", TENANT, &one, &annotated(record(2)), 403, theirs).await;
    scene.expect("left alone", TENANT, &one, &json!({"spec": {"maxReplicas": 9}}), 200, "").await;
    scene.expect("removed", TENANT, &one, &annotated(json!({SURGE_ANNOTATION: null})), 200, "").await;
}

pub async fn by_how_much_a_deployment_surges_is_the_managers_to_say(servers: &Servers) {
    let files = ["workloads/deployment-role.yaml", "workloads/deployment-limits.yaml"];
    let scene = Scene::new(servers, &files).await;
    let resources = ["deployments", "deployments/status"];
    let rules = json!([{"apiGroups": ["apps"], "resources": resources, "verbs": ["*"]}]);
    scene.role("deploys", &rules).await;
    scene.bind(Some(&scene.namespace), "deploys", TENANT).await;
    let path = &scene.of("apps/v1", "deployments");
    let deployment = |name: &str, labels: Value| {
        let app = json!({"app": name});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": 4, "selector": {"matchLabels": app},
                "template": {"metadata": {"labels": app}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
            },
        })
    };
    let labelled = |label: Value| json!({"metadata": {"labels": {SURGE_LABEL: label}}});
    let one = format!("{path}/web");
    scene.expect("made without", TENANT, path, &deployment("web", json!({"team": "x"})), 201, "").await;
    scene.until_refused(TENANT, &one, &labelled("1-4-0".into())).await;
    let theirs = "is Usher's";
    scene.expect("added", TENANT, &one, &labelled("1-4-0".into()), 403, theirs).await;
    scene.expect("written", MANAGER, &one, &labelled("1-4-0".into()), 200, "").await;
    scene.expect("changed", TENANT, &one, &labelled("2-4-0".into()), 403, theirs).await;
    scene.expect("left alone", TENANT, &one, &json!({"spec": {"replicas": 9}}), 200, "").await;
    scene.expect("removed", TENANT, &one, &labelled(Value::Null), 200, "").await;
    // Nor may others pass for the manager with the annotation, which counts without the label.
    let annotated = json!({"metadata": {"annotations": {SURGE_ANNOTATION: r#"{"by":3,"replicas":4}"#}}});
    let in_its_name = format!("{one}?fieldManager=usher-interceptor");
    scene.expect("in its name", TENANT, &in_its_name, &annotated, 403, theirs).await;
    let status = format!("{one}/status");
    let status_in_its_name = format!("{status}?fieldManager=usher-interceptor");
    scene.expect("with the status", TENANT, &status_in_its_name, &annotated, 403, theirs).await;
    scene.expect("with the status", TENANT, &status, &annotated, 403, theirs).await;
    // Who names no field manager has that of its program.
    let mut as_its_program = Request::with_json(Method::PATCH, &one, &annotated);
    as_its_program.headers = [
        ("content-type", "application/merge-patch+json"),
        ("impersonate-user", TENANT),
        ("user-agent", "usher-interceptor/1.0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let refused = scene.cluster.send(ADMIN, as_its_program).await.unwrap();
    assert!(refused.status == 403 && refused.body.to_string().contains(theirs), "{}", refused.body);
    // What somebody else has annotated is not made the manager's by writing down who wrote it.
    scene.expect("scaled", MANAGER, &in_its_name, &json!({"spec": {"replicas": 6}}), 200, "").await;
    let in_another = format!("{one}?fieldManager=me");
    scene.expect("in another", TENANT, &in_another, &annotated, 200, "").await;
    let mut written = scene.cluster.get(&one).await.unwrap().body["metadata"]["managedFields"].clone();
    let writers = written.as_array_mut().unwrap().iter_mut();
    let ours: Vec<&mut Value> = writers.filter(|it| it["manager"] == "usher-interceptor").collect();
    assert_eq!(ours.len(), 1);
    for entry in ours {
        entry["fieldsV1"]["f:metadata"]["f:annotations"][format!("f:{SURGE_ANNOTATION}")] = json!({});
    }
    let forged = json!({"metadata": {"managedFields": written}});
    scene.expect("by its entry", TENANT, &one, &forged, 403, theirs).await;
    let removed = json!({"metadata": {"annotations": {SURGE_ANNOTATION: null}}});
    scene.expect("removed", TENANT, &one, &removed, 200, "").await;
    scene.expect("its own", MANAGER, &in_its_name, &annotated, 200, "").await;
    scene.expect("in another", TENANT, &in_another, &annotated, 200, "").await;
    // What the manager has written is there, and everything else of the Deployment is its owner's.
    scene.expect("scaled", TENANT, &one, &json!({"spec": {"replicas": 5}}), 200, "").await;
    let available = json!({"status": {"availableReplicas": 1, "readyReplicas": 1, "replicas": 1}});
    scene.expect("observed", TENANT, &status, &available, 200, "").await;
    // Such as from a backup: what it says is the number that its owner did not want.
    let kept = deployment("kept", json!({SURGE_LABEL: "1-4-0"}));
    scene.expect("made with one", TENANT, path, &kept, 201, "").await;
}
