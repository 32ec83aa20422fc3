//! What a candidate does next, from what it has seen of the lease.
//!
//! Times written into the lease are never compared with a clock here: clocks of two machines differ. Each candidate
//! measures, by its own steady clock, for how long it has seen the lease unchanged; and the leader measures from before
//! it sent a renewal. What others see of a renewal is later than that, so the leader always gives up first.

use std::time::Duration;

use tokio::time::Instant;

/// How long things take in an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Others take a lease that they have seen unchanged for so long.
    pub lease: Duration,
    /// The leader stops acting when it could not renew for so long. Shorter than the lease.
    pub renew_within: Duration,
    /// Between two looks or renewals.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_within: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A lease as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLease {
    /// Empty if nobody holds it.
    pub holder: String,
    pub version: String,
    /// How long its holder says that it is valid without a renewal.
    pub duration: Duration,
    /// Since when it has been seen in this version.
    pub since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nobody has it, or its holder has been silent for too long: try to take it.
    Acquire,
    /// It is ours: say so again.
    Renew,
    /// Somebody else has it, until then at least.
    Wait { until: Instant },
    /// It was ours and is not any more, or might not be: stop acting at once.
    Lost,
}

/// `renewed` is when the last renewal that succeeded was begun, if this candidate is the leader.
pub fn decide(
    me: &str,
    renewed: Option<Instant>,
    seen: Option<&ObservedLease>,
    times: &Times,
    now: Instant,
) -> Step {
    let is_mine = seen.is_some_and(|seen| seen.holder == me);
    match (renewed, seen) {
        (Some(renewed), _) if now >= renewed + times.renew_within => Step::Lost,
        (Some(_), _) if is_mine => Step::Renew,
        (Some(_), _) => Step::Lost,
        // Held by us without our knowing: a write whose answer was lost.
        (None, None) => Step::Acquire,
        (None, Some(seen)) if seen.holder.is_empty() || is_mine => Step::Acquire,
        (None, Some(seen)) => {
            let until = seen.since + seen.duration;
            if now >= until { Step::Acquire } else { Step::Wait { until } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_table() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let times = Times::default();
        let held = |holder: &str, since: u64| {
            let (holder, version) = (holder.to_string(), "7".to_string());
            Some(ObservedLease { holder, version, duration: times.lease, since: at(since) })
        };
        let cases = [
            ("no lease yet", None, None, 0, Step::Acquire),
            ("nobody has it", None, held("", 0), 0, Step::Acquire),
            ("another has it, just seen", None, held("other", 100), 100, Step::Wait { until: at(115) }),
            (
                "another is silent, not long enough",
                None,
                held("other", 100),
                114,
                Step::Wait { until: at(115) },
            ),
            ("another is silent for too long", None, held("other", 100), 115, Step::Acquire),
            ("ours from a write whose answer was lost", None, held("me", 100), 100, Step::Acquire),
            ("ours and fresh", Some(at(100)), held("me", 100), 102, Step::Renew),
            ("ours, and renewals fail", Some(at(100)), held("me", 100), 109, Step::Renew),
            ("ours, and renewals fail for too long", Some(at(100)), held("me", 100), 110, Step::Lost),
            ("taken by another", Some(at(100)), held("other", 101), 101, Step::Lost),
            ("given up by somebody", Some(at(100)), held("", 101), 101, Step::Lost),
            ("deleted by somebody", Some(at(100)), None, 101, Step::Lost),
        ];
        for (what, renewed, seen, now, expected) in cases {
            assert_eq!(decide("me", renewed, seen.as_ref(), &times, at(now)), expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_gives_up_before_anybody_may_take_over() {
        let start = Instant::now();
        let times = Times::default();
        // However late the others see the renewal, and whatever time its holder wrote into it.
        for delay in 0..20 {
            let seen = ObservedLease {
                holder: "leader".into(),
                version: "7".into(),
                duration: times.lease,
                since: start + Duration::from_secs(delay),
            };
            let taken = (0..60)
                .map(|s| start + Duration::from_secs(s))
                .find(|now| decide("other", None, Some(&seen), &times, *now) == Step::Acquire);
            let given_up = (0..60)
                .map(|s| start + Duration::from_secs(s))
                .find(|now| decide("leader", Some(start), Some(&seen), &times, *now) == Step::Lost);
            assert!(given_up.unwrap() < taken.unwrap(), "seen {delay} s late");
        }
    }
}
