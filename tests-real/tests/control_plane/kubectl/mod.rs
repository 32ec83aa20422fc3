//! The real kubectl on both clusters: what it prints and how it ends. The tests play the kubelet and the controllers
//! where one is needed; on the embedded cluster housekeeping is on.

mod applying;
mod changing;
mod draining;
mod reading;
mod scene;

use scene::Scene;
use usher_tests::TestCluster;
use usher_tests_real::RealCluster as _;

/// Each scenario on an embedded cluster of its own, and one after the other on a real API server.
macro_rules! scenarios {
    (on both { $($module:ident::$both:ident,)* } on the embedded one { $($only:ident::$embedded:ident,)* }) => {
        mod embedded {
            use super::scene::Scene;
            use usher_tests::TestCluster;
            $(scenarios!(embedded $module::$both);)*
            $(scenarios!(embedded $only::$embedded);)*
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_real_api_server_makes_kubectl_print_the_same() {
            let scene = Scene::on(TestCluster::real().await.unwrap()).await;
            $(
                eprintln!("{}", stringify!($both));
                $module::$both(&scene).await;
                scene.clear().await;
            )*
        }
    };
    (embedded $module:ident::$name:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let (cluster, _) = TestCluster::embedded_with(true).await.unwrap();
            super::$module::$name(&Scene::on(cluster).await).await;
        }
    };
}

scenarios! {
    on both {
        reading::get_prints_tables_and_selects,
        reading::get_watches,
        reading::describe_tells_all,
        applying::apply_on_the_client_merges_three_ways,
        applying::apply_on_the_server_finds_conflicts,
        applying::apply_takes_the_definitions_and_their_objects,
        changing::objects_are_patched_labelled_and_scaled,
        draining::drain_evicts_within_the_budget,
        draining::wait_and_rollout_follow_the_status,
        reading::events_rights_and_resources_are_shown,
    }
    on the embedded one {
        changing::delete_waits_cascades_and_forces,
    }
}
