//! Requesters: asking, joining, withdrawing, and every way it can end.

use super::world::{CLASS, DRAIN, HOUR, MINUTE, World, until};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use tokio::time::sleep;
use usher_interceptors::{Outcome, RequestError, Requester, Update};

const OURS: &str = "requester.evictionrequest.coordination.k8s.io/name_maintenance.example.com";

fn requester(world: &World) -> Requester {
    Requester::new(world.client.clone(), "maintenance.example.com").unwrap()
}

#[tokio::test(start_paused = true)]
async fn names_and_deadlines_are_checked_first() {
    let world = World::new().await;
    assert!(matches!(Requester::new(world.client.clone(), "Not A Name"), Err(RequestError::Name(_))));
    for (seconds, good) in [(599, false), (600, true), (21_600, true), (21_601, false)] {
        let made = requester(&world).with_progress_deadline_seconds(seconds);
        assert_eq!(made.is_ok(), good, "{seconds}");
    }
    let refused = requester(&world).request(&super::world::pod("not-created")).await;
    assert!(matches!(refused, Err(RequestError::NotFromCluster(_))));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_made_once_joined_by_others_and_withdrawn_by_each() {
    let world = World::new().await;
    let pod = world.pod("web-1").await;
    let handle = requester(&world).with_progress_deadline_seconds(900).unwrap().request(&pod).await.unwrap();
    let made = world.request(&pod).await;
    assert_eq!(made.finalizers(), [OURS]);
    assert_eq!((&made.spec.pod_ref.name, &made.spec.pod_ref.uid), (&"web-1".to_owned(), &pod.uid().unwrap()));
    assert_eq!(made.spec.progress_deadline_seconds, 900);
    requester(&world).request(&pod).await.unwrap();
    assert_eq!(world.request(&pod).await, made, "to ask twice is to ask once");

    let names: Vec<String> = (0..10).map(|number| format!("r{number}.example.com")).collect();
    let asking = names.iter().map(|name| {
        let requester = Requester::new(world.client.clone(), name).unwrap();
        let pod = pod.clone();
        async move { requester.request(&pod).await.unwrap() }
    });
    let others = futures::future::join_all(asking).await;
    assert_eq!(world.request(&pod).await.finalizers().len(), 11, "nobody's wish is lost");

    let (stays, go) = others.split_first().unwrap();
    futures::future::join_all(go.iter().map(|handle| handle.withdraw()))
        .await
        .into_iter()
        .for_each(Result::unwrap);
    handle.withdraw().await.unwrap();
    handle.withdraw().await.unwrap();
    let left = world.request(&pod).await;
    assert_eq!(left.finalizers(), ["requester.evictionrequest.coordination.k8s.io/name_r0.example.com"]);
    stays.withdraw().await.unwrap();
    world.collect(&pod).await;
    handle.withdraw().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_going_away_is_made_anew() {
    let world = World::new().await;
    let pod = world.pod("web-1").await;
    let old = world.ask(&pod).await;
    world.requests.delete(&pod.uid().unwrap(), &DeleteParams::default()).await.unwrap();
    let refused = requester(&world).request(&pod).await;
    assert!(matches!(refused, Err(RequestError::OlderRequestRemains(_))));
    let (requester, wanted) = (requester(&world), pod.clone());
    let asking = tokio::spawn(async move { requester.request(&wanted).await.map(drop) });
    sleep(MINUTE / 60).await;
    world.set_finalizers(&pod, json!([])).await;
    asking.await.unwrap().unwrap();
    let new = world.request(&pod).await;
    assert_ne!(new.uid(), old.uid());
    assert_eq!(new.finalizers(), [OURS]);
}

#[tokio::test(start_paused = true)]
async fn updates_tell_the_way_and_the_end() {
    let world = World::new().await;
    let pod = world.pod("web-1").await;
    world.ask(&pod).await;
    let handle = requester(&world).request(&pod).await.unwrap();
    let updates = tokio::spawn(handle.updates().collect::<Vec<_>>());
    sleep(MINUTE).await;
    world.give_turn(&pod, CLASS).await;
    sleep(MINUTE).await;
    world.patch_status(&pod, json!({"message": "half", "evictionRequestCancellationPolicy": "Forbid"})).await;
    sleep(MINUTE).await;
    world.pods.delete("web-1", &DeleteParams::default()).await.unwrap();
    let updates = updates.await.unwrap();
    let told: Vec<_> = updates
        .iter()
        .map(|update| match update {
            Update::Progress(p) => {
                (p.active_interceptor.as_deref(), p.message.as_str(), p.cancellable, p.requesters.len())
            }
            Update::Ended(Outcome::PodGone) => (None, "the end", false, 0),
            Update::Ended(other) => panic!("{other:?}"),
        })
        .collect();
    let turn = "it is the turn of another interceptor";
    let expected = [
        (None, "", true, 2),
        (Some(CLASS), turn, true, 2),
        (Some(CLASS), "half", false, 2),
        (None, "the end", false, 0),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn every_end_has_its_name() {
    let world = World::new().await;
    let mut seen = BTreeSet::new();
    for end in
        ["the pod is deleted", "the pod fails", "withdrawn", "the request is deleted", "both are deleted"]
    {
        let pod = world.pod("web-1").await;
        let handle = requester(&world).request(&pod).await.unwrap();
        let waiting = tokio::spawn({
            let handle = handle.clone();
            async move { handle.wait().await }
        });
        sleep(HOUR).await;
        assert!(!waiting.is_finished(), "{end}: nothing has happened yet");
        let expected = match end {
            "the pod is deleted" => {
                world.pods.delete("web-1", &DeleteParams::default()).await.unwrap();
                Outcome::PodGone
            }
            "the pod fails" => {
                let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
                world.pods.patch_status("web-1", &PatchParams::default(), &failed).await.unwrap();
                Outcome::PodTerminal
            }
            "withdrawn" => {
                handle.withdraw().await.unwrap();
                Outcome::Withdrawn
            }
            "the request is deleted" => {
                world.collect(&pod).await;
                Outcome::RequestDeleted
            }
            _ => {
                world.pods.delete("web-1", &DeleteParams::default()).await.unwrap();
                world.collect(&pod).await;
                Outcome::PodGone
            }
        };
        assert_eq!(waiting.await.unwrap(), expected, "{end}");
        seen.insert(end);
        if world.requests.get_opt(&pod.uid().unwrap()).await.unwrap().is_some() {
            world.collect(&pod).await;
        }
        let _ = world.pods.delete("web-1", &DeleteParams::default()).await;
    }
    assert_eq!(seen.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_is_held_comes_back_whoever_removes_it() {
    let world = World::new().await;
    let pod = world.pod("web-1").await;
    world.ask(&pod).await;
    let handle = requester(&world).request(&pod).await.unwrap();
    let holding = tokio::spawn({
        let handle = handle.clone();
        async move { handle.hold().await }
    });
    let stands = async || {
        let found = world.requests.get_opt(&pod.uid().unwrap()).await.unwrap();
        found.is_some_and(|request| request.finalizers().iter().any(|f| f == OURS))
    };
    for _ in 0..3 {
        world.set_finalizers(&pod, json!([DRAIN])).await;
        until("the finalizer comes back", &stands).await;
    }
    let old = world.request(&pod).await;
    world.collect(&pod).await;
    until("the request comes back", &stands).await;
    assert_ne!(world.request(&pod).await.uid(), old.uid());

    // Deleted, and held by somebody else for longer than one attempt lasts.
    world.set_finalizers(&pod, json!([OURS, "audit.example.com/keep"])).await;
    world.requests.delete(&pod.uid().unwrap(), &DeleteParams::default()).await.unwrap();
    world.set_finalizers(&pod, json!(["audit.example.com/keep"])).await;
    sleep(10 * MINUTE).await;
    world.set_finalizers(&pod, json!([])).await;
    until("the request comes back", &stands).await;

    assert!(!holding.is_finished());
    handle.withdraw().await.unwrap();
    assert_eq!(holding.await.unwrap(), Outcome::Withdrawn);
    sleep(HOUR).await;
    assert!(!stands().await, "and stays withdrawn");
}
