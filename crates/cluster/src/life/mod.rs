//! Life in the embedded cluster: kubelets, a scheduler and the workload controllers, beside the API server.
//!
//! They follow the cluster by lists and watches and act on it through its API, in this process, as their own users.
//! One rule carries them: what is known ([`view`]) goes into pure decisions ([`controllers`], [`scheduler`],
//! [`kubelet`]), out come plans ([`plan`]), and only the [`runner`] touches the API. Time comes from the cluster's
//! clock and tokio's timers, so a paused runtime gives virtual time; nothing here is random, so a seeded cluster lives
//! the same life every time. What goes wrong is told from outside: [`Life`] takes components down and skews their
//! clocks, and [`crate::faults`] spoils their requests, which carry their names ([`Component::client`]).

mod api;
pub mod controllers;
mod events;
pub mod kubelet;
mod meter;
pub mod plan;
mod presence;
mod runner;
pub mod scheduler;
mod status;
mod tasks;
pub mod view;

use jiff::SignedDuration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

pub use kubelet::Times;
pub use meter::Meter;
pub use tasks::Component;

use crate::cluster::Cluster;
use presence::Command;

/// How the cluster lives.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Times of pods that do not say their own.
    pub times: Times,
    /// Gets a line for each write, in order: when, who, what, and the server's code.
    pub trace: Option<UnboundedSender<String>>,
    /// No events are recorded: for large clusters that nobody looks at.
    pub without_events: bool,
}

/// A living cluster; life ends when this is dropped, the cluster stays.
#[derive(Debug)]
pub struct Life {
    running: JoinHandle<()>,
    commands: UnboundedSender<Command>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Life {
    /// A component crashes: it takes nothing any more, and forgets what it had to do. Other components go on.
    pub fn crash(&self, component: Component) {
        self.tell(Command::Down(component));
    }

    /// It starts again, and looks at everything of its kind.
    pub fn restart(&self, component: Component) {
        self.tell(Command::Up(component));
    }

    /// A node loses its kubelet; its pods stay as they are.
    pub fn kubelet_down(&self, node: &str) {
        self.tell(Command::KubeletDown(node.to_string()));
    }

    pub fn kubelet_up(&self, node: &str) {
        self.tell(Command::KubeletUp(node.to_string()));
    }

    /// The clock of a component is wrong by so much from now on.
    pub fn skew(&self, component: Component, offset: SignedDuration) {
        self.tell(Command::Skew(component, offset));
    }

    fn tell(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::warn!("life has ended, and takes no commands");
        }
    }
}

/// Brings a cluster to life. Needs a tokio runtime.
pub fn start(cluster: &Cluster, options: Options) -> Life {
    let (commands, told) = unbounded_channel();
    Life { running: tokio::spawn(runner::run(cluster.clone(), options, told)), commands }
}
