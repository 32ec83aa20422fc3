//! Which programs make up the control plane, and exactly what they and the programs beside it are built from.

use std::fmt;

/// The Kubernetes version that `modules/kubernetes` pins.
pub const KUBERNETES_VERSION: &str = "v1.37.1";

/// One program of the control plane, or one that a few tests need beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binary {
    Etcd,
    KubeApiserver,
    Kubectl,
    KubeControllerManager,
    KubeScheduler,
    Kwok,
    Helm,
    /// The plugins of the Go descheduler, which say what they would evict.
    DeschedulerJudge,
    /// kubectl of older versions, which drains as it did then.
    Kubectl133,
    Kubectl135,
    /// The eviction code of drainers that know nothing of eviction requests.
    Drainers,
    /// Runs the pods of a real node.
    Kubelet,
    /// Leads from Services to pods in the network of real nodes.
    KubeProxy,
    /// Is in the image of the pods of real nodes.
    PodServer,
}

impl Binary {
    /// The control plane, in the order it is built: what a bare API server needs comes first.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Kubectl,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kwok,
    ];

    /// Enough for an API server without anything that acts on its objects.
    pub const API_SERVER_ONLY: [Self; 3] = [Self::Etcd, Self::KubeApiserver, Self::Kubectl];

    /// The file name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kubectl => "kubectl",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
            Self::DeschedulerJudge => "descheduler-judge",
            Self::Kubectl133 => "kubectl-1.33",
            Self::Kubectl135 => "kubectl-1.35",
            Self::Drainers => "drainers",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::PodServer => "pod-server",
        }
    }

    /// The Go package that is the program.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kwok => "sigs.k8s.io/kwok/cmd/kwok",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::DeschedulerJudge => "usher.dev/testbed/descheduler",
            Self::Kubectl133 => "usher.dev/testbed/kubectl-1.33",
            Self::Kubectl135 => "usher.dev/testbed/kubectl-1.35",
            Self::Drainers => "usher.dev/testbed/drainers",
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::KubeProxy => "k8s.io/kubernetes/cmd/kube-proxy",
            Self::PodServer => "usher.dev/testbed/pod-server",
        }
    }

    /// The pinned module it is built in.
    pub(crate) fn module(self) -> &'static Module {
        match self {
            Self::Etcd => &ETCD,
            Self::KubeApiserver
            | Self::Kubectl
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => &KUBERNETES,
            Self::Kwok => &KWOK,
            Self::Helm => &HELM,
            Self::DeschedulerJudge => &DESCHEDULER,
            Self::Kubectl133 => &KUBECTL_133,
            Self::Kubectl135 => &KUBECTL_135,
            Self::Drainers => &DRAINERS,
            Self::PodServer => &POD_SERVER,
        }
    }

    /// Linker flags. Without the version stamps kubectl and the server call themselves v0.0.0.
    pub(crate) fn ldflags(self) -> String {
        let mut flags = String::from("-s -w");
        let version = match self {
            Self::Kubectl133 => "v1.33.0",
            Self::Kubectl135 => "v1.35.0",
            _ => KUBERNETES_VERSION,
        };
        if self.module().name == KUBERNETES.name || OLDER_CLIENTS.binaries.contains(&self) {
            let mut numbers = version.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
            for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                flags.push_str(&format!(
                    " -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
                ));
            }
        }
        flags
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A Go module that pins the programs to build, or is one. Embedded, so that the testbed works from any
/// folder and does not write into the work tree.
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
}

macro_rules! module {
    ($name:literal, $($file:literal),+) => {
        Module {
            name: $name,
            files: &[
                ("go.mod", include_str!(concat!("../modules/", $name, "/go.mod"))),
                ("go.sum", include_str!(concat!("../modules/", $name, "/go.sum"))),
                $(($file, include_str!(concat!("../modules/", $name, "/", $file)))),+
            ],
        }
    };
}

const ETCD: Module = module!("etcd", "tools.go");
const KUBERNETES: Module = module!("kubernetes", "tools.go");
const KWOK: Module = module!("kwok", "tools.go");
const HELM: Module = module!("helm", "tools.go");
const KUBECTL_133: Module = module!("kubectl-1.33", "main.go");
const KUBECTL_135: Module = module!("kubectl-1.35", "main.go");
const DRAINERS: Module = module!("drainers", "main.go", "karpenter.go", "cluster_api.go");
const DESCHEDULER: Module =
    module!("descheduler", "main.go", "question.go", "run.go", "timing.go", "usage.go");
const POD_SERVER: Module = module!("pod-server", "main.go");

/// Programs that are cached together: a new pin of one builds all of them anew.
pub(crate) struct Set {
    pub(crate) modules: &'static [&'static Module],
    pub(crate) binaries: &'static [Binary],
    /// What is built, for whoever waits for it.
    pub(crate) title: &'static str,
}

