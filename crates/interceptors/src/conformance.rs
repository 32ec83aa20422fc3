//! Whether an interceptor keeps the contract, judged from outside: by the requests of which it has the turn.
//!
//! The bundled interceptors and those that are made with this crate are judged by it, and so can any other be:
//! ```no_run
//! # async fn check(client: kube::Client) {
//! use std::time::Duration;
//! use usher_interceptors::conformance;
//! // While it runs, ask for evictions of pods that the interceptor answers for.
//! let breaches = conformance::watch(client, "handover.example.com", Duration::from_secs(600)).await;
//! assert!(breaches.is_empty(), "{breaches:#?}");
//! # }
//! ```

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use usher_api::EvictionRequest;

use usher_client::Clock;

/// Clocks of a cluster may differ by this.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// What an interceptor did and should not have, or did not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// Neither progress nor completion within the deadline, while the pod was there.
    #[error("{pod}: no report for {} seconds, which is the deadline: report progress, or complete the turn", deadline.as_secs())]
    Silent {
        /// The pod.
        pod: String,
        /// What the request gives.
        deadline: SignedDuration,
    },
    /// `progressTimestamp` was set back or removed.
    #[error("{pod}: progressTimestamp went from {before} back to {}", after.map_or("nothing".to_owned(), |after| after.to_string()))]
    ProgressUndone {
        /// The pod.
        pod: String,
        /// As it was.
        before: Timestamp,
        /// As it became.
        after: Option<Timestamp>,
    },
    /// A time that has not come.
    #[error("{pod}: progressTimestamp {progress} is in the future, it was {now}: check the clock")]
    ProgressInFuture {
        /// The pod.
        pod: String,
        /// What was reported.
        progress: Timestamp,
        /// When it was seen.
        now: Timestamp,
    },
    /// The turn was completed, and then it was not.
    #[error("{pod}: activeInterceptorCompleted went back to false")]
    CompletionUndone {
        /// The pod.
        pod: String,
    },
    /// Something was reported after the turn was over.
    #[error("{pod}: progress was reported after the turn was completed")]
    ReportAfterCompletion {
        /// The pod.
        pod: String,
    },
    /// An announcement of a time that has passed.
    #[error("{pod}: expectedInterceptorFinishTime {finish} had passed when it was announced, at {now}")]
    FinishInThePast {
        /// The pod.
        pod: String,
        /// What was announced.
        finish: Timestamp,
        /// When it was seen.
        now: Timestamp,
    },
    /// It gave the turn to somebody else.
    #[error(
        "{pod}: the turn went to {to} although it was neither completed nor overdue: the controller gives turns"
    )]
    TurnGivenAway {
        /// The pod.
        pod: String,
        /// To whom.
        to: String,
    },
}

/// Sees requests, one version after another, and remembers what was wrong.
#[derive(Debug)]
pub struct Judge {
    class: String,
    turns: HashMap<String, EvictionRequest>,
    breaches: Vec<Breach>,
    reports: usize,
}

impl Judge {
    /// Of the interceptor with this class.
    pub fn new(class: &str) -> Self {
        Self { class: class.to_owned(), turns: HashMap::new(), breaches: Vec::new(), reports: 0 }
    }

    /// A request as it is now.
    pub fn observe(&mut self, request: &EvictionRequest, now: Timestamp) {
        let uid = request.metadata.uid.clone().unwrap_or_default();
        let status = request.status.clone().unwrap_or_default();
        let is_ours = status.active_interceptor_class.as_deref() == Some(&self.class);
        let before = self.turns.remove(&uid);
        if let Some(before) = &before {
            self.compare(before, request, now);
        }
        if is_ours {
            if before.is_none() {
                self.check_times(None, request, now);
            }
            self.turns.insert(uid, request.clone());
        }
    }

    /// A request is gone, and with it the turn.
    pub fn gone(&mut self, request: &EvictionRequest) {
        self.turns.remove(request.metadata.uid.as_deref().unwrap_or_default());
    }

