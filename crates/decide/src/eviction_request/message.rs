//! `status.message` has three authors: whoever gives a turn, the interceptor that has it, and whoever tells what the eviction waits
//! for. Nothing else in the status tells them apart, so what is put together is taken apart here as well, and nowhere else.

use std::fmt;

use crate::decision::{LONGEST_MESSAGE, cut};

use super::BLOCKED_CONDITION;
use super::turn::Passing;
use crate::snapshot::Request;

/// Between what the last interceptor has said and what the eviction waits for.
const JOINED: &str = "; ";

/// What is said when an interceptor is given the turn.
pub struct GivenTurn<'a> {
    pub to: &'a str,
    pub why: Passing<'a>,
    pub request: &'a Request,
}

impl fmt::Display for GivenTurn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, why, request } = self;
        match why {
            Passing::First => match request.interceptors.len() {
                1 => write!(f, "{to}{FIRST}1 interceptor)"),
                all => write!(f, "{to}{FIRST}{all} interceptors)"),
            },
            Passing::Completed { class } => write!(f, "{class} completed, {to}{NEXT}"),
            Passing::Silent { class } => {
                let deadline = request.deadline.as_secs();
                write!(f, "{class} reported no progress for {deadline} seconds, {to}{NEXT}")
            }
        }
    }
}

const FIRST: &str = " goes first (";
const NEXT: &str = " is next";

/// Whether a status or an event says that this interceptor is given the turn.
pub fn gives_turn(message: &str, class: &str) -> bool {
    message.strip_prefix(class).is_some_and(|rest| rest.starts_with(FIRST))
        || message
            .strip_suffix(NEXT)
            .and_then(|rest| rest.strip_suffix(class))
            .is_some_and(|rest| rest.ends_with(", "))
}

/// What the interceptor that has the turn, or had the last one, says: not what was said when it was given the turn.
pub fn said_in_turn(request: &Request) -> Option<&str> {
    let class = request.status.active_interceptor_class.as_deref()?;
    Some(request.status.message.as_str()).filter(|it| !it.is_empty() && !gives_turn(it, class))
}

/// What the last interceptor has said, without what the eviction waits for.
pub fn said_at_last(request: &Request) -> Option<&str> {
    let message = said_in_turn(request).filter(|_| request.status.active_interceptor_completed)?;
    let known = request.condition(BLOCKED_CONDITION).map(|known| known.message.as_str());
    let said = known.filter(|known| !known.is_empty()).and_then(|known| message.strip_suffix(known));
    let said = said.map_or(message, |said| said.strip_suffix(JOINED).unwrap_or(said));
    (!said.is_empty()).then_some(said)
}

/// What the eviction waits for, in whole, and before it as much of what the last interceptor has said as there is room for.
pub fn joined(said: &str, waits: &str) -> String {
    let room = LONGEST_MESSAGE.saturating_sub(waits.chars().count() + JOINED.len());
    format!("{}{JOINED}{waits}", cut(said.to_string(), room))
}

/// Whether the message is what the condition says, and nobody else's.
pub fn is_of_condition(request: &Request) -> bool {
    request.condition(BLOCKED_CONDITION).is_some_and(|known| known.message == request.status.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::RequestOnWire;
    use serde_json::json;

    fn request(message: &str, completed: bool, blocked: Option<&str>) -> Request {
        let conditions: Vec<_> = blocked
            .map(|blocked| json!({
                "type": BLOCKED_CONDITION, "status": "True", "reason": "DisruptionBudget", "message": blocked,
                "lastTransitionTime": "2026-01-01T12:00:00Z",
            }))
            .into_iter()
            .collect();
        let request = json!({
            "metadata": {"name": "u", "namespace": "shop", "uid": "r", "creationTimestamp": "2026-01-01T12:00:00Z"},
            "spec": {
                "podRef": {"name": "web", "uid": "u"}, "progressDeadlineSeconds": 900,
                "interceptors": [{"interceptorClass": "a.b/c", "priority": 2}, {"interceptorClass": "d.e/f", "priority": 1}],
            },
            "status": {
                "activeInterceptorClass": "d.e/f", "activeInterceptorCompleted": completed, "message": message,
                "conditions": conditions,
            },
        });
        Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
    }

    #[test]
    fn a_turn_that_was_given_is_known_again_and_nothing_else() {
        let request = request("", false, None);
        for why in [Passing::First, Passing::Completed { class: "a.b/c" }, Passing::Silent { class: "a.b/c" }]
        {
            let given = GivenTurn { to: "d.e/f", why, request: &request }.to_string();
            assert!(gives_turn(&given, "d.e/f"), "{given}");
            assert!(
                !gives_turn(&given, "a.b/c") && !gives_turn(&given, "e/f") && !gives_turn(&given, "f"),
                "{given}"
            );
        }
        for said in ["", "d.e/f goes first", "d.e/f is next", "moving, 3 shards are next", "d.e/f moves"] {
            assert!(!gives_turn(said, "d.e/f"), "{said}");
        }
    }

    #[test]
    fn what_an_interceptor_said_is_found_again_before_what_blocks() {
        let blocked = "budget web allows no disruption";
        for said in ["", "no room", "no room; quota reached"] {
            let message = if said.is_empty() { blocked.to_string() } else { joined(said, blocked) };
            let known = request(&message, true, Some(blocked));
            assert_eq!(said_at_last(&known).unwrap_or_default(), said);
            assert_eq!(is_of_condition(&known), said.is_empty());
        }
        assert_eq!(said_at_last(&request("no room", true, None)), Some("no room"));
        assert_eq!(said_at_last(&request("no room", false, None)), None, "it goes on");
        assert_eq!(said_in_turn(&request("no room", false, None)), Some("no room"));
        let given = "a.b/c completed, d.e/f is next";
        assert_eq!(said_in_turn(&request(given, false, None)), None);
        assert_eq!(said_at_last(&request(given, true, None)), None);
    }
}
