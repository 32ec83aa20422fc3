//! Eviction requests: the tables of the verdicts, by way of an API server.

use super::scene::{ADMIN, EDITOR, NOBODY, SHOP, Scene, VIEWER, Webhook, expect, pods, requests};
use crate::{Request, manifests};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_api::names::REQUESTER_FINALIZER_PREFIX;

fn with(mut request: Value, pointer: &str, field: &str, value: Value) -> Value {
    request.pointer_mut(pointer).unwrap()[field] = value;
    request
}

pub async fn creation(scene: &Scene) {
    let uid =
        scene.pod("web", json!([["low.io", "1"], ["high.io", "300/backup"], ["also-low.io", "1"]])).await;
    let ended = scene.pod("ended", json!([])).await;
    scene.set_phase("ended", "Succeeded").await;
    let named = scene.pod("named", json!([])).await;
    let good = scene.request_for("web", &uid);
    let other = "6f0a1a52-0000-4000-8000-000000000000";
    let malformed = json!([format!("{REQUESTER_FINALIZER_PREFIX}Upper")]);
    let generated = json!({
        "apiVersion": good["apiVersion"], "kind": "EvictionRequest", "metadata": {"generateName": "er-"}, "spec": good["spec"],
    });
    let active = with(
        good.clone(),
        "",
        "status",
        json!({
            "activeInterceptorClass": "high.io", "evictionRequestCancellationPolicy": "Allow",
            "failedAPIEvictionCounter": 0, "message": "",
        }),
    );
    let cases = [
        ("no-generate-name", ADMIN, generated, 422, "metadata.generateName is not supported"),
        (
            "name-is-pod-uid",
            ADMIN,
            with(good.clone(), "/metadata", "name", json!("web")),
            422,
            "(rule name-is-pod-uid)",
        ),
        ("pod-exists", ADMIN, scene.request_for("lost", &uid), 404, "there is no pod lost in namespace shop"),
        ("pod-has-uid", ADMIN, scene.request_for("web", other), 409, "(rule pod-has-uid)"),
        (
            "pod-is-not-terminal",
            ADMIN,
            scene.request_for("ended", &ended),
            409,
            "has ended already (Succeeded)",
        ),
        ("no-status-on-creation", ADMIN, active, 422, "(rule no-status-on-creation)"),
        (
            "requester-finalizer-form",
            ADMIN,
            with(good.clone(), "/metadata", "finalizers", malformed),
            422,
            "(rule requester-finalizer-form)",
        ),
        (
            "caller-may-delete-pod",
            VIEWER,
            good.clone(),
            403,
            "\"viewer\" may not delete pod web in namespace shop",
        ),
        ("caller-may-delete-pod", NOBODY, good.clone(), 403, "(rule caller-may-delete-pod)"),
        (
            "nothing is told without rights",
            NOBODY,
            scene.request_for("lost", &uid),
            403,
            "(rule caller-may-delete-pod)",
        ),
        ("a right to one pod", NOBODY, scene.request_for("named", &named), 201, ""),
        (
            "the schema still speaks",
            ADMIN,
            with(good.clone(), "/spec", "podRef", json!({"name": "web"})),
            422,
            "uid",
        ),
    ];
    for (what, user, request, status, part) in cases {
        let answer = scene.send(user, Method::POST, &requests(), &request).await;
        expect(what, &answer, status, part);
    }

    let labelled = with(good, "/metadata", "labels", json!({"app": "mine", "why": "drain"}));
    let wished =
        with(labelled, "/spec", "interceptors", json!([{"interceptorClass": "wish.io", "priority": 3}]));
    let created = scene.send(EDITOR, Method::POST, &requests(), &wished).await;
    expect("copied-from-pod", &created, 201, "");
    assert_eq!(created.body["metadata"]["labels"], json!({"app": "web", "why": "drain"}));
    let wanted = json!([
        {"interceptorClass": "high.io", "priority": 300, "role": "backup"},
        {"interceptorClass": "also-low.io", "priority": 1},
        {"interceptorClass": "low.io", "priority": 1},
    ]);
    assert_eq!(created.body["spec"]["interceptors"], wanted);
    assert!(created.warnings()[0].starts_with("spec.interceptors is replaced"), "{:?}", created.warnings());
}

