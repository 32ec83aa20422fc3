//! The real kubectl on a test cluster, embedded or real.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use usher_tests::TestCluster;

/// kubectl as the administrator, with a discovery cache of its own.
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        if self.cache.exists()
            && let Err(why) = std::fs::remove_dir_all(&self.cache)
        {
            eprintln!("{} stays behind: {why}", self.cache.display());
        }
    }
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Printed {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Kubectl {
    /// # Errors
    /// There is no kubectl and none can be built.
    pub async fn new(cluster: &TestCluster) -> Result<Self> {
        let kubeconfig = cluster.kubeconfig().to_path_buf();
        let cache = kubeconfig.with_extension("kubectl-cache");
        Ok(Self { binary: usher_testbed::kubectl_path().await?, kubeconfig, cache })
    }

    /// With another kubectl.
    ///
    /// # Errors
    /// As for [`Kubectl::new`].
    pub async fn of(cluster: &TestCluster, name: &str, binary: PathBuf) -> Result<Self> {
        let made = Self::new(cluster).await?;
        let cache = made.kubeconfig.with_extension(format!("{name}-cache"));
        Ok(Self { binary, kubeconfig: made.kubeconfig.clone(), cache })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command, split at white space, to its end.
    ///
    /// # Errors
    /// It could not be started. A failure of kubectl itself is an exit code.
    pub async fn run(&self, line: &str) -> Result<Printed> {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        Ok(printed(self.command(&arguments).output().await?))
    }

    /// The same with something to read from `-f -`.
    ///
    /// # Errors
    /// It could not be started.
    pub async fn run_with(&self, line: &str, input: &str) -> Result<Printed> {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut child = self.command(&arguments).stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        Ok(printed(child.wait_with_output().await?))
    }

    /// What the command prints; it has to succeed.
    ///
    /// # Errors
    /// It failed.
    pub async fn ok(&self, line: &str) -> Result<String> {
        succeeded(line, self.run(line).await?)
    }

    /// The same with something to read from `-f -`.
    ///
    /// # Errors
    /// It failed.
    pub async fn ok_with(&self, line: &str, input: &str) -> Result<String> {
        succeeded(line, self.run_with(line, input).await?)
    }

    /// What the command prints to stderr; it has to fail with code 1.
    ///
    /// # Errors
    /// It did not fail so.
    pub async fn fails(&self, line: &str) -> Result<String> {
        let printed = self.run(line).await?;
        if printed.code != 1 {
            bail!("kubectl {line} should have failed: {printed:?}");
        }
        Ok(printed.err.trim_end().to_owned())
    }

    /// Starts a command that prints for as long as it is kept.
    ///
    /// # Errors
    /// It could not be started.
    pub fn follow(&self, line: &str) -> Result<Following> {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut child = self.command(&arguments).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Following { _child: child, lines })
    }
}

/// A running command; it ends when dropped.
pub struct Following {
    _child: Child,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Following {
    /// The next line, once it is printed.
    ///
    /// # Errors
    /// The command ended.
    pub async fn line(&mut self) -> Result<String> {
        self.lines.next_line().await?.context("kubectl ended")
    }
}

fn printed(output: Output) -> Printed {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Printed { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

fn succeeded(line: &str, printed: Printed) -> Result<String> {
    if printed.code != 0 {
        bail!("kubectl {line} failed: {printed:?}");
    }
    Ok(printed.out)
}
