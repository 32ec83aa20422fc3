//! Workloads that say how many of their pods are evicted at a time, of the Pod Evict Policy: the next ones go when those before are replaced.
//!
//! A pod that waits holds its place, also if it is down: on nodes that are lost all of a workload are, and they are replaced one after the
//! other all the same. Of those that stay, the available ones hold theirs. What is missing is on its way.

use std::sync::Arc;

use jiff::Timestamp;

use super::availability::why_unavailable;
use crate::snapshot::{Pod, SomeAtATime};

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is not, or somebody else has the turn before.
    No,
    /// It waits for its turn to go.
    Waits,
    /// It was given over to the eviction API.
    Goes,
}

/// How many more may go now.
pub fn room<'a>(
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    asked: impl Fn(&Pod) -> Asked,
    by: SomeAtATime,
    now: Timestamp,
) -> usize {
    let holds = |pod: &&Arc<Pod>| {
        !pod.is_terminating()
            && match asked(pod) {
                Asked::Goes => false,
                Asked::Waits => true,
                Asked::No => why_unavailable(pod, by.min_ready_seconds, now).is_none(),
            }
    };
    (pods.filter(holds).count() + by.at_a_time as usize).saturating_sub(by.replicas as usize)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{at, pod};
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn down() -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    }

    /// Of pods that are up or down, each with where it stands.
    fn of(replicas: u32, at_a_time: u32, pods: &[(bool, Asked)]) -> usize {
        let made: Vec<Arc<Pod>> = (0_usize..)
            .zip(pods)
            .map(|(number, (is_up, _))| {
                pod(&number.to_string(), "ReplicaSet", "web", "n1", if *is_up { json!({}) } else { down() })
            })
            .collect();
        let asked = |pod: &Pod| pods[pod.key.name.parse::<usize>().unwrap()].1;
        room(made.iter(), asked, SomeAtATime { at_a_time, replicas, min_ready_seconds: 0 }, at(0))
    }

    #[test]
    fn the_next_goes_when_the_one_before_is_replaced_also_if_all_are_down() {
        use Asked::{Goes, No, Waits};
        for (what, replicas, at_a_time, pods, wanted) in [
            ("all are asked", 3, 1, [(true, Waits); 3].as_slice(), 1),
            ("all are asked and down", 3, 1, &[(false, Waits); 3], 1),
            ("two at a time", 3, 2, &[(false, Waits); 3], 2),
            ("one is about to go", 3, 1, &[(true, Goes), (true, Waits), (true, Waits)], 0),
            ("one has gone", 3, 1, &[(false, Waits), (false, Waits)], 0),
            ("its replacement is not ready", 3, 1, &[(false, No), (false, Waits), (false, Waits)], 0),
            ("its replacement is ready", 3, 1, &[(true, No), (false, Waits), (false, Waits)], 1),
            ("another one is down", 3, 1, &[(true, Waits), (true, No), (false, No)], 0),
            ("a single one", 1, 1, &[(true, Waits)], 1),
            ("nobody is asked", 3, 1, &[(true, No); 3], 1),
            ("more than there should be", 3, 1, &[(true, Waits); 5], 3),
        ] {
            assert_eq!(of(replicas, at_a_time, pods), wanted, "{what}");
        }
    }

    proptest! {
        /// However many are asked, and whoever is up, never are more on their way than may be, and if nobody is, one may go.
        #[test]
        fn never_are_more_on_their_way_than_may_be(
            waiting in prop::collection::vec(any::<bool>(), 0..8), going in 0..8_usize, up in 0..8_usize, at_a_time in 1..5_u32,
        ) {
            let pods: Vec<(bool, Asked)> = waiting.iter().map(|is_up| (*is_up, Asked::Waits))
                .chain((0..going).map(|_| (true, Asked::Goes)))
                .chain((0..up).map(|_| (true, Asked::No)))
                .collect();
            let replicas = u32::try_from(pods.len()).unwrap();
            let room = of(replicas, at_a_time, &pods);
            prop_assert!(room == 0 || going + room <= at_a_time as usize);
            prop_assert!(going > 0 || room == at_a_time as usize);
        }
    }
}