/// A pod from before the webhook was there.
pub async fn invalid_annotations(scene: &Scene, uid: &str) {
    let created = scene.send(EDITOR, Method::POST, &requests(), &scene.request_for("old", uid)).await;
    expect("a pod with invalid annotations", &created, 201, "");
    assert_eq!(created.body["spec"]["interceptors"], json!([{"interceptorClass": "good.io", "priority": 7}]));
    let warnings = created.warnings();
    assert!(warnings[0].starts_with("the pod's annotation for bad.io is ignored"), "{warnings:?}");
}

pub async fn changes(scene: &Scene, webhook: &Webhook) {
    let path =
        scene.requested("turns", json!([["low.io", "1"], ["high.io", "300"], ["middle.io", "20"]])).await;
    let status = format!("{path}/status");
    let in_an_hour = Timestamp::now() + SignedDuration::from_hours(1);
    let now = Timestamp::now();
    let base =
        json!({"evictionRequestCancellationPolicy": "Allow", "failedAPIEvictionCounter": 1, "message": ""});
    let stat = |change: Value| {
        let mut status = base.clone();
        status.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"status": status})
    };
    let turn = |class: &str| stat(json!({"activeInterceptorClass": class}));
    let finalizer =
        |name: &str| json!({"metadata": {"finalizers": [format!("{REQUESTER_FINALIZER_PREFIX}{name}")]}});
    let cases = [
        ("highest-priority-first", ADMIN, &status, turn("middle.io"), 422, "highest priority"),
        ("caller-may-delete-pod", VIEWER, &status, turn("high.io"), 403, "(rule caller-may-delete-pod)"),
        ("highest-priority-first", EDITOR, &status, turn("high.io"), 200, ""),
        ("turn-is-over", EDITOR, &status, turn("middle.io"), 422, "it is still the turn of high.io"),
        ("next-in-order", EDITOR, &status, turn("low.io"), 422, "next"),
        (
            "progress-not-in-future",
            EDITOR,
            &status,
            stat(json!({"activeInterceptorClass": "high.io", "progressTimestamp": in_an_hour.to_string()})),
            422,
            "(rule progress-not-in-future)",
        ),
        (
            "counter-only-rises",
            EDITOR,
            &status,
            json!({"status": {"failedAPIEvictionCounter": 0}}),
            422,
            "incremented",
        ),
        (
            "spec-is-immutable",
            EDITOR,
            &path,
            json!({"spec": {"progressDeadlineSeconds": 900}}),
            422,
            "immutable",
        ),
        ("requester-finalizer-form", EDITOR, &path, finalizer("Up"), 422, "(rule requester-finalizer-form)"),
        ("requester-finalizer-form", EDITOR, &path, finalizer("other.io"), 200, ""),
        ("caller-may-delete-pod", NOBODY, &path, finalizer("third.io"), 403, "(rule caller-may-delete-pod)"),
    ];
    for (what, user, path, patch, code, part) in cases {
        let answer = scene.send(user, Method::PATCH, path, &patch).await;
        expect(what, &answer, code, part);
    }

    webhook.clock.shift_to(1800);
    let answer = scene.send(EDITOR, Method::PATCH, &status, &turn("middle.io")).await;
    webhook.clock.shift_to(0);
    expect("turn-is-over: silent since the creation", &answer, 200, "");
    let completed = stat(json!({
        "activeInterceptorClass": "middle.io", "activeInterceptorCompleted": true, "progressTimestamp": now.to_string(),
    }));
    expect("completed", &scene.send(EDITOR, Method::PATCH, &status, &completed).await, 200, "");
    let next = stat(json!({"activeInterceptorClass": "low.io", "activeInterceptorCompleted": false}));
    expect("turn-is-over: completed", &scene.send(EDITOR, Method::PATCH, &status, &next).await, 200, "");
}

