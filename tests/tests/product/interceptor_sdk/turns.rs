//! Turns: when a handler is called, what it can report, how it learns that it is over.

use super::world::{CLASS, DRAIN, HOUR, MINUTE, NEXT, World, stamp, until};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use usher_api::EvictionRequestCancellationPolicy::{Allow, Forbid};
use usher_interceptors::{ConditionStatus, Lost, TurnError};

#[tokio::test(start_paused = true)]
async fn the_handler_is_called_on_its_turn_and_its_reports_are_in_the_status() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    sleep(HOUR).await;
    assert!(turns.try_recv().is_err(), "nobody has the turn yet");

    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    let turn = &hand.turn;
    assert_eq!((turn.pod_ref().name.as_str(), &turn.pod_ref().uid), ("db-1", &pod.uid().unwrap()));
    assert_eq!(turn.namespace(), "default");
    assert_eq!(turn.pod().await.unwrap().unwrap().uid(), pod.uid());
    assert_eq!(turn.progress_deadline(), 30 * MINUTE);
    assert_eq!(stamp(turn.deadline()), stamp(world.now() + 30 * MINUTE));

    sleep(MINUTE).await;
    turn.progress_with_eta("1 of 3", world.now() + 2 * MINUTE).await.unwrap();
    let status = world.status(&pod).await;
    assert_eq!(status.message, "1 of 3");
    assert_eq!(stamp(status.progress_timestamp.unwrap().0), stamp(world.now()));
    assert_eq!(stamp(status.expected_interceptor_finish_time.unwrap().0), stamp(world.now() + 2 * MINUTE));
    assert_eq!(stamp(turn.deadline()), stamp(world.now() + 30 * MINUTE));

    sleep(MINUTE).await;
    turn.forbid_cancellation().await.unwrap();
    turn.set_condition("Copied", ConditionStatus::False, "Copying", "2 of 3").await.unwrap();
    let status = world.status(&pod).await;
    assert_eq!(status.eviction_request_cancellation_policy, Forbid);
    assert_eq!(
        (status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()),
        ("Copied", "False")
    );
    assert_eq!(world.silence(&pod).await.as_mins(), 1, "neither of them is progress");
    let before = world.request(&pod).await.resource_version();
    turn.forbid_cancellation().await.unwrap();
    assert_eq!(world.request(&pod).await.resource_version(), before, "it is so already");
    turn.allow_cancellation().await.unwrap();
    assert_eq!(world.status(&pod).await.eviction_request_cancellation_policy, Allow);

    turn.complete("all is copied").await.unwrap();
    let status = world.status(&pod).await;
    assert!(status.active_interceptor_completed);
    assert_eq!(status.message, "all is copied");
    assert_eq!(world.silence(&pod).await.as_secs(), 0);
    assert_eq!(turn.lost().await, Lost::Completed);
    assert!(matches!(turn.progress("more").await, Err(TurnError::Lost(Lost::Completed))));
    hand.end.send(Ok(())).unwrap();
    sleep(HOUR).await;
    assert!(turns.try_recv().is_err(), "a completed turn is over");
}

#[tokio::test(start_paused = true)]
async fn to_decline_claims_no_progress() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    sleep(5 * MINUTE).await;
    hand.turn.decline("not a database").await.unwrap();
    let status = world.status(&pod).await;
    assert!(status.active_interceptor_completed);
    assert_eq!(status.message, "not a database");
    assert_eq!(world.silence(&pod).await.as_mins(), 5);
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_are_shown_while_work_is_done_and_not_otherwise() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();

    let turn = hand.turn.clone();
    let begun = Instant::now();
    let work = tokio::spawn(async move { turn.keep_alive_while(sleep(2 * HOUR)).await });
    let (mut writes, mut version) = (0, None);
    while !work.is_finished() {
        assert!(world.silence(&pod).await.as_secs() <= 190, "{:?}", begun.elapsed());
        let newest = world.request(&pod).await.resource_version();
        writes += usize::from(newest != version);
        version = newest;
        sleep(Duration::from_secs(10)).await;
    }
    assert!(work.await.unwrap().is_ok());
    assert!((39..=42).contains(&writes), "every 3 minutes: {writes}");

    sleep(29 * MINUTE).await;
    assert!(world.silence(&pod).await.as_mins() >= 29, "no work, no sign");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_drops_the_work_and_the_handler_can_clean_up() {
    let world = World::new().await;
    let cleaned = Arc::new(AtomicUsize::new(0));
    let counted = cleaned.clone();
    let _running = world.intercept(move |turn| {
        let cleaned = counted.clone();
        Box::pin(async move {
            let lost = turn.keep_alive_while(sleep(10 * HOUR)).await.unwrap_err();
            assert_eq!(lost, Lost::Cancelled);
            cleaned.fetch_add(1, Ordering::SeqCst);
            Err(lost.into())
        })
    });
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    sleep(10 * MINUTE).await;
    // A deletion that a requester does not agree to changes nothing.
    world.requests.delete(&pod.uid().unwrap(), &DeleteParams::default()).await.unwrap();
    sleep(10 * MINUTE).await;
    assert_eq!(cleaned.load(Ordering::SeqCst), 0);
    assert!(world.silence(&pod).await.as_mins() < 4, "the work goes on");
    world.set_finalizers(&pod, json!([])).await;
    until("the handler cleans up", async || cleaned.load(Ordering::SeqCst) == 1).await;
    sleep(HOUR).await;
    assert_eq!(cleaned.load(Ordering::SeqCst), 1, "a lost turn is not retried");
}

