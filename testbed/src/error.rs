//! What can go wrong, each with what the reader can do about it, in one line.

use crate::binaries::{Binary, GoVersion};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a control plane could not be built, started or stopped.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "Go is not installed (no `go` in PATH) and is needed to build {}: install Go {required} or newer, or point \
         KUBEBUILDER_ASSETS at a folder that holds them", names(.needed)
    )]
    GoMissing { required: GoVersion, needed: Vec<Binary> },

    #[error("Go {found} is too old to build the control plane: install Go {required} or newer")]
    GoTooOld { found: String, required: GoVersion },

    #[error(
        "not enough disk space in {}: {free_mib} MiB free, about {needed_mib} MiB needed to build the control plane; \
         free some, or set {variable} to a folder on a larger disk", .folder.display()
    )]
    DiskFull { folder: PathBuf, free_mib: u64, needed_mib: u64, variable: &'static str },

    #[error("building {binary} failed: {reason}; the full log is in {}", .log.display())]
    BuildFailed { binary: Binary, reason: String, log: PathBuf },

    #[error(
        "KUBEBUILDER_ASSETS={} is not a folder with etcd, kube-apiserver and kubectl (missing: {missing}): correct it, \
         or unset it to build them", .folder.display()
    )]
    BadAssets { folder: PathBuf, missing: String },

    #[error("real nodes cannot run here: {0}")]
    NoRealNodes(String),

    #[error("no folder for the cache: set USHER_TESTBED_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,

    #[error(
        "the name {name:?} cannot be used: 1 to 40 lower-case letters, digits and dashes, beginning with a letter or digit"
    )]
    BadName { name: String },

    #[error(
        "a control plane named {name} is already up: `testbed down --name {name}` ends it, or choose another --name"
    )]
    AlreadyUp { name: String },

    #[error(
        "no control plane named {name} is up: `testbed up --name {name}` starts one, `testbed status` lists them"
    )]
    NotUp { name: String },

    #[error(
        "the control plane {name} belongs to process {owner}, which is not a `testbed up`: it ends together with that process"
    )]
    OwnedByAnother { name: String, owner: u32 },

    #[error("{component} ended during start ({status}); the end of its log:\n{log_tail}")]
    Exited { component: Binary, status: String, log_tail: String },

    #[error("{what} did not become ready within {seconds} s ({last}); the end of its log:\n{log_tail}")]
    NotReady { what: String, seconds: u64, last: String, log_tail: String },

    #[error("`kubectl {command}` failed: {stderr}")]
    Kubectl { command: String, stderr: String },

    #[error("certificates could not be made: {0}")]
    Certificate(#[from] rcgen::Error),

    #[error("user {0:?} is not known to this control plane; name it in Options::users")]
    UnknownUser(String),

    #[error("{what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    #[error("a background task of the testbed did not finish: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The same line as for people: tests unwrap, and what to do must be readable there too.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Error {
    /// For `map_err` on file and process calls: what was being done, and to what.
    pub(crate) fn io(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.as_ref().to_path_buf(), source }
    }

    /// A port that was free when picked was taken before the component bound it: worth another try with others.
    pub(crate) fn is_lost_port(&self) -> bool {
        match self {
            Self::Exited { log_tail, .. } | Self::NotReady { log_tail, .. } => {
                log_tail.contains("address already in use")
            }
            _ => false,
        }
    }
}

fn names(binaries: &[Binary]) -> String {
    binaries.iter().map(|binary| binary.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_go_is_one_line_that_says_what_to_do() {
        let error = Error::GoMissing {
            required: crate::binaries::required_go(&crate::binaries::CONTROL_PLANE),
            needed: vec![Binary::KubeScheduler, Binary::Kwok],
        };
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        assert!(line.contains("kube-scheduler, kwok"), "{line}");
        assert!(line.contains("install Go 1."), "{line}");
    }

    #[test]
    fn only_a_taken_port_is_worth_another_try() {
        let exited = |log_tail: &str| Error::Exited {
            component: Binary::Etcd,
            status: "exit status: 1".into(),
            log_tail: log_tail.into(),
        };
        assert!(exited("listen tcp 127.0.0.1:1: bind: address already in use").is_lost_port());
        assert!(!exited("unknown flag").is_lost_port());
    }
}
