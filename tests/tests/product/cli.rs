//! The commands that people type, on an embedded cluster that lives, with the controller at work.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use cluster_simulator::{self as life, Life, Times};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use usher_api::EvictionRequest;
use usher_apply::Clock;
use usher_cli::Environment;
use usher_controllers::eviction_request::run;
use usher_tests::TestCluster;
use usher_tests::both::cli::everybody_is_heard;
use usher_tests::living::node;
use usher_tests::typed::{self, Printed};

const MISSING: &str = "Usher is not installed in this cluster, which knows no eviction requests or node maintenances: \
                       install it as its README says, or choose another cluster with --context";

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A living cluster with its controller; both end when dropped.
struct Scene {
    cluster: TestCluster,
    client: Client,
    /// Pods run only where there is life.
    _life: Option<Life>,
    controller: Option<JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(controller) = &self.controller {
            controller.abort();
        }
    }
}

impl Scene {
    async fn bare() -> Self {
        let (cluster, embedded) = TestCluster::embedded_with(true).await.unwrap();
        let quick = Duration::from_millis(10);
        let times = Times { start: quick, run: quick, terminate: quick };
        let life = life::start(&embedded, life::Options { times, ..life::Options::default() });
        let client = cluster.client("admin").unwrap();
        Self { cluster, client, _life: Some(life), controller: None }
    }

    async fn with_controller() -> Self {
        let mut place = Self::bare().await;
        place.install().await;
        place.create::<Node>(Api::all(place.client.clone()), node("n1")).await;
        place.control();
        place
    }

