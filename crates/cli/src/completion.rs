//! Completion in shells. The scripts ask the program at each Tab, since names of pods and nodes are known to the cluster alone.
//!
//! The answer has the form that kubectl wants of its plugins too: a candidate per line, with what it means behind a tab, and at
//! the end whether the shell should offer files instead.

mod names;
mod script;
#[cfg(test)]
mod tests;

use clap::{Arg, Command};

use crate::Environment;
use crate::arguments::Connection;
use crate::explain::EXPLAINED;
use names::names;
pub use script::{Shell, script};

/// The first argument by which a script asks.
pub const ASKED: &str = "__complete";
/// Under this name kubectl asks for completions of `kubectl usher`.
pub const KUBECTL_FILE: &str = "kubectl_complete-usher";

/// What the shell should do with the candidates, in the words of kubectl.
const NO_FILES: &str = ":4";
const FILES: &str = ":0";

/// What can be typed in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Each with what it means.
    Words(Vec<(String, String)>),
    Names(Kind),
    Files,
}

/// Objects that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pods,
    Nodes,
    /// Nodes as `node/NAME`.
    PodsAndNodes,
    Deployments,
    Maintenances,
    Namespaces,
    Contexts,
}

/// What a command line is about, up to the word that is being typed.
#[derive(Debug)]
struct Line {
    wanted: Wanted,
    /// Which cluster and namespace were chosen.
    connection: Connection,
    /// Arguments that are there already.
    typed: Vec<String>,
    /// The beginning of the word that is being typed, and what comes before it in the same word.
    begun: String,
    before: String,
}

/// The answer to a script: what could stand in the place of the last word.
pub async fn answer(command: &Command, words: &[String], environment: &Environment) -> String {
    let line = read(command, words);
    let found: Vec<(String, String)> = match &line.wanted {
        Wanted::Files => return format!("{FILES}\n"),
        Wanted::Words(words) => words.clone(),
        Wanted::Names(kind) => {
            let names = names(*kind, &line.connection, environment).await;
            names
                .into_iter()
                .filter(|name| !line.typed.contains(name))
                .map(|name| (name, String::new()))
                .collect()
        }
    };
    let mut text = String::new();
    for (word, meaning) in found.iter().filter(|(word, _)| word.starts_with(&line.begun)) {
        let tab = if meaning.is_empty() { "" } else { "\t" };
        text.push_str(&format!("{}{word}{tab}{meaning}\n", line.before));
    }
    format!("{text}{NO_FILES}\n")
}

fn read(command: &Command, words: &[String]) -> Line {
    let (current, finished) = match words.split_last() {
        // Some shells split at the sign.
        Some((last, finished)) if last == "=" => ("", finished),
        Some((last, finished)) => (last.as_str(), finished),
        None => ("", &[][..]),
    };
    let mut command = command;
    let mut awaited: Option<&Arg> = None;
    let (mut connection, mut typed, mut only_names) = (Connection::default(), Vec::new(), false);
    for word in finished.iter().filter(|word| *word != "=") {
        if let Some(flag) = awaited.take() {
            note(&mut connection, flag, word);
        } else if word == "--" {
            only_names = true;
        } else if let Some((flag, value)) = flag_of(command, word).filter(|_| !only_names) {
            match value {
                Some(value) => note(&mut connection, flag, value),
                None if flag.get_action().takes_values() && !flag.is_require_equals_set() => {
                    awaited = Some(flag)
                }
                None => {}
            }
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if !word.starts_with('-') {
            typed.push(word.clone());
        }
    }
    let line = |wanted, begun: &str, before: &str| Line {
        wanted,
        connection: connection.clone(),
        typed: typed.clone(),
        begun: begun.to_string(),
        before: before.to_string(),
    };
    if let Some(flag) = awaited {
        return line(values_of(flag), current, "");
    }
    if only_names || !current.starts_with('-') {
        return line(next(command, &typed), current, "");
    }
    match (current.split_once('='), flag_of(command, current)) {
        (Some((name, begun)), Some((flag, _))) => line(values_of(flag), begun, &format!("{name}=")),
        _ => line(flags(command), current, ""),
    }
}

/// The flag that a word is, with the value in the same word.
fn flag_of<'c, 'w>(command: &'c Command, word: &'w str) -> Option<(&'c Arg, Option<&'w str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let flag = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        return Some((flag, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let flag = command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
    let value = Some(letters.as_str()).filter(|value| !value.is_empty() && flag.get_action().takes_values());
    Some((flag, value.map(|value| value.strip_prefix('=').unwrap_or(value))))
}

fn note(connection: &mut Connection, flag: &Arg, value: &str) {
    match flag.get_id().as_str() {
        "namespace" => connection.namespace = Some(value.to_string()),
        "context" => connection.context = Some(value.to_string()),
        "kubeconfig" => connection.kubeconfig = Some(value.into()),
        _ => {}
    }
}

fn values_of(flag: &Arg) -> Wanted {
    match flag.get_id().as_str() {
        "namespace" => Wanted::Names(Kind::Namespaces),
        "context" => Wanted::Names(Kind::Contexts),
        "kubeconfig" | "plan" | "files" => Wanted::Files,
        _ => {
            let values = flag.get_possible_values();
            let shown = values.iter().filter(|value| !value.is_hide_set());
            let meaning = |help: Option<&clap::builder::StyledStr>| help.map(first_line).unwrap_or_default();
            Wanted::Words(
                shown.map(|value| (value.get_name().to_string(), meaning(value.get_help()))).collect(),
            )
        }
    }
}

fn flags(command: &Command) -> Wanted {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let told =
        shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), arg.get_help().map(first_line)?)));
    Wanted::Words(told.chain([("--help".to_string(), "Print help".to_string())]).collect())
}

/// A subcommand, or the next name.
fn next(command: &Command, typed: &[String]) -> Wanted {
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let word = |inner: &Command| {
            (inner.get_name().to_string(), inner.get_about().map(first_line).unwrap_or_default())
        };
        return Wanted::Words(shown.map(word).collect());
    }
    let Some(positional) = command.get_positionals().next() else { return Wanted::Words(Vec::new()) };
    let takes_many = matches!(positional.get_action(), clap::ArgAction::Append);
    if !takes_many && !typed.is_empty() {
        return Wanted::Words(Vec::new());
    }
    let name = positional.get_value_names().and_then(<[_]>::first).map(|name| name.as_str());
    match (name, typed.first().map(String::as_str)) {
        (Some(EXPLAINED), Some("node" | "nodes" | "no")) => Wanted::Names(Kind::Nodes),
        (Some(EXPLAINED), Some("pod" | "pods" | "po")) => Wanted::Names(Kind::Pods),
        (Some(EXPLAINED), Some("deployment" | "deployments" | "deploy")) => Wanted::Names(Kind::Deployments),
        (Some(EXPLAINED), _) => Wanted::Names(Kind::PodsAndNodes),
        (Some("POD"), _) => Wanted::Names(Kind::Pods),
        (Some("NODE"), _) => Wanted::Names(Kind::Nodes),
        (Some("MAINTENANCE"), _) => Wanted::Names(Kind::Maintenances),
        _ => values_of(positional),
    }
}

fn first_line(help: &clap::builder::StyledStr) -> String {
    help.to_string().lines().next().unwrap_or_default().to_string()
}
