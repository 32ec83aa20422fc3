//! A drain as people see it: bars at a terminal, a line per change elsewhere, and a summary at the end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt as _;
use usher_api::{NodeMaintenance, NodeMaintenanceStage};
use usher_decide::maintenance::drain_state::NodeDelay;
use usher_forecast::followed_drain::{is_drained_by_now, is_not_taken_up};

use super::causes::{Cause, NAMED};
use super::progress::{CAUSES, NodeProgress, Progress};
use crate::error::MANAGER_PODS;
use crate::request_text::WaitText as _;
use crate::screen::{Size, wrap};
use crate::table::Table;
use crate::{Environment, span};
use usher_forecast::request_state::RequestWait;

/// So many nodes are shown one by one.
const SHOWN: usize = 20;
/// So many lines of a screen are for what is above and below the nodes.
const AROUND: usize = 8;
const BAR: usize = 20;
/// A screen has room for all columns from so many letters on.
const WIDE: usize = 100;
const DAEMONS: &str = "only DaemonSet and static pods remain: daemons leave now, static pods if a node agent runs there; --ignore-daemonsets waits for neither";

/// All of it, for a screen.
pub fn picture(
    maintenance: &NodeMaintenance,
    progress: &Progress,
    environment: &Environment,
    size: Size,
    now: Timestamp,
) -> String {
    let (all, nodes) = (progress.all(), progress.nodes());
    let drained_count = nodes.iter().filter(|node| node.is_drained()).count();
    let head = format!(
        "{}: {}, {} of {} drained{}, after {}",
        maintenance.name_any(),
        counts(all),
        drained_count,
        plural(nodes.len(), "node"),
        eta(maintenance, all, now).map(|eta| format!(", ETA {eta}")).unwrap_or_default(),
        progress.age(now)
    );
    let head = wrap(&head, size.width, 2);
    let mut text: String = head.lines().map(|line| format!("{}\n", environment.bold(line))).collect();
    if let Some(waits) = not_taken_up(maintenance, progress, now) {
        text.push_str(&format!("  {}\n", environment.alarming(&waits)));
    }
    let room = room(size);
    let shown = shown(nodes, room);
    let mut table = Table::default();
    for node in &shown {
        let waits = waits_of(node, maintenance, now);
        let waits = if node.blocked > 0 { environment.alarming(&waits) } else { waits };
        let gone = format!("{}/{} gone", node.gone(), node.seen);
        let states = if node.is_drained() { "drained".to_string() } else { states(node) };
        let name = format!("  {}", node.name);
        // The bar tells the states as well; what is waited for is told nowhere else.
        table.row(match size.width < WIDE {
            true if node.is_drained() => vec![name, bar(node, BAR / 2), gone, states],
            true => vec![name, bar(node, BAR / 2), gone, waits],
            false => vec![name, bar(node, BAR), gone, states, waits],
        });
    }
    text.push_str(&table.render());
    if nodes.len() > room {
        let hidden = nodes.len() - shown.len();
        let drained = drained_count - shown.iter().filter(|node| node.is_drained()).count();
        let more = plural(hidden, "more node");
        text.push_str(&format!("  and {more}: {drained} drained, {} not\n", hidden - drained));
    }
    if let Some(worst) = all.causes.first().filter(|cause| cause.waits.is_blocked()) {
        text.push_str(&format!(
            "{}\n",
            wrap(&format!("  most are blocked by: {}", cause(worst, true)), size.width, 4)
        ));
    }
    if waits_for_daemons(maintenance, progress) {
        text.push_str(&format!("{}\n", wrap(&format!("  {DAEMONS}"), size.width, 4)));
    }
    text
}

/// How many nodes a screen has room for.
pub fn room(size: Size) -> usize {
    SHOWN.min(size.height.saturating_sub(AROUND)).max(1)
}

/// The nodes that are shown one by one: of too many those with most to do.
pub fn shown(nodes: &[NodeProgress], room: usize) -> Vec<&NodeProgress> {
    let mut shown: Vec<&NodeProgress> = nodes.iter().collect();
    if nodes.len() > room {
        let busy = |node: &&NodeProgress| std::cmp::Reverse((node.blocked + node.evicting, node.left()));
        shown.sort_by_key(busy);
        shown.truncate(room);
        shown.sort_by(|a, b| a.name.cmp(&b.name));
    }
    shown
}