    /// All that was wrong so far, with those that are silent by now.
    pub fn breaches(&self, now: Timestamp) -> Vec<Breach> {
        let silent = self.turns.values().filter_map(|request| silent(request, now));
        self.breaches.iter().cloned().chain(silent).collect()
    }

    /// How often something was reported: nothing is proven by an interceptor that never had a turn.
    pub fn reports(&self) -> usize {
        self.reports
    }

    fn compare(&mut self, before: &EvictionRequest, after: &EvictionRequest, now: Timestamp) {
        let pod = after.spec.pod_ref.name.clone();
        let (old, new) =
            (before.status.clone().unwrap_or_default(), after.status.clone().unwrap_or_default());
        if new.active_interceptor_class != old.active_interceptor_class {
            if !old.active_interceptor_completed && overdue_at(before).is_none_or(|at| now + SKEW < at) {
                let to = new.active_interceptor_class.unwrap_or_default();
                self.breaches.push(Breach::TurnGivenAway { pod, to });
            }
            return;
        }
        if old.active_interceptor_completed && !new.active_interceptor_completed {
            self.breaches.push(Breach::CompletionUndone { pod: pod.clone() });
        }
        let times = (old.progress_timestamp.map(|it| it.0), new.progress_timestamp.as_ref().map(|it| it.0));
        match times {
            (Some(before), after) if after.is_none_or(|after| after + SKEW < before) => {
                self.breaches.push(Breach::ProgressUndone { pod: pod.clone(), before, after });
            }
            (before, Some(after))
                if before.is_none_or(|before| before < after) && old.active_interceptor_completed =>
            {
                self.breaches.push(Breach::ReportAfterCompletion { pod });
            }
            _ => {}
        }
        self.check_times(Some(before), after, now);
    }

    fn check_times(&mut self, before: Option<&EvictionRequest>, request: &EvictionRequest, now: Timestamp) {
        let pod = &request.spec.pod_ref.name;
        let old = before.and_then(|before| before.status.clone()).unwrap_or_default();
        let new = request.status.clone().unwrap_or_default();
        let is_report = before.is_some()
            && (new.progress_timestamp != old.progress_timestamp
                || new.message != old.message
                || new.active_interceptor_completed != old.active_interceptor_completed);
        self.reports += usize::from(is_report);
        if let Some(progress) = new.progress_timestamp.filter(|it| it.0 > now + SKEW) {
            let progress = progress.0;
            self.breaches.push(Breach::ProgressInFuture { pod: pod.clone(), progress, now });
        }
        let announced = new
            .expected_interceptor_finish_time
            .filter(|it| old.expected_interceptor_finish_time.as_ref() != Some(it));
        if let Some(finish) = announced.map(|it| it.0).filter(|finish| *finish + SKEW < now) {
            self.breaches.push(Breach::FinishInThePast { pod: pod.clone(), finish, now });
        }
    }
}

fn overdue_at(request: &EvictionRequest) -> Option<Timestamp> {
    let progress = request.status.as_ref().and_then(|status| status.progress_timestamp.as_ref());
    let since = progress.or(request.metadata.creation_timestamp.as_ref())?;
    since.0.checked_add(SignedDuration::from_secs(request.spec.progress_deadline_seconds.into())).ok()
}

fn silent(request: &EvictionRequest, now: Timestamp) -> Option<Breach> {
    let is_completed = request.status.as_ref().is_some_and(|status| status.active_interceptor_completed);
    let is_overdue = overdue_at(request).is_some_and(|at| now > at + SKEW);
    (!is_completed && is_overdue).then(|| Breach::Silent {
        pod: request.spec.pod_ref.name.clone(),
        deadline: SignedDuration::from_secs(request.spec.progress_deadline_seconds.into()),
    })
}

/// Watches the requests of the whole cluster for so long, and tells what was wrong.
pub async fn watch(client: Client, class: &str, time: Duration) -> Vec<Breach> {
    let mut judge = Judge::new(class);
    let clock = Clock::system();
    // A watch does not end by itself.
    let _ = tokio::time::timeout(time, watch_with(client, &mut judge, &clock)).await;
    judge.breaches(clock.now())
}

