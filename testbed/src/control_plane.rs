//! Starting, watching and ending a control plane.

use crate::binaries::Binary;
use crate::build::{Toolbox, toolbox};
use crate::components::{self, Ports, kubeconfig_of};
use crate::credentials::{self, Credentials};
use crate::instance::{self, Claim};
use crate::kubectl::Kubectl;
use crate::options::Options;
use crate::process::{Process, log_tail};
use crate::watchdog::Watchdog;
use crate::{Error, nodes, ports};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Starts with other ports are tried this often where a port was taken in between.
const ATTEMPTS: usize = 4;

/// A running control plane. It ends, and its folder goes, with [`ControlPlane::stop`], when dropped, or when the
/// process that started it dies.
pub struct ControlPlane {
    parts: Parts,
    credentials: Credentials,
    kubectl: Kubectl,
}

impl ControlPlane {
    /// Builds what is missing, starts everything, and returns when it can be used: the API server is ready, and with
    /// controllers also pods can be made and all nodes are ready.
    ///
    /// # Errors
    /// The programs cannot be had (see [`toolbox`]), or a part did not start; the end of its log is in the error.
    pub async fn start(options: Options) -> Result<Self, Error> {
        Self::start_as(options, false).await
    }

    /// As [`ControlPlane::start`], for the `testbed up` command: `testbed down` may end this process.
    ///
    /// # Errors
    /// As for [`ControlPlane::start`].
    pub async fn start_for_command(options: Options) -> Result<Self, Error> {
        Self::start_as(options, true).await
    }

