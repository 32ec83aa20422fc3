use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use usher_api::workloads::BundledInterceptor;
use usher_api::{EvictionRequestStatus, Interceptor};
use usher_apply::Clock;
use usher_decide::eviction_request::{Answer, Refusal};
use usher_decide::snapshot::{Key, Request};
use usher_decide::waiting_on::WaitingOn;

use super::Metrics;

const START: i64 = 1_800_000_000;

/// A clock that a test sets.
fn clock() -> (Clock, Arc<AtomicI64>) {
    let second = Arc::new(AtomicI64::new(START));
    let read = second.clone();
    let clock = Clock::from_fn(move || Timestamp::from_second(read.load(Ordering::Relaxed)).unwrap());
    (clock, second)
}

fn request(name: &str, requesters: &[&str], interceptors: &[&str], active: Option<&str>) -> Request {
    let of = |requester: &&str| format!("requester.evictionrequest.coordination.k8s.io/name_{requester}");
    let interceptor =
        |class: &&str| Interceptor { interceptor_class: (*class).to_string(), priority: 100, role: None };
    Request {
        rare: None,
        key: Key::new("ns", name),
        uid: name.into(),
        resource_version: "1".into(),
        created: Timestamp::from_second(START).unwrap(),
        is_deleting: false,
        finalizers: requesters.iter().map(of).collect(),
        pod_name: name.into(),
        pod_uid: name.into(),
        interceptors: interceptors.iter().map(interceptor).collect(),
        interceptors_are_resolved: true,
        deadline: SignedDuration::from_secs(600),
        is_progress_reported: false,
        is_progress_corrected: false,
        status: EvictionRequestStatus {
            active_interceptor_class: active.map(ToString::to_string),
            ..EvictionRequestStatus::default()
        },
    }
}

