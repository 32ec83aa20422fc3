//! The embedded cluster refuses objects that are too large for etcd.

use usher_tests::TestCluster;
use usher_tests::both::too_large;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_cluster_refuses_what_etcd_does_not_take() {
    too_large::what_etcd_does_not_take_is_refused(TestCluster::embedded().await.unwrap()).await;
}
