//! Admission on the embedded cluster.

use usher_tests::TestCluster;
use usher_tests::both::admission;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_on_the_embedded_cluster() {
    admission::admission_decides(TestCluster::embedded().await.unwrap(), async |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_evictions_become_requests_on_the_embedded_cluster() {
    admission::gateway::the_gateway_decides(TestCluster::embedded().await.unwrap()).await;
}
