//! What an interceptor says of its turn, as a change of the status, and when the next sign of life is due. The SDK and the bundled
//! interceptors both report by it.

use std::time::Duration;

use crate::{EvictionRequestCancellationPolicy, EvictionRequestStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

/// The longest message the definition accepts, in characters.
const MESSAGE_MAX_LENGTH: usize = 32_768;
/// Signs of life per deadline: some may fail before the deadline passes.
const BEATS_PER_DEADLINE: u32 = 6;
/// The specification's own example: every 3 minutes.
const SLOWEST_BEAT: Duration = Duration::from_secs(180);
const QUICKEST_BEAT: Duration = Duration::from_secs(1);

/// The truth of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// One report. What it does not name stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Work is being done: `progressTimestamp` becomes the present time.
    pub progress: bool,
    pub message: Option<String>,
    pub finish: Option<Timestamp>,
    /// No estimate can be made any more: an earlier one is taken back.
    pub has_no_estimate: bool,
    pub policy: Option<EvictionRequestCancellationPolicy>,
    pub completed: bool,
    pub condition: Option<ConditionReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionReport {
    pub type_: String,
    pub status: ConditionStatus,
    pub reason: String,
    pub message: String,
}

impl Report {
    /// The merge patch of the status that makes it so.
    pub fn patch(&self, status: &EvictionRequestStatus, now: Timestamp) -> Value {
        // It holds nothing that JSON cannot have.
        serde_json::to_value(self.change(status, now)).unwrap_or_default()
    }

    fn change<'a>(&'a self, status: &EvictionRequestStatus, now: Timestamp) -> StatusChange<'a> {
        // The controller's clock may be ahead of ours: time in a status does not go back.
        let before = status.progress_timestamp.as_ref().map_or(now, |Time(at)| *at);
        let finish = self.finish.map(|finish| Some(Time(finish)));
        StatusChange {
            progress_timestamp: self.progress.then(|| Time(now.max(before))),
            message: self.message.as_ref().map(|message| message.chars().take(MESSAGE_MAX_LENGTH).collect()),
            expected_interceptor_finish_time: finish.or(self.has_no_estimate.then_some(None)),
            eviction_request_cancellation_policy: self.policy.as_ref(),
            active_interceptor_completed: self.completed.then_some(true),
            conditions: self
                .condition
                .as_ref()
                .map(|condition| with_condition(&status.conditions, condition, now)),
        }
    }
}

/// What changes of [`EvictionRequestStatus`]. What is absent stays as it is, and null takes away what is there.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusChange<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    progress_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_interceptor_finish_time: Option<Option<Time>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eviction_request_cancellation_policy: Option<&'a EvictionRequestCancellationPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_interceptor_completed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<Condition>>,
}

/// A merge patch replaces lists, so that the others are repeated. The time changes only with the status.
fn with_condition(conditions: &[Condition], report: &ConditionReport, now: Timestamp) -> Vec<Condition> {
    let status = format!("{:?}", report.status);
    let before = conditions.iter().find(|condition| condition.type_ == report.type_);
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    let new = Condition {
        type_: report.type_.clone(),
        status,
        reason: report.reason.clone(),
        message: report.message.clone(),
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    };
    let others = conditions.iter().filter(|condition| condition.type_ != report.type_);
    others.cloned().chain([new]).collect()
}

/// How long signs of life are apart.
pub fn beat_interval(deadline: Duration) -> Duration {
    (deadline / BEATS_PER_DEADLINE).clamp(QUICKEST_BEAT, SLOWEST_BEAT)
}

