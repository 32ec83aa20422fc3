//! How long systemd-logind lets shutdowns wait, raised where an administrator allows it, as the kubelet does: by a drop-in of the agent's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::logind::{Logind, LogindError};

/// Drop-ins are read in the order of their names, and the last one counts.
const FILE: &str = "99-usher-node-agent.conf";
const FIRST_LINE: &str =
    "# Written by usher node-agent (--raise-shutdown-limit); without that flag it can be removed.";
const DRAFT: &str = ".usher-node-agent-draft";
/// logind reads its files anew within this time.
const RELOADS_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct ShutdownLimit {
    /// At least so long shutdowns are to wait.
    pub at_least: Duration,
    /// Where logind has its drop-ins.
    pub folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("{} is not written by the agent, and is left as it is: rename or remove it", .0.display())]
    Foreign(PathBuf),
    #[error("{} cannot be written: {source}; see that the folder is mounted", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error(
        "logind grants {granted:?} all the same: see whether a drop-in that comes after {FILE} sets InhibitDelayMaxSec"
    )]
    Unheeded { granted: Duration },
    #[error(transparent)]
    Logind(#[from] LogindError),
}

impl ShutdownLimit {
    /// Raises the limit, unless it is long enough.
    ///
    /// # Errors
    /// It stays as it is, and why.
    pub async fn raise(&self, logind: &Logind) -> Result<(), LimitError> {
        if logind.longest_delay().await? >= self.at_least || logind.is_shutting_down().await? {
            return Ok(());
        }
        self.write()?;
        logind.reload().await?;
        let mut waited = Duration::ZERO;
        loop {
            let granted = logind.longest_delay().await?;
            if granted >= self.at_least {
                tracing::info!(?granted, "logind lets shutdowns wait longer");
                return Ok(());
            }
            if waited >= RELOADS_WITHIN {
                return Err(LimitError::Unheeded { granted });
            }
            let pause = Duration::from_millis(100);
            tokio::time::sleep(pause).await;
            waited += pause;
        }
    }

    fn write(&self) -> Result<(), LimitError> {
        let path = self.folder.join(FILE);
        let written = |path: &Path, done: std::io::Result<()>| {
            done.map_err(|source| LimitError::Unwritable { path: path.to_path_buf(), source })
        };
        match fs::read_to_string(&path) {
            Ok(text) if !text.starts_with(FIRST_LINE) => return Err(LimitError::Foreign(path)),
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => return written(&path, Err(why)),
            _ => {}
        }
        written(&self.folder, fs::create_dir_all(&self.folder))?;
        let seconds = self.at_least.as_secs();
        let draft = self.folder.join(DRAFT);
        let text = format!("{FIRST_LINE}\n[Login]\nInhibitDelayMaxSec={seconds}s\n");
        written(&draft, fs::write(&draft, text))?;
        written(&path, fs::rename(&draft, &path))
    }
}
