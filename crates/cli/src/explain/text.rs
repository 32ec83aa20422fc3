//! An explanation as text.

use jiff::{SignedDuration, Timestamp};
use usher_api::EvictionRequestCancellationPolicy as Policy;

use super::explanation::{Explanation, InterceptorFacts, PodFacts, RequestFacts, TurnFacts};
use super::manager::{LEASE_PATIENCE, Leader};
use crate::sheet::Sheet;
use crate::standing::{Due, Waits};
use crate::table::Table;
use crate::{Surroundings, span};

pub fn render(explanation: &Explanation, surroundings: &Surroundings, now: Timestamp) -> String {
    let mut text = Sheet::default();
    text.text.push_str(&surroundings.bold(&headline(explanation, now)));
    text.space();
    text.space();
    match &explanation.request {
        Some(request) => asked(&mut text, explanation, request, surroundings, now),
        None => not_asked(&mut text, explanation, surroundings),
    }
    if !explanation.budgets.is_empty() {
        text.put("Budgets", &budgets(explanation));
    }
    if !explanation.events.is_empty() {
        text.put("Events", &events(explanation, now));
    }
    text.text
}

fn headline(explanation: &Explanation, now: Timestamp) -> String {
    let name = format!("{}/{}", explanation.namespace, explanation.name);
    let Some(pod) = &explanation.pod else {
        return format!("Pod {name} is gone; only its request is still there.");
    };
    let end = match &explanation.request {
        Some(_) if is_ended(pod) => "has ended; its request is still there.",
        Some(_) => "has not left yet.",
        None => "is not asked to leave.",
    };
    format!("Pod {name} {} {end}", state(pod, now))
}

fn is_ended(pod: &PodFacts) -> bool {
    matches!(pod.phase.as_str(), "Succeeded" | "Failed")
}

fn state(pod: &PodFacts, now: Timestamp) -> String {
    let place = if pod.node.is_empty() { "on no node yet".to_string() } else { format!("on {}", pod.node) };
    let health = match pod.terminating_until {
        Some(until) if until > now => format!("terminating, {} left", span::left(until, now)),
        Some(until) => format!("terminating, {} late", span::age(until, now)),
        None if pod.phase == "Running" && !pod.ready => "Running, not ready".to_string(),
        None if pod.phase == "Running" => "Running, ready".to_string(),
        None => pod.phase.clone(),
    };
    let owner = pod.owner.as_ref().map(|owner| format!(", of {owner}")).unwrap_or_default();
    format!("{place} ({health}{owner})")
}

fn asked(
    text: &mut Sheet,
    explanation: &Explanation,
    request: &RequestFacts,
    surroundings: &Surroundings,
    now: Timestamp,
) {
    let sentence = &explanation.sentence;
    let sentence = if explanation.is_blocked { surroundings.alarming(sentence) } else { sentence.clone() };
    text.put("Waiting on", &sentence);
    if let Some(since) = explanation.since {
        text.put("Since", &span::told(since, now));
    }
    text.put("Until", &until(explanation, now));
    text.put("What to do", &advice(explanation, surroundings, now));
    text.space();
    let requesters = if request.requesters.is_empty() {
        "nobody any more".to_string()
    } else {
        request.requesters.join(", ")
    };
    text.put("Requested by", &requesters);
    text.put("Requested", &span::told(request.created, now));
    if request.cancellation_policy == Policy::Forbid {
        text.put("Taking back", "forbidden by the interceptor: it goes on until the pod is gone");
    }
    // Without an interceptor the message is the manager's own, which the lines above say better.
    if !request.message.is_empty() && !explanation.interceptors.is_empty() {
        text.put("Message", &request.message);
    }
    let deadline = span::human(SignedDuration::from_secs(request.deadline_seconds));
    text.put("Turns", &turns(&explanation.interceptors, request, &deadline, now));
}

fn until(explanation: &Explanation, now: Timestamp) -> String {
    match (explanation.until, &explanation.waiting_on) {
        (
            Some(until),
            Waits::On(usher_decide::waiting_on::WaitingOn::Interceptor { expected_finish, .. }),
        ) => {
            let expected =
                expected_finish.map(|finish| format!("; it expects to be done {}", span::told(finish, now)));
            format!(
                "{} at the latest, if it stays silent{}",
                span::told(until, now),
                expected.unwrap_or_default()
            )
        }
        (Some(until), _) => span::told(until, now),
        (None, Waits::Refused(_)) => "tried again by itself, with pauses of up to 15m".to_string(),
        (None, waits) if waits.is_blocked() => "that changes; nothing moves by itself".to_string(),
        (None, Waits::Manager(_)) => "the manager acts".to_string(),
        (None, _) => "not known".to_string(),
    }
}

