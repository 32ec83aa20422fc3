//! Whether the manager is alive and ready, and how large it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::common::manager::{Manager, page};

/// The manager's probes and memory, all the time.
#[derive(Debug, Default)]
pub struct Pulse {
    pub asked: usize,
    pub slowest: Duration,
    /// Those that were not answered with 200, though they were asked twice in a row. A kubelet asks three times before it minds:
    /// one connection may go in a flood of others.
    pub unready: Vec<String>,
    /// How many were asked a second time.
    pub repeated: usize,
    pub resident_kib: u64,
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Until it is told to stop.
pub fn watch(manager: &Manager, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Pulse> {
    let (health, pid, stop) = (manager.health, manager.process.id().unwrap(), Arc::clone(stop));
    tokio::task::spawn_blocking(move || {
        let mut pulse = Pulse::default();
        while !stop.load(Ordering::Relaxed) {
            for path in ["/readyz", "/healthz"] {
                let begun = Instant::now();
                let mut answer = page(health, path);
                pulse.asked += 1;
                pulse.slowest = pulse.slowest.max(begun.elapsed());
                if answer.is_none() {
                    pulse.repeated += 1;
                    answer = page(health, path);
                }
                if answer.as_ref().is_none_or(|answer| answer.0 != 200) {
                    pulse.unready.push(format!("{path}: {answer:?}"));
                }
            }
            pulse.resident_kib = resident_kib(pid);
            std::thread::sleep(Duration::from_millis(200));
        }
        pulse
    })
}
