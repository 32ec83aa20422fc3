//! The table as people see it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::rows::{Changes, Columns, table};
use crate::samples::{NOW, budget, pod, request, world};

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn status(request: &mut Value, status: Value) {
    request["status"] = status;
}

/// One of each: at an interceptor, before the first turn, blocked by a budget, refused by a webhook, terminating, gone.
fn some_of_each() -> crate::world::World {
    let mut pods: Vec<Value> =
        ["db-0", "db-1", "web-1", "web-2", "web-3"].iter().map(|name| pod(name, "node-1")).collect();
    pods[4]["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:20Z");
    let mut requests: Vec<Value> =
        ["db-0", "db-1", "web-1", "web-2", "web-3", "web-9"].iter().map(|name| request(name)).collect();
    let interceptors = json!([
        {"interceptorClass": "backup.example.com", "priority": 12000},
        {"interceptorClass": "db.example.com", "priority": 11000, "role": "knowledgeable"},
    ]);
    requests[0]["spec"]["interceptors"] = interceptors.clone();
    requests[1]["spec"]["interceptors"] = interceptors;
    status(
        &mut requests[0],
        json!({
            "activeInterceptorClass": "db.example.com", "progressTimestamp": "2026-01-01T11:57:00Z",
            "expectedInterceptorFinishTime": "2026-01-01T12:05:00Z", "message": "moving 3 of 5 shards",
            "evictionRequestCancellationPolicy": "Forbid",
        }),
    );
    status(
        &mut requests[3],
        json!({"failedAPIEvictionCounter": 4, "conditions": [{
            "type": "EvictionBlocked", "status": "True", "reason": "AdmissionWebhook",
            "message": "admission webhook \"hold.example.com\" denied the request: not now",
            "lastTransitionTime": "2026-01-01T11:50:00Z",
        }]}),
    );
    let mut web_2 = pods[3].clone();
    web_2["metadata"]["labels"] = json!({"app": "unguarded"});
    pods[3] = web_2;
    world(&pods, &requests, &[budget("web", 0)])
}

#[test]
fn the_table_says_whose_turn_it_is_and_what_is_waited_for() {
    let text = table(&some_of_each(), Columns::default(), None, now());
    assert_eq!(
        text,
        "\
POD     NODE     REQUESTERS        TURN                       PROGRESS   ETA   WAITING ON                        AGE
db-0    node-1   admin.usher.dev   db.example.com (2/2)       3m         5m    interceptor, 27m left             15m
db-1    node-1   admin.usher.dev   backup.example.com (1/2)   -          -     manager: next interceptor         15m
web-1   node-1   admin.usher.dev   eviction API               -          -     budget web: minAvailable 3 of 3   15m
web-2   node-1   admin.usher.dev   eviction API               -          -     admission webhook                 15m
web-3   node-1   admin.usher.dev   eviction API               -          -     termination, 20s left             15m
web-9   -        admin.usher.dev   eviction API               -          -     manager: clean-up                 15m
"
    );
}

#[test]
fn eighty_columns_show_all_of_what_is_waited_for() {
    let mut world = some_of_each();
    let rows = |world: &crate::world::World, columns| table(world, columns, Some(80), now());
    let text = rows(&world, Columns::default());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("budget web: minAvailable 3 of 3\n"), "{text}");
    assert!(text.contains("db.example.com (2/2)"), "{text}");
    let wide = rows(&world, Columns { namespace: true, wide: true });
    assert!(wide.contains("REQUESTERS"), "who asks for all gets all: {wide}");
    for request in world.requests.values_mut() {
        request.pod_name = format!("{}-with-a-name-that-is-longer-than-most", request.pod_name).into();
    }
    let long = rows(&world, Columns { namespace: true, wide: false });
    assert!(long.lines().all(|line| line.chars().count() <= 80), "{long}");
    assert!(long.contains("   manager: next interceptor\n"), "{long}");
}

#[test]
fn an_interceptor_that_never_reported_has_no_progress() {
    let mut world = some_of_each();
    world.requests.retain(|_, request| &*request.pod_name == "db-0");
    for request in world.requests.values_mut() {
        request.is_progress_reported = false;
    }
    let text = table(&world, Columns::default(), None, now());
    assert!(text.contains("db.example.com (2/2)   never      5m"), "{text}");
}

#[test]
fn budgets_that_may_not_be_read_are_not_said_to_be_out_of_the_way() {
    let mut world = some_of_each();
    world.budgets.clear();
    world.budgets_are_hidden = true;
    world.requests.retain(|_, request| matches!(&*request.pod_name, "web-1" | "web-2"));
    let text = table(&world, Columns::default(), None, now());
    assert!(text.contains("budgets you may not list"), "{text}");
    assert!(text.contains("admission webhook"), "what the status tells is known: {text}");
}

#[test]
fn wide_and_all_namespaces_have_more_columns() {
    let mut world = some_of_each();
    world.requests.retain(|_, request| &*request.pod_name == "db-0");
    let text = table(&world, Columns { namespace: true, wide: true }, None, now());
    assert_eq!(
        text,
        "\
NAMESPACE   POD    NODE     REQUESTERS        TURN                   PROGRESS   ETA   WAITING ON              AGE   DEADLINE   CANCELLATION   REFUSED   REQUEST    MESSAGE
shop        db-0   node-1   admin.usher.dev   db.example.com (2/2)   3m         5m    interceptor, 27m left   15m   30m        Forbid         0         uid-db-0   moving 3 of 5 shards
"
    );
}

#[test]
fn a_pipe_gets_a_line_per_change_and_none_for_the_passing_of_time() {
    let mut world = some_of_each();
    world.requests.retain(|_, request| &*request.pod_name == "db-0");
    let mut changes = Changes::default();
    let first = changes.lines(&world, Columns::default(), now());
    assert_eq!(first.lines().count(), 2, "{first}");
    let later = now() + jiff::SignedDuration::from_secs(60);
    assert_eq!(changes.lines(&world, Columns::default(), later), "");
    for request in world.requests.values_mut() {
        request.status.message = "moving 4 of 5 shards".to_string();
        let one_more = "requester.evictionrequest.coordination.k8s.io/name_a.example.com".to_string();
        request.finalizers = request.finalizers.iter().cloned().chain([one_more]).collect();
    }
    assert_eq!(
        changes.lines(&world, Columns::default(), later),
        "db-0   node-1   admin.usher.dev,a.example.com   db.example.com (2/2)   4m         4m    interceptor, 26m left   16m\n"
    );
    world.requests.clear();
    assert_eq!(
        changes.lines(&world, Columns::default(), later),
        "db-0   node-1   admin.usher.dev,a.example.com   db.example.com (2/2)   4m         4m    request ended           16m\n"
    );
}