    async fn install(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for (_, definition) in usher_api::crd::crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
            let name = definition.name_any();
            self.until(definitions.clone(), &name, conditions::is_crd_established()).await;
        }
    }

    fn control(&mut self) {
        let running = run(self.client.clone(), Clock::system());
        self.controller = Some(tokio::spawn(running));
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create<K>(&self, api: Api<K>, object: Value) -> K
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    async fn until<K>(&self, api: Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        tokio::time::timeout(PATIENCE, await_condition(api, name, condition)).await.unwrap().unwrap()
    }

    /// A pod that runs.
    async fn pod(&self, name: &str, app: &str, annotations: Value) -> Pod {
        self.pending_pod(name, app, annotations).await;
        self.until(self.api::<Pod>(), name, conditions::is_pod_running()).await.unwrap()
    }

    async fn pending_pod(&self, name: &str, app: &str, annotations: Value) -> Pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": app}, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 1},
        });
        self.create::<Pod>(self.api(), pod).await
    }

    /// A budget that keeps so many pods, once it is counted.
    async fn budget(&self, app: &str, keeps: i32) {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
            "spec": {"minAvailable": keeps, "selector": {"matchLabels": {"app": app}}},
        });
        self.create::<PodDisruptionBudget>(self.api(), budget).await;
        let is_counted = |budget: Option<&PodDisruptionBudget>| {
            let status = budget.and_then(|budget| budget.status.as_ref());
            status.is_some_and(|status| status.current_healthy.unwrap_or(0) >= 1)
        };
        self.until(self.api::<PodDisruptionBudget>(), app, is_counted).await;
    }

    /// Runs a command line, split at white space.
    async fn usher(&self, line: &str) -> Printed {
        let line = format!("{line} --kubeconfig {}", self.cluster.kubeconfig().display());
        tokio::time::timeout(PATIENCE, typed::usher(&line, &Environment::plain())).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn without_the_definitions_every_command_says_what_to_install() {
    let place = Scene::bare().await;
    place.create::<Node>(Api::all(place.client.clone()), node("n1")).await;
    place.pod("web-1", "web", json!({})).await;
    for line in ["requests", "requests -w", "requests -o json", "explain web-1", "cancel web-1"] {
        assert_eq!(place.usher(line).await.error(), MISSING, "{line}");
    }
    let evict = place.usher("evict web-1").await;
    assert_eq!((evict.code(), evict.err), (1, format!("error: pod/web-1: {MISSING}\n")));
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let place = Scene::with_controller().await;
    let nobody = place.usher("requests").await;
    let text = "No eviction requests found in default namespace; -A shows all namespaces.\n";
    assert_eq!((nobody.code(), nobody.err.as_str()), (0, text));
    let missing =
        "pod \"nope\" is not in namespace \"default\": name another with -n, or see kubectl get pods -A";
    assert_eq!(place.usher("explain nope").await.error(), missing);
    for line in ["evict nope", "cancel nope"] {
        let printed = place.usher(line).await;
        assert_eq!((printed.code(), printed.err), (1, format!("error: {missing}\n")), "{line}");
    }
    let selected = place.usher("evict -l app=none").await;
    assert!(selected.error().starts_with("no pod in namespace \"default\" has the labels \"app=none\""));
    let garbled = place.usher("evict -l app=)").await;
    assert!(garbled.error().starts_with("the selector \"app=)\" is not understood: "), "{garbled:?}");
    assert_eq!(garbled.code(), 2);
    let context = place.usher("requests --context nowhere").await;
    assert_eq!(context.error(), "the kubeconfig has no context \"nowhere\": see kubectl config get-contexts");
}

#[tokio::test]
async fn a_request_is_joined_shown_explained_and_taken_back() {
    let place = Scene::with_controller().await;
    let annotation = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    let pod = place.pod("db-0", "db", json!({annotation: "11000/knowledgeable"})).await;
    let uid = pod.uid().unwrap();
    let explained = place.usher("explain pod/db-0").await.out;
    assert!(
        explained.contains("If evicted    db.example.com would go first (1 interceptor)\n"),
        "{explained}"
    );
    assert!(explained.contains("To evict it   usher evict db-0 -n default\n"), "{explained}");

    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {
            "name": uid, "labels": {"app": "db"},
            "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_drain.example.com"],
        },
        "spec": {
            "podRef": {"name": "db-0", "uid": uid},
            "interceptors": [{"interceptorClass": "db.example.com", "priority": 11000, "role": "knowledgeable"}],
        },
    });
    place.create::<EvictionRequest>(place.api(), request).await;
    let joined = place.usher("evict db-0").await;
    assert_eq!(
        joined.out,
        "pod/db-0: eviction requested as admin.usher.dev; already requested by drain.example.com\n",
        "{joined:?}"
    );
    let again = place.usher("evict db-0 --deadline 1h").await;
    assert!(
        again.out.starts_with("pod/db-0: eviction already requested as admin.usher.dev, at "),
        "{again:?}"
    );
    assert_eq!(
        again.err,
        "warning: pod/db-0: the request keeps its deadline of 30m, which cannot be changed\n"
    );

    let has_turn = |request: Option<&EvictionRequest>| {
        let status = request.and_then(|request| request.status.as_ref());
        status.is_some_and(|status| status.active_interceptor_class.as_deref() == Some("db.example.com"))
    };
    place.until(place.api::<EvictionRequest>(), &uid, has_turn).await;
    let table = place.usher("requests -l app=db").await.out;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split("   ").map(str::trim).collect();
    assert_eq!(
        row[..4],
        ["db-0", "n1", "drain.example.com,admin.usher.dev", "db.example.com (1/1)"],
        "{table}"
    );
    assert!(table.contains("interceptor, 30m left") || table.contains("interceptor, 29m left"), "{table}");
    assert_eq!(place.usher("requests -l app=other").await.out, "");
    let list: Value = serde_json::from_str(&place.usher("requests -A -o json").await.out).unwrap();
    assert_eq!(list["items"][0]["spec"]["podRef"]["name"], "db-0");
    let yaml: Value = serde_saphyr::from_str(&place.usher("requests -o yaml").await.out).unwrap();
    assert_eq!(yaml, list);
    let name = place.usher("requests -o name").await.out;
    assert_eq!(name, format!("evictionrequest.evictionrequest.coordination.k8s.io/{uid}\n"));

    let explained = place.usher("explain db-0").await.out;
    assert!(explained.contains("Waiting on    interceptor db.example.com has its turn\n"), "{explained}");
    assert!(explained.contains("db.example.com goes first (1 interceptor)\n"), "events: {explained}");
    let explained: Value = serde_json::from_str(&place.usher("explain db-0 -o json").await.out).unwrap();
    assert_eq!(explained["waitingOn"]["kind"], "Interceptor");
    assert_eq!(explained["interceptors"][0]["turn"]["state"], "Active");
    assert_eq!(
        explained["interceptors"][0]["turn"]["progress"],
        Value::Null,
        "it has not reported: {explained}"
    );
    assert_eq!(row[4], "never", "{table}");

    let cancelled = place.usher("cancel db-0").await;
    assert_eq!(
        cancelled.out,
        "pod/db-0: withdrawn for admin.usher.dev; still requested by drain.example.com, so the eviction goes on\n"
    );
    let again = place.usher("cancel db-0").await;
    assert_eq!(again.code(), 1);
    assert!(again.err.contains("use usher cancel --requester drain.example.com"), "{again:?}");
    let cancelled = place.usher("cancel db-0 --all-requesters --force").await;
    assert_eq!(
        cancelled.out,
        "pod/db-0: withdrawn for all requesters; no requesters remain, so the pod stays\n"
    );
    place
        .until(place.api::<EvictionRequest>(), &uid, |request: Option<&EvictionRequest>| request.is_none())
        .await;
    assert!(place.api::<Pod>().get("db-0").await.unwrap().metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn interceptors_that_the_request_lacks_are_warned_of() {
    let place = Scene::with_controller().await;
    let annotation = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
    place.pod("db-0", "db", json!({annotation: "11000"})).await;
    let client = place.usher("evict db-0 --dry-run").await;
    assert_eq!(client.out, "pod/db-0: eviction would be requested as admin.usher.dev (dry run)\n");
    let server = place.usher("evict db-0 --dry-run=server").await;
    assert!(server.out.ends_with("(server dry run)\n"), "{server:?}");
    assert!(!server.out.contains("the eviction API is next"), "{server:?}");
    let waits = "it was created without Usher's webhook, and waits: install the webhook configurations";
    assert!(server.err.contains(waits), "{server:?}");
    assert!(place.api::<EvictionRequest>().list(&Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn waiting_ends_when_all_pods_are_gone() {
    let place = Scene::with_controller().await;
    for name in ["web-1", "web-2", "web-3"] {
        place.pod(name, "web", json!({})).await;
    }
    let none = place.usher("cancel -l app=web").await;
    assert_eq!(
        none.error(),
        "no eviction is requested by admin.usher.dev of pods with the labels \"app=web\": see usher requests -n default"
    );
    let waited = place.usher("evict -l app=web --requester me.example.com --wait").await;
    assert_eq!(waited.code(), 0, "{waited:?}");
    for name in ["web-1", "web-2", "web-3"] {
        assert!(waited.out.contains(&format!("pod/{name}: gone after ")), "{waited:?}");
    }
    assert!(waited.out.contains("all 3 pods are gone after "), "{waited:?}");
    assert!(place.api::<Pod>().list(&Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_budget_that_blocks_is_told_at_the_timeout_and_the_request_can_be_taken_back() {
    let place = Scene::with_controller().await;
    place.pod("web-1", "web", json!({})).await;
    place.budget("web", 1).await;
    let waited = place.usher("evict web-1 --wait --timeout 1s").await;
    assert_eq!(waited.code(), 3, "{waited:?}");
    assert!(waited.err.starts_with("pod/web-1: not gone after "), "{waited:?}");
    assert!(
        waited.err.contains(
            "budget web has minAvailable 1 and 1 pod: scale up to 2 pods or more, or lower minAvailable"
        ),
        "{waited:?}"
    );
    assert!(waited.err.contains("cancel: usher cancel web-1 -n default"), "{waited:?}");
    let explained = place.usher("explain web-1").await.out;
    assert!(
        explained.contains(
            "web (minAvailable 1): does not allow the eviction; 0 allowed, 1 of 1 pods healthy, 1 wanted"
        ),
        "{explained}"
    );
    assert!(!explained.contains("the manager"), "it has done what it could: {explained}");

    let (waited, cancelled) =
        tokio::join!(place.usher("evict web-1 --requester two.example.com --wait"), async {
            let asks_too = |request: Option<&EvictionRequest>| {
                request
                    .is_some_and(|one| one.finalizers().iter().any(|name| name.ends_with("two.example.com")))
            };
            let uid = place.api::<Pod>().get("web-1").await.unwrap().uid().unwrap();
            place.until(place.api::<EvictionRequest>(), &uid, asks_too).await;
            place.usher("cancel web-1 --all-requesters --force").await
        });
    assert_eq!(cancelled.code(), 0, "{cancelled:?}");
    assert_eq!(waited.code(), 4, "{waited:?}");
    assert!(waited.out.ends_with("pod/web-1: stays, as its eviction request was withdrawn\n"), "{waited:?}");
}

#[tokio::test]
async fn several_pods_and_nodes_are_explained_at_once() {
    let place = Scene::with_controller().await;
    for name in ["web-1", "web-2"] {
        place.pod(name, "web", json!({})).await;
    }
    let both = place.usher("explain web-1 web-2 node/n1").await;
    assert_eq!(both.code(), 0, "{both:?}");
    for part in ["Pod default/web-1 on n1", "\n\nPod default/web-2 on n1", "\n\nNode n1 is in no maintenance"]
    {
        assert!(both.out.contains(part), "{part:?}: {both:?}");
    }
    let list: Value = serde_json::from_str(&place.usher("explain web-1 web-2 -o json").await.out).unwrap();
    assert_eq!((&list["kind"], &list["items"][1]["name"]), (&json!("List"), &json!("web-2")));
    let one: Value = serde_json::from_str(&place.usher("explain node/n1 -o json").await.out).unwrap();
    assert_eq!(one["groups"][0]["waitingOn"]["kind"], "Manager");
    let some = place.usher("explain web-1 nope").await;
    assert_eq!(some.code(), 1, "{some:?}");
    assert!(
        some.out.contains("Pod default/web-1") && some.err.starts_with("error: pod \"nope\" is not in"),
        "{some:?}"
    );
    let wrong = place.usher("explain job/a").await;
    assert_eq!(wrong.code(), 2, "{wrong:?}");
    assert_eq!(place.usher("requests -w -o json").await.code(), 2);
}

#[tokio::test]
async fn the_manager_is_found_in_whatever_namespace_it_is() {
    let place = Scene::bare().await;
    place.install().await;
    place.create::<Node>(Api::all(place.client.clone()), node("n1")).await;
    place.pod("web-1", "web", json!({})).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "usher-manager"},
        "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    place.create::<k8s_openapi::api::coordination::v1::Lease>(place.api(), lease).await;
    assert_eq!(place.usher("evict web-1").await.code(), 0);
    let server_now = std::sync::Arc::new(|| jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60));
    let environment = Environment { clock: server_now, ..Environment::plain() };
    let line = format!("explain web-1 --kubeconfig {}", place.cluster.kubeconfig().display());
    let explained = typed::usher(&line, &environment).await.unwrap().out;
    assert!(
        explained.contains("the manager does not seem to run: it should evict the pod since"),
        "{explained}"
    );
    assert!(explained.contains("see kubectl get pods -n default\n"), "{explained}");
}

#[tokio::test]
async fn a_descheduler_in_another_namespace_and_of_another_name_can_be_named() {
    let place = Scene::bare().await;
    let nodes: Api<Node> = Api::all(place.client.clone());
    place.create::<Node>(nodes.clone(), node("n1")).await;
    let pod = place.pod("web-1", "web", json!({"descheduler.alpha.kubernetes.io/evict": "true"})).await;
    place.create::<Node>(nodes.clone(), node("n2")).await;
    let taint = json!({"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}});
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&taint)).await.unwrap();
    let missing = place.usher("deschedule explain web-1").await;
    let hint = "or the namespace of the descheduler with --descheduler-namespace";
    assert!(missing.error().contains(hint), "{missing:?}");

    let namespace = json!({"metadata": {"name": "elsewhere"}});
    place.create::<Namespace>(Api::all(place.client.clone()), namespace).await;
    let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), "elsewhere");
    let policy = "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{name: p, pluginConfig: \
                  [{name: RemovePodsViolatingNodeTaints}], plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}}]}";
    let policy = json!({"metadata": {"name": "usher-descheduler-policy"}, "data": {"policy.yaml": policy}});
    place.create(maps.clone(), policy).await;
    let line = format!("default/web-1/{} 2999-01-01T00:00:00Z", pod.uid().unwrap());
    let remembered = json!({"metadata": {"name": "mine-cool-downs"}, "data": {"coolDowns": line}});
    place.create(maps, remembered).await;
    let elsewhere = "deschedule explain web-1 --descheduler-namespace elsewhere";
    let wanted = place.usher(elsewhere).await.out;
    assert!(wanted.contains("wants it to leave: does not tolerate the taint broken"), "{wanted}");
    let cools = place.usher(&format!("{elsewhere} --descheduler-name mine")).await.out;
    assert!(cools.contains("not asked again before 2999-01-01"), "{cools}");
}

/// A Prometheus that gives these fractions of nodes, whatever it is asked. Its URL.
async fn prometheus(fractions: &[(&str, &str)]) -> String {
    let sample =
        |(node, fraction): &(&str, &str)| json!({"metric": {"instance": node}, "value": [0, fraction]});
    let samples: Vec<Value> = fractions.iter().map(sample).collect();
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": samples}}).to_string();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") && connection.read_buf(&mut asked).await.unwrap_or(0) > 0 {}
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn a_plan_goes_by_real_usage_where_the_policy_does_and_says_where_it_cannot() {
    let place = Scene::bare().await;
    let nodes: Api<Node> = Api::all(place.client.clone());
    place.create::<Node>(nodes.clone(), node("n1")).await;
    place.pod("web-1", "web", json!({"descheduler.alpha.kubernetes.io/evict": "true"})).await;
    place.create::<Node>(nodes.clone(), node("n2")).await;
    let file = std::env::temp_dir().join(format!("usher-measured-{}.yaml", std::process::id()));
    let told = async |provider: &str, metrics: &str, command: &str| {
        let resource = if provider.contains("url") { "MetricResource" } else { "cpu" };
        let policy = format!(
            "{{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, metricsProviders: [{provider}], profiles: \
             [{{name: p, pluginConfig: [{{name: LowNodeUtilization, args: {{thresholds: {{{resource}: 30}}, \
             targetThresholds: {{{resource}: 50}}, metricsUtilization: {metrics}}}}}], plugins: {{balance: \
             {{enabled: [LowNodeUtilization]}}}}}}]}}"
        );
        std::fs::write(&file, policy).unwrap();
        place.usher(&format!("deschedule {command} -f {}", file.display())).await.out
    };
    let by_query = "{source: Prometheus, prometheus: {query: busy}}";
    let provider = |url: &str| format!("{{source: Prometheus, prometheus: {{url: '{url}'}}}}");
    let url = prometheus(&[("n1", "0.9"), ("n2", "0.1")]).await;
    let plan = told(&provider(&url), by_query, "--dry-run").await;
    assert!(plan.contains("1 pod of 1 would be asked to leave"), "{plan}");
    assert!(plan.contains("MetricResource at 90 %"), "{plan}");
    let explained = told(&provider(&url), by_query, "explain web-1").await;
    assert!(explained.contains("LowNodeUtilization of profile \"p\" wants it to leave"), "{explained}");

    let nobody = told(&provider("http://127.0.0.1:9"), by_query, "--dry-run").await;
    let why = "Prometheus does not answer the query \"busy\"";
    assert!(nobody.contains(why) && nobody.contains("; plugins that go by it do nothing"), "{nobody}");
    assert!(nobody.contains("is not run: the usage of node n1 is not known"), "{nobody}");
    let explained = told("{source: KubernetesMetrics}", "{source: KubernetesMetrics}", "explain web-1").await;
    assert!(explained.contains("see whether a metrics server is installed"), "{explained}");
}

#[tokio::test]
async fn names_of_the_cluster_are_offered_for_completion() {
    let place = Scene::with_controller().await;
    for name in ["web-1", "web-2", "db-0"] {
        place.pod(name, "web", json!({})).await;
    }
    let kubeconfig = place.cluster.kubeconfig().display().to_string();
    let offered = async |line: &str| typed::completed(&format!("{line} "), &kubeconfig).await;
    assert_eq!(offered("evict").await, ["db-0", "web-1", "web-2"]);
    assert_eq!(offered("evict web-1").await, ["db-0", "web-2"]);
    assert_eq!(offered("explain").await, ["db-0", "web-1", "web-2", "node/n1"]);
    assert_eq!(offered("drain").await, ["n1"]);
    assert_eq!(offered("evict -n kube-system").await, [""; 0]);
    assert!(offered("evict -n").await.contains(&"default".to_string()));
    let maintenance = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "disks"},
        "spec": {"stage": "Idle", "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]}},
    });
    place.create::<usher_api::NodeMaintenance>(Api::all(place.client.clone()), maintenance).await;
    assert_eq!(offered("maintenance describe").await, ["disks"]);
}

/// Who may see pods and requests, and no budgets, is not told that none is in the way.
#[tokio::test]
async fn whoever_may_not_list_budgets_is_told_so() {
    let place = Scene::with_controller().await;
    place.pod("web-1", "web", json!({})).await;
    place.budget("web", 1).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
            {"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
        ],
    });
    place.create::<ClusterRole>(Api::all(place.client.clone()), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}],
    });
    place.create::<ClusterRoleBinding>(Api::all(place.client.clone()), binding).await;
    let cluster = Some(place.cluster.client("nobody").unwrap());
    let environment = Environment { cluster, ..Environment::plain() };
    let explained = typed::usher("explain web-1 -n default", &environment).await.unwrap();
    let text = &explained.out;
    assert!(
        text.contains(
            "If evicted    it has no interceptor; whether a disruption budget is in the way is not known"
        ),
        "{explained:?}"
    );
    assert!(
        text.contains("Budgets       not known: you may not list poddisruptionbudgets here\n"),
        "{explained:?}"
    );
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_is_told_with_what_to_do() {
    let place = Scene::with_controller().await;
    place.pod("web-1", "web", json!({})).await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "usher"},
        "webhooks": [{
            "name": "check.evictionrequest.coordination.k8s.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "clientConfig": {"url": "https://127.0.0.1:9/admit"},
            "rules": [{
                "apiGroups": ["evictionrequest.coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": ["evictionrequests"],
            }],
        }],
    });
    place.create::<ValidatingWebhookConfiguration>(Api::all(place.client.clone()), configuration).await;
    let printed = place.usher("evict web-1").await;
    assert_eq!(printed.code(), 1, "{printed:?}");
    let start = "error: pod/web-1: the server could not call admission webhook check.evictionrequest.coordination.k8s.io (";
    assert!(printed.err.starts_with(start), "{printed:?}");
    let end = "and changes nothing without it: it is Usher's own, so check that the manager runs, with kubectl get pods -A -l \
               app.kubernetes.io/name=usher\n";
    assert!(printed.err.ends_with(end), "{printed:?}");
}

#[tokio::test]
async fn everybody_who_asks_at_once_is_heard() {
    let place = Scene::bare().await;
    place.install().await;
    everybody_is_heard(&place.client).await;
}
