//! How much memory a process uses, as the kernel counts it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Bytes of `VmRSS` (now) or `VmHWM` (the peak) of this process.
pub fn of_this_process(field: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let text = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: f64 = text.with_context(|| format!("no {field}"))?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0)
}

/// A control group for one process. Its peak is what a container's memory limit is compared with.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    peak: &'static str,
}

impl Cgroup {
    /// Makes a group, or says why this machine gives none.
    pub fn new(name: &str) -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        // Version 2 has one tree; version 1 has one for each controller.
        let (parent, peak) = if root.join("memory").is_dir() {
            (root.join("memory"), "memory.max_usage_in_bytes")
        } else {
            (root.to_owned(), "memory.peak")
        };
        let folder = parent.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        // Removed again when it turns out to be of no use.
        let cgroup = Self { folder, peak };
        fs::metadata(cgroup.folder.join(peak))
            .with_context(|| format!("{} has no {peak}", cgroup.folder.display()))?;
        Ok(cgroup)
    }

    /// The file to which a process writes its number to join.
    pub fn members(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Bytes that the group has used at most.
    pub fn peak(&self) -> Result<f64> {
        Ok(fs::read_to_string(self.folder.join(self.peak))?.trim().parse()?)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(why) = fs::remove_dir(&self.folder) {
            eprintln!("{} stays behind: {why}", self.folder.display());
        }
    }
}
