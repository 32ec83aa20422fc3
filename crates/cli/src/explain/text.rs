//! An explanation as text.

use jiff::{SignedDuration, Timestamp};
use usher_api::EvictionRequestCancellationPolicy as Policy;

use super::explanation::{BudgetFacts, Explanation, InterceptorFacts, PodFacts, RequestFacts};
use super::stateful_set::UnavailableFacts;
use crate::error::MANAGER_PODS;
use crate::sheet::Sheet;
use crate::table::Table;
use crate::{Environment, span};
use usher_forecast::request_state::{InterceptorState, Leader, ManagerStep, RequestWait};

pub fn render(explanation: &Explanation, environment: &Environment, now: Timestamp) -> String {
    let mut text = Sheet::new(environment);
    text.headline(&environment.bold(&headline(explanation, now)));
    match &explanation.request {
        Some(request) => asked(&mut text, explanation, request, environment, now),
        None => not_asked(&mut text, explanation, environment),
    }
    if let Some(wanted) = explanation.pod.as_ref().and_then(|pod| pod.evict_wanted.as_ref()) {
        let by = wanted.user.as_ref().map(|user| format!(", evicted by {user}")).unwrap_or_default();
        let since = span::since(wanted.since, now);
        text.put(
            "Wanted gone",
            &format!("{since}{by}; its workload takes over (evict policy ControllerTakeOver)"),
        );
    }
    match &explanation.budgets {
        None => text.put("Budgets", "not known: you may not list poddisruptionbudgets here"),
        Some(known) if known.is_empty() => {}
        Some(known) => text.put("Budgets", &budgets(known)),
    }
    if !explanation.events.is_empty() {
        text.put("Events", &events(explanation, now));
    }
    text.text
}

/// By its name, or as the user who evicts the pod without knowing of requests.
fn requester(name: &str, request: &RequestFacts, now: Timestamp) -> String {
    match request.plain_evictions.iter().find(|it| it.requester == name) {
        Some(it) => format!("{} by plain evictions, the last {} ago", it.user, span::age(it.last_asked, now)),
        None => name.to_string(),
    }
}