/// What the reader can do, first of all about a manager that does not act.
pub fn advice(explanation: &Explanation, surroundings: &Surroundings, now: Timestamp) -> String {
    let Some(manager) = &explanation.manager else { return explanation.advice.clone() };
    let due = match manager.due {
        Due::GiveTurn => "give the next turn",
        Due::Evict => "evict the pod",
        Due::EndRequest => "remove the request",
        Due::Report => "say where it stands",
    };
    let since = span::told(manager.due_since, now);
    let told = match manager.leader {
        Leader::Renewed { at } if now < at + LEASE_PATIENCE => format!(
            "the manager runs, but could {due} since {since}: look at its logs in namespace usher-system"
        ),
        Leader::Renewed { at } => format!(
            "the manager does not seem to run: it could {due} since {since}, and renewed its lease {} last; see kubectl \
             get pods -n usher-system",
            span::told(at, now)
        ),
        Leader::Missing | Leader::Unknown => format!(
            "the manager does not seem to run: it could {due} since {since}; see kubectl get pods -n usher-system"
        ),
    };
    let told = surroundings.alarming(&told);
    match explanation.waiting_on {
        Waits::Manager(_) => told,
        _ => format!("{}\n{told}", explanation.advice),
    }
}

fn turns(
    interceptors: &[InterceptorFacts],
    request: &RequestFacts,
    deadline: &str,
    now: Timestamp,
) -> String {
    let mut table = Table::default();
    let count = interceptors.len();
    for (at, one) in interceptors.iter().enumerate() {
        let role = one.role.as_ref().map(|role| format!("/{role}")).unwrap_or_default();
        table.row(vec![
            format!("{}/{count}", at + 1),
            one.class.clone(),
            format!("{}{role}", one.priority),
            turn(one.turn, now),
        ]);
    }
    let refused = match request.refused_evictions {
        0 => String::new(),
        1 => ", which was refused once".to_string(),
        times => format!(", which was refused {times} times"),
    };
    let last = match count {
        0 => format!("no interceptor; the eviction API{refused}"),
        _ => format!("then the eviction API{refused}; a silence of {deadline} passes the turn on"),
    };
    format!("{}{last}", table.render())
}

fn turn(turn: TurnFacts, now: Timestamp) -> String {
    let reported = |progress: Option<Timestamp>| match progress {
        Some(at) => format!("last word {} ago", span::age(at, now)),
        None => "no word yet".to_string(),
    };
    match turn {
        TurnFacts::Over => "turn is over".to_string(),
        TurnFacts::Completed => "has completed".to_string(),
        TurnFacts::Silent { progress } => format!("silent for too long, {}", reported(progress)),
        TurnFacts::Active { progress, .. } => format!("has its turn, {}", reported(progress)),
        TurnFacts::ToCome => "comes later".to_string(),
    }
}

fn not_asked(text: &mut Sheet, explanation: &Explanation, surroundings: &Surroundings) {
    let sentence = &explanation.sentence;
    let forecast = if explanation.is_blocked { surroundings.alarming(sentence) } else { sentence.clone() };
    text.put("If asked", &forecast);
    if explanation.is_blocked {
        text.put("Before that", &explanation.advice);
    }
    for why in &explanation.invalid_annotations {
        text.put("Annotation", &surroundings.alarming(why));
    }
    let ask = format!("{} evict {} -n {}", surroundings.program, explanation.name, explanation.namespace);
    text.put("To ask", &ask);
    if !explanation.interceptors.is_empty() {
        text.space();
        let mut table = Table::default();
        let count = explanation.interceptors.len();
        for (at, one) in explanation.interceptors.iter().enumerate() {
            let role = one.role.as_ref().map(|role| format!("/{role}")).unwrap_or_default();
            table.row(vec![
                format!("{}/{count}", at + 1),
                one.class.clone(),
                format!("{}{role}", one.priority),
            ]);
        }
        text.put("Interceptors", &table.render());
    }
}

fn budgets(explanation: &Explanation) -> String {
    let mut lines = String::new();
    for budget in &explanation.budgets {
        let verdict = if budget.lets_pass { "lets the pod go" } else { "does not let the pod go" };
        lines.push_str(&format!(
            "{}: {verdict}; {} allowed, {} of {} healthy, {} wanted\n",
            budget.name, budget.allowed, budget.current_healthy, budget.expected_pods, budget.desired_healthy
        ));
    }
    if explanation.budgets.len() > 1 {
        lines.push_str("the server evicts no pod that has more than one budget\n");
    }
    lines
}

fn events(explanation: &Explanation, now: Timestamp) -> String {
    let mut table = Table::default();
    for event in &explanation.events {
        let age = event.at.map(|at| format!("{} ago", span::age(at, now))).unwrap_or_default();
        table.row(vec![age, event.kind.clone(), event.reason.clone(), event.message.clone()]);
    }
    table.render()
}
