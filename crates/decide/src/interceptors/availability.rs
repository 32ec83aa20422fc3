//! Which pods of a workload are available, why others are not, and how long it takes until they are.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::later;
use crate::snapshot::{Pod, Request};

/// Why a pod of a workload does not count as available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// It is not there yet.
    Missing,
    Terminating,
    /// No node takes it, in the scheduler's words.
    Unschedulable {
        message: String,
    },
    /// It has a volume that is bound to nodes which do not take it.
    VolumeCannotMove {
        message: String,
    },
    /// One of its containers does not start, by the kubelet's reason.
    NotStarted {
        reason: Arc<str>,
    },
    NotReady,
    /// It is ready, and for how long is `minReadySeconds`' to say.
    NotReadyLongEnough {
        until: Timestamp,
    },
}

impl Unavailable {
    /// One word, for machines.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "Missing",
            Self::Terminating => "Terminating",
            Self::Unschedulable { .. } => "Unschedulable",
            Self::VolumeCannotMove { .. } => "VolumeCannotMove",
            Self::NotStarted { .. } => "NotStarted",
            Self::NotReady => "NotReady",
            Self::NotReadyLongEnough { .. } => "NotReadyLongEnough",
        }
    }

    /// What a sentence about the pod ends with.
    pub fn words(&self) -> String {
        // The scheduler ends with a full stop, and what is said here goes on.
        let part = |message: &str| message.trim_end().trim_end_matches('.').to_owned();
        match self {
            Self::Missing => "is not there yet".to_owned(),
            Self::Terminating => "is terminating".to_owned(),
            Self::Unschedulable { message } => format!("cannot be scheduled: {}", part(message)),
            Self::VolumeCannotMove { message } => {
                format!("cannot be scheduled, as its volume cannot move to another node: {}", part(message))
            }
            Self::NotStarted { reason } => format!("does not start: {reason}"),
            Self::NotReady => "is not ready".to_owned(),
            Self::NotReadyLongEnough { .. } => "is ready, and not yet for minReadySeconds".to_owned(),
        }
    }
}

/// The scheduler's words for a volume that only some nodes reach: up to v1.33, and since.
const VOLUME_STAYS: [&str; 2] =
    ["volume node affinity conflict", "didn't match PersistentVolume's node affinity"];

pub(super) fn why_unavailable(pod: &Pod, min_ready_seconds: u32, now: Timestamp) -> Option<Unavailable> {
    if pod.is_terminating() || pod.phase.is_terminal() {
        return Some(Unavailable::Terminating);
    }
    let Some(since) = pod.ready_since else {
        let waiting = pod.waiting.as_deref();
        return Some(match waiting.and_then(|waiting| waiting.unschedulable.clone()) {
            Some(message) if VOLUME_STAYS.iter().any(|words| message.contains(words)) => {
                Unavailable::VolumeCannotMove { message }
            }
            Some(message) => Unavailable::Unschedulable { message },
            None => match waiting.and_then(|waiting| waiting.not_started.as_ref()) {
                Some(reason) => Unavailable::NotStarted { reason: reason.clone() },
                None => Unavailable::NotReady,
            },
        });
    };
    let available_at = later(since, SignedDuration::from_secs(min_ready_seconds.into()));
    (min_ready_seconds > 0 && now < available_at)
        .then_some(Unavailable::NotReadyLongEnough { until: available_at })
}

/// There are some, and all are ready.
pub(super) fn only_time_is_left<'a>(unavailable: impl Iterator<Item = &'a Unavailable>) -> bool {
    let mut unavailable = unavailable.peekable();
    unavailable.peek().is_some()
        && unavailable.all(|why| matches!(why, Unavailable::NotReadyLongEnough { .. }))
}

/// From the grace period of a pod, and the time that its pods needed to become ready. Of several, the one in the middle: a
/// container that was restarted makes its pod look slow.
pub(super) fn batch<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> SignedDuration {
    let (mut starts, mut grace) = (Vec::new(), 0);
    for pod in pods {
        grace = grace.max(pod.grace_seconds);
        starts
            .extend(pod.ready_since.map(|since| since.duration_since(pod.created).max(SignedDuration::ZERO)));
    }
    starts.sort_unstable();
    let start = starts.get(starts.len() / 2).copied().unwrap_or(SignedDuration::ZERO);
    start.saturating_add(SignedDuration::from_secs(grace.into()))
}

/// From so long after it came on, that a pod is ready is no sign of progress: it may be so for a moment again and again.
const SETTLES: SignedDuration = SignedDuration::from_mins(30);

/// Of those that have come since others were asked to leave: since when they are ready, if that is a sign of progress.
fn settled<'a>(
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    since: Timestamp,
) -> impl Iterator<Item = (&'a Arc<Pod>, Option<Timestamp>)> {
    pods.filter(move |pod| pod.created >= since)
        .map(|pod| (pod, pod.ready_since.filter(|ready| *ready < later(pod.created, SETTLES))))
}

/// When one of the pods last came or became ready.
pub(super) fn moved_at<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, since: Timestamp) -> Timestamp {
    let times = settled(pods, since).flat_map(|(pod, ready)| [Some(pod.created), ready]).flatten();
    times.max().unwrap_or(Timestamp::MIN)
}

/// When one of the pods last became ready. One that only comes is no progress where others follow it: it may fail, and the next one too.
pub(super) fn ready_at<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, since: Timestamp) -> Timestamp {
    settled(pods, since).filter_map(|(_, ready)| ready).max().unwrap_or(Timestamp::MIN)
}

/// When the first of them was asked to leave.
pub(super) fn asked_at<'a>(requests: impl Iterator<Item = &'a Arc<Request>>) -> Timestamp {
    requests.map(|request| request.created).min().unwrap_or(Timestamp::MAX)
}
