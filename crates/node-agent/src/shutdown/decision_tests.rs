use super::super::later;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn own(is_active: bool, is_deleting: bool) -> Option<Own> {
    let (uid, boot) = ("u".to_owned(), "b".to_owned());
    Some(Own { uid, is_active, is_deleting, boot, is_of_shutdown: true })
}

#[test]
fn a_shutdown_makes_a_maintenance_or_joins_one_and_waits_until_all_pods_have_ended() {
    let seen = |phase, own| Observed::Cluster { phase, own };
    let create = Step::Create { is_alone: false };
    for (seen, now, wanted) in [
        (seen(None, None), 0, create),
        (seen(Some(NodePhase::Cordoned), None), 0, create),
        (seen(Some(NodePhase::Draining), None), 0, Step::Wait),
        (seen(None, own(true, false)), 0, Step::Wait),
        (seen(None, own(false, true)), 0, Step::Wait),
        (seen(None, own(false, false)), 0, Step::Remove),
        (seen(Some(NodePhase::Drained), own(true, false)), 0, Step::Done),
        (seen(Some(NodePhase::Drained), None), 100, Step::Done),
        (seen(Some(NodePhase::Draining), None), 60, Step::GiveUp),
        (seen(None, None), 60, Step::GiveUp),
        (Observed::Nothing { since: at(40) }, 60, Step::GiveUp),
    ] {
        assert_eq!(decide(&seen, &UnderWay::new(at(0), at(60)), at(now)), wanted, "{seen:?} at {now}");
    }
}

#[test]
fn an_api_server_that_is_away_for_a_moment_is_waited_for_and_longer_once_pods_were_asked() {
    let nothing = Observed::Nothing { since: at(10) };
    let asked = |until| UnderWay { is_asked: true, ..UnderWay::new(at(0), at(until)) };
    let first_alone = |under_way: UnderWay| {
        (10..200).find(|now| decide(&nothing, &under_way, at(*now)) == Step::EndAlone).unwrap()
    };
    assert_eq!(first_alone(UnderWay::new(at(0), at(600))), 20);
    assert_eq!(first_alone(UnderWay::new(at(0), at(20))), 15, "there is less time in all");
    assert_eq!(first_alone(asked(600)), 40);
    assert_eq!(first_alone(asked(40)), 30);
    // One that answers and takes no maintenance does not keep the node waiting for ever.
    let unmade = UnderWay { unmade_since: Some(at(10)), ..UnderWay::new(at(0), at(600)) };
    let empty = Observed::Cluster { phase: None, own: None };
    assert_eq!(decide(&empty, &unmade, at(19)), Step::Create { is_alone: false });
    assert_eq!(decide(&empty, &unmade, at(20)), Step::Create { is_alone: true });
}

#[test]
fn a_limit_without_end_is_none_and_calls_never_take_longer_than_there_is_time() {
    assert_eq!(later(at(0), Duration::from_micros(u64::MAX)), Timestamp::MAX);
    let short = UnderWay::new(at(0), at(4));
    assert_eq!(short.answer_within(at(0)), Duration::from_secs(1));
    assert_eq!(short.answer_within(at(4)), Duration::from_millis(200));
    assert_eq!(UnderWay::new(at(0), Timestamp::MAX).answer_within(at(0)), ANSWER_WITHIN);
}

#[test]
fn a_maintenance_survives_restarts_and_goes_when_the_shutdown_was_cancelled_or_the_node_has_started() {
    let of =
        |boot: &str, is_of_shutdown| Own { boot: boot.into(), is_of_shutdown, ..own(true, false).unwrap() };
    for (own, complete_after_boot, wanted) in [
        (of("now", true), false, true),
        (of("now", false), true, false),
        (of("before", true), false, false),
        (of("before", true), true, true),
        (of("before", false), true, true),
    ] {
        assert_eq!(is_over(&own, "now", complete_after_boot), wanted, "{own:?}");
    }
}

fn periods(all: &[(i32, i64)]) -> Vec<GracePeriod> {
    let period = |(priority, seconds): &(i32, i64)| GracePeriod {
        priority: *priority,
        shutdown_grace_period_seconds: *seconds,
    };
    all.iter().map(period).collect()
}

#[test]
fn the_plan_has_the_kubelets_priorities_without_the_seconds() {
    let given = periods(&[(100_000, 10), (10_000, 180), (1000, 120), (0, 60)]);
    let wanted: Vec<DrainPlanEntry> = [PodType::Default, PodType::DaemonSet, PodType::Static]
        .into_iter()
        .flat_map(|kind| [999, 9999, 99_999].map(|it| DrainPlanEntry::up_to(it, kind)))
        .collect();
    assert_eq!(plan(&given), wanted);
    assert!(plan(&[]).is_empty());
    let many: Vec<(i32, i64)> = (0..60).map(|it| (it, 1)).collect();
    assert!(plan(&periods(&many)).is_empty(), "the default entries are left");
}

#[test]
fn alone_pods_end_by_priority_and_each_group_has_its_time() {
    let given = periods(&[(1000, 120), (0, 60)]);
    let up_to = |seconds| alone_up_to(&given, SignedDuration::from_secs(seconds));
    assert_eq!((up_to(0), up_to(59), up_to(60), up_to(500)), (999, 999, i32::MAX, i32::MAX));
    assert_eq!(alone_up_to(&[], SignedDuration::ZERO), i32::MAX);
}
