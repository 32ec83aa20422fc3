//! A cluster that lives: kubelets, a scheduler and the workload controllers beside an embedded API server, in virtual time if
//! wanted. It is general, and knows nothing of Usher.
//!
//! [`start`] brings an [`embedded_apiserver::Cluster`] to life. The components follow the cluster by lists and watches and
//! act on it through its API, in this process, as their own users. One rule carries them: what is known (`view`) goes into pure decisions (`controllers`, `scheduler`,
//! `kubelet`), out come plans (`plan`), and only the `runner` touches the API. Time comes from the cluster's
//! clock and tokio's timers, so a paused runtime gives virtual time; nothing here is random, so a seeded cluster lives
//! the same life every time. What goes wrong is told from outside: [`Life`] takes components down and skews their
//! clocks, and [`embedded_apiserver::faults`] spoils their requests, which carry their names ([`Component::client`]).

#![warn(unreachable_pub)]

mod api;
mod controllers;
mod events;
mod follow;
mod heartbeat;
mod kubelet;
mod meter;
mod plan;
mod presence;
mod queue;
mod runner;
mod scheduler;
mod static_pods;
mod status;
mod tasks;
mod view;

use jiff::SignedDuration;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

pub use kubelet::Times;
pub use meter::Meter;
pub use tasks::Component;

use embedded_apiserver::Cluster;
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
    /// Kubelets report the conditions of their nodes every five minutes.
    pub node_heartbeats: bool,
    /// Kubelets renew the leases of their nodes every ten seconds.
    pub node_leases: bool,
}

/// A living cluster; life ends when this is dropped, the cluster stays.
#[derive(Debug)]
pub struct Life {
    running: [JoinHandle<()>; 2],
    commands: UnboundedSender<Command>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}

impl Life {
    /// A component crashes: it takes nothing any more, and forgets what it had to do. Other components go on.
    pub fn crash(&self, component: Component) {
        self.send(Command::Down(component));
    }

    /// It starts again, and looks at everything of its kind.
    pub fn restart(&self, component: Component) {
        self.send(Command::Up(component));
    }

    /// A node loses its kubelet; its pods stay as they are.
    pub fn kubelet_down(&self, node: &str) {
        self.send(Command::KubeletDown(node.to_string()));
    }

    pub fn kubelet_up(&self, node: &str) {
        self.send(Command::KubeletUp(node.to_string()));
    }

    /// A node runs this pod by itself from now on, whatever the API says; a mirror pod `NAME-NODE` tells of it.
    pub fn run_static_pod(&self, node: &str, manifest: Value) {
        self.send(Command::RunStatic { node: node.to_string(), manifest });
    }

    pub fn end_static_pod(&self, node: &str, namespace: &str, name: &str) {
        let [node, namespace, name] = [node, namespace, name].map(str::to_string);
        self.send(Command::EndStatic { node, namespace, name });
    }

    /// The clock of a component is wrong by so much from now on.
    pub fn skew(&self, component: Component, offset: SignedDuration) {
        self.send(Command::Skew(component, offset));
    }

    fn send(&self, command: Command) {
        if self.commands.send(command).is_err() {
            tracing::warn!("life has ended, and takes no commands");
        }
    }
}

/// Brings a cluster to life. Needs a tokio runtime.
pub fn start(cluster: &Cluster, options: Options) -> Life {
    let (commands, told) = unbounded_channel();
    let heartbeats = heartbeat::Heartbeats::new(cluster, &options);
    let beating = tokio::spawn(heartbeats.clone().run());
    let living = tokio::spawn(runner::run(cluster.clone(), options, heartbeats, told));
    Life { running: [living, beating], commands }
}

/// The snippets of the README are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
