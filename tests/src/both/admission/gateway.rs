//! Plain evictions on both clusters, by callers of different rights: what becomes of them, and what is written for them.

use crate::typed::cells;
use crate::{Answer, TestCluster, typed};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use usher_api::gateway::GatewayMode;
use usher_cli::Environment;
use usher_webhook::GatewayOptions;
use usher_webhook::configurations::NAMESPACE;

use super::scene::{
    ADMIN, EDITOR, NOBODY, SHOP, Scene, ShiftedClock, VIEWER, Webhook, expect, pod, pods, requests,
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn evict_in(scene: &Scene, user: &str, namespace: &str, name: &str, options: Value) -> Answer {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    });
    scene.send(user, Method::POST, &format!("{}/{name}/eviction", pods(namespace)), &eviction).await
}

async fn evict(scene: &Scene, user: &str, name: &str) -> Answer {
    evict_in(scene, user, SHOP, name, json!({})).await
}

async fn all_requests(scene: &Scene) -> Vec<Value> {
    let list = scene.cluster.get(&requests()).await.unwrap();
    list.body["items"].as_array().unwrap().clone()
}

async fn allow(scene: &Scene, user: &str, what: &str, rules: Value) {
    let group = "rbac.authorization.k8s.io";
    let name = format!("gateway-{user}-{what}");
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    scene.cluster.created(&format!("{RBAC}/clusterroles"), &role).await.unwrap();
    scene.cluster.created(&format!("{RBAC}/clusterrolebindings"), &binding).await.unwrap();
}

/// The webhook acts as [`ADMIN`], who so is the manager here.
pub async fn the_gateway_decides(cluster: TestCluster) {
    let scene = Scene::new(cluster).await;
    for (namespace, mode) in [("quiet", "off"), ("blocked", "block")] {
        let labels = json!({"evictionrequest.coordination.k8s.io/gateway": mode});
        let object = json!({"metadata": {"name": namespace, "labels": labels}});
        scene.cluster.created("/api/v1/namespaces", &object).await.unwrap();
    }
    let options = GatewayOptions {
        exempt_users: vec![VIEWER.to_owned()],
        ..GatewayOptions::in_mode(GatewayMode::Request)
    };
    let webhook = Webhook::start_with(&scene.cluster, options).await;
    scene.register_with(&webhook, GatewayMode::Request).await;
    webhook.keeper(&scene.cluster, &ShiftedClock::default()).round().await.unwrap();
    scene.until_asked().await;

    who_may_not_evict_asks_for_nothing(&scene).await;
    modes_and_exemptions(&scene).await;
    a_request_is_made_joined_and_passed(&scene).await;
    a_turns_own_interceptor_passes(&scene).await;
    many_at_once(&scene).await;
    webhook.end().await;
    let uid = scene.pod("orphan", json!([["a.io", "1"]])).await;
    expect("an outage lets evictions pass", &evict(&scene, EDITOR, "orphan").await, 201, "");
    assert!(all_requests(&scene).await.iter().all(|it| it["metadata"]["name"] != uid.as_str()));
}

async fn who_may_not_evict_asks_for_nothing(scene: &Scene) {
    scene.pod("mine", json!([["a.io", "1"]])).await;
    expect("no right", &evict(scene, NOBODY, "mine").await, 403, "cannot create resource");
    assert_eq!(all_requests(scene).await.len(), 0);
}

