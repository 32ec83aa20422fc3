//! The constant defaults, by definition. Defaults that depend on other fields are in `rules`.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;
use serde_json::{Map, Value};

/// A constant.
#[derive(Clone, Copy)]
pub(super) enum Constant {
    Text(&'static str),
    Number(i64),
    Flag(bool),
    /// An empty object.
    Object,
}

use Constant::{Flag, Number, Object, Text};

impl Constant {
    pub(crate) fn value(self) -> Value {
        match self {
            Text(text) => text.into(),
            Number(number) => number.into(),
            Flag(flag) => flag.into(),
            Object => Value::Object(Map::new()),
        }
    }
}

pub(super) type Fields = &'static [(&'static str, Constant)];

const CONTAINER: Fields =
    &[("terminationMessagePath", Text("/dev/termination-log")), ("terminationMessagePolicy", Text("File"))];

const WEBHOOK: Fields = &[
    ("failurePolicy", Text("Fail")),
    ("matchPolicy", Text("Equivalent")),
    ("namespaceSelector", Object),
    ("objectSelector", Object),
    ("timeoutSeconds", Number(10)),
];

const MODE: Fields = &[("defaultMode", Number(0o644))];
const TCP: Fields = &[("protocol", Text("TCP"))];
const HTTPS: Fields = &[("port", Number(443))];
const FAIL: Fields = &[("failurePolicy", Text("Fail"))];
const SCOPE: Fields = &[("scope", Text("*"))];

const TABLE: &[(&str, Fields)] = &[
    (
        "io.k8s.api.core.v1.PodSpec",
        &[
            ("dnsPolicy", Text("ClusterFirst")),
            ("restartPolicy", Text("Always")),
            ("securityContext", Object),
            ("terminationGracePeriodSeconds", Number(30)),
            ("schedulerName", Text("default-scheduler")),
        ],
    ),
    ("io.k8s.api.core.v1.Container", CONTAINER),
    ("io.k8s.api.core.v1.EphemeralContainer", CONTAINER),
    ("io.k8s.api.core.v1.ContainerPort", TCP),
    (
        "io.k8s.api.core.v1.Probe",
        &[
            ("timeoutSeconds", Number(1)),
            ("periodSeconds", Number(10)),
            ("successThreshold", Number(1)),
            ("failureThreshold", Number(3)),
        ],
    ),
    ("io.k8s.api.core.v1.GRPCAction", &[("service", Text(""))]),
    ("io.k8s.api.core.v1.HTTPGetAction", &[("path", Text("/")), ("scheme", Text("HTTP"))]),
    ("io.k8s.api.core.v1.SecretVolumeSource", MODE),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", MODE),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", MODE),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", MODE),
    ("io.k8s.api.core.v1.HostPathVolumeSource", &[("type", Text(""))]),
    ("io.k8s.api.core.v1.ServiceAccountTokenProjection", &[("expirationSeconds", Number(3600))]),
    ("io.k8s.api.core.v1.ObjectFieldSelector", &[("apiVersion", Text("v1"))]),
    ("io.k8s.api.core.v1.Secret", &[("type", Text("Opaque"))]),
    ("io.k8s.api.core.v1.ServiceSpec", &[("sessionAffinity", Text("None")), ("type", Text("ClusterIP"))]),
    ("io.k8s.api.core.v1.ServicePort", TCP),
    ("io.k8s.api.core.v1.EndpointPort", TCP),
    ("io.k8s.api.core.v1.NamespaceStatus", &[("phase", Text("Active"))]),
    (
        "io.k8s.api.core.v1.PersistentVolumeSpec",
        &[("persistentVolumeReclaimPolicy", Text("Retain")), ("volumeMode", Text("Filesystem"))],
    ),
    ("io.k8s.api.core.v1.PersistentVolumeStatus", &[("phase", Text("Pending"))]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &[("volumeMode", Text("Filesystem"))]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", &[("phase", Text("Pending"))]),
    ("io.k8s.api.core.v1.ReplicationControllerSpec", &[("replicas", Number(1))]),
    (
        "io.k8s.api.apps.v1.DeploymentSpec",
        &[
            ("replicas", Number(1)),
            ("revisionHistoryLimit", Number(10)),
            ("progressDeadlineSeconds", Number(600)),
        ],
    ),
    ("io.k8s.api.apps.v1.DeploymentStrategy", &[("type", Text("RollingUpdate"))]),
    ("io.k8s.api.apps.v1.DaemonSetSpec", &[("revisionHistoryLimit", Number(10))]),
    ("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", &[("type", Text("RollingUpdate"))]),
    (
        "io.k8s.api.apps.v1.StatefulSetSpec",
        &[
            ("podManagementPolicy", Text("OrderedReady")),
            ("persistentVolumeClaimRetentionPolicy", Object),
            ("replicas", Number(1)),
            ("revisionHistoryLimit", Number(10)),
        ],
    ),
    (
        "io.k8s.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[("whenDeleted", Text("Retain")), ("whenScaled", Text("Retain"))],
    ),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", &[("replicas", Number(1))]),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", &[("status", Text("True"))]),
    (
        "io.k8s.api.batch.v1.CronJobSpec",
        &[
            ("concurrencyPolicy", Text("Allow")),
            ("suspend", Flag(false)),
            ("successfulJobsHistoryLimit", Number(3)),
            ("failedJobsHistoryLimit", Number(1)),
        ],
    ),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec", &[("minReplicas", Number(1))]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", &[("minReplicas", Number(1))]),
    ("io.k8s.api.scheduling.v1.PriorityClass", &[("preemptionPolicy", Text("PreemptLowerPriority"))]),
    (
        "io.k8s.api.storage.v1.StorageClass",
        &[("reclaimPolicy", Text("Delete")), ("volumeBindingMode", Text("Immediate"))],
    ),
    ("io.k8s.api.discovery.v1.EndpointPort", &[("name", Text("")), ("protocol", Text("TCP"))]),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", TCP),
    ("io.k8s.api.networking.v1.IngressClassParametersReference", &[("scope", Text("Cluster"))]),
    ("io.k8s.api.rbac.v1.RoleRef", &[("apiGroup", Text("rbac.authorization.k8s.io"))]),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", WEBHOOK),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", WEBHOOK),
    ("io.k8s.api.admissionregistration.v1.RuleWithOperations", SCOPE),
    ("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", SCOPE),
    ("io.k8s.api.admissionregistration.v1.ServiceReference", HTTPS),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec", FAIL),
    ("io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec", FAIL),
    (
        "io.k8s.api.admissionregistration.v1.MatchResources",
        &[("matchPolicy", Text("Equivalent")), ("namespaceSelector", Object), ("objectSelector", Object)],
    ),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", HTTPS),
];

static BY_DEFINITION: LazyLock<HashMap<&'static str, Fields, FixedState>> =
    LazyLock::new(|| TABLE.iter().copied().collect());

pub(super) fn constants(definition: &str) -> Fields {
    BY_DEFINITION.get(definition).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_for_a_field_that_exists() {
        for (definition, fields) in TABLE {
            let schema = crate::schema::builtin().named(definition).unwrap_or_else(|| panic!("{definition}"));
            for (field, _) in *fields {
                assert!(schema.node().properties.contains_key(*field), "{definition}.{field}");
            }
        }
    }
}
