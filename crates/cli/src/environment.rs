//! Where a command runs: under which name, and whether somebody looks at a terminal.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;

use crate::terminal::{ALARMING, BOLD, PLAIN};

/// How kubectl finds its plugins.
const PLUGIN_FILE: &str = "kubectl-usher";

#[derive(Clone)]
pub struct Environment {
    /// What the person types to get here, for hints and usage.
    pub program: String,
    /// Text may be drawn over.
    pub is_terminal: bool,
    /// How many letters fit into a line of the terminal, if there is one.
    pub width: Option<usize>,
    pub colours: bool,
    /// The time, by which ages are told.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// A cluster that is at hand already; otherwise the kubeconfig tells which.
    pub cluster: Option<Client>,
}

impl Environment {
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
        let is_terminal = std::io::stdout().is_terminal() && variable("TERM") != "dumb";
        let program = program_of(std::env::args_os().next().as_deref());
        let colours = is_terminal && variable("NO_COLOR").is_empty();
        let width = is_terminal.then(|| console::Term::stdout().size().1.into());
        Self { program, is_terminal, width, colours, clock: Arc::new(Timestamp::now), cluster: None }
    }

    /// Nobody looks: a pipe, or a test.
    pub fn plain() -> Self {
        let clock = Arc::new(Timestamp::now);
        let program = "usher".to_string();
        Self { program, is_terminal: false, width: None, colours: false, clock, cluster: None }
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub fn bold(&self, text: &str) -> String {
        self.coloured(BOLD, text)
    }

    pub fn alarming(&self, text: &str) -> String {
        self.coloured(ALARMING, text)
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.colours { format!("{code}{text}{PLAIN}") } else { text.to_string() }
    }
}

fn program_of(argument: Option<&OsStr>) -> String {
    let file = argument.map(Path::new).and_then(Path::file_stem);
    let name = if file == Some(OsStr::new(PLUGIN_FILE)) { "kubectl usher" } else { "usher" };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_as_a_plugin_it_speaks_of_kubectl() {
        let program = |text: &str| program_of(Some(OsStr::new(text)));
        assert_eq!(program("/usr/local/bin/kubectl-usher"), "kubectl usher");
        assert_eq!(program("target/debug/usher"), "usher");
        assert_eq!(program_of(None), "usher");
    }

    #[test]
    fn colours_are_only_there_if_wanted() {
        let mut environment = Environment::plain();
        assert_eq!(environment.bold("x"), "x");
        environment.colours = true;
        assert_eq!(environment.bold("x"), "\x1b[1mx\x1b[0m");
    }
}