    async fn start_as(options: Options, command: bool) -> Result<Self, Error> {
        let needed: &[Binary] = if options.controllers { &Binary::ALL } else { &Binary::API_SERVER_ONLY };
        let toolbox = tokio::task::spawn_blocking(|| toolbox(needed)).await??;
        let mut attempt = 1;
        loop {
            match Self::try_start(&options, command, &toolbox).await {
                Err(error) if error.is_lost_port() && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    async fn try_start(options: &Options, command: bool, toolbox: &Toolbox) -> Result<Self, Error> {
        let name = options.name.clone();
        let claim = tokio::task::spawn_blocking(move || instance::claim(name.as_deref(), command)).await??;
        let folder = claim.instance.folder.clone();
        let watchdog = Watchdog::start(&folder)?;
        let credentials = Credentials::create(&folder.join("credentials"), &options.users)?;
        let kubectl = Kubectl {
            program: toolbox.path(Binary::Kubectl).map(Path::to_path_buf).unwrap_or_default(),
            kubeconfig: claim.instance.kubeconfig(),
            cache: folder.join("kubectl-cache"),
        };
        let parts = Parts { claim, watchdog, processes: Vec::new(), ended: false };
        let mut plane = Self { parts, credentials, kubectl };
        plane.start_parts(options, toolbox).await?;
        plane.parts.claim.instance.ready = true;
        plane.parts.claim.instance.publish()?;
        Ok(plane)
    }

    async fn start_parts(&mut self, options: &Options, toolbox: &Toolbox) -> Result<(), Error> {
        let [etcd_client, etcd_peer, api_server, controller_manager, scheduler] = ports::free()?;
        let ports = Ports { etcd_client, etcd_peer, api_server, controller_manager, scheduler };
        let folder = self.folder().to_path_buf();
        let url = format!("https://127.0.0.1:{api_server}");
        for (path, user) in [
            (self.kubectl.kubeconfig.clone(), credentials::ADMIN),
            (kubeconfig_of(&folder, "controller-manager"), credentials::CONTROLLER_MANAGER),
            (kubeconfig_of(&folder, "scheduler"), credentials::SCHEDULER),
            (kubeconfig_of(&folder, "kwok"), credentials::KWOK),
        ] {
            self.credentials.write_kubeconfig(&path, &url, user)?;
        }

        self.spawn(Binary::Etcd, toolbox, components::etcd(&folder, ports, &self.credentials))?;
        self.wait_for(Binary::Etcd, options.patience, async |_| listens(etcd_client).await).await?;
        let flags = components::api_server(&folder, ports, &self.credentials, options);
        self.spawn(Binary::KubeApiserver, toolbox, flags)?;
        self.wait_for(Binary::KubeApiserver, options.patience, async |kubectl| {
            listens(api_server).await?;
            kubectl.run(&["get", "--raw", "/readyz"]).await.map(|_| ())
        })
        .await?;
        self.parts.claim.instance.url = url;
        self.parts.claim.instance.publish()?;

        if options.controllers {
            self.create_list(&nodes::removal_policy()).await?;
            self.start_controllers(&folder, ports, toolbox, options.nodes)?;
        }
        self.bind_roles(options).await?;
        self.create_nodes(options).await?;
        if options.controllers {
            self.wait_for_controllers(ports, options).await?;
        }
        Ok(())
    }

    fn start_controllers(
        &mut self,
        folder: &Path,
        ports: Ports,
        toolbox: &Toolbox,
        nodes: usize,
    ) -> Result<(), Error> {
        let stages = folder.join("stages.yaml");
        fs::write(&stages, nodes::STAGES).map_err(Error::io("cannot write", &stages))?;
        let credentials = &self.credentials;
        let starts = [
            (
                Binary::KubeControllerManager,
                components::controller_manager(
                    &kubeconfig_of(folder, "controller-manager"),
                    ports,
                    credentials,
                    nodes,
                ),
            ),
            (
                Binary::KubeScheduler,
                components::scheduler(&kubeconfig_of(folder, "scheduler"), ports, credentials),
            ),
            (Binary::Kwok, components::kwok(&kubeconfig_of(folder, "kwok"), &stages, nodes)),
        ];
        starts.into_iter().try_for_each(|(component, flags)| self.spawn(component, toolbox, flags))
    }

    /// Gives the users the roles they were created with.
    async fn bind_roles(&self, options: &Options) -> Result<(), Error> {
        let bindings: Vec<_> = options
            .users
            .iter()
            .filter_map(|user| Some((user, user.cluster_role.as_ref()?)))
            .map(|(user, role)| {
                let group = "rbac.authorization.k8s.io";
                json!({
                    "apiVersion": format!("{group}/v1"),
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": format!("testbed:{}", user.name)},
                    "subjects": [{"apiGroup": group, "kind": "User", "name": user.name}],
                    "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                })
            })
            .collect();
        if bindings.is_empty() {
            return Ok(());
        }
        self.create_list(&bindings).await
    }

    async fn create_list(&self, items: &[Value]) -> Result<(), Error> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        self.kubectl.run_with_input(&["create", "-f", "-"], &list).await.map(|_| ())
    }

    /// A few kubectl side by side, because one alone makes nodes one after another.
    async fn create_nodes(&self, options: &Options) -> Result<(), Error> {
        let lists = nodes::node_lists(options.nodes, options.zones);
        for batch in lists.chunks(8) {
            let create = |list| self.kubectl.run_with_input(&["create", "--validate=false", "-f", "-"], list);
            for created in futures::future::join_all(batch.iter().map(|list| create(list))).await {
                created?;
            }
        }
        Ok(())
    }

    async fn wait_for_controllers(&mut self, ports: Ports, options: &Options) -> Result<(), Error> {
        for (component, port) in [
            (Binary::KubeControllerManager, ports.controller_manager),
            (Binary::KubeScheduler, ports.scheduler),
        ] {
            let server = format!("--server=https://127.0.0.1:{port}");
            self.wait_for(component, options.patience, async |kubectl| {
                listens(port).await?;
                kubectl.run(&[&server, "get", "--raw", "/healthz"]).await.map(|_| ())
            })
            .await?;
        }
        // Pods are refused until their service account is there.
        self.wait_for(Binary::KubeControllerManager, options.patience, async |kubectl| {
            kubectl.run(&["get", "serviceaccount", "default", "--namespace=default"]).await.map(|_| ())
        })
        .await?;
        let nodes = options.nodes;
        self.wait_for(Binary::Kwok, options.patience, async |kubectl| nodes_usable(kubectl, nodes).await)
            .await
    }

    fn spawn(&mut self, component: Binary, toolbox: &Toolbox, flags: Vec<String>) -> Result<(), Error> {
        let program = toolbox.path(component).unwrap_or(Path::new(component.name()));
        let process = Process::start(component, program, &flags, self.folder(), &self.parts.watchdog)?;
        self.parts.processes.push(process);
        Ok(())
    }

    /// Asks again until `ready` says so; gives up at once where a part has ended.
    async fn wait_for(
        &mut self,
        component: Binary,
        patience: Duration,
        ready: impl AsyncFn(&Kubectl) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = ready(&self.kubectl).await;
            self.check_alive()?;
            match answer {
                Ok(()) => return Ok(()),
                Err(error) if started.elapsed() > patience => {
                    return Err(Error::NotReady {
                        what: component.to_string(),
                        seconds: patience.as_secs(),
                        last: error.to_string(),
                        log_tail: log_tail(&self.log_of(component)),
                    });
                }
                // Most of the time belongs to what is asked for.
                Err(_) => tokio::time::sleep(asked.elapsed().max(Duration::from_millis(25)) * 2).await,
            }
        }
    }

    /// Fails where a part has ended by itself, with the end of its log.
    ///
    /// # Errors
    /// [`Error::Exited`] for the first part that is no longer there.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        self.parts.processes.iter_mut().try_for_each(Process::check_alive)
    }

    /// The name of the instance, as `testbed status` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.claim.instance.name
    }

    /// Everything of this control plane is in here: data, credentials and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.parts.claim.instance.folder
    }