fn headline(explanation: &Explanation, now: Timestamp) -> String {
    let name = format!("{}/{}", explanation.namespace, explanation.name);
    let Some(pod) = &explanation.pod else {
        return format!("Pod {name} is gone; only its eviction request is still there.");
    };
    let end = match &explanation.request {
        Some(_) if is_ended(pod) => "has ended; its eviction request is still there.",
        Some(_) => "has not been evicted yet.",
        None => "has no eviction request.",
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
        Some(until) => format!("terminating, due {}", span::eta(until, now)),
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
    environment: &Environment,
    now: Timestamp,
) {
    let sentence = &explanation.sentence;
    let sentence = if explanation.is_blocked { environment.alarming(sentence) } else { sentence.clone() };
    text.put("Waiting on", &sentence);
    if let Some(since) = explanation.since {
        text.put("Since", &span::since(since, now));
    }
    text.put("Until", &until(explanation, now));
    text.put("What to do", &advice(explanation, environment, now));
    text.space();
    let requesters = if request.requesters.is_empty() {
        "nobody; all have withdrawn".to_string()
    } else {
        let names = request.requesters.iter().map(|name| requester(name, request, now));
        names.collect::<Vec<_>>().join(", ")
    };
    text.put("Requested by", &requesters);
    text.put("Requested", &span::since(request.created, now));
    if request.cancellation_policy == Policy::Forbid {
        text.put("Cancellation", "forbidden by the interceptor: the eviction goes on until the pod is gone");
    }
    // Without an interceptor the message is the manager's own, which the lines above say better.
    if !request.message.is_empty() && !explanation.interceptors.is_empty() {
        text.put("Message", &request.message);
    }
    if !explanation.unavailable.is_empty() {
        let line = |it: &UnavailableFacts| format!("{} {} ({})\n", it.pod, it.message, it.reason);
        text.put("Not available", &explanation.unavailable.iter().map(line).collect::<String>());
    }
    let deadline = span::human(SignedDuration::from_secs(request.deadline_seconds));
    text.put("Turns", &turns(&explanation.interceptors, request, &deadline, now));
}

fn until(explanation: &Explanation, now: Timestamp) -> String {
    match (explanation.until, &explanation.waits) {
        (
            Some(until),
            RequestWait::On(usher_decide::waiting_on::WaitingOn::Interceptor { expected_finish, .. }),
        ) => {
            let expected = expected_finish
                .map(|finish| format!("; it expects to finish {}", span::describe(finish, now)));
            format!(
                "{} at the latest, without progress until then{}",
                span::describe(until, now),
                expected.unwrap_or_default()
            )
        }
        (Some(until), _) => span::describe(until, now),
        (None, RequestWait::Refused(_)) => "retried automatically, up to 15m apart".to_string(),
        (None, waits) if waits.is_blocked() => "this changes".to_string(),
        (None, RequestWait::Manager(_)) => "the manager acts".to_string(),
        (None, _) => "not known".to_string(),
    }
}

/// What the reader can do, first of all about a manager that does not act.
pub fn advice(explanation: &Explanation, environment: &Environment, now: Timestamp) -> String {
    let Some(manager) = &explanation.manager else { return explanation.advice.clone() };
    let due = match manager.due {
        ManagerStep::GiveTurn => "give the next interceptor its turn",
        ManagerStep::Evict => "evict the pod",
        ManagerStep::EndRequest => "remove the request",
        ManagerStep::Report => "update the status",
        ManagerStep::Intercept => "act as the interceptor of its workload",
    };
    let since = span::since(manager.due_since, now);
    let overdue = match &manager.leader {
        Leader::Renewed { namespace, .. } if manager.leader.is_fresh(now) => format!(
            "the manager runs, but should {due} since {since}: look at its logs in namespace {namespace}"
        ),
        Leader::Renewed { at, namespace } => format!(
            "the manager does not seem to run: it should {due} since {since}, and last renewed its lease {}; see kubectl \
             get pods -n {namespace}",
            span::since(*at, now)
        ),
        Leader::Missing | Leader::Unknown => {
            format!("the manager does not seem to run: it should {due} since {since}; see {MANAGER_PODS}")
        }
    };
    let overdue = environment.alarming(&overdue);
    match explanation.waits {
        RequestWait::Manager(_) => overdue,
        _ => format!("{}\n{overdue}", explanation.advice),
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
        _ => format!("then the eviction API{refused}; {deadline} without progress passes the turn on"),
    };
    format!("{}{last}", table.render())
}

fn turn(turn: InterceptorState, now: Timestamp) -> String {
    let reported = |progress: Option<Timestamp>| match progress {
        Some(at) => format!("last progress {} ago", span::age(at, now)),
        None => "no progress reported yet".to_string(),
    };
    match turn {
        InterceptorState::Over => "done".to_string(),
        InterceptorState::Completed => "completed".to_string(),
        InterceptorState::Silent { progress } => format!("overdue, {}", reported(progress)),
        InterceptorState::Active { progress, .. } => format!("active, {}", reported(progress)),
        InterceptorState::ToCome => "waiting".to_string(),
    }
}

fn not_asked(text: &mut Sheet, explanation: &Explanation, environment: &Environment) {
    let sentence = &explanation.sentence;
    let forecast = if explanation.is_blocked { environment.alarming(sentence) } else { sentence.clone() };
    text.put("If evicted", &forecast);
    if explanation.is_blocked {
        text.put("Before that", &explanation.advice);
    }
    for why in &explanation.invalid_annotations {
        text.put("Annotation", &environment.alarming(why));
    }
    let ask = format!("{} evict {} -n {}", environment.program, explanation.name, explanation.namespace);
    text.put("To evict it", &ask);
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

fn budgets(budgets: &[BudgetFacts]) -> String {
    let mut lines = String::new();
    for budget in budgets {
        let verdict = if budget.lets_pass { "allows the eviction" } else { "does not allow the eviction" };
        lines.push_str(&format!(
            "{} ({}): {verdict}; {} allowed, {} of {} pods healthy, {} wanted\n",
            budget.name,
            budget.rule,
            budget.allowed,
            budget.current_healthy,
            budget.expected_pods,
            budget.desired_healthy
        ));
    }
    if budgets.len() > 1 {
        lines.push_str("the eviction API refuses pods with more than one budget\n");
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
