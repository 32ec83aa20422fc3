//! Life in the embedded cluster: kubelets, a scheduler and the workload controllers, beside the API server.
//!
//! They follow the cluster by lists and watches and act on it through its API, in this process, as their own users.
//! One rule carries them: what is known ([`view`]) goes into pure decisions ([`controllers`], [`scheduler`],
//! [`kubelet`]), out come plans ([`plan`]), and only the [`runner`] touches the API. Time comes from the cluster's
//! clock and tokio's timers, so a paused runtime gives virtual time; nothing here is random, so a seeded cluster lives
//! the same life every time.

mod api;
pub mod controllers;
pub mod heartbeat;
pub mod kubelet;
mod meter;
pub mod plan;
mod runner;
pub mod scheduler;
mod status;
mod tasks;
pub mod view;

use tokio::sync::mpsc::UnboundedSender;
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
}

/// A living cluster; life ends when this is dropped, the cluster stays.
#[derive(Debug)]
pub struct Life {
    running: [JoinHandle<()>; 2],
}

impl Drop for Life {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}

/// Brings a cluster to life. Needs a tokio runtime.
pub fn start(cluster: &Cluster, options: Options) -> Life {
    let heartbeats = heartbeat::Heartbeats::new(cluster, options.trace.clone());
    let beating = tokio::spawn(heartbeats.clone().run());
    Life { running: [tokio::spawn(runner::run(cluster.clone(), options, heartbeats)), beating] }
}
