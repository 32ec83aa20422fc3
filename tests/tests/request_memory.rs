//! What the controllers hold when every request is as large as its definition allows. The most that a process has held counts for all of it,
//! so this test has one of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jiff::Timestamp;
use kube::core::ObjectList;
use serde_json::{Value, json};
use usher_api::lenient::Lenient;
use usher_controllers::watch::Keyed;
use usher_decide::eviction_request::index::Index;
use usher_decide::snapshot::{Pod, PodOnWire, Request, RequestOnWire};

const COUNT: usize = 300;
/// As many as the watch of requests asks for at a time.
const PAGE: usize = <Request as Keyed>::PAGE as usize;
/// No attack may take the manager above 400 MB.
const LIMIT_MIB: u64 = 300;

/// As much as the definition lets through, in letters of one byte.
fn largest_status() -> Value {
    let condition = |number: usize| {
        json!({
            "type": format!("{number:0>316}"), "status": "True", "reason": "R".repeat(1024),
            "message": "m".repeat(32768), "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions: Vec<Value> = (0..16).map(condition).collect();
    json!({"message": "m".repeat(32768), "conditions": conditions})
}

fn mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The answer to a list, as text.
fn page(from: usize, status: &Value) -> String {
    let request = |number: usize| {
        json!({
            "metadata": {
                "name": format!("u{number}"), "namespace": "d", "uid": format!("r{number}"), "resourceVersion": "1",
                "finalizers": ["requester.evictionrequest.coordination.k8s.io/name_d.example.com"],
            },
            "spec": {
                "podRef": {"name": format!("p{number}"), "uid": format!("u{number}")},
                "interceptors": [{"interceptorClass": "a.example.com", "priority": 1}],
            },
            "status": status,
        })
        .to_string()
    };
    let items: Vec<String> = (from..from + PAGE).map(request).collect();
    format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{}]}}"#, items.join(","))
}

#[test]
fn three_hundred_requests_of_the_largest_status_fit() {
    let status = largest_status();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut index = Index::new(None);
    for from in (0..COUNT).step_by(PAGE) {
        let text = page(from, &status);
        let list: ObjectList<Lenient<RequestOnWire>> = serde_json::from_str(&text).unwrap();
        for (number, request) in (from..).zip(list.items) {
            let pod = json!({
                "metadata": {"name": format!("p{number}"), "namespace": "d", "uid": format!("u{number}")},
                "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
            });
            index.pod_seen(Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap()));
            index.request_seen(Request::from(request.read().unwrap()), now);
        }
    }
    let keys = index.request_keys();
    assert_eq!(keys.len(), COUNT);
    for key in &keys {
        let decided = index.decide(key, now).unwrap();
        assert!(!decided.decision.effects.is_empty(), "each gets its turn, with the whole status");
    }
    let held = index.request(&keys[0]).unwrap().status.conditions.len();
    let (most, resident) = (mib("VmHWM:"), mib("VmRSS:"));
    println!("{COUNT} requests with {held} conditions: {resident} MiB, {most} MiB at most");
    assert_eq!(held, 16);
    assert!(most < LIMIT_MIB, "{most} MiB");
}
