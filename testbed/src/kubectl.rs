//! The testbed's own calls of kubectl.

use crate::Error;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

pub(crate) struct Kubectl {
    pub(crate) program: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    /// Inside the instance folder, so that nothing stays in the user's own kubectl cache.
    pub(crate) cache: PathBuf,
}

impl Kubectl {
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        self.run_with_input(arguments, "").await
    }

    pub(crate) async fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<String, Error> {
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .env("KUBECACHEDIR", &self.cache)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io("cannot run", &self.program))?;
        if let Some(mut stdin) = child.stdin.take() {
            // kubectl that stops reading has failed, and says why on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(Error::io("cannot run", &self.program))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Kubectl { command: arguments.join(" "), stderr })
    }
}