/// The lines that were said already, so that only those that have changed are said.
#[derive(Debug, Default)]
pub struct Said(BTreeMap<String, String>);

impl Said {
    /// A line for each node that has changed; of many nodes only for those that are drained, and one for all together.
    pub fn lines(&mut self, maintenance: &NodeMaintenance, progress: &Progress, now: Timestamp) -> String {
        let mut text = String::new();
        if let Some(waits) = not_taken_up(maintenance, progress, now) {
            self.say(&mut text, &maintenance.name_any(), waits);
        }
        let (all, nodes) = (progress.all(), progress.nodes());
        let is_many = nodes.len() > SHOWN;
        for node in nodes {
            let name = format!("node/{}", node.name);
            if node.is_drained() {
                self.say(&mut text, &name, format!("drained, {} gone", plural(node.gone(), "pod")));
            } else if !is_many {
                self.say(&mut text, &name, line(node, maintenance));
            }
        }
        if is_many {
            let drained = nodes.iter().filter(|node| node.is_drained()).count();
            let waits = all.causes.first().filter(|cause| cause.waits.is_blocked());
            let waits = waits.map(|worst| format!("; {}", cause(worst, false))).unwrap_or_default();
            let line = format!("{drained} drained, {}{waits}", counts(all));
            self.say(&mut text, &plural(nodes.len(), "node"), line);
        }
        if waits_for_daemons(maintenance, progress) {
            self.say(&mut text, &maintenance.name_any(), DAEMONS.to_string());
        }
        text
    }

    fn say(&mut self, text: &mut String, about: &str, line: String) {
        if self.0.get(about) != Some(&line) {
            text.push_str(&format!("{about}: {line}\n"));
            self.0.insert(about.to_string(), line);
        }
    }
}

fn line(node: &NodeProgress, maintenance: &NodeMaintenance) -> String {
    let waits = match worst(node) {
        Some(worst) => format!("; {}", cause(worst, false)),
        None => match message(node, maintenance) {
            Some(message) => format!("; {message}"),
            None => String::new(),
        },
    };
    format!("{}{waits}", counts(node))
}

/// What is said when all pods have left.
pub fn drained(maintenance: &NodeMaintenance, progress: &Progress, program: &str, now: Timestamp) -> String {
    let name = maintenance.name_any();
    let after = progress.age(now);
    let all = progress.all();
    let result = match progress.nodes() {
        [] => "drained".to_string(),
        [one] => format!("{} drained: {}", one.name, left(one.gone(), &after)),
        nodes => format!("{} drained: {}", plural(nodes.len(), "node"), left(all.gone(), &after)),
    };
    let stay = match all.pods_left().daemons() {
        0 => String::new(),
        1 => "1 DaemonSet or static pod stays\n".to_string(),
        daemons => format!("{daemons} DaemonSet or static pods stay\n"),
    };
    let next = if maintenance.metadata.deletion_timestamp.is_some() {
        format!("maintenance {name} is being deleted")
    } else if maintenance.spec.stage == NodeMaintenanceStage::Complete {
        format!("maintenance {name} is complete: it holds no nodes any more")
    } else {
        format!("when the work is done, uncordon with: {program} maintenance complete {name}")
    };
    format!("{result}\n{stay}{next}\n")
}

fn left(gone: usize, after: &str) -> String {
    match gone {
        0 => "there was no pod to evict".to_string(),
        gone => format!("{} left in {after}", plural(gone, "pod")),
    }
}

/// What is said when the time is over: what is left, and what stands in its way, worst first.
pub fn not_drained(maintenance: &NodeMaintenance, progress: &Progress, now: Timestamp) -> String {
    let (all, nodes) = (progress.all(), progress.nodes());
    let with_pods = nodes.iter().filter(|node| node.left() > 0).count();
    let mut text = format!(
        "not drained after {}: {} on {}\n",
        progress.age(now),
        if all.left() == 1 { "1 pod remains".to_string() } else { format!("{} pods remain", all.left()) },
        plural(with_pods, "node")
    );
    if waits_for_daemons(maintenance, progress) {
        text.push_str(&format!("{DAEMONS}\n"));
    }
    text.extend(not_taken_up(maintenance, progress, now).map(|waits| format!("{waits}\n")));
    for one in all.causes.iter().take(CAUSES) {
        text.push_str(&format!("  {}\n", cause(one, true)));
    }
    for node in nodes {
        if let Some(message) = message(node, maintenance) {
            text.push_str(&format!("  node {}: {message}\n", node.name));
        }
    }
    text
}

