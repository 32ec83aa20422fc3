//! One running part of the control plane.

use crate::Error;
use crate::binaries::Binary;
use crate::watchdog::Watchdog;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

pub(crate) struct Process {
    pub(crate) component: Binary,
    pub(crate) log: PathBuf,
    child: Child,
}

/// Go collects garbage when the heap has grown by so many percent. Memory is there, and with 100, which is what Go takes by itself, an API
/// server needs 7 s of a processor to start instead of 5. Where benches hold ours against it, it is the faster for it.
const GARBAGE_COLLECTION: &str = "400";

impl Process {
    /// Starts `program` with nothing of the caller's environment but PATH: variables such as `ETCD_NAME`,
    /// `KUBECONFIG` or a proxy would change what is tested.
    pub(crate) fn start(
        component: Binary,
        program: &Path,
        arguments: &[String],
        folder: &Path,
        watchdog: &Watchdog,
    ) -> Result<Self, Error> {
        let log = folder.join(format!("{component}.log"));
        let child = watchdog
            .command(program, &log)?
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder)
            .env("GOGC", GARBAGE_COLLECTION)
            .spawn()
            .map_err(Error::io("cannot start", program))?;
        Ok(Self { component, log, child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error that tells why, where the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        let status = self.child.try_wait().map_err(Error::io("cannot look after", &self.log))?;
        match status {
            None => Ok(()),
            Some(status) => Err(Error::Exited {
                component: self.component,
                status: status.to_string(),
                log_tail: log_tail(&self.log),
            }),
        }
    }

    /// All data is thrown away afterwards, so there is nothing to end gently.
    pub(crate) fn kill(&mut self) {
        // Both fail only for a process that has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a log, for an error message.
pub(crate) fn log_tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
