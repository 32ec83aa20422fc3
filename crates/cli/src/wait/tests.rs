//! What is said while pods are followed.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::samples::{NOW, budget, pod, request, world};

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn following(names: &[&str]) -> Following {
    let subjects = names.iter().map(|name| Subject::new("shop", name, &format!("uid-{name}"))).collect();
    Following::new(subjects, now())
}

#[test]
fn a_line_is_said_once_until_something_changes() {
    let mut following = following(&["web-1", "web-2"]);
    let pods = [pod("web-1", "n1"), pod("web-2", "n2")];
    let requests = [request("web-1"), request("web-2")];
    let blocked = world(&pods, &requests, &[budget("web", 0)]);
    assert_eq!(
        following.lines(&blocked, now()),
        "pod/web-1: disruption budget web does not allow the pod to be evicted\n\
         pod/web-2: disruption budget web does not allow the pod to be evicted\n"
    );
    assert_eq!(following.lines(&blocked, now() + SignedDuration::from_secs(5)), "");
    assert_eq!(following.ending(&blocked, now()), None);

    let one_gone = world(&pods[1..], &requests[1..], &[budget("web", 0)]);
    let later = now() + SignedDuration::from_secs(30);
    assert_eq!(following.lines(&one_gone, later), "pod/web-1: gone after 30s\n");
    assert_eq!(
        following.summary(&one_gone, later),
        "pod/web-2: not gone after 30s: disruption budget web does not allow the pod to be evicted; budget web has \
         minAvailable 3 and 3 pods: scale up to 4 pods or more, or lower minAvailable\n"
    );

    let none = world(&[], &[], &[]);
    assert_eq!(following.ending(&none, later), Some(Ending::Done));
    assert_eq!(following.summary(&none, later), "all 2 pods are gone after 30s\n");
}

#[test]
fn the_manager_is_not_worth_a_line_unless_it_takes_long() {
    let mut following = following(&["web-1"]);
    let world = world(&[pod("web-1", "n1")], &[request("web-1")], &[]);
    assert_eq!(following.lines(&world, now()), "");
    assert_eq!(following.lines(&world, now() + SignedDuration::from_secs(4)), "");
    assert_eq!(
        following.lines(&world, now() + SignedDuration::from_secs(5)),
        "pod/web-1: nothing is in the way; the manager has to evict the pod\n"
    );
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let mut newer = pod("web-1", "n1");
    newer["metadata"]["uid"] = json!("another");
    let subject = Subject::new("shop", "web-1", "uid-web-1");
    assert_eq!(outcome(&world(&[newer], &[], &[]), &subject, now()), PodState::Gone);
}

#[test]
fn without_its_request_a_pod_stays_unless_it_is_terminating() {
    let subject = Subject::new("shop", "web-1", "uid-web-1");
    let stays = world(&[pod("web-1", "n1")], &[], &[]);
    assert_eq!(outcome(&stays, &subject, now()), PodState::Withdrawn);
    let following = following(&["web-1"]);
    assert_eq!(following.ending(&stays, now()), Some(Ending::Withdrawn));
    assert_eq!(following.summary(&stays, now()), "pod/web-1: stays, as its eviction request was withdrawn\n");

    let mut terminating = pod("web-1", "n1");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:30Z");
    let terminating = world(&[terminating], &[], &[]);
    assert!(matches!(outcome(&terminating, &subject, now()), PodState::Waiting { .. }));

    let mut nobody_asks = request("web-1");
    nobody_asks["metadata"]["finalizers"] = json!(["other.example.com/f"]);
    let taken_back = world(&[pod("web-1", "n1")], &[nobody_asks.clone()], &[]);
    assert_eq!(outcome(&taken_back, &subject, now()), PodState::Withdrawn);
    nobody_asks["status"] = json!({"evictionRequestCancellationPolicy": "Forbid"});
    let held = world(&[pod("web-1", "n1")], &[nobody_asks], &[]);
    assert!(matches!(outcome(&held, &subject, now()), PodState::Waiting { .. }), "Forbid holds it");
}

#[test]
fn the_screen_shows_what_is_left() {
    let names: Vec<String> = (0..12).map(|number| format!("web-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let pods: Vec<_> = names[1..].iter().map(|name| pod(name, "n1")).collect();
    let requests: Vec<_> = names[1..].iter().map(|name| request(name)).collect();
    let world = world(&pods, &requests, &[budget("web", 1)]);
    let following = following(&names);
    let mut environment = Environment::plain();
    let picture = following.picture(&world, &environment, now() + SignedDuration::from_secs(7));
    let lines: Vec<&str> = picture.lines().collect();
    assert_eq!(lines[0], "1 of 12 pods gone after 7s");
    assert_eq!(lines[1], "  web-01   eviction API   manager: eviction");
    assert_eq!(lines[11], "  and 1 more");

    environment.colours = true;
    let blocked = crate::samples::world(&pods[..1], &requests[..1], &[budget("web", 0)]);
    let picture = self::following(&["web-01"]).picture(&blocked, &environment, now());
    assert_eq!(
        picture,
        "\x1b[1m0 of 1 pod gone after 0s\x1b[0m\n  web-01   eviction API   \x1b[33mbudget web: minAvailable 3 of \
         3\x1b[0m\n"
    );
}
