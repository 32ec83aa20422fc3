//! Expectations: what is learned from pods that left, and what is said of those that are still there.

use super::eta::{Experience, Group, MOST_OWNERS, Workload, shown};
use crate::snapshot::{Pod, PodOnWire};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use usher_api::PodType;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn workload(name: &str) -> Arc<Workload> {
    Arc::new(Workload { namespace: "ns".into(), kind: "StatefulSet".into(), name: name.into() })
}

fn group(workload: &Workload, pods: u32, asked: Option<i64>) -> Group<'_> {
    Group { workload, step: 0, pods, asked: asked.map(at), kind: PodType::Default }
}

fn seconds(experience: &Experience, groups: &[Group<'_>], waves: usize, now: i64) -> Option<i64> {
    experience.remaining(groups.iter().copied(), waves, at(now)).map(|left| left.as_secs())
}

/// So many pods, all asked at once, go so many at a time, each time after so long.
fn leave(experience: &mut Experience, of: &Arc<Workload>, from: i64, pods: i64, at_a_time: i64, takes: i64) {
    for pod in 0..pods {
        experience.left(of, at(from), at(from + takes * (pod / at_a_time + 1)));
    }
}

#[test]
fn a_replica_set_stands_for_its_deployment_and_pods_without_owner_for_each_other() {
    let pod = |owner: Option<(&str, &str)>, hash: Option<&str>| {
        let owners: Vec<_> = owner
            .map(|(kind, name)| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}))
            .into_iter()
            .collect();
        let labels = hash.map(|hash| json!({"pod-template-hash": hash}));
        let pod: PodOnWire = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": owners},
        }))
        .unwrap();
        let Workload { kind, name, .. } = Workload::of(&Pod::from(pod));
        format!("{kind}/{name}")
    };
    let rows = [
        (pod(Some(("ReplicaSet", "web-5d4f")), Some("5d4f")), "Deployment/web"),
        (pod(Some(("ReplicaSet", "web-5d4f")), None), "ReplicaSet/web-5d4f"),
        (pod(Some(("ReplicaSet", "web-5d4f")), Some("d4f")), "ReplicaSet/web-5d4f"),
        (pod(Some(("ReplicaSet", "-5d4f")), Some("5d4f")), "ReplicaSet/-5d4f"),
        (pod(Some(("StatefulSet", "db-5d4f")), Some("5d4f")), "StatefulSet/db-5d4f"),
        (pod(None, Some("5d4f")), "/"),
    ];
    for (found, wanted) in rows {
        assert_eq!(found, wanted);
    }
}

#[test]
fn nothing_is_said_before_the_first_pod_has_left_or_after_the_last() {
    let (web, mut experience) = (workload("web"), Experience::default());
    assert_eq!(seconds(&experience, &[group(&web, 3, Some(0))], 1, 5), None);
    experience.left(&web, at(0), at(30));
    assert_eq!(seconds(&experience, &[group(&web, 0, None)], 1, 30), None);
    assert_eq!(seconds(&experience, &[], 1, 30), None);
}

#[test]
fn pods_that_go_some_at_a_time_need_as_many_rounds() {
    // How many went at a time, how many are left, and how long that takes if each round takes 30 s.
    let rows = [(1, 10, 300), (1, 1, 30), (40, 40, 30), (2, 10, 150), (5, 60, 360), (10, 200, 600)];
    for (at_a_time, pods, wanted) in rows {
        let (web, mut experience) = (workload("web"), Experience::default());
        leave(&mut experience, &web, 0, 40, at_a_time, 30);
        let found = seconds(&experience, &[group(&web, pods, None)], 1, 5000).unwrap();
        let off = (found - wanted).abs();
        assert!(off <= (wanted / 4).max(15), "{pods} pods, {at_a_time} at a time: {found} s, not {wanted} s");
    }
}

#[test]
fn an_owner_is_judged_by_its_own_pods_and_an_unknown_one_by_all() {
    let (slow, fast, new) = (workload("slow"), workload("fast"), workload("new"));
    let mut experience = Experience::default();
    experience.left(&slow, at(0), at(600));
    experience.left(&fast, at(0), at(10));
    assert_eq!(seconds(&experience, &[group(&slow, 1, None)], 1, 700), Some(600));
    assert_eq!(seconds(&experience, &[group(&fast, 1, None)], 1, 700), Some(10));
    assert_eq!(seconds(&experience, &[group(&new, 1, None)], 1, 700), Some(305), "the mean");
    let both = [group(&slow, 1, None), group(&fast, 1, None)];
    assert_eq!(seconds(&experience, &both, 1, 700), Some(600), "side by side");
    let after = [group(&slow, 1, None), Group { step: 2, ..group(&fast, 1, None) }];
    assert_eq!(seconds(&experience, &after, 1, 700), Some(610), "one step after the other");
}

#[test]
fn pods_that_are_not_evicted_count_only_if_some_of_their_owner_have_left() {
    let (web, agent, mut experience) = (workload("web"), workload("agent"), Experience::default());
    leave(&mut experience, &web, 0, 1, 1, 30);
    let agents = |asked| Group { step: 4, kind: PodType::DaemonSet, ..group(&agent, 2, asked) };
    assert_eq!(seconds(&experience, &[group(&web, 1, None), agents(None)], 1, 100), Some(30));
    assert_eq!(seconds(&experience, &[agents(Some(100))], 1, 4000), None, "they may stay for ever");
    experience.left(&agent, at(100), at(110));
    assert!(seconds(&experience, &[agents(None)], 1, 200).is_some(), "somebody ends them");
}

