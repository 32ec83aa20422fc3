//! An interceptor that ends its pod: only the very pod, and with its budgets.

use super::world::{ByHand, CLASS, NEXT, Running, World};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use usher_interceptors::{Lost, Refusal, Removal, TurnError};

async fn turn_on(world: &World, name: &str) -> (Running, ByHand, Pod) {
    let (running, mut turns) = world.intercept_by_hand();
    let pod = world.pod(name).await;
    world.ask(&pod).await;
    world.give_turn(&pod, CLASS).await;
    (running, turns.recv().await.unwrap(), pod)
}

#[tokio::test(start_paused = true)]
async fn a_budget_refuses_an_eviction_and_not_a_deletion() {
    let world = World::new().await;
    let (_running, hand, _) = turn_on(&world, "db-1").await;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db-1"}}},
    }))
    .unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.client.clone());
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    world.pods.patch_status("db-1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let none = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    budgets.patch_status("db", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();

    let removal = hand.turn.evict_pod().await.unwrap();
    let Removal::Refused(Refusal::Budget { message }) = removal else { panic!("{removal:?}") };
    assert!(message.contains("needs 1 healthy pods and has 1 currently"), "{message}");
    assert!(world.pods.get_opt("db-1").await.unwrap().is_some());
    assert_eq!(hand.turn.delete_pod().await.unwrap(), Removal::Accepted);
    assert!(world.pods.get_opt("db-1").await.unwrap().is_none());
    assert_eq!(hand.turn.delete_pod().await.unwrap(), Removal::AlreadyGone);
    assert_eq!(hand.turn.lost().await, Lost::PodGone);
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_the_same_name_is_not_removed() {
    let world = World::new().await;
    let (_running, hand, _) = turn_on(&world, "db-1").await;
    world.pods.delete("db-1", &DeleteParams::default()).await.unwrap();
    let successor = world.pod("db-1").await;
    assert_eq!(hand.turn.evict_pod().await.unwrap(), Removal::AlreadyGone);
    assert_eq!(hand.turn.delete_pod().await.unwrap(), Removal::AlreadyGone);
    let found = world.pods.get("db-1").await.unwrap();
    assert_eq!((found.uid(), found.metadata.deletion_timestamp), (successor.uid(), None));
}

#[tokio::test(start_paused = true)]
async fn a_completed_turn_may_still_remove_the_pod_and_a_lost_one_may_not() {
    let world = World::new().await;
    let (_running, hand, _) = turn_on(&world, "db-1").await;
    hand.turn.complete("handed over").await.unwrap();
    assert_eq!(hand.turn.evict_pod().await.unwrap(), Removal::Accepted);

    let (_running, hand, pod) = turn_on(&world, "db-2").await;
    world.patch_status(&pod, json!({"activeInterceptorCompleted": true})).await;
    world.give_turn(&pod, NEXT).await;
    hand.turn.lost().await;
    let refused = hand.turn.evict_pod().await;
    assert!(matches!(refused, Err(TurnError::Lost(_))), "{refused:?}");
    assert!(world.pods.get_opt("db-2").await.unwrap().is_some());
}