/// Has the judge see all requests, by this clock, until the future is dropped.
pub async fn watch_with(client: Client, judge: &mut Judge, clock: &Clock) {
    let requests: Api<EvictionRequest> = Api::all(client);
    let mut events = Box::pin(watcher(requests, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(request) | watcher::Event::InitApply(request)) => {
                judge.observe(&request, clock.now());
            }
            Ok(watcher::Event::Delete(request)) => judge.gone(&request),
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn request(class: &str, progress: Option<i64>, with: Value) -> EvictionRequest {
        let mut status = json!({"activeInterceptorClass": class, "progressTimestamp": progress.map(|it| at(it).to_string())});
        for (key, value) in with.as_object().into_iter().flatten() {
            status[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": "u", "uid": "r", "creationTimestamp": at(0).to_string()},
            "spec": {"podRef": {"name": "p", "uid": "u"}, "progressDeadlineSeconds": 600},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn each_breach_of_the_contract_is_seen() {
        let ours = |progress, with| request("a.io", Some(progress), with);
        type History = Vec<(i64, EvictionRequest)>;
        let rows: [(&str, History, i64); 9] = [
            (
                "",
                vec![
                    (0, ours(0, json!({}))),
                    (300, ours(300, json!({"message": "half"}))),
                    (500, ours(300, json!({"activeInterceptorCompleted": true}))),
                ],
                5000,
            ),
            ("no report", vec![(0, ours(0, json!({})))], 700),
            ("back to", vec![(0, ours(0, json!({}))), (100, ours(-90, json!({})))], 100),
            ("back to nothing", vec![(0, ours(0, json!({}))), (100, request("a.io", None, json!({})))], 100),
            ("in the future", vec![(0, ours(0, json!({}))), (100, ours(400, json!({})))], 100),
            (
                "back to false",
                vec![(0, ours(0, json!({"activeInterceptorCompleted": true}))), (100, ours(0, json!({})))],
                100,
            ),
            (
                "after the turn was completed",
                vec![
                    (0, ours(0, json!({"activeInterceptorCompleted": true}))),
                    (100, ours(100, json!({"activeInterceptorCompleted": true}))),
                ],
                100,
            ),
            (
                "had passed",
                vec![
                    (0, ours(0, json!({}))),
                    (100, ours(100, json!({"expectedInterceptorFinishTime": at(10).to_string()}))),
                ],
                100,
            ),
            (
                "the turn went to b.io",
                vec![(0, ours(0, json!({}))), (100, request("b.io", Some(100), json!({})))],
                100,
            ),
        ];
        for (wanted, history, now) in rows {
            let mut judge = Judge::new("a.io");
            for (second, request) in &history {
                judge.observe(request, at(*second));
            }
            let breaches: Vec<String> = judge.breaches(at(now)).iter().map(ToString::to_string).collect();
            match wanted {
                "" => assert_eq!((breaches, judge.reports()), (vec![], 2)),
                wanted => {
                    assert!(matches!(&breaches[..], [one] if one.contains(wanted)), "{wanted}: {breaches:?}")
                }
            }
        }
    }

    #[test]
    fn what_others_do_in_their_turns_is_not_held_against_it() {
        let mut judge = Judge::new("a.io");
        judge.observe(&request("b.io", Some(0), json!({})), at(0));
        judge.observe(&request("b.io", Some(9000), json!({})), at(5000));
        assert_eq!(judge.breaches(at(90_000)), []);
        // A turn that was overdue, or completed, is passed on by the controller.
        judge.observe(&request("a.io", Some(9000), json!({})), at(9000));
        judge.observe(&request("b.io", Some(9601), json!({})), at(9601));
        judge.observe(&request("a.io", Some(9700), json!({"activeInterceptorCompleted": true})), at(9700));
        judge.observe(&request("b.io", Some(9701), json!({})), at(9701));
        assert_eq!(judge.breaches(at(90_000)), []);
    }
}