#[tokio::test(start_paused = true)]
async fn another_finalizer_does_not_hide_a_cancellation() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.set_finalizers(&pod, json!([DRAIN, "audit.example.com/keep"])).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    world.set_finalizers(&pod, json!(["audit.example.com/keep"])).await;
    sleep(MINUTE).await;
    assert_eq!(hand.turn.is_lost(), None, "withdrawn is not yet cancelled");
    world.requests.delete(&pod.uid().unwrap(), &DeleteParams::default()).await.unwrap();
    assert_eq!(hand.turn.lost().await, Lost::Cancelled);
    assert!(world.requests.get_opt(&pod.uid().unwrap()).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_passes_on_is_lost_and_nothing_more_is_written() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    sleep(31 * MINUTE).await;
    world.give_turn(&pod, NEXT).await;
    let before = world.request(&pod).await;
    // Whether the watch has told or not: the write is judged by the newest version.
    for report in [
        hand.turn.progress("late").await,
        hand.turn.complete("late").await,
        hand.turn.forbid_cancellation().await,
    ] {
        let Err(TurnError::Lost(Lost::Passed { to })) = report else { panic!("{report:?}") };
        assert_eq!(to.as_deref(), Some(NEXT));
    }
    assert_eq!(hand.turn.lost().await, Lost::Passed { to: Some(NEXT.to_owned()) });
    assert_eq!(world.request(&pod).await, before);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_completion_ends_the_turn() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    world.patch_status(&pod, json!({"activeInterceptorCompleted": true})).await;
    assert_eq!(hand.turn.lost().await, Lost::CompletedByOthers);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_is_not_a_cancellation() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    world.pods.delete("db-1", &DeleteParams::default()).await.unwrap();
    // The next one of a stateful set has the same name.
    let successor = world.pod("db-1").await;
    assert_ne!(successor.uid(), pod.uid());
    world.collect(&pod).await;
    assert_eq!(hand.turn.lost().await, Lost::PodGone);
    assert!(hand.turn.pod().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn writes_of_others_are_kept() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let hand = turns.recv().await.unwrap();
    for count in 1..=20 {
        // No await in between that would let the watch bring the new version first.
        world.patch_status(&pod, json!({"failedAPIEvictionCounter": count})).await;
        hand.turn.progress(format!("step {count}")).await.unwrap();
        let status = world.status(&pod).await;
        assert_eq!((status.failed_api_eviction_counter, status.message), (count, format!("step {count}")));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_handler_is_called_again_with_what_it_reported() {
    let world = World::new().await;
    let pod = world.pod("db-1").await;
    let other = world.pod("db-2").await;
    world.ask(&pod).await;
    world.ask(&other).await;
    let (running, mut turns) = world.intercept_by_hand();
    world.give_turn(&pod, CLASS).await;
    let first = turns.recv().await.unwrap();
    world.give_turn(&other, CLASS).await;
    let second = turns.recv().await.unwrap();
    first.turn.progress("2 of 3").await.unwrap();
    second.turn.complete("done").await.unwrap();
    drop(running);
    assert_eq!(first.turn.lost().await, Lost::Stopped);
    assert!(matches!(first.turn.progress("3 of 3").await, Err(TurnError::Lost(Lost::Stopped))));

    let (_running, mut turns) = world.intercept_by_hand();
    let again = turns.recv().await.unwrap();
    assert_eq!(again.turn.pod_ref().name, "db-1");
    assert_eq!(again.turn.status().message, "2 of 3");
    again.turn.progress("3 of 3").await.unwrap();
    sleep(HOUR).await;
    assert!(turns.try_recv().is_err(), "what is completed stays so");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_or_panics_is_called_again_with_growing_pauses() {
    let world = World::new().await;
    let calls = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = calls.clone();
    let _running = world.intercept(move |turn| {
        let number = {
            let mut noted = noted.lock();
            noted.push(Instant::now());
            noted.len()
        };
        Box::pin(async move {
            match number {
                2 => panic!("on purpose"),
                1 | 3 => Err("not now".into()),
                _ => Ok(turn.complete("at last").await?),
            }
        })
    });
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    until("it completes", async || world.status(&pod).await.active_interceptor_completed).await;
    let calls = calls.lock().clone();
    let pauses: Vec<u64> = calls.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_request_made_anew_waits_until_the_handler_is_through_with_the_old_one() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    let old = turns.recv().await.unwrap();
    world.collect(&pod).await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    assert_eq!(old.turn.lost().await, Lost::Cancelled);
    sleep(MINUTE).await;
    assert!(turns.try_recv().is_err(), "the old one still cleans up");
    assert!(matches!(old.turn.progress("mixed up").await, Err(TurnError::Lost(Lost::Cancelled))));
    old.end.send(Ok(())).unwrap();
    let new = turns.recv().await.unwrap();
    new.turn.progress("from the beginning").await.unwrap();
    assert_eq!(world.status(&pod).await.message, "from the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_returns_is_not_called_again_for_the_same_request() {
    let world = World::new().await;
    let (_running, mut turns) = world.intercept_by_hand();
    let pod = world.pod("db-1").await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    turns.recv().await.unwrap().end.send(Ok(())).unwrap();
    sleep(MINUTE).await;
    world.patch_status(&pod, json!({"failedAPIEvictionCounter": 1})).await;
    sleep(HOUR).await;
    assert!(turns.try_recv().is_err());
    assert!(world.silence(&pod).await.as_mins() > 60, "and nothing is reported for it");
}
