//! Putting an interceptor onto a pod that runs.

use super::world::{CLASS, World};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use usher_interceptors::{InterceptorClass, RegistrationError};

const KEY: &str = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";

#[tokio::test(start_paused = true)]
async fn the_annotation_is_put_onto_the_pod_once() {
    let world = World::new().await;
    let class = InterceptorClass::new(CLASS).unwrap();
    let pod = world.pod("db-1").await;
    let registered = class.register(&world.client, &pod, 12_000, Some("handover")).await.unwrap();
    assert_eq!(registered.annotations()[KEY], "12000/handover");
    // The pod as it was read before: the version is stale, and the annotation is there.
    let again = class.register(&world.client, &pod, 12_000, Some("handover")).await.unwrap();
    assert_eq!(again.resource_version(), registered.resource_version(), "nothing was written");
    let moved = class.register(&world.client, &pod, 300, None).await.unwrap();
    assert_eq!(moved.annotations()[KEY], "300");
}

#[tokio::test(start_paused = true)]
async fn the_rules_are_those_of_the_pod_as_it_is_now() {
    let world = World::new().await;
    let pod = world.pod("db-1").await;
    let one = InterceptorClass::new("one.example.com").unwrap();
    let two = InterceptorClass::new("two.example.com").unwrap();
    one.register(&world.client, &pod, 10_000, Some("controller")).await.unwrap();
    let refused = two.register(&world.client, &pod, 10_000, Some("controller")).await.unwrap_err();
    assert!(matches!(refused, RegistrationError::Rules(_)), "{refused}");
    assert!(refused.to_string().contains("one.example.com, two.example.com"), "{refused}");
    assert_eq!(world.pods.get("db-1").await.unwrap().annotations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_the_same_name_is_left_alone() {
    let world = World::new().await;
    let class = InterceptorClass::new(CLASS).unwrap();
    let pod = world.pod("db-1").await;
    world.pods.delete("db-1", &DeleteParams::default()).await.unwrap();
    let gone = class.register(&world.client, &pod, 12_000, None).await.unwrap_err();
    assert!(matches!(gone, RegistrationError::PodGone(_)), "{gone}");
    world.pod("db-1").await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    world.pods.patch("db-1", &PatchParams::default(), &label).await.unwrap();
    let gone = class.register(&world.client, &pod, 12_000, None).await.unwrap_err();
    assert!(matches!(gone, RegistrationError::PodGone(_)), "{gone}");
    assert!(world.pods.get("db-1").await.unwrap().annotations().is_empty());
}
