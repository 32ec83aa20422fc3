//! Life in the embedded cluster: kubelets, a scheduler and the workload controllers, beside the API server.
//!
//! They follow the cluster by lists and watches and act on it through its API, in this process, as their own users.
//! One rule carries them: what is known ([`view`]) goes into pure decisions ([`controllers`], [`scheduler`],
//! [`kubelet`]), out come plans ([`plan`]), and only the [`runner`] touches the API. Time comes from the cluster's
//! clock and tokio's timers, so a paused runtime gives virtual time; nothing here is random, so a seeded cluster lives
//! the same life every time.

mod api;
pub mod controllers;
mod events;
pub mod kubelet;
mod meter;
pub mod plan;
mod runner;
pub mod scheduler;
mod status;
mod tasks;
pub mod view;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

pub use kubelet::Times;
pub use meter::Meter;

use crate::cluster::Cluster;

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

/// What is done to the cluster's components from outside.
#[derive(Debug)]
enum Command {
    KubeletDown(String),
    KubeletUp(String),
}

impl Life {
    /// The kubelet of a node falls silent: its pods stay as they are, and after a while the node is given up.
    pub fn kubelet_down(&self, node: &str) {
        self.tell(Command::KubeletDown(node.to_string()));
    }

    /// It is back, and the node with it.
    pub fn kubelet_up(&self, node: &str) {
        self.tell(Command::KubeletUp(node.to_string()));
    }

    fn tell(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::warn!("life has ended, and takes no commands");
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Brings a cluster to life. Needs a tokio runtime.
pub fn start(cluster: &Cluster, options: Options) -> Life {
    let (commands, told) = unbounded_channel();
    Life { running: tokio::spawn(runner::run(cluster.clone(), options, told)), commands }
}
