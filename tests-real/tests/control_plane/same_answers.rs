//! The tests of both clusters on a real API server: definitions, webhooks, sizes and odd values.

use usher_tests::TestCluster;
use usher_tests::both::{crd_rules, too_large, unreadable, webhooks};
use usher_tests_real::RealCluster as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_api_server_enforces_every_rule() {
    crd_rules::the_definitions_hold(TestCluster::real().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_api_server_asks_webhooks() {
    webhooks::webhooks_decide(TestCluster::real().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_api_server_refuses_what_etcd_does_not_take() {
    too_large::what_etcd_does_not_take_is_refused(TestCluster::real().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_real_api_server_takes_is_read() {
    let cluster = TestCluster::real().await.unwrap();
    unreadable::put_values_everywhere(&cluster).await;
    // The embedded cluster lets nobody write these times.
    unreadable::drain_beside_them(&cluster).await;
}
