//! Nodes with a kubelet and a containerd of their own, beside those that kwok plays.
//!
//! Each runs in namespaces of processes and mounts of its own, so that it ends with all its containers and mounts when its first process
//! does, however that ends: as a machine does that loses its power. What it has on disk stays, and it can be started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::json;

use crate::binaries::Binary;
use crate::build::real_node_toolbox;
use crate::options::User;
use crate::packages::{install_missing, is_root};
use crate::watchdog::Watchdog;
use crate::{Error, image, network, ports};

/// The image that pods of real nodes may have. It cannot be pulled: `imagePullPolicy: Never`. See `modules/pod-server` for what it does.
pub const IMAGE: &str = "testbed.usher.dev/pod-server:1";
/// Where the kubelet of a node reads manifests of static pods. Each node has its own there.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
const PLUGINS: &str = "/usr/lib/cni";
/// Program, and the Debian package that has it.
const NEEDED: [(&str, &str); 6] = [
    ("/usr/bin/containerd", "containerd"),
    ("/usr/bin/ctr", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/bin/unshare", "util-linux"),
];

/// The first process of a node. `$1` is its folder, `$2` the image, the rest the kubelet. What was in memory is lost at each start.
const INIT: &str = r#"
set -e
folder=$1; image=$2; shift 2
# Nothing of the machine that runs this: what a node leaves here is gone with it.
for own in /run/netns /run/containerd /run/dbus /var/lib/cni /var/lib/kubelet /var/log/pods /var/log/containers /etc/kubernetes; do
    mkdir -p $own
    mount -t tmpfs tmpfs $own
done
# Where nodes mostly have them, and so agents in pods look for them there.
mkdir /etc/kubernetes/manifests
mount --bind "$folder/manifests" /etc/kubernetes/manifests
cp "$folder/kubelet.yaml" /var/lib/kubelet/config.yaml
rm -rf "$folder/containerd/state" "$folder/containerd.sock"
containerd --config "$folder/containerd.toml" >>"$folder/containerd.log" 2>&1 &
until ctr --address "$folder/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
ctr --address "$folder/containerd.sock" --namespace k8s.io images import "$image" >>"$folder/containerd.log" 2>&1
exec "$@"
"#;

/// The users as whom so many nodes call the API server: to be among [`crate::Options::users`].
#[must_use]
pub fn users(count: usize) -> Vec<User> {
    let nodes = (1..=count).map(|number| User::new(&user_of(&name_of(number))).with_group("system:nodes"));
    nodes.chain([User::new(network::PROXY_USER)]).collect()
}

fn name_of(number: usize) -> String {
    format!("real-{number}")
}

fn user_of(node: &str) -> String {
    format!("system:node:{node}")
}

/// Installs what is missing, where that can be done.
///
/// # Errors
/// Real nodes cannot run here, and why.
pub fn prepare() -> Result<(), Error> {
    if !is_root() {
        return Err(Error::NoRealNodes("only root can make namespaces and mounts".to_owned()));
    }
    install_missing(&NEEDED).map_err(Error::NoRealNodes)?;
    let mut namespaces = Command::new("/usr/bin/unshare");
    match quietly(namespaces.args(["--mount", "--pid", "--fork", "true"])) {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Error::NoRealNodes("this machine does not let root make namespaces".to_owned())),
    }
}

/// Builds what real nodes need, where it is not cached.
///
/// # Errors
/// As for [`crate::toolbox`].
pub async fn build() -> Result<(), Error> {
    real_node_toolbox().await.map(|_| ())
}

/// Real nodes of one cluster, until this is dropped.
pub struct RealNodes {
    folder: PathBuf,
    kubelet: PathBuf,
    image: PathBuf,
    cgroup: String,
    nodes: Vec<RealNode>,
    proxy: Option<Child>,
    watchdog: Watchdog,
}

struct RealNode {
    name: String,
    bridge: String,
    process: Option<Child>,
}