/// How long until the next sign of life is due. Whatever else was reported counts as one.
pub fn until_beat(last: Option<Timestamp>, now: Timestamp, interval: Duration) -> Duration {
    let Some(last) = last else { return Duration::ZERO };
    let passed = Duration::try_from(now.duration_since(last).max(SignedDuration::ZERO)).unwrap_or_default();
    interval.saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_report_changes_what_it_names_and_nothing_else() {
        let status = EvictionRequestStatus { progress_timestamp: Some(Time(at(100))), ..Default::default() };
        let policy = Some(EvictionRequestCancellationPolicy::Forbid);
        for (report, expected) in [
            (Report::default(), json!({})),
            (
                Report { progress: true, ..Report::default() },
                json!({"progressTimestamp": "1970-01-01T00:03:20Z"}),
            ),
            (Report { message: Some("half".into()), ..Report::default() }, json!({"message": "half"})),
            (
                Report { finish: Some(at(0)), ..Report::default() },
                json!({"expectedInterceptorFinishTime": "1970-01-01T00:00:00Z"}),
            ),
            (
                Report { has_no_estimate: true, ..Report::default() },
                json!({"expectedInterceptorFinishTime": null}),
            ),
            (Report { policy, ..Report::default() }, json!({"evictionRequestCancellationPolicy": "Forbid"})),
            (Report { completed: true, ..Report::default() }, json!({"activeInterceptorCompleted": true})),
        ] {
            assert_eq!(report.patch(&status, at(200)), expected, "{report:?}");
        }
        let late = Report { progress: true, ..Report::default() }.patch(&status, at(40));
        assert_eq!(late["progressTimestamp"], "1970-01-01T00:01:40Z", "time does not go back");
    }

    #[test]
    fn all_that_a_report_can_change_are_fields_of_the_definition() {
        let all = Report {
            progress: true,
            message: Some("m".into()),
            finish: Some(at(0)),
            has_no_estimate: false,
            policy: Some(EvictionRequestCancellationPolicy::Forbid),
            completed: true,
            condition: Some(ConditionReport {
                type_: "Copied".into(),
                status: ConditionStatus::True,
                reason: "Done".into(),
                message: String::new(),
            }),
        };
        let patch = all.patch(&EvictionRequestStatus::default(), at(0));
        let (_, definition) =
            crate::crd::crds().into_iter().find(|(_, crd)| crd.spec.names.kind == "EvictionRequest").unwrap();
        let definition = serde_json::to_value(definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = schema["properties"]["status"]["properties"].as_object().unwrap();
        let named = patch.as_object().unwrap();
        assert_eq!(named.len(), 6, "{patch}");
        for field in named.keys() {
            assert!(fields.contains_key(field), "{field} is no field of the status");
        }
    }

    #[test]
    fn a_message_is_cut_where_the_definition_ends_it() {
        let report = Report { message: Some("é".repeat(MESSAGE_MAX_LENGTH + 1)), ..Report::default() };
        let patch = report.patch(&EvictionRequestStatus::default(), at(0));
        assert_eq!(patch["message"].as_str().unwrap().chars().count(), MESSAGE_MAX_LENGTH);
    }

    #[test]
    fn a_condition_replaces_its_like_and_keeps_the_time_of_its_status() {
        let condition = |status, reason: &str| ConditionReport {
            type_: "Copied".into(),
            status,
            reason: reason.into(),
            message: String::new(),
        };
        let other = Condition {
            type_: "Other".into(),
            status: "True".into(),
            reason: "R".into(),
            message: String::new(),
            last_transition_time: Time(at(1)),
            observed_generation: None,
        };
        let first =
            with_condition(std::slice::from_ref(&other), &condition(ConditionStatus::False, "Begun"), at(10));
        let second = with_condition(&first, &condition(ConditionStatus::False, "Going"), at(20));
        let third = with_condition(&second, &condition(ConditionStatus::True, "Done"), at(30));
        let seen = |conditions: &[Condition]| -> Vec<(String, String, Timestamp)> {
            conditions
                .iter()
                .map(|c| (c.status.clone(), c.reason.clone(), c.last_transition_time.0))
                .collect()
        };
        let kept = ("True".to_owned(), "R".to_owned(), at(1));
        assert_eq!(seen(&second), [kept.clone(), ("False".into(), "Going".into(), at(10))]);
        assert_eq!(seen(&third), [kept, ("True".into(), "Done".into(), at(30))]);
    }

    #[test]
    fn signs_of_life_leave_room_before_the_deadline() {
        let minutes = |m: u64| Duration::from_secs(60 * m);
        assert_eq!(beat_interval(minutes(10)), Duration::from_secs(100));
        assert_eq!(beat_interval(minutes(30)), minutes(3));
        assert_eq!(beat_interval(minutes(360)), minutes(3));
        let interval = minutes(3);
        assert_eq!(until_beat(None, at(0), interval), Duration::ZERO);
        assert_eq!(until_beat(Some(at(0)), at(60), interval), minutes(2));
        assert_eq!(until_beat(Some(at(0)), at(999), interval), Duration::ZERO);
        assert_eq!(
            until_beat(Some(at(60)), at(0), interval),
            interval,
            "a clock that is behind does not spin"
        );
    }
}
