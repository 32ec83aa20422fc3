//! The flags each part of the control plane is started with.

use crate::credentials::Credentials;
use crate::nodes::FAKE_NODE_ANNOTATION;
use crate::options::Options;
use std::path::{Path, PathBuf};

/// Where the parts listen. Everything is on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) etcd_client: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
}

/// How often a node renews its lease, in seconds: every 10 s as a kubelet does, but in large clusters seldom enough
/// that all nodes together make at most 50 writes a second. A small machine has better things to do.
fn lease_renewal(nodes: usize) -> usize {
    (nodes / 50).max(10)
}

/// `--name=value`, for values that are paths or numbers too.
fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn file(name: &str, path: impl AsRef<Path>) -> String {
    flag(name, path.as_ref().display())
}

pub(crate) fn etcd(folder: &Path, ports: Ports, credentials: &Credentials) -> Vec<String> {
    let client = format!("https://127.0.0.1:{}", ports.etcd_client);
    let peer = format!("https://127.0.0.1:{}", ports.etcd_peer);
    vec![
        flag("name", "testbed"),
        file("data-dir", folder.join("etcd")),
        // The data is thrown away with the instance, so waiting for the disk would buy nothing.
        "--unsafe-no-fsync".to_owned(),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("testbed={peer}")),
        "--client-cert-auth".to_owned(),
        file("trusted-ca-file", credentials.ca_file()),
        file("cert-file", credentials.certificate_file()),
        file("key-file", credentials.key_file()),
        "--peer-client-cert-auth".to_owned(),
        file("peer-trusted-ca-file", credentials.ca_file()),
        file("peer-cert-file", credentials.certificate_file()),
        file("peer-key-file", credentials.key_file()),
        flag("quota-backend-bytes", 8_u64 << 30),
        flag("log-level", "warn"),
    ]
}

pub(crate) fn api_server(
    folder: &Path,
    ports: Ports,
    credentials: &Credentials,
    options: &Options,
) -> Vec<String> {
    let mut flags = vec![
        flag("etcd-servers", format!("https://127.0.0.1:{}", ports.etcd_client)),
        file("etcd-cafile", credentials.ca_file()),
        file("etcd-certfile", credentials.certificate_file()),
        file("etcd-keyfile", credentials.key_file()),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", ports.api_server),
        // No endpoints of the `kubernetes` service: loopback is no valid address for them.
        flag("advertise-address", "127.0.0.1"),
        flag("endpoint-reconciler-type", "none"),
        file("cert-dir", folder.join("api-server-certificates")),
        file("tls-cert-file", credentials.certificate_file()),
        file("tls-private-key-file", credentials.key_file()),
        file("client-ca-file", credentials.ca_file()),
        file("token-auth-file", credentials.token_file()),
        flag("authorization-mode", "Node,RBAC"),
        flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
        file("service-account-key-file", credentials.service_account_public_key_file()),
        file("service-account-signing-key-file", credentials.service_account_key_file()),
        flag("service-cluster-ip-range", "10.96.0.0/16"),
        flag("allow-privileged", true),
        flag("feature-gates", "EvictionRequestAPI=true"),
        flag("runtime-config", "lifecycle.k8s.io/v1alpha1=true"),
    ];
    if !options.controllers {
        // Nobody makes service accounts, so every pod would be refused.
        flags.push(flag("disable-admission-plugins", "ServiceAccount"));
    }
    flags.extend(options.api_server_flags.iter().cloned());
    flags
}

/// Flags that controller manager and scheduler have in common.
fn controller(kubeconfig: &Path, port: u16, credentials: &Credentials) -> Vec<String> {
    vec![
        file("kubeconfig", kubeconfig),
        file("authentication-kubeconfig", kubeconfig),
        file("authorization-kubeconfig", kubeconfig),
        flag("leader-elect", false),
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 1000),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", port),
        file("tls-cert-file", credentials.certificate_file()),
        file("tls-private-key-file", credentials.key_file()),
    ]
}

pub(crate) fn controller_manager(
    kubeconfig: &Path,
    ports: Ports,
    credentials: &Credentials,
    nodes: usize,
) -> Vec<String> {
    let mut flags = controller(kubeconfig, ports.controller_manager, credentials);
    flags.extend([
        // Each controller acts with the rights it has in a real cluster, no more.
        flag("use-service-account-credentials", true),
        file("service-account-private-key-file", credentials.service_account_key_file()),
        file("root-ca-file", credentials.ca_file()),
        file("cluster-signing-cert-file", credentials.ca_file()),
        file("cluster-signing-key-file", credentials.ca_key_file()),
        // Five missed renewals: what Kubernetes has by default for kubelets.
        flag("node-monitor-grace-period", format!("{}s", 5 * lease_renewal(nodes))),
    ]);
    flags
}

pub(crate) fn scheduler(kubeconfig: &Path, ports: Ports, credentials: &Credentials) -> Vec<String> {
    controller(kubeconfig, ports.scheduler, credentials)
}

pub(crate) fn kwok(kubeconfig: &Path, stages: &Path, nodes: usize) -> Vec<String> {
    let (annotation, value) = FAKE_NODE_ANNOTATION;
    vec![
        file("kubeconfig", kubeconfig),
        file("config", stages),
        flag("manage-all-nodes", false),
        flag("manage-nodes-with-annotation-selector", format!("{annotation}={value}")),
        // kwok renews four times in that time.
        flag("node-lease-duration-seconds", 4 * lease_renewal(nodes)),
    ]
}

/// The kubeconfig file of a part that calls the API server.
pub(crate) fn kubeconfig_of(folder: &Path, part: &str) -> PathBuf {
    folder.join(format!("{part}.kubeconfig"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_renewed_as_by_kubelets_until_there_are_too_many_nodes() {
        assert_eq!(lease_renewal(0), 10);
        assert_eq!(lease_renewal(500), 10);
        assert_eq!(lease_renewal(5000), 100);
    }
}