async fn modes_and_exemptions(scene: &Scene) {
    for namespace in ["quiet", "blocked", NAMESPACE] {
        scene.cluster.created(&pods(namespace), &pod("web", json!([["a.io", "1"]]))).await.unwrap();
    }
    let off = evict_in(scene, EDITOR, "quiet", "web", json!({})).await;
    expect("off", &off, 201, "");
    let blocked = evict_in(scene, EDITOR, "blocked", "web", json!({})).await;
    expect("block", &blocked, 429, "ask for it by an EvictionRequest");
    let none = scene.cluster.get(&requests().replace(SHOP, "blocked")).await.unwrap();
    assert_eq!(none.body["items"], json!([]), "nothing is asked for");
    let own = evict_in(scene, EDITOR, NAMESPACE, "web", json!({})).await;
    expect("the manager's own namespace", &own, 201, "");
    allow(
        scene,
        VIEWER,
        "evicts",
        json!([{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]),
    )
    .await;
    scene.until(|| evict(scene, VIEWER, "no-such-pod"), |answer| answer.status == 404).await;
    for (what, user, name) in [("an exempt user", VIEWER, "exempt"), ("the manager", ADMIN, "managers")] {
        scene.pod(name, json!([["a.io", "1"]])).await;
        expect(what, &evict(scene, user, name).await, 201, "");
    }
    scene.pod("free", json!([])).await;
    expect("no interceptors", &evict(scene, EDITOR, "free").await, 201, "");
    expect("no pod", &evict(scene, EDITOR, "free").await, 404, "not found");
    assert_eq!(all_requests(scene).await.len(), 0);
}

async fn a_request_is_made_joined_and_passed(scene: &Scene) {
    let uid = scene.pod("web", json!([["a.io", "1"]])).await;
    let dry = evict_in(scene, EDITOR, SHOP, "web", json!({"dryRun": ["All"]})).await;
    expect("a dry run", &dry, 429, "Eviction triggered evacuation");
    let other = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    expect("another UID", &evict_in(scene, EDITOR, SHOP, "web", other).await, 409, "");
    // The API server takes an empty version for none, and would evict the pod.
    let empty = json!({"dryRun": ["All"], "preconditions": {"resourceVersion": ""}});
    let empty = evict_in(scene, EDITOR, SHOP, "web", empty).await;
    expect("an empty version", &empty, 429, "Eviction triggered evacuation");
    assert_eq!(all_requests(scene).await.len(), 0, "nothing is written for these");

    let options = json!({"gracePeriodSeconds": 5, "preconditions": {"uid": uid}});
    let refused = evict_in(scene, EDITOR, SHOP, "web", options).await;
    let said = "Eviction triggered evacuation of pod shop/web: interceptor a.io is asked first";
    expect("the first", &refused, 429, said);
    let whole = format!(
        "admission webhook \"gateway.evictionrequest.coordination.k8s.io\" denied the request: {said}"
    );
    assert_eq!(refused.body["message"], whole.as_str());
    assert_eq!(refused.body["reason"], "TooManyRequests");
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 1);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let [request] = &all_requests(scene).await[..] else { panic!("one request") };
    assert_eq!(request["metadata"]["name"], uid.as_str());
    let finalizers = request["metadata"]["finalizers"].as_array().unwrap();
    let requester = finalizers[0].as_str().unwrap().split_once("name_").unwrap().1;
    assert!(requester.starts_with("editor-") && requester.ends_with(".user.gateway"), "{requester}");
    let key = format!("gateway.evictionrequest.coordination.k8s.io/{requester}");
    let ask: Value =
        serde_json::from_str(request["metadata"]["annotations"][&key].as_str().unwrap()).unwrap();
    assert_eq!((&ask["by"], &ask["gracePeriodSeconds"]), (&json!("editor"), &json!(5)));
    let version = request["metadata"]["resourceVersion"].clone();
    let again = evict_in(scene, EDITOR, SHOP, "web", json!({"gracePeriodSeconds": 5})).await;
    expect("again", &again, 429, "interceptor a.io is about to have its turn, asked since");
    let request = all_requests(scene).await.remove(0);
    assert_eq!(
        request["metadata"]["resourceVersion"], version,
        "an ask that is remembered is not written again"
    );

    allow(
        scene,
        NOBODY,
        "evicts",
        json!([
            {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
            {"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["interceptorclasses"], "resourceNames": ["b.io"], "verbs": ["intercept"]},
        ]),
    )
    .await;
    scene.until(|| evict(scene, NOBODY, "web"), |answer| answer.status == 429).await;
    let request = all_requests(scene).await.remove(0);
    assert_eq!(request["metadata"]["finalizers"].as_array().unwrap().len(), 2, "joined: {request}");

    people_see_who_was_turned_away(scene).await;
    let status = format!("{}/{uid}/status", requests());
    for done in [
        json!({"status": {"activeInterceptorClass": "a.io"}}),
        json!({"status": {"activeInterceptorCompleted": true}}),
    ] {
        assert_eq!(scene.cluster.merge_patch(&status, &done).await.unwrap().status, 200);
    }
    expect("nobody is left", &evict(scene, EDITOR, "web").await, 201, "");
}

async fn people_see_who_was_turned_away(scene: &Scene) {
    let usher = async |line: &str| {
        let line = format!("{line} --kubeconfig {}", scene.cluster.kubeconfig().display());
        typed::usher(&line, &Environment::plain()).await.unwrap()
    };
    let printed = usher("gateway status").await;
    assert_eq!(printed.code(), 0, "{printed:?}");
    let rows: Vec<Vec<&str>> = cells(&printed.out);
    assert_eq!(rows[0], ["Mode: request (plain evictions become eviction requests)"], "{printed:?}");
    let has = |start: &[&str]| rows.iter().any(|row| row.starts_with(start));
    assert!(has(&["blocked", "block"]) && has(&["quiet", "off"]), "{printed:?}");
    assert!(has(&["shop", "web", "editor"]) && has(&["shop", "web", "nobody"]), "{printed:?}");
    let explained = usher("explain web -n shop").await;
    assert!(explained.out.contains("editor by plain evictions, the last "), "{explained:?}");
}

async fn a_turns_own_interceptor_passes(scene: &Scene) {
    let uid = scene.pod("turn", json!([["a.io", "2"], ["b.io", "1"]])).await;
    expect("asked", &evict(scene, EDITOR, "turn").await, 429, "a.io");
    let status = format!("{}/{uid}/status", requests());
    for turn in [
        json!({"status": {"activeInterceptorClass": "a.io"}}),
        json!({"status": {"activeInterceptorCompleted": true}}),
    ] {
        expect("not the turn of b.io", &evict(scene, NOBODY, "turn").await, 429, "a.io");
        assert_eq!(scene.cluster.merge_patch(&status, &turn).await.unwrap().status, 200);
    }
    let next = json!({"status": {"activeInterceptorClass": "b.io", "activeInterceptorCompleted": false}});
    assert_eq!(scene.cluster.merge_patch(&status, &next).await.unwrap().status, 200);
    expect("others", &evict(scene, EDITOR, "turn").await, 429, "interceptor b.io has its turn");
    expect("its own", &evict(scene, NOBODY, "turn").await, 201, "");
    // An administrator may be an interceptor, and says so: the SDK does.
    let uid = scene.pod("claimed", json!([["a.io", "2"], ["b.io", "1"]])).await;
    expect("asked", &evict(scene, EDITOR, "claimed").await, 429, "a.io");
    let turn = json!({"status": {"activeInterceptorClass": "a.io"}});
    let status = format!("{}/{uid}/status", requests());
    assert_eq!(scene.cluster.merge_patch(&status, &turn).await.unwrap().status, 200);
    let claim = |class: &str| {
        let annotations = json!({"evictionrequest.coordination.k8s.io/interceptor": class});
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "claimed", "annotations": annotations}})
    };
    let path = format!("{}/claimed/eviction", pods(SHOP));
    // Who may do everything with eviction requests is no interceptor by that, and without the right to delete pods cannot be one.
    let all =
        json!([{"apiGroups": ["evictionrequest.coordination.k8s.io"], "resources": ["*"], "verbs": ["*"]}]);
    allow(scene, NOBODY, "operates", all).await;
    let list = requests();
    scene.until(|| scene.send(NOBODY, Method::GET, &list, &Value::Null), |it| it.status == 200).await;
    expect("every right on requests", &evict(scene, NOBODY, "claimed").await, 429, "a.io");
    for (what, user, class, code) in [
        ("not its turn", EDITOR, "b.io", 429),
        ("may not delete the pod", NOBODY, "a.io", 429),
        ("its turn", EDITOR, "a.io", 201),
    ] {
        expect(what, &scene.send(user, Method::POST, &path, &claim(class)).await, code, "");
    }
}

