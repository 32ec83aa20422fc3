//! How far each interceptor of a request has come.

use jiff::Timestamp;
use serde::Serialize;
use usher_decide::eviction_request::{Left, Passing, Turn, overdue_at, turn};
use usher_decide::snapshot::Request;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub enum InterceptorState {
    /// It had its turn.
    Over,
    /// It has its turn and has said that it is done.
    Completed,
    /// It has its turn and was silent for too long.
    Silent {
        /// When it last reported, if it has done so since it was given its turn.
        progress: Option<Timestamp>,
    },
    Active {
        progress: Option<Timestamp>,
        until: Timestamp,
        expected_finish: Option<Timestamp>,
    },
    ToCome,
}

impl InterceptorState {
    /// Of each interceptor of the request, in the order of their turns.
    pub fn all(request: &Request, now: Timestamp) -> Vec<Self> {
        let current = current(request, now);
        let position = current.and_then(|(class, _)| {
            request.interceptors.iter().position(|interceptor| interceptor.interceptor_class == class)
        });
        let state = |at: usize| match (position, current) {
            (Some(position), _) if at < position => Self::Over,
            (Some(position), Some((_, state))) if at == position => state,
            _ => Self::ToCome,
        };
        (0..request.interceptors.len()).map(state).collect()
    }
}

/// Who had the turn last, and how far it is with it.
fn current(request: &Request, now: Timestamp) -> Option<(&str, InterceptorState)> {
    let status = &request.status;
    let progress =
        status.progress_timestamp.as_ref().map(|time| time.0).filter(|_| request.is_progress_reported);
    match turn(request, now) {
        Turn::Active { class, until } => {
            let expected_finish = status.expected_interceptor_finish_time.as_ref().map(|time| time.0);
            Some((class, InterceptorState::Active { progress, until, expected_finish }))
        }
        Turn::Pass { why: Passing::Completed { class }, .. } | Turn::Nobody(Left::Completed { class }) => {
            Some((class, InterceptorState::Completed))
        }
        Turn::Pass { why: Passing::Silent { class }, .. } | Turn::Nobody(Left::Silent { class }) => {
            Some((class, InterceptorState::Silent { progress }))
        }
        Turn::Pass { why: Passing::First, .. } | Turn::Nobody(_) | Turn::Unknown { .. } => None,
    }
}

/// Since when an interceptor that has the turn is silent for too long.
pub(super) fn silent_since(request: &Request, now: Timestamp) -> Option<Timestamp> {
    let (_, state) = current(request, now)?;
    matches!(state, InterceptorState::Silent { .. }).then(|| overdue_at(request))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{NOW, request};
    use super::*;
    use InterceptorState::{Active, Completed, Over, Silent, ToCome};
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn those_before_the_turn_are_over_and_those_after_it_are_to_come() {
        let interceptors = json!([
            {"interceptorClass": "a.com", "priority": 3}, {"interceptorClass": "b.com", "priority": 2},
            {"interceptorClass": "c.com", "priority": 1},
        ]);
        let reported = "2026-01-01T11:59:00Z";
        // The deadline is half an hour.
        let long_ago = "2026-01-01T11:30:00Z";
        let active = Active {
            progress: Some(at(reported)),
            until: at("2026-01-01T12:29:00Z"),
            expected_finish: Some(at("2026-01-01T12:10:00Z")),
        };
        for (status, wanted) in [
            (json!({}), [ToCome, ToCome, ToCome]),
            (
                json!({
                    "activeInterceptorClass": "b.com", "progressTimestamp": reported,
                    "expectedInterceptorFinishTime": "2026-01-01T12:10:00Z",
                }),
                [Over, active, ToCome],
            ),
            (
                json!({"activeInterceptorClass": "b.com", "progressTimestamp": long_ago}),
                [Over, Silent { progress: Some(at(long_ago)) }, ToCome],
            ),
            (
                json!({"activeInterceptorClass": "c.com", "progressTimestamp": long_ago}),
                [Over, Over, Silent { progress: Some(at(long_ago)) }],
            ),
            (
                json!({"activeInterceptorClass": "a.com", "activeInterceptorCompleted": true}),
                [Completed, ToCome, ToCome],
            ),
            // One that completed is not late.
            (
                json!({
                    "activeInterceptorClass": "c.com", "activeInterceptorCompleted": true, "progressTimestamp": long_ago,
                }),
                [Over, Over, Completed],
            ),
            (json!({"activeInterceptorClass": "x.com"}), [ToCome, ToCome, ToCome]),
        ] {
            let request = request(interceptors.clone(), status.clone());
            assert_eq!(InterceptorState::all(&request, at(NOW)), wanted, "{status}");
        }
        assert!(InterceptorState::all(&request(json!([]), json!({})), at(NOW)).is_empty());
    }

    #[test]
    fn the_time_of_the_turn_is_no_progress() {
        let interceptors = json!([{"interceptorClass": "a.com", "priority": 1}]);
        let status = json!({"activeInterceptorClass": "a.com", "progressTimestamp": "2026-01-01T11:59:00Z"});
        let request = Request { is_progress_reported: false, ..request(interceptors, status) };
        let all = InterceptorState::all(&request, at(NOW));
        assert!(matches!(all[..], [Active { progress: None, .. }]), "{all:?}");
    }
}