pub async fn deletion(scene: &Scene) {
    let nothing = Value::Null;
    let free = scene.requested("free", json!([])).await;
    let bound = scene.requested("bound", json!([["high.io", "300"]])).await;
    let forbid = json!({"status": {
        "activeInterceptorClass": "high.io", "evictionRequestCancellationPolicy": "Forbid", "failedAPIEvictionCounter": 0,
        "message": "",
    }});
    expect("forbid", &scene.send(EDITOR, Method::PATCH, &format!("{bound}/status"), &forbid).await, 200, "");

    for path in [&free, &bound] {
        let answer = scene.send(VIEWER, Method::DELETE, path, &nothing).await;
        expect("caller-may-delete-pod", &answer, 403, "(rule caller-may-delete-pod)");
    }
    expect("allow", &scene.send(EDITOR, Method::DELETE, &free, &nothing).await, 200, "");
    let refused = scene.send(EDITOR, Method::DELETE, &bound, &nothing).await;
    expect("deletion-forbidden", &refused, 403, "interceptor high.io cannot stop any more");
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "deletion-forbidden", "{}", refused.body);
    let collection = scene.send(ADMIN, Method::DELETE, &requests(), &nothing).await;
    expect("deletion-forbidden for a collection", &collection, 403, "(rule deletion-forbidden)");

    let gone = json!({"gracePeriodSeconds": 0});
    let pod = format!("{}/bound", pods(SHOP));
    scene.cluster.delete_with(&pod, gone).await.unwrap();
    scene.cluster.until_gone(&pod).await.unwrap();
    scene.pod("bound", json!([])).await;
    expect(
        "the pod is gone, another has its name",
        &scene.send(EDITOR, Method::DELETE, &bound, &nothing).await,
        200,
        "",
    );
}

/// The accounts that clean up behind namespaces and owners have a right to delete pods, and so are not in each other's way. The
/// embedded cluster does its housekeeping without accounts.
pub async fn cleaning_up(scene: &Scene) {
    for account in ["namespace-controller", "generic-garbage-collector"] {
        let path = scene.requested(account, json!([])).await;
        let mut request = Request::new(Method::DELETE, &path);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        let user = format!("system:serviceaccount:kube-system:{account}");
        request.headers = vec![("impersonate-user".to_owned(), user)];
        request.headers.extend(groups.map(|group| ("impersonate-group".to_owned(), group.to_owned())));
        expect(account, &scene.cluster.send(ADMIN, request).await.unwrap(), 200, "");
    }
}

/// A request whose interceptor has reported, for [`outage`].
pub async fn reported(scene: &Scene) -> String {
    let path = scene.requested("reporting", json!([["high.io", "300"]])).await;
    let turn = json!({"status": {
        "activeInterceptorClass": "high.io", "progressTimestamp": Timestamp::now().to_string(),
    }});
    let status = format!("{path}/status");
    expect("the turn", &scene.send(EDITOR, Method::PATCH, &status, &turn).await, 200, "");
    status
}

/// While the webhook is away interceptors go on reporting, the rules of the definition hold, and the API server's own policy
/// asks for the caller's rights.
pub async fn outage(scene: &Scene, status: &str) {
    let report = |fields: Value| json!({"status": fields});
    let cases = [
        ("progress", json!({"progressTimestamp": Timestamp::now().to_string()}), 200, ""),
        ("progress removed", json!({"progressTimestamp": null}), 422, "cannot be removed once it is set"),
    ];
    for (what, fields, code, part) in cases {
        expect(what, &scene.send(EDITOR, Method::PATCH, status, &report(fields)).await, code, part);
    }
    manifests::install(&scene.cluster, &["policies.yaml"]).await.unwrap();
    let message = report(json!({"message": "mine"}));
    let refused = |answer: &crate::Answer| answer.status == 403;
    scene.until(|| scene.send(VIEWER, Method::PATCH, status, &message), refused).await;
    let answer = scene.send(VIEWER, Method::PATCH, status, &message).await;
    expect("the policy", &answer, 403, "viewer may not delete pod reporting in namespace shop");
    let cases = [
        ("its rights suffice", json!({"message": "mine"}), 200, ""),
        (
            "undone",
            json!({"progressTimestamp": "2020-01-01T00:00:00Z"}),
            422,
            "cannot be set back, in a turn or with the next one",
        ),
        ("completed", json!({"activeInterceptorCompleted": true}), 200, ""),
        ("taken back", json!({"activeInterceptorCompleted": false}), 422, "cannot be taken back"),
    ];
    for (what, fields, code, part) in cases {
        expect(what, &scene.send(EDITOR, Method::PATCH, status, &report(fields)).await, code, part);
    }
}
