//! A running control plane as others see it: a folder, and a lock that its owner holds while it lives.
//!
//! The lock answers "is it alive?" without process ids, which are reused. Folders have a name of their own per start,
//! so that cleaning up after a dead instance can never hit its successor of the same name.

use crate::{Error, cache};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A control plane that is up or starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Instance {
    pub name: String,
    /// The process it belongs to, and ends with.
    pub owner: u32,
    /// The owner is a `testbed up`, so `testbed down` may end it.
    pub command: bool,
    /// Empty until the API server answers.
    pub url: String,
    /// Everything that was asked for is there.
    pub ready: bool,
    pub folder: PathBuf,
}

impl Instance {
    /// The kubeconfig of `admin`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Tells others how far it is. Renamed into place, so that nobody reads half of it.
    pub(crate) fn publish(&self) -> Result<(), Error> {
        let path = self.folder.join("instance.json");
        let unfinished = self.folder.join("instance.json.unfinished");
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        fs::write(&unfinished, text).map_err(Error::io("cannot write", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(Error::io("cannot write", &path))
    }
}

/// The right to an instance folder; given up when dropped.
pub(crate) struct Claim {
    pub(crate) instance: Instance,
    _lock: File,
}

/// Clears away what dead instances left, and takes a folder for a new one.
pub(crate) fn claim(name: Option<&str>, command: bool) -> Result<Claim, Error> {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    let owner = std::process::id();
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = name.map_or_else(|| format!("test-{owner}-{number}"), str::to_owned);
    check_name(&name)?;
    let run = cache::instances_folder()?;
    fs::create_dir_all(&run).map_err(Error::io("cannot create", &run))?;
    let _gate = gate(&run)?;
    sweep(&run)?;
    if live(&run)?.iter().any(|instance| instance.name == name) {
        return Err(Error::AlreadyUp { name });
    }
    let folder = run.join(format!("{name}.{owner}.{number}"));
    fs::create_dir_all(&folder).map_err(Error::io("cannot create", &folder))?;
    let path = lock_file(&folder);
    let lock = File::create(&path).map_err(Error::io("cannot create", &path))?;
    lock.lock().map_err(Error::io("cannot lock", &path))?;
    let instance = Instance { name, owner, command, url: String::new(), ready: false, folder };
    instance.publish()?;
    Ok(Claim { instance, _lock: lock })
}

/// All control planes that live, by name.
///
/// # Errors
/// The cache folder is not known or cannot be read.
pub fn instances() -> Result<Vec<Instance>, Error> {
    let run = cache::instances_folder()?;
    if !run.is_dir() {
        return Ok(Vec::new());
    }
    let _gate = gate(&run)?;
    live(&run)
}

/// The living control plane of that name.
///
/// # Errors
/// There is none, or the cache folder cannot be read.
pub fn find_instance(name: &str) -> Result<Instance, Error> {
    let found = instances()?.into_iter().find(|instance| instance.name == name);
    found.ok_or_else(|| Error::NotUp { name: name.to_owned() })
}

/// Ends the `testbed up` that owns the control plane, and waits until all of it is gone.
///
/// # Errors
/// There is none of that name, it belongs to another program, or it cannot be ended.
pub fn stop_instance(name: &str) -> Result<(), Error> {
    let instance = find_instance(name)?;
    if !instance.command {
        return Err(Error::OwnedByAnother { name: instance.name, owner: instance.owner });
    }
    for signal in ["TERM", "KILL"] {
        send_signal(signal, instance.owner)?;
        if gone_within(&instance.folder, Duration::from_secs(15)) {
            return Ok(());
        }
    }
    sweep_run_folder()
}

fn gone_within(folder: &Path, patience: Duration) -> bool {
    let started = Instant::now();
    while folder.exists() && started.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(50));
    }
    !folder.exists()
}

fn sweep_run_folder() -> Result<(), Error> {
    let run = cache::instances_folder()?;
    let _gate = gate(&run)?;
    sweep(&run)
}

fn send_signal(signal: &str, process: u32) -> Result<(), Error> {
    // The kill of the shell, because std can send nothing but SIGKILL, and that only to children.
    Command::new("/bin/sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "kill", signal, &process.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map(|_| ())
        .map_err(Error::io("cannot run", "/bin/sh"))
}

fn check_name(name: &str) -> Result<(), Error> {
    let allowed =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    if name.is_empty() || name.len() > 40 || name.starts_with('-') || !name.chars().all(allowed) {
        return Err(Error::BadName { name: name.to_owned() });
    }
    Ok(())
}

fn lock_file(folder: &Path) -> PathBuf {
    folder.join("owner.lock")
}

/// Held while folders are taken or cleared away, so that a folder is never seen between its making and its locking.
fn gate(run: &Path) -> Result<File, Error> {
    let path = run.join("gate.lock");
    let file = File::create(&path).map_err(Error::io("cannot create", &path))?;
    file.lock().map_err(Error::io("cannot lock", &path))?;
    Ok(file)
}

fn folders(run: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(run).map_err(Error::io("cannot read", run))?;
    let mut folders: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn is_owned(folder: &Path) -> bool {
    File::open(lock_file(folder)).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn live(run: &Path) -> Result<Vec<Instance>, Error> {
    let read = |folder: &PathBuf| serde_json::from_slice(&fs::read(folder.join("instance.json")).ok()?).ok();
    Ok(folders(run)?.iter().filter(|folder| is_owned(folder)).filter_map(read).collect())
}

/// Ends what is left of instances whose owner died together with its watchdog, and removes their folders.
fn sweep(run: &Path) -> Result<(), Error> {
    for folder in folders(run)?.iter().filter(|folder| !is_owned(folder)) {
        for process in processes_in(folder) {
            send_signal("KILL", process)?;
        }
        remove(folder)?;
    }
    Ok(())
}

/// Processes whose arguments point into `folder`: every part of a control plane has such arguments, nothing else has.
fn processes_in(folder: &Path) -> Vec<u32> {
    let inside = format!("{}/", folder.display());
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id: &u32| {
            fs::read(format!("/proc/{id}/cmdline"))
                .is_ok_and(|arguments| String::from_utf8_lossy(&arguments).contains(&inside))
        })
        .filter(|id| *id != std::process::id())
        .collect()
}

/// Removes a folder that a killed process, or a watchdog, may still be working in.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        match fs::remove_dir_all(folder) {
            _ if !folder.exists() => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(5) => {
                return Err(Error::io("cannot remove", folder)(error));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_file_names() {
        for good in ["default", "a", "4-nodes"] {
            check_name(good).unwrap();
        }
        for bad in ["", "-a", "A", "a/b", "..", "a b", &"x".repeat(41)] {
            assert!(matches!(check_name(bad), Err(Error::BadName { .. })), "{bad}");
        }
    }

    #[test]
    fn a_folder_without_a_living_owner_is_swept_and_one_with_is_kept() {
        let run = std::env::temp_dir().join(format!("testbed-sweep-{}", std::process::id()));
        let (dead, alive) = (run.join("dead.1.1"), run.join("alive.1.1"));
        for folder in [&dead, &alive] {
            fs::create_dir_all(folder).unwrap();
        }
        File::create(lock_file(&dead)).unwrap();
        let lock = File::create(lock_file(&alive)).unwrap();
        lock.lock().unwrap();
        sweep(&run).unwrap();
        assert!(!dead.exists());
        assert!(alive.exists());
        drop(lock);
        sweep(&run).unwrap();
        assert!(!alive.exists());
        fs::remove_dir_all(run).unwrap();
    }
}
