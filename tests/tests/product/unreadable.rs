//! No value that the embedded cluster accepts keeps Usher from reading an object.

use usher_tests::TestCluster;
use usher_tests::both::unreadable;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_embedded_cluster_takes_is_read() {
    unreadable::put_values_everywhere(&TestCluster::embedded().await.unwrap()).await;
}