    /// The kubeconfig of `admin`.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.kubeconfig
    }

    /// Writes a kubeconfig of another user into the folder of the instance.
    ///
    /// # Errors
    /// There is no such user, or the file cannot be written.
    pub fn kubeconfig_of(&self, user: &str) -> Result<PathBuf, Error> {
        self.credentials.token(user)?;
        let path = self.folder().join(format!("user-{}.kubeconfig", user.replace('/', "_")));
        self.credentials.write_kubeconfig(&path, self.url(), user)?;
        Ok(path)
    }

    /// Where the API server answers: `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.parts.claim.instance.url
    }

    /// The certificate authority of all its certificates.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.credentials.ca_pem
    }

    /// The token of `admin`, who may do anything.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        self.credentials.token(credentials::ADMIN).unwrap_or_default()
    }

    /// The token of one of [`Options::users`].
    ///
    /// # Errors
    /// There is no such user.
    pub fn token_of(&self, user: &str) -> Result<&str, Error> {
        self.credentials.token(user)
    }

    /// The program kubectl, of the version of the control plane.
    #[must_use]
    pub fn kubectl(&self) -> PathBuf {
        self.kubectl.program.clone()
    }

    /// The process id of a part, where it was started.
    #[must_use]
    pub fn pid_of(&self, component: Binary) -> Option<u32> {
        self.parts.processes.iter().find(|process| process.component == component).map(Process::id)
    }

    /// Resident memory of a part in KiB, where the system tells it.
    #[must_use]
    pub fn rss_kib_of(&self, component: Binary) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid_of(component)?)).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
    }

    /// The log of a part.
    #[must_use]
    pub fn log_of(&self, component: Binary) -> PathBuf {
        let process = self.parts.processes.iter().find(|process| process.component == component);
        process.map(|process| process.log.clone()).unwrap_or_default()
    }

    /// Ends everything and removes the folder.
    ///
    /// # Errors
    /// The folder could not be removed.
    pub async fn stop(mut self) -> Result<(), Error> {
        tokio::task::spawn_blocking(move || self.parts.end()).await?
    }
}

/// What has to be ended and removed.
struct Parts {
    claim: Claim,
    watchdog: Watchdog,
    processes: Vec<Process>,
    ended: bool,
}

impl Parts {
    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.processes.iter_mut().rev().for_each(Process::kill);
        let removed = instance::remove(&self.claim.instance.folder);
        self.watchdog.dismiss();
        removed
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Where the folder cannot be removed now, the next start does.
        let _ = self.end();
    }
}

async fn listens(port: u16) -> Result<(), Error> {
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    connected.map(|_| ()).map_err(Error::io("cannot connect to", format!("127.0.0.1:{port}")))
}

/// All nodes are ready, and the controller manager has seen it: it takes the taint away.
async fn nodes_usable(kubectl: &Kubectl, expected: usize) -> Result<(), Error> {
    const USABLE: &str = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}:{.spec.taints[*].key}{"\n"}{end}"#;
    if expected == 0 {
        return Ok(());
    }
    let states = kubectl.run(&["get", "nodes", "-o", USABLE]).await?;
    let usable = states.lines().filter(|state| *state == "True:").count();
    if usable >= expected {
        return Ok(());
    }
    Err(Error::Kubectl {
        command: "get nodes".into(),
        stderr: format!("{usable} of {expected} nodes are ready"),
    })
}
