//! What the tests of the testbed share.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The `testbed` program under test.
pub fn testbed() -> Command {
    Command::new(env!("CARGO_BIN_EXE_testbed"))
}

/// Asks again until there is an answer, and fails the test where none comes.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The state letter and the parent of a process, from the system. A zombie has ended, it only was not waited for.
fn process_state(id: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub fn is_running(id: u32) -> bool {
    process_state(id).is_some_and(|(state, _)| state != 'Z')
}

pub fn children_of(parent: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| process_state(*id).is_some_and(|(state, of)| of == parent && state != 'Z'))
        .collect()
}

/// Processes that were started with something in `folder`: the parts of a control plane, and its watchdog.
pub fn processes_in(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    let arguments = |id: &u32| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| String::from_utf8_lossy(&arguments(id)).contains(folder))
        .collect()
}

/// An empty folder that goes with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("testbed-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