impl RealNodes {
    /// Starts `real-1`, `real-2`, ... against an API server that knows [`users`]. They are ready a while later.
    ///
    /// # Errors
    /// They cannot run here, see [`prepare`], or something could not be built or written.
    pub async fn start(
        count: usize,
        url: &str,
        ca_pem: &str,
        token_of: impl Fn(&str) -> Result<String, Error>,
    ) -> Result<Option<Self>, Error> {
        if count == 0 {
            return Ok(None);
        }
        tokio::task::spawn_blocking(prepare).await??;
        let toolbox = real_node_toolbox().await?;
        let path = |binary| toolbox.path(binary).map(Path::to_path_buf).unwrap_or_default();
        let process = std::process::id();
        // Sockets have short paths.
        let folder = std::env::temp_dir().join(format!("usher-real-{process}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(Error::io("cannot create", &folder))?;
        let image = make_image(&folder, &path(Binary::PodServer))?;
        let watchdog = Watchdog::start(&folder)?;
        let cgroup = format!("/usher-real-{process}");
        let mut real = Self {
            kubelet: path(Binary::Kubelet),
            folder,
            image,
            cgroup,
            nodes: Vec::new(),
            proxy: None,
            watchdog,
        };
        if network::is_own() {
            let token = token_of(network::PROXY_USER)?;
            real.start_proxy(&path(Binary::KubeProxy), &kubeconfig(url, ca_pem, &token))?;
        }
        for number in 1..=count {
            let name = name_of(number);
            let token = token_of(&user_of(&name))?;
            let bridge = format!("ur{}-{number}", process % 1_000_000);
            real.write_node(&name, &bridge, number, &kubeconfig(url, ca_pem, &token))?;
            real.nodes.push(RealNode { name: name.clone(), bridge, process: None });
            real.power_on(&name)?;
        }
        Ok(Some(real))
    }

    /// The names of all nodes.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// Services lead to their pods.
    fn start_proxy(&mut self, program: &Path, kubeconfig: &str) -> Result<(), Error> {
        let path = self.folder.join("kube-proxy.kubeconfig");
        fs::write(&path, kubeconfig).map_err(Error::io("cannot write", &path))?;
        let mut command = self.watchdog.command(program, &self.folder.join("kube-proxy.log"))?;
        command.args(network::proxy_flags(&path));
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &self.folder);
        self.proxy = Some(command.spawn().map_err(Error::io("cannot start", program))?);
        Ok(())
    }

    /// Gives a node an image, as `docker save` or [`image::pack`] makes it. It has it until its disk goes.
    ///
    /// # Errors
    /// containerd does not take it, or does not run yet.
    pub fn import_image(&self, node: &str, archive: &Path) -> Result<(), Error> {
        self.ctr(node, &["import", &archive.display().to_string()])
    }

    /// Gives an image that a node has another name. Both are whole: `docker.io/library/web:1`.
    ///
    /// # Errors
    /// There is no such image.
    pub fn tag_image(&self, node: &str, name: &str, another: &str) -> Result<(), Error> {
        self.ctr(node, &["tag", "--force", name, another])
    }

    fn ctr(&self, node: &str, arguments: &[&str]) -> Result<(), Error> {
        let socket = self.folder.join(node).join("containerd.sock");
        let mut command = Command::new("/usr/bin/ctr");
        command.arg("--address").arg(socket).args(["--namespace", "k8s.io", "images"]).args(arguments);
        image::run(&mut command).map(|_| ())
    }

    /// Where manifests of static pods of a node are, seen from outside: the kubelet has them in [`MANIFESTS`].
    #[must_use]
    pub fn manifests(&self, node: &str) -> PathBuf {
        self.folder.join(node).join("manifests")
    }

    /// The configuration of the kubelet of a node.
    #[must_use]
    pub fn kubelet_config(&self, node: &str) -> PathBuf {
        self.folder.join(node).join("kubelet.yaml")
    }

    /// The log of its kubelet.
    #[must_use]
    pub fn kubelet_log(&self, node: &str) -> PathBuf {
        self.folder.join(node).join("kubelet.log")
    }

    /// The logs of everything that runs here.
    #[must_use]
    pub fn logs(&self) -> Vec<PathBuf> {
        let of_nodes = self
            .names()
            .into_iter()
            .flat_map(|node| ["kubelet.log", "containerd.log"].map(|log| self.folder.join(&node).join(log)));
        of_nodes.chain([self.folder.join("kube-proxy.log")]).collect()
    }

    /// Starts a node that is off.
    ///
    /// # Errors
    /// Its first process cannot be started.
    pub fn power_on(&mut self, name: &str) -> Result<(), Error> {
        let folder = self.folder.join(name);
        let mut command =
            self.watchdog.command(Path::new("/usr/bin/unshare"), &folder.join("kubelet.log"))?;
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "/bin/sh",
            "-c",
            INIT,
            "node",
        ]);
        command.arg(&folder).arg(&self.image).arg(&self.kubelet);
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        command.args([
            flag("config", &folder.join("kubelet.yaml")),
            flag("kubeconfig", &folder.join("kubeconfig")),
            flag("root-dir", &folder.join("kubelet")),
            flag("cert-dir", &folder.join("pki")),
            format!("--hostname-override={name}"),
            "--node-labels=testbed.usher.dev/real=true".to_owned(),
        ]);
        if network::is_own() {
            command.arg(format!("--node-ip={}", network::MACHINE));
        }
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &folder);
        let started = command.spawn().map_err(Error::io("cannot start", &folder))?;
        if let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) {
            node.process = Some(started);
        }
        Ok(())
    }

    /// A node is off at once, with everything that ran on it. What it has on disk stays.
    pub fn power_off(&mut self, name: &str) {
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        if let Some(mut process) = node.and_then(|node| node.process.take()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn write_node(&self, name: &str, bridge: &str, number: usize, kubeconfig: &str) -> Result<(), Error> {
        let folder = self.folder.join(name);
        let network = folder.join("network");
        for made in [&self.manifests(name), &network, &folder.join("kubelet")] {
            fs::create_dir_all(made).map_err(Error::io("cannot create", made))?;
        }
        let [port] = ports::free()?;
        let subnet = format!("10.{}.{number}.0/24", 128 + std::process::id() % 64);
        let at = folder.display();
        let files = [
            ("network/10-bridge.conflist", bridge_of(bridge, &subnet, &folder.join("addresses"))),
            ("containerd.toml", containerd_of(&at.to_string())),
            ("kubelet.yaml", self.kubelet_of(&at.to_string(), port)),
            ("kubeconfig", kubeconfig.to_owned()),
        ];
        for (file, text) in files {
            let path = folder.join(file);
            fs::write(&path, text).map_err(Error::io("cannot write", &path))?;
        }
        Ok(())
    }

    fn kubelet_of(&self, folder: &str, port: u16) -> String {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": "127.0.0.1", "port": port, "healthzPort": 0, "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": format!("unix://{folder}/containerd.sock"),
            "staticPodPath": MANIFESTS,
            "fileCheckFrequency": "1s",
            "nodeStatusUpdateFrequency": "2s",
            "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [], "cgroupRoot": self.cgroup,
            "failCgroupV1": false, "failSwapOn": false,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": false,
            "resolvConf": "", "maxPods": 40,
        })
        .to_string()
    }
}

