//! A cluster in this process that others on this machine can reach: served on loopback, with a token and a kubeconfig.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use embedded_apiserver::clock::Clock;
use embedded_apiserver::{Cluster, Options, Serving, User};

pub struct Local {
    pub cluster: Cluster,
    pub serving: Serving,
    /// Makes its holder the administrator.
    token: String,
}

impl Local {
    /// With the clock that the cluster goes by.
    pub async fn start(user: &str, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let token = token();
        let administrator =
            User { name: user.into(), uid: String::new(), groups: vec!["system:masters".into()] };
        let tokens = HashMap::from([(token.clone(), administrator)]);
        let cluster = Cluster::new(Options { tokens, clock, ..Options::default() });
        let serving = cluster.serve_https().await.context("no free port on loopback")?;
        Ok(Self { cluster, serving, token })
    }

    /// Writes the kubeconfig to the file named, or to one in the system's folder for temporary files.
    pub fn kubeconfig(&self, path: Option<PathBuf>, command: &str) -> anyhow::Result<Kubeconfig> {
        let path = path.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("usher-{command}-{}.kubeconfig", std::process::id()))
        });
        Kubeconfig::write(path, &self.serving.kubeconfig_for(&self.token))
    }
}

/// The kubeconfig; it goes with the cluster.
pub struct Kubeconfig(pub PathBuf);

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if let Err(why) = std::fs::remove_file(&self.0) {
            eprintln!("{} stays behind: {why}", self.0.display());
        }
    }
}

impl Kubeconfig {
    /// Only its owner may read it: it holds a token. Somebody else's file is never overwritten.
    fn write(path: PathBuf, text: &str) -> anyhow::Result<Self> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let hint = || format!("cannot write {}: name another file with --kubeconfig", path.display());
        let mut file = opened.with_context(hint)?;
        let written = file.write_all(text.as_bytes());
        let kubeconfig = Self(path);
        written.with_context(|| format!("cannot write {}", kubeconfig.0.display()))?;
        Ok(kubeconfig)
    }
}

/// Other users of this machine can reach the port, so the token must be one that they cannot guess.
fn token() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    // Keys of a `RandomState` come from the system's random source; the hash of nothing is as secret as they are.
    (0..4_u8).map(|part| format!("{:016x}", RandomState::new().hash_one(part))).collect()
}