#[test]
fn all_specified_names_are_there_before_anything_happens_or_with_the_first_request() {
    let (clock, _) = clock();
    let metrics = Metrics::new(clock);
    let mut run = metrics.requests();
    let one = request("a", &["drainer.example.com"], &["db.example.com"], Some("db.example.com"));
    run.request_changed(None, Some(&one));
    let text = metrics.text().unwrap();
    for line in [
        "evictionrequest_controller_evictions{result=\"accepted\",reason=\"Accepted\"} 0",
        "evictionrequest_controller_active_interceptor{interceptor=\"db.example.com\"} 1",
        "evictionrequest_controller_active_requester{requester=\"drainer.example.com\"} 1",
        "evictionrequest_controller_pod_interceptors{interceptors=\"1\"} 1",
        "workqueue_depth{name=\"evictionrequests\"} 0",
        "workqueue_adds_total{name=\"evictionrequests\"} 0",
        "workqueue_queue_duration_seconds_count{name=\"evictionrequests\"} 0",
        "workqueue_work_duration_seconds_count{name=\"evictionrequests\"} 0",
        "workqueue_unfinished_work_seconds{name=\"evictionrequests\"} 0.0",
        "workqueue_retries_total{name=\"evictionrequests\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("EOF") && text.contains("# TYPE workqueue_adds_total counter\n"), "{text}");
}

#[test]
fn what_there_is_follows_the_requests_and_ends_with_the_run() {
    let (clock, _) = clock();
    let metrics = Metrics::new(clock);
    let mut run = metrics.requests();
    let first = request("a", &["x.io", "y.io"], &["one.io", "two.io"], Some("one.io"));
    let second = request("a", &["y.io"], &["one.io", "two.io"], Some("two.io"));
    run.request_changed(None, Some(&first));
    run.request_changed(Some(&first), Some(&second));
    let text = metrics.text().unwrap();
    assert!(text.contains("active_interceptor{interceptor=\"two.io\"} 1"), "{text}");
    assert!(text.contains("active_requester{requester=\"y.io\"} 1"), "{text}");
    assert!(!text.contains("one.io") && !text.contains("x.io"), "{text}");
    let mut completed = second.clone();
    completed.status.active_interceptor_completed = true;
    run.request_changed(Some(&second), Some(&completed));
    assert!(!metrics.text().unwrap().contains("two.io"));
    drop(run);
    assert!(!metrics.text().unwrap().contains("y.io"), "another leader counts it now");
}

#[test]
fn evictions_waits_and_the_way_out_are_counted() {
    let (clock, second) = clock();
    let metrics = Metrics::new(clock.clone());
    let run = metrics.requests();
    let one = request("a", &["x.io"], &[], None);
    run.evicted(&Answer::Refused(Refusal::Budget { message: String::new() }));
    run.evicted(&Answer::Accepted);
    let refused = WaitingOn::Refused {
        refusal: Refusal::Webhook { code: 403, message: String::new() },
        failures: 1,
        retry_at: clock.now(),
    };
    run.waits(&one, Some(&refused), clock.now());
    second.fetch_add(40, Ordering::Relaxed);
    run.pod_left(&one, clock.now());
    let text = metrics.text().unwrap();
    for line in [
        "evictionrequest_controller_evictions{result=\"refused\",reason=\"DisruptionBudget\"} 1",
        "evictionrequest_controller_evictions{result=\"accepted\",reason=\"Accepted\"} 1",
        "evictionrequest_controller_waiting{reason=\"AdmissionWebhook\"} 1",
        "evictionrequest_controller_blocked_seconds_total{reason=\"AdmissionWebhook\"} 40.0",
        "evictionrequest_controller_pod_removal_seconds_sum 40.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn work_under_way_grows_until_it_is_done() {
    let (clock, second) = clock();
    let metrics = Metrics::new(clock);
    let run = metrics.requests();
    let unfinished = || {
        let text = metrics.text().unwrap();
        let of_requests = "workqueue_unfinished_work_seconds{name=\"evictionrequests\"}";
        let line = text.lines().find(|line| line.starts_with(of_requests)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    run.queue.taken(SignedDuration::ZERO);
    second.fetch_add(10, Ordering::Relaxed);
    run.queue.taken(SignedDuration::ZERO);
    second.fetch_add(5, Ordering::Relaxed);
    assert_eq!(unfinished(), 20.0);
    run.queue.done(SignedDuration::from_secs(15));
    assert_eq!(unfinished(), 5.0);
    run.queue.done(SignedDuration::from_secs(5));
    second.fetch_add(5, Ordering::Relaxed);
    assert_eq!(unfinished(), 0.0);
}

#[test]
fn what_hangs_in_any_queue_is_seen() {
    let (clock, second) = clock();
    let metrics = Metrics::new(clock);
    let (requests, maintenances) = (metrics.requests(), metrics.maintenances());
    let (descheduler, evict_policy) = (metrics.descheduler(), metrics.evict_policy());
    let interceptors = BundledInterceptor::ALL.map(|which| metrics.interceptor(which));
    let mut queues = vec![
        ("evictionrequests", &requests.queue),
        ("nodemaintenances", &maintenances.queue),
        ("descheduler", &descheduler.queue),
        ("evictpolicy", &evict_policy.queue),
    ];
    for (which, run) in BundledInterceptor::ALL.iter().zip(&interceptors) {
        queues.push((which.class(), &run.queue));
    }
    let has = |name: &str, seconds: f64| {
        let wanted = format!("workqueue_unfinished_work_seconds{{name=\"{name}\"}} {seconds:.1}");
        let text = metrics.text().unwrap();
        assert!(text.lines().any(|line| line == wanted), "{wanted} is not in:\n{text}");
    };
    for (name, queue) in &queues {
        has(name, 0.0);
        queue.taken(SignedDuration::ZERO);
        second.fetch_add(10, Ordering::Relaxed);
        has(name, 10.0);
    }
    let names: Vec<_> = queues.iter().map(|(name, _)| *name).collect();
    drop((requests, maintenances, descheduler, evict_policy, interceptors));
    // A run that has ended hangs no more.
    names.into_iter().for_each(|name| has(name, 0.0));
}
