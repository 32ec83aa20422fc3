//! The policies of `deploy/` on real API servers. Tests share servers, because a policy counts some seconds after it was created.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod held_nodes;

use std::sync::LazyLock;

use tokio::runtime::Runtime;
use usher_tests::TestCluster;
use usher_tests::both::policies::{self, Servers};
use usher_tests_real::RealCluster as _;

/// Servers outlive a test, and so does what their connections run on.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static SERVERS: LazyLock<Servers> = LazyLock::new(|| Servers::new(TestCluster::real));

macro_rules! each_on_a_shared_server {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            RUNTIME.block_on(policies::$name(&SERVERS));
        })*
    };
}

each_on_a_shared_server! {
    an_evict_policy_is_one_of_two_words_wherever_it_is_written
    by_how_much_a_deployment_surges_is_the_managers_to_say
    by_how_much_limits_are_raised_is_the_managers_to_say
    conditions_are_limited_and_those_of_the_manager_are_its_own
    evictions_are_requested_by_who_may_delete_the_pod
    new_pods_of_workloads_have_their_interceptor_and_wait_for_held_nodes
    only_who_may_skip_interceptors_does_so
    strict_interceptors_answer_for_their_own_class
    strict_mirror_pods_are_made_by_their_node
    strict_requesters_are_who_they_say_they_are
    taint_evictions_leave_pods_to_workloads_that_take_over
    that_a_pod_is_wanted_gone_is_the_managers_to_say
    the_manager_changes_nothing_of_webhook_configurations_but_the_bundle
    the_manager_changes_nothing_of_workloads_but_how_many_pods_they_have
    the_manager_deletes_pods_of_daemon_sets_alone
    the_manager_makes_no_pods_but_those_that_it_hands_over
    the_manager_needs_no_right_to_delete_pods_to_write_a_status
    what_the_gateway_remembers_is_the_managers
    who_holds_a_node_is_the_managers_to_say
}

#[test]
fn pods_of_no_daemon_set_cost_no_read_of_the_held_nodes() {
    RUNTIME.block_on(held_nodes::pods_of_no_daemon_set_cost_no_read_of_the_held_nodes(&SERVERS));
}

/// On a server of its own, whose policies it removes.
#[test]
fn nodes_are_held_also_after_an_uninstallation_and_another_installation() {
    RUNTIME.block_on(held_nodes::nodes_are_held_also_after_an_uninstallation_and_another_installation());
}
