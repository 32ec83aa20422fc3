//! A network of its own for a cluster with real nodes, in which pods reach the API server, and the API server reaches pods, by Services.
//!
//! What kube-proxy writes is about addresses that every cluster has, so that two of them cannot share a network, and none should change that
//! of the machine. A program therefore starts itself again in a new network namespace; all that it starts is in there too, and the
//! namespace goes with the last of them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::Error;

/// The only machine of that network has this address. Not loopback, which pods have as well.
pub(crate) const MACHINE: &str = "10.95.0.1";
/// As whom kube-proxy calls the API server. Kubernetes binds a role to that name.
pub(crate) const PROXY_USER: &str = "system:kube-proxy";
const VARIABLE: &str = "USHER_OWN_NETWORK";

/// Services need a way out before they are translated: any does.
const INIT: &str = r#"
set -e
ip link set lo up
ip address add $0/32 dev lo
ip route add 10.96.0.0/16 dev lo src $0
exec "$@"
"#;

/// Whether this process was started by [`run_again`].
#[must_use]
pub fn is_own() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// Starts this program again in a network of its own, with these arguments, and waits for its end. It ends with the thread that calls this.
/// What it says on standard error is seen at once.
///
/// # Errors
/// It cannot be started.
pub fn run_again(arguments: &[&str]) -> Result<Output, Error> {
    let program = std::env::current_exe().map_err(Error::io("cannot find", Path::new("this program")))?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--net", "/bin/sh", "-c", INIT, MACHINE])
        .arg(&program)
        .args(arguments)
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::io("cannot start", &program))
}

/// What the API server is told in such a network: pods reach it there, by the Service `kubernetes`.
#[must_use]
pub fn api_server_flags() -> Vec<String> {
    if !is_own() {
        return Vec::new();
    }
    vec![
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={MACHINE}"),
        "--endpoint-reconciler-type=lease".to_owned(),
    ]
}

/// kube-proxy, for all nodes: they share the network.
pub(crate) fn proxy_flags(kubeconfig: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--proxy-mode=iptables".to_owned(),
        format!("--hostname-override={MACHINE}"),
        format!("--bind-address={MACHINE}"),
        "--healthz-bind-address=".to_owned(),
        // The limits of the machine stay as they are.
        "--conntrack-max-per-core=0".to_owned(),
        "--conntrack-tcp-timeout-established=0s".to_owned(),
        "--conntrack-tcp-timeout-close-wait=0s".to_owned(),
    ]
}