#[test]
fn new_times_count_more_than_old_ones() {
    let (web, mut experience) = (workload("web"), Experience::default());
    for round in 0..20 {
        experience.left(&web, at(round * 1000), at(round * 1000 + if round < 10 { 100 } else { 20 }));
    }
    let found = seconds(&experience, &[group(&web, 1, None)], 1, 99_999).unwrap();
    assert!((20..30).contains(&found), "{found}");
}

#[test]
fn what_has_passed_is_taken_off_and_what_is_late_is_expected_to_be_as_late_again() {
    let (web, mut experience) = (workload("web"), Experience::default());
    experience.left(&web, at(0), at(100));
    for (now, left) in [(1000, 100), (1060, 40), (1100, 0), (1150, 50), (1400, 300)] {
        assert_eq!(seconds(&experience, &[group(&web, 1, Some(1000))], 1, now), Some(left), "at {now}");
    }
    // With one gone since, the next is due so long after it.
    experience.left(&web, at(1000), at(1100));
    experience.left(&web, at(1000), at(1120));
    assert_eq!(seconds(&experience, &[group(&web, 2, Some(1000))], 1, 1125), Some(15 + 20));
}

#[test]
fn each_wave_of_nodes_starts_from_the_beginning() {
    let (web, mut experience) = (workload("web"), Experience::default());
    leave(&mut experience, &web, 0, 20, 20, 60);
    let left = [group(&web, 12, None)];
    assert_eq!(
        (seconds(&experience, &left, 1, 900), seconds(&experience, &left, 4, 900)),
        (Some(60), Some(240))
    );
    assert_eq!(seconds(&experience, &[group(&web, 2, None)], 4, 900), Some(120), "two pods are on two nodes");
}

#[test]
fn owners_that_were_not_seen_for_longest_are_forgotten() {
    let mut experience = Experience::default();
    let first = workload("first");
    experience.left(&first, at(0), at(1000));
    let kept = workload("kept");
    experience.left(&kept, at(0), at(2000));
    for number in 0..MOST_OWNERS {
        experience.left(&workload(&format!("w{number}")), at(0), at(10));
        experience.left(&kept, at(5000), at(7000));
    }
    assert_eq!(seconds(&experience, &[group(&kept, 1, None)], 1, 9000), Some(2000));
    let forgotten = seconds(&experience, &[group(&first, 1, None)], 1, 9000).unwrap();
    assert_ne!(forgotten, 1000, "what is said of it is said of everybody");
}

#[test]
fn what_people_read_moves_only_when_it_matters() {
    let rows: [(Option<i64>, Option<i64>, Option<i64>); 9] = [
        (None, None, None),
        (None, Some(1003), Some(1010)),
        (None, Some(700), Some(900)),
        (Some(1010), Some(1015), Some(1010)),
        (Some(1010), Some(1031), Some(1040)),
        (Some(2000), Some(2090), Some(2000)),
        (Some(2000), Some(2200), Some(2200)),
        (Some(1500), None, Some(1500)),
        (Some(880), None, None),
    ];
    for (before, expected, wanted) in rows {
        let found = shown(before.map(at), expected.map(at), at(900));
        assert_eq!(found, wanted.map(at), "{before:?} {expected:?}");
    }
}

proptest! {
    #[test]
    fn more_pods_never_take_less_time_and_none_is_done_before_now(
        past in proptest::collection::vec((0_usize..4, 0_i64..5000, 0_i64..2000), 1..60),
        left in proptest::collection::vec((0_usize..5, 0_usize..3, 1_u32..400, proptest::option::of(0_i64..9000)), 1..12),
        more in 0_usize..12,
        waves in 0_usize..6,
        now in 7000_i64..20_000,
    ) {
        let owners: Vec<_> = (0..5).map(|number| workload(&number.to_string())).collect();
        let mut experience = Experience::default();
        for (owner, asked, took) in past {
            experience.left(&owners[owner], at(asked), at(asked + took));
        }
        let groups: Vec<Group<'_>> = left
            .iter()
            .map(|(owner, step, pods, asked)| Group { step: *step, ..group(&owners[*owner], *pods, *asked) })
            .collect();
        let found = experience.remaining(groups.iter().copied(), waves, at(now)).unwrap();
        prop_assert!(found >= SignedDuration::ZERO);
        let backwards = experience.remaining(groups.iter().rev().copied(), waves, at(now));
        prop_assert_eq!(backwards, Some(found));
        let mut grown = groups.clone();
        let grows = more % groups.len();
        grown[grows].pods += 7;
        prop_assert!(experience.remaining(grown.into_iter(), waves, at(now)).unwrap() >= found);
        prop_assert!(experience.remaining(groups.iter().copied(), waves + 1, at(now)).unwrap() >= SignedDuration::ZERO);
        let said = shown(None, Some(at(now) + found), at(now)).unwrap();
        prop_assert!(said >= at(now) && said.as_second() % 10 == 0);
        prop_assert_eq!(shown(Some(said), Some(at(now) + found), at(now)), Some(said), "nothing new, nothing written");
    }
}
