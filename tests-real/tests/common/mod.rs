//! The real control plane with what `deploy/` installs, for the tests of the manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

pub mod calls;
pub mod manager;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::SemaphorePermit;
use usher_testbed::{ControlPlane, Options};
use usher_tests_real::planes;

pub struct Scene {
    pub plane: ControlPlane,
    /// A kubeconfig with a token of the manager's service account.
    pub kubeconfig: PathBuf,
    /// The plane ends before its turn does.
    _turn: SemaphorePermit<'static>,
}

#[allow(dead_code, reason = "tests start one of the two ways")]
impl Scene {
    /// While no other control plane runs.
    pub async fn alone(nodes: usize, installed: &[&[&str]]) -> Self {
        Self::in_turn(planes::alone().await.unwrap(), nodes, installed).await
    }

    /// Beside another control plane.
    pub async fn start(nodes: usize, installed: &[&[&str]]) -> Self {
        Self::in_turn(planes::one().await.unwrap(), nodes, installed).await
    }

    /// A control plane with so many nodes and what is installed with these arguments of `kubectl apply`; paths are
    /// relative to the root of the repository.
    async fn in_turn(turn: SemaphorePermit<'static>, nodes: usize, installed: &[&[&str]]) -> Self {
        let plane = ControlPlane::start(Options::with_nodes(nodes)).await.unwrap();
        let kubeconfig = plane.folder().join("manager.kubeconfig");
        let scene = Self { plane, kubeconfig, _turn: turn };
        for arguments in installed {
            scene.kubectl(&[&["apply", "--server-side"], *arguments].concat(), None).await;
        }
        scene.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], None).await;
        let token = scene.kubectl(&["create", "token", "usher-manager", "-n", "usher-system"], None).await;
        scene.write_kubeconfig(token.trim());
        scene
    }

    fn write_kubeconfig(&self, token: &str) {
        let authority = self.plane.folder().join("manager-authority.pem");
        std::fs::write(&authority, self.plane.ca_pem()).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "manager",
            "clusters": [{"name": "c", "cluster": {"server": self.plane.url(), "certificate-authority": authority}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "manager", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&self.kubeconfig, kubeconfig.to_string()).unwrap();
    }

    pub async fn try_kubectl(&self, arguments: &[&str], input: Option<&Value>) -> Result<String, String> {
        let mut child = Command::new(self.plane.kubectl())
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("KUBECACHEDIR", self.plane.folder().join("kubectl-cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        if let Some(input) = input {
            stdin.write_all(input.to_string().as_bytes()).await.unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    pub async fn kubectl(&self, arguments: &[&str], input: Option<&Value>) -> String {
        self.try_kubectl(arguments, input).await.unwrap_or_else(|why| panic!("kubectl {arguments:?}: {why}"))
    }
}

pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