fn waits_for_daemons(maintenance: &NodeMaintenance, progress: &Progress) -> bool {
    let are_waited_for = !progress.ignores_daemons && !is_drained_by_now(maintenance);
    are_waited_for && progress.all().pods_left().are_only_daemons()
}

/// The worst that is worth a line: what the manager is about to do is over in a moment.
fn worst(node: &NodeProgress) -> Option<&Cause> {
    node.causes.first().filter(|cause| !matches!(cause.waits, RequestWait::Manager(_) | RequestWait::Nothing))
}

fn waits_of(node: &NodeProgress, maintenance: &NodeMaintenance, now: Timestamp) -> String {
    match (worst(node), message(node, maintenance)) {
        (Some(worst), _) if worst.count > 1 => {
            format!("{} ({} pods)", worst.waits.phrase(now), worst.count)
        }
        (Some(worst), _) => worst.waits.phrase(now),
        (None, message) => message.unwrap_or_else(|| " ".to_string()),
    }
}

/// What holds up the node, unless it is what the counts say as well.
fn message(node: &NodeProgress, maintenance: &NodeMaintenance) -> Option<String> {
    match node.delay(maintenance) {
        NodeDelay::Nothing => None,
        NodeDelay::Wave => Some("cordoned, waiting for its wave".to_string()),
        NodeDelay::OtherNodes => Some("waiting for the other nodes".to_string()),
        NodeDelay::Other => Some(node.message.clone()).filter(|message| !message.is_empty()),
    }
}

fn not_taken_up(maintenance: &NodeMaintenance, progress: &Progress, now: Timestamp) -> Option<String> {
    is_not_taken_up(maintenance, progress.started, now)
        .then(|| format!("not started yet: check that the manager runs, with {MANAGER_PODS}"))
}

/// When it is expected to be done. Expectations know nothing of what blocks, and daemons stay.
pub fn eta(maintenance: &NodeMaintenance, all: &NodeProgress, now: Timestamp) -> Option<String> {
    let at = super::eta(maintenance).filter(|_| !all.pods_left().are_only_daemons())?;
    let at_best = if all.blocked > 0 && at > now { " at best" } else { "" };
    Some(format!("{}{at_best}", span::eta(at, now)))
}

fn counts(of: &NodeProgress) -> String {
    let states = states(of);
    let states = if states.is_empty() { states } else { format!(", {states}") };
    format!("{} of {} gone{states}", of.gone(), plural(of.seen, "pod"))
}

fn states(of: &NodeProgress) -> String {
    let pending = if of.requests_are_hidden { "left" } else { "pending" };
    let parts = [(of.evicting, "evicting"), (of.blocked, "blocked"), (of.pending, pending)];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

pub fn cause(cause: &Cause, with_advice: bool) -> String {
    let sentence = cause.waits.sentence();
    let count = plural(cause.count, "pod");
    let said = cause.waits.said();
    let of = if cause.count > 1 { "of the first: " } else { "" };
    let said = said.map(|said| format!(": {of}{said}")).unwrap_or_default();
    if !with_advice {
        return format!("{sentence} ({count}){said}");
    }
    let mut pods: Vec<String> = cause.pods.iter().map(ToString::to_string).collect();
    if cause.count > NAMED {
        pods.push("...".to_string());
    }
    format!("{sentence} ({count}: {}){said}; {}", pods.join(", "), cause.waits.advice())
}

/// Full for what is gone, shaded for what is on its way, crossed for what is blocked, and dots for what is to come.
fn bar(node: &NodeProgress, length: usize) -> String {
    if node.seen == 0 {
        return "█".repeat(length);
    }
    let at = |pods: usize| pods * length / node.seen;
    let gone = at(node.gone());
    let evicting = at(node.gone() + node.evicting) - gone;
    // One that blocks is seen, however many others there are.
    let blocked =
        (at(node.gone() + node.evicting + node.blocked) - gone - evicting).max(usize::from(node.blocked > 0));
    let blocked = blocked.min(length - gone - evicting);
    let pending = length - gone - evicting - blocked;
    ["█".repeat(gone), "▒".repeat(evicting), "×".repeat(blocked), "·".repeat(pending)].concat()
}

pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
