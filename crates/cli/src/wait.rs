//! Following pods until they are gone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use usher_decide::eviction_request::is_withdrawn;
use usher_decide::snapshot::Key;

use crate::live::{Live, Scope};
use crate::request_text::{WaitText as _, state_in, turn_text};
use crate::requests::say_if_hidden;
use crate::screen::Screen;
use crate::table::Table;
use crate::world::World;
use crate::{Ending, Environment, Error, Streams, span};
use usher_forecast::request_state::{RequestState, RequestWait};

/// Things change by the passing of time, too.
const TICK: Duration = Duration::from_secs(1);
/// The manager acts in less than this, if it runs.
const MOMENT: SignedDuration = SignedDuration::from_secs(5);
/// So many pods are shown at a time.
const SHOWN: usize = 10;

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pod: Key,
    uid: String,
}

impl Subject {
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self { pod: Key::new(namespace, name), uid: uid.to_string() }
    }
}

/// What to type next.
#[derive(Debug, Clone)]
pub struct Hints {
    pub watch: String,
    pub cancel: String,
}

/// How far one pod has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodState {
    Gone,
    Withdrawn,
    Waiting { turn: String, waits: RequestWait },
}

pub fn outcome(world: &World, subject: &Subject, now: Timestamp) -> PodState {
    let pod = world.pods.get(&subject.pod).filter(|pod| *pod.uid == *subject.uid);
    let Some(pod) = pod.filter(|pod| !pod.phase.is_terminal()) else { return PodState::Gone };
    let request = world.request_of(pod);
    if let Some(state) = RequestState::of_terminating(pod) {
        return PodState::Waiting { turn: String::new(), waits: state.wait };
    }
    let Some(request) = request.filter(|request| !is_withdrawn(request)) else {
        return PodState::Withdrawn;
    };
    let waits = state_in(world, request, now).wait;
    PodState::Waiting { turn: turn_text(request, now), waits }
}

/// What is followed, and what was said about it.
#[derive(Debug)]
pub struct Following {
    started: Timestamp,
    subjects: Vec<Subject>,
    said: BTreeMap<Key, String>,
    /// Since when it is the manager's turn, which is over in a moment and then not worth a line.
    at_manager: BTreeMap<Key, Timestamp>,
}

impl Following {
    pub fn new(subjects: Vec<Subject>, started: Timestamp) -> Self {
        Self { started, subjects, said: BTreeMap::new(), at_manager: BTreeMap::new() }
    }

    fn outcomes(&self, world: &World, now: Timestamp) -> Vec<(&Subject, PodState)> {
        self.subjects.iter().map(|subject| (subject, outcome(world, subject, now))).collect()
    }

    /// A line for each pod that has changed.
    pub fn lines(&mut self, world: &World, now: Timestamp) -> String {
        let mut text = String::new();
        let mut said = std::mem::take(&mut self.said);
        let mut at_manager = std::mem::take(&mut self.at_manager);
        for (subject, outcome) in self.outcomes(world, now) {
            if matches!(&outcome, PodState::Waiting { waits: RequestWait::Manager(_), .. }) {
                if now < *at_manager.entry(subject.pod.clone()).or_insert(now) + MOMENT {
                    continue;
                }
            } else {
                at_manager.remove(&subject.pod);
            }
            let line = match &outcome {
                PodState::Gone => "gone".to_string(),
                PodState::Withdrawn => "stays, as its eviction request was withdrawn".to_string(),
                PodState::Waiting { waits, .. } => waits.sentence(),
            };
            if said.get(&subject.pod) != Some(&line) {
                let after = match outcome {
                    PodState::Gone => format!(" after {}", span::age(self.started, now)),
                    _ => String::new(),
                };
                text.push_str(&format!("pod/{}: {line}{after}\n", subject.pod.name));
                said.insert(subject.pod.clone(), line);
            }
        }
        self.said = said;
        self.at_manager = at_manager;
        text
    }

