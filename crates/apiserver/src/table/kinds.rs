//! The columns of every built-in kind.

use super::{Cells, Column, Layout, autoscaling, objects, pods, workloads};

const fn text(name: &'static str) -> Column {
    Column { name, ty: "string", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, ty: "string", priority: 1 }
}

const fn number(name: &'static str) -> Column {
    Column { name, ty: "integer", priority: 0 }
}

const fn boolean(name: &'static str) -> Column {
    Column { name, ty: "boolean", priority: 0 }
}

const DEFAULT: &[Column] = &[text("Name"), Column { name: "Created At", ty: "date", priority: 0 }];
const NAME_AND_AGE: &[Column] = &[text("Name"), text("Age")];
const PODS: &[Column] = &[
    text("Name"),
    text("Ready"),
    text("Status"),
    text("Restarts"),
    text("Age"),
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];
const NODES: &[Column] = &[
    text("Name"),
    text("Status"),
    text("Roles"),
    text("Age"),
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];
const DEPLOYMENTS: &[Column] = &[
    text("Name"),
    text("Ready"),
    text("Up-to-date"),
    text("Available"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const REPLICA_SETS: &[Column] = &[
    text("Name"),
    number("Desired"),
    number("Current"),
    number("Ready"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const STATEFUL_SETS: &[Column] =
    &[text("Name"), text("Ready"), text("Age"), wide("Containers"), wide("Images")];
const DAEMON_SETS: &[Column] = &[
    text("Name"),
    number("Desired"),
    number("Current"),
    number("Ready"),
    number("Up-to-date"),
    number("Available"),
    text("Node Selector"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const JOBS: &[Column] = &[
    text("Name"),
    text("Status"),
    text("Completions"),
    text("Duration"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const CRON_JOBS: &[Column] = &[
    text("Name"),
    text("Schedule"),
    text("Timezone"),
    boolean("Suspend"),
    number("Active"),
    text("Last Schedule"),
    text("Age"),
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];
const CONTROLLER_REVISIONS: &[Column] = &[text("Name"), text("Controller"), text("Revision"), text("Age")];
const SERVICES: &[Column] = &[
    text("Name"),
    text("Type"),
    text("Cluster-IP"),
    text("External-IP"),
    text("Port(s)"),
    text("Age"),
    wide("Selector"),
];
const INGRESSES: &[Column] =
    &[text("Name"), text("Class"), text("Hosts"), text("Address"), text("Ports"), text("Age")];
const ENDPOINT_SLICES: &[Column] =
    &[text("Name"), text("AddressType"), text("Ports"), text("Endpoints"), text("Age")];
const NAMESPACES: &[Column] = &[text("Name"), text("Status"), text("Age")];
const CONFIG_MAPS: &[Column] = &[text("Name"), text("Data"), text("Age")];
const SECRETS: &[Column] = &[text("Name"), text("Type"), text("Data"), text("Age")];
const EVENTS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    wide("Name"),
];
const PERSISTENT_VOLUME_CLAIMS: &[Column] = &[
    text("Name"),
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Age"),
    wide("VolumeMode"),
];
const PERSISTENT_VOLUMES: &[Column] = &[
    text("Name"),
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    text("Age"),
    wide("VolumeMode"),
];
const POD_DISRUPTION_BUDGETS: &[Column] = &[
    text("Name"),
    text("Min Available"),
    text("Max Unavailable"),
    number("Allowed Disruptions"),
    text("Age"),
];
const HORIZONTAL_POD_AUTOSCALERS: &[Column] = &[
    text("Name"),
    text("Reference"),
    text("Targets"),
    text("MinPods"),
    text("MaxPods"),
    text("Replicas"),
    text("Age"),
];
const LEASES: &[Column] = &[text("Name"), text("Holder"), text("Age")];
const ENDPOINTS: &[Column] = &[text("Name"), text("Endpoints"), text("Age")];
const POD_TEMPLATES: &[Column] = &[text("Name"), text("Containers"), text("Images"), text("Pod Labels")];
const STORAGE_CLASSES: &[Column] = &[
    text("Name"),
    text("Provisioner"),
    text("ReclaimPolicy"),
    text("VolumeBindingMode"),
    text("AllowVolumeExpansion"),
    text("Age"),
];
const PRIORITY_CLASSES: &[Column] =
    &[text("Name"), number("Value"), boolean("Global-Default"), text("Age"), text("PreemptionPolicy")];
const ROLE_BINDINGS: &[Column] =
    &[text("Name"), text("Role"), text("Age"), wide("Users"), wide("Groups"), wide("ServiceAccounts")];
const WEBHOOK_CONFIGURATIONS: &[Column] = &[text("Name"), number("Webhooks"), text("Age")];
const VALIDATING_POLICIES: &[Column] = &[text("Name"), number("Validations"), text("ParamKind"), text("Age")];
const MUTATING_POLICIES: &[Column] = &[text("Name"), number("Mutations"), text("ParamKind"), text("Age")];
const POLICY_BINDINGS: &[Column] = &[text("Name"), text("PolicyName"), text("ParamRef"), text("Age")];
const CUSTOM_RESOURCE_DEFINITIONS: &[Column] = &[
    text("Name"),
    text("Scope"),
    text("Versions"),
    Column { name: "Created At", ty: "date", priority: 0 },
    wide("Group"),
    wide("Kind"),
    wide("ShortNames"),
    Column { name: "Established", ty: "boolean", priority: 1 },
];
const NETWORK_POLICIES: &[Column] = &[text("Name"), text("Pod-Selector"), text("Age")];
const RESOURCE_QUOTAS: &[Column] = &[text("Name"), text("Request"), text("Limit"), text("Age")];

pub(super) fn layout(group: &str, resource: &str) -> Layout {
    let (columns, cells): (&'static [Column], Cells) = match (group, resource) {
        ("", "pods") => (PODS, pods::pod),
        ("", "nodes") => (NODES, objects::node),
        ("", "services") => (SERVICES, objects::service),
        ("", "namespaces") => (NAMESPACES, objects::namespace),
        ("", "configmaps") => (CONFIG_MAPS, objects::config_map),
        ("", "secrets") => (SECRETS, objects::secret),
        ("", "serviceaccounts") => (NAME_AND_AGE, objects::name_and_age),
        ("", "replicationcontrollers") => (REPLICA_SETS, workloads::replica_set),
        ("", "persistentvolumeclaims") => (PERSISTENT_VOLUME_CLAIMS, objects::persistent_volume_claim),
        ("", "persistentvolumes") => (PERSISTENT_VOLUMES, objects::persistent_volume),
        ("", "resourcequotas") => (RESOURCE_QUOTAS, objects::resource_quota),
        ("", "endpoints") => (ENDPOINTS, objects::endpoints),
        ("", "podtemplates") => (POD_TEMPLATES, objects::pod_template),
        ("storage.k8s.io", "storageclasses") => (STORAGE_CLASSES, objects::storage_class),
        ("" | "events.k8s.io", "events") => (EVENTS, objects::event),
        ("apps", "deployments") => (DEPLOYMENTS, workloads::deployment),
        ("apps", "replicasets") => (REPLICA_SETS, workloads::replica_set),
        ("apps", "statefulsets") => (STATEFUL_SETS, workloads::stateful_set),
        ("apps", "daemonsets") => (DAEMON_SETS, workloads::daemon_set),
        ("apps", "controllerrevisions") => (CONTROLLER_REVISIONS, workloads::controller_revision),
        ("batch", "jobs") => (JOBS, workloads::job),
        ("batch", "cronjobs") => (CRON_JOBS, workloads::cron_job),
        ("policy", "poddisruptionbudgets") => (POD_DISRUPTION_BUDGETS, objects::pod_disruption_budget),
        ("autoscaling", "horizontalpodautoscalers") => {
            (HORIZONTAL_POD_AUTOSCALERS, autoscaling::horizontal_pod_autoscaler)
        }
        ("coordination.k8s.io", "leases") => (LEASES, objects::lease),
        ("discovery.k8s.io", "endpointslices") => (ENDPOINT_SLICES, objects::endpoint_slice),
        ("scheduling.k8s.io", "priorityclasses") => (PRIORITY_CLASSES, objects::priority_class),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            (ROLE_BINDINGS, objects::role_binding)
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => (WEBHOOK_CONFIGURATIONS, objects::webhook_configuration),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            (VALIDATING_POLICIES, objects::validating_policy)
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            (MUTATING_POLICIES, objects::mutating_policy)
        }
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
        ) => (POLICY_BINDINGS, objects::policy_binding),
        ("networking.k8s.io", "ingresses") => (INGRESSES, objects::ingress),
        ("networking.k8s.io", "networkpolicies") => (NETWORK_POLICIES, objects::network_policy),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            (CUSTOM_RESOURCE_DEFINITIONS, objects::custom_resource_definition)
        }
        _ => (DEFAULT, objects::name_and_creation),
    };
    Layout { columns, cells }
}