/// All are refused within the time that the API server gives, and none passes; those for whom there is no time are told to come back.
async fn many_at_once(scene: &Scene) {
    // The embedded server has a connection for every review, and all of it runs in this process. The real one shares its machine with other
    // suites: more than it sends within the time for a webhook pass unasked, as the failure policy says.
    let many = if scene.cluster.name() == "real" { 400 } else { 100 };
    let before = all_requests(scene).await.len();
    let names: Vec<String> = (0..many).map(|number| format!("many-{number}")).collect();
    for some in names.chunks(50) {
        futures::future::join_all(some.iter().map(|name| scene.pod(name, json!([["a.io", "1"]])))).await;
    }
    let started = Instant::now();
    let (mut rounds, mut left) = (0, names);
    while !left.is_empty() {
        rounds += 1;
        let sent = left.len();
        let answers = futures::future::join_all(left.iter().map(|name| evict(scene, EDITOR, name))).await;
        // The server has a limit of its own, and says that in plain text.
        let is_asked = |it: &Answer| {
            it.body["message"].as_str().is_some_and(|said| said.contains("Eviction triggered evacuation"))
        };
        let mut busy = Vec::new();
        for (name, answer) in left.into_iter().zip(answers) {
            assert_eq!(answer.status, 429, "{name}: {answer:?}");
            if !is_asked(&answer) {
                busy.push(name);
            }
        }
        left = busy;
        eprintln!(
            "round {rounds}: {sent} evictions, {} told to come back, {:.1?}",
            left.len(),
            started.elapsed()
        );
        assert!(started.elapsed() < Duration::from_secs(90), "they never end");
    }
    assert_eq!(all_requests(scene).await.len(), before + many);
}