impl Drop for RealNodes {
    fn drop(&mut self) {
        for name in self.names() {
            self.power_off(&name);
        }
        if let Some(mut proxy) = self.proxy.take() {
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
        for node in &self.nodes {
            let _ = quietly(Command::new("ip").args(["link", "delete", &node.bridge]));
        }
        remove_cgroups(&self.cgroup);
        let _ = fs::remove_dir_all(&self.folder);
        self.watchdog.dismiss();
    }
}

/// Those of containers are empty when their node is off, and stay until somebody removes them.
fn remove_cgroups(cgroup: &str) {
    let roots = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|root| root.path());
    for root in roots.chain([PathBuf::from("/sys/fs/cgroup")]) {
        let parent = root.join(cgroup.trim_start_matches('/'));
        let children = fs::read_dir(&parent).into_iter().flatten().flatten().map(|child| child.path());
        for child in children.filter(|child| child.is_dir()) {
            let _ = fs::remove_dir(child);
        }
        let _ = fs::remove_dir(parent);
    }
}

fn kubeconfig(url: &str, ca_pem: &str, token: &str) -> String {
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
    .to_string()
}

fn bridge_of(bridge: &str, subnet: &str, addresses: &Path) -> String {
    json!({
        "cniVersion": "0.4.0", "name": bridge,
        "plugins": [{
            "type": "bridge", "bridge": bridge, "isGateway": true, "ipMasq": false,
            "ipam": {
                "type": "host-local", "dataDir": addresses, "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
    .to_string()
}

/// Without `restrict_oom_score_adj` no container starts where the capability SYS_RESOURCE is missing.
fn containerd_of(folder: &str) -> String {
    format!(
        r#"version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{folder}/network"
"#
    )
}

fn make_image(folder: &Path, program: &Path) -> Result<PathBuf, Error> {
    let (build, root) = (folder.join("image"), folder.join("image/root"));
    fs::create_dir_all(&root).map_err(Error::io("cannot create", &root))?;
    fs::copy(program, root.join("pod-server")).map_err(Error::io("cannot copy", program))?;
    image::pack(&build, &root, &json!({"Entrypoint": ["/pod-server"]}), &[IMAGE])
}

fn quietly(command: &mut Command) -> std::io::Result<std::process::ExitStatus> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
}