    /// All of it, for a screen.
    pub fn picture(&self, world: &World, environment: &Environment, now: Timestamp) -> String {
        let outcomes = self.outcomes(world, now);
        let gone = outcomes.iter().filter(|(_, outcome)| *outcome == PodState::Gone).count();
        let head = format!("{gone} of {} gone after {}", pods(outcomes.len()), span::age(self.started, now));
        let mut table = Table::default();
        let mut hidden = 0;
        for (subject, outcome) in &outcomes {
            let (turn, waiting_on) = match outcome {
                PodState::Gone => continue,
                PodState::Withdrawn => (String::new(), "withdrawn".to_string()),
                PodState::Waiting { turn, waits } => {
                    let phrase = waits.phrase(now);
                    let phrase = if waits.is_blocked() { environment.alarming(&phrase) } else { phrase };
                    (turn.clone(), phrase)
                }
            };
            if table.len() < SHOWN {
                table.row(vec![format!("  {}", subject.pod.name), turn, waiting_on]);
            } else {
                hidden += 1;
            }
        }
        let more = if hidden > 0 { format!("  and {hidden} more\n") } else { String::new() };
        format!("{}\n{}{more}", environment.bold(&head), table.render())
    }

    /// How it ended, if all is over.
    pub fn ending(&self, world: &World, now: Timestamp) -> Option<Ending> {
        let outcomes = self.outcomes(world, now);
        if outcomes.iter().any(|(_, outcome)| matches!(outcome, PodState::Waiting { .. })) {
            return None;
        }
        let withdrawn = outcomes.iter().any(|(_, outcome)| *outcome == PodState::Withdrawn);
        Some(if withdrawn { Ending::Withdrawn } else { Ending::Done })
    }

    /// What is said at the end.
    pub fn summary(&self, world: &World, now: Timestamp) -> String {
        let outcomes = self.outcomes(world, now);
        let after = span::age(self.started, now);
        let mut text = String::new();
        for (subject, outcome) in &outcomes {
            let pod = &subject.pod.name;
            match outcome {
                PodState::Gone => {}
                PodState::Withdrawn => {
                    text.push_str(&format!("pod/{pod}: stays, as its eviction request was withdrawn\n"));
                }
                PodState::Waiting { waits, .. } => text.push_str(&format!(
                    "pod/{pod}: not gone after {after}: {}; {}\n",
                    waits.sentence(),
                    waits.advice()
                )),
            }
        }
        match (outcomes.len(), text.is_empty()) {
            (1, true) => format!("the pod is gone after {after}\n"),
            (count, true) => format!("all {} are gone after {after}\n", pods(count)),
            (_, false) => text,
        }
    }
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_string() } else { format!("{count} pods") }
}

pub async fn until_gone(
    client: &Client,
    namespace: &str,
    subjects: Vec<Subject>,
    timeout: Option<SignedDuration>,
    hints: &Hints,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let pod_name = match &subjects[..] {
        [one] => Some(one.pod.name.to_string()),
        _ => None,
    };
    let scope = Scope { namespace: Some(namespace.to_string()), pod_name, ..Scope::default() };
    let mut following = Following::new(subjects, environment.now());
    let mut live = Live::start(client, &scope).await?;
    say_if_hidden(&live.world, streams.err)?;
    let screen = environment.is_terminal.then(Screen::new);
    let mut tick = tokio::time::interval(TICK);
    let mut out_of_time = std::pin::pin!(out_of_time(timeout));
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let ending = loop {
        let now = environment.now();
        match &screen {
            Some(screen) => {
                screen.draw(&following.picture(&live.world, environment, now));
            }
            None => {
                streams.out.write_all(following.lines(&live.world, now).as_bytes())?;
                streams.out.flush()?;
            }
        }
        if let Some(ending) = following.ending(&live.world, now) {
            break ending;
        }
        tokio::select! {
            changed = live.changed() => drop(changed?),
            () = &mut out_of_time => break Ending::NotGone,
            stopped = &mut interrupted => {
                stopped?;
                break Ending::Interrupted;
            }
            _ = tick.tick() => {}
        }
    };
    if let Some(screen) = &screen {
        screen.clear();
    }
    let summary = following.summary(&live.world, environment.now());
    match ending {
        Ending::Interrupted => writeln!(
            streams.err,
            "interrupted; the eviction is still requested\nwatch: {}\ncancel: {}",
            hints.watch, hints.cancel
        )?,
        Ending::NotGone => {
            writeln!(streams.err, "{summary}the eviction is still requested\ncancel: {}", hints.cancel)?;
        }
        _ => write!(streams.out, "{summary}")?,
    }
    Ok(ending)
}

pub async fn out_of_time(timeout: Option<SignedDuration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout.unsigned_abs()).await,
        None => std::future::pending().await,
    }
}