pub(crate) const CONTROL_PLANE: Set = Set {
    modules: &[&ETCD, &KUBERNETES, &KWOK],
    binaries: &Binary::ALL,
    title: "programs of the control plane, once; the first time takes 10 to 15 minutes",
};

/// Apart from the control plane, which needs many minutes: only the tests of the chart ask for it.
pub(crate) const CHARTS: Set = Set {
    modules: &[&HELM],
    binaries: &[Binary::Helm],
    title: "program for the tests of the chart, once; the first time takes a few minutes",
};

/// Apart from both: only recordings of what the Go descheduler decides, and the figures beside it, ask for it.
pub(crate) const DESCHEDULERS: Set = Set {
    modules: &[&DESCHEDULER],
    binaries: &[Binary::DeschedulerJudge],
    title: "program that asks the Go descheduler, once; the first time takes a few minutes",
};

/// Apart from all others: only the tests of drains by older clients ask for them.
pub(crate) const OLDER_CLIENTS: Set = Set {
    modules: &[&KUBECTL_133, &KUBECTL_135],
    binaries: &[Binary::Kubectl133, Binary::Kubectl135],
    title: "older versions of kubectl, once; the first time takes a few minutes",
};

/// Apart from all others: only the test of the gateway with foreign drainers asks for it.
pub(crate) const FOREIGN_DRAINERS: Set = Set {
    modules: &[&DRAINERS],
    binaries: &[Binary::Drainers],
    title: "program with the drains of Karpenter and Cluster API, once; the first time takes a few minutes",
};

/// Apart from the control plane as well: only real nodes need them.
pub(crate) const REAL_NODES: Set = Set {
    modules: &[&KUBERNETES, &POD_SERVER],
    binaries: &[Binary::Kubelet, Binary::KubeProxy, Binary::PodServer],
    title: "programs for real nodes, once; the first time takes a few minutes",
};

/// The newest `go` line of the modules: the oldest Go that can build them.
pub(crate) fn required_go(set: &Set) -> GoVersion {
    set.modules
        .iter()
        .filter_map(|module| module.files[0].1.lines().find_map(|line| line.strip_prefix("go ")))
        .filter_map(GoVersion::parse)
        .max()
        .unwrap_or_default()
}

/// A Go release, comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoVersion(u32, u32, u32);

impl GoVersion {
    /// Reads `1.26.0`, `go1.26.8` or `go1.27rc1` (a release candidate counts as its release).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches("go");
        let mut numbers = text.split('.').map(|part| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok()
        });
        Some(Self(numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number_not_by_text() {
        assert!(GoVersion::parse("go1.9.7") < GoVersion::parse("1.26.0"));
        assert_eq!(GoVersion::parse("go1.27rc1"), Some(GoVersion(1, 27, 0)));
        assert_eq!(GoVersion::parse("devel"), None);
    }

    #[test]
    fn the_pinned_kubernetes_is_the_version_the_binaries_claim() {
        assert!(KUBERNETES.files[0].1.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
        let flags = Binary::Kubectl.ldflags();
        assert!(flags.contains("client-go/pkg/version.gitVersion=v1.37.1"), "{flags}");
        assert!(flags.contains("component-base/version.gitMinor=37"), "{flags}");
        assert_eq!(Binary::Etcd.ldflags(), "-s -w");
        assert!(KUBECTL_133.files[0].1.contains("k8s.io/kubectl v0.33.0"));
        assert!(Binary::Kubectl133.ldflags().contains("component-base/version.gitVersion=v1.33.0"));
        assert!(KUBECTL_135.files[0].1.contains("k8s.io/kubectl v0.35.0"));
        assert!(Binary::Kubectl135.ldflags().contains("component-base/version.gitVersion=v1.35.0"));
    }

    #[test]
    fn every_binary_is_imported_by_the_module_it_is_built_in() {
        for binary in [CONTROL_PLANE, CHARTS].into_iter().flat_map(|set| set.binaries) {
            let tools = binary.module().files[2].1;
            assert!(tools.contains(&format!("\"{}\"", binary.package())), "{binary}");
        }
        assert!(
            DESCHEDULER.files[0].1.starts_with(&format!("module {}\n", Binary::DeschedulerJudge.package()))
        );
        for binary in [OLDER_CLIENTS, FOREIGN_DRAINERS].into_iter().flat_map(|set| set.binaries) {
            let module = binary.module().files[0].1;
            assert!(module.starts_with(&format!("module {}\n", binary.package())), "{binary}");
        }
    }

    #[test]
    fn some_go_version_is_required() {
        assert!(required_go(&CONTROL_PLANE) >= GoVersion(1, 20, 0));
        assert!(required_go(&CHARTS) >= GoVersion(1, 20, 0));
        assert!(required_go(&DESCHEDULERS) >= GoVersion(1, 20, 0));
        assert!(required_go(&OLDER_CLIENTS) >= GoVersion(1, 20, 0));
        assert!(required_go(&FOREIGN_DRAINERS) >= GoVersion(1, 20, 0));
    }
}
