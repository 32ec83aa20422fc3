//! The built-in kinds.

use serde_json::{Value, json};

use super::{ALL_VERBS, Generation, Kind, KindSchema, READ_WRITE, Subresource, Verbs, WRITE_ONLY};
use crate::schema;

const NO_COLLECTION_DELETE: Verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// Starts a row; everything rare is set by the methods below.
fn row(api_version: &str, kind: &str, plural: &str, short_names: &[&str]) -> Kind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: short_names.iter().map(ToString::to_string).collect(),
        categories: Vec::new(),
        namespaced: true,
        verbs: ALL_VERBS,
        subresources: Vec::new(),
        storage: if group.is_empty() { plural.into() } else { format!("{group}/{plural}").into() },
        storage_api_version: api_version.into(),
        has_status: false,
        initial_status: Value::Null,
        generation: Generation::None,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        orphans_by_default: false,
        warning: String::new(),
        selectable: Vec::new(),
        schema: schema::builtin_kind(group, version, kind).map_or(KindSchema::Open, KindSchema::Builtin),
    }
}

impl Kind {
    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }
    fn in_all(self) -> Self {
        self.category("all")
    }
    fn category(mut self, category: &str) -> Self {
        self.categories.push(category.into());
        self
    }
    /// A status of its own; new objects start with `initial`.
    fn status(mut self, initial: Value) -> Self {
        self.has_status = true;
        self.initial_status = initial;
        let kind = self.kind.clone();
        self.subresources.push(Subresource {
            name: "status",
            group: "",
            version: "",
            kind,
            verbs: READ_WRITE,
        });
        self
    }
    fn scale(self) -> Self {
        self.sub("scale", "autoscaling", "v1", "Scale", READ_WRITE)
    }
    fn sub(
        mut self,
        name: &'static str,
        group: &'static str,
        version: &'static str,
        kind: &str,
        verbs: Verbs,
    ) -> Self {
        self.subresources.push(Subresource { name, group, version, kind: kind.into(), verbs });
        self
    }
    fn generation(mut self) -> Self {
        self.generation = Generation::Spec;
        self
    }
    fn generation_as(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }
    fn verbs(mut self, verbs: Verbs) -> Self {
        self.verbs = verbs;
        self
    }
    fn conditional_update(mut self) -> Self {
        self.unconditional_update = false;
        self
    }
    fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }
    fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }
    fn orphans_by_default(mut self) -> Self {
        self.orphans_by_default = true;
        self
    }
    fn warns(mut self, warning: &'static str) -> Self {
        self.warning = warning.into();
        self
    }
    fn select(mut self, fields: &[&str]) -> Self {
        self.selectable =
            fields.iter().map(|f| (f.to_string(), format!("/{}", f.replace('.', "/")))).collect();
        self
    }
    fn stored_as(mut self, storage: &str, api_version: &str) -> Self {
        self.storage = storage.into();
        self.storage_api_version = api_version.into();
        self
    }
}

fn event_fields(object: &str, source: &str) -> Vec<String> {
    let mut fields: Vec<String> =
        ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"]
            .iter()
            .map(|f| format!("{object}.{f}"))
            .collect();
    fields.extend(["reason", "type", source].map(String::from));
    fields
}

/// Core events and events.k8s.io events are one store; selectors name the fields of their own version.
fn events() -> [Kind; 2] {
    let stored = event_fields("involvedObject", "reportingComponent");
    let pointers: Vec<String> = stored.iter().map(|f| format!("/{}", f.replace('.', "/"))).collect();
    let with = |mut kind: Kind, names: Vec<String>| {
        kind.selectable = names.into_iter().zip(pointers.clone()).collect();
        kind
    };
    let modern =
        row("events.k8s.io/v1", "Event", "events", &["ev"]).stored_as("events", "v1").create_on_update();
    [
        with(row("v1", "Event", "events", &["ev"]).create_on_update(), stored.clone()),
        with(modern, event_fields("regarding", "reportingController")),
    ]
}

fn reviews() -> Vec<Kind> {
    [
        ("authentication.k8s.io/v1", "TokenReview", "tokenreviews", false),
        ("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", false),
        ("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", false),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
        ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
    ]
    .into_iter()
    .map(|(api_version, kind, plural, namespaced)| {
        let mut kind = row(api_version, kind, plural, &[]).verbs(WRITE_ONLY);
        kind.namespaced = namespaced;
        kind
    })
    .collect()
}

fn policy(kind: &str, plural: &str) -> Kind {
    row("admissionregistration.k8s.io/v1", kind, plural, &[])
        .cluster_scoped()
        .category("api-extensions")
        .generation()
        .conditional_update()
}

pub(crate) fn kinds() -> Vec<Kind> {
    let pdb_status =
        json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    let daemon_status = json!({
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    });
    let mut kinds = vec![
        row("v1", "Pod", "pods", &["po"])
            .in_all()
            .status(Value::Null)
            .generation()
            .returns_deleted()
            .sub("eviction", "policy", "v1", "Eviction", WRITE_ONLY)
            .sub("binding", "", "v1", "Binding", WRITE_ONLY)
            .select(&[
                "spec.nodeName",
                "status.phase",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.podIP",
                "status.nominatedNodeName",
            ]),
        row("v1", "Node", "nodes", &["no"])
            .cluster_scoped()
            .status(Value::Null)
            .select(&["spec.unschedulable"]),
        row("v1", "Namespace", "namespaces", &["ns"])
            .cluster_scoped()
            .verbs(NO_COLLECTION_DELETE)
            .status(Value::Null)
            .sub("finalize", "", "v1", "Namespace", &["update"])
            .select(&["status.phase"]),
        row("v1", "Service", "services", &["svc"])
            .in_all()
            .status(json!({"loadBalancer": {}}))
            .create_on_update()
            .returns_deleted()
            .select(&["spec.clusterIP", "spec.type"]),
        row("v1", "ServiceAccount", "serviceaccounts", &["sa"]).returns_deleted().sub(
            "token",
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
            WRITE_ONLY,
        ),
        row("v1", "ConfigMap", "configmaps", &["cm"]),
        row("v1", "Secret", "secrets", &[]).select(&["type"]),
        row("v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"])
            .status(Value::Null)
            .returns_deleted(),
        row("v1", "PersistentVolume", "persistentvolumes", &["pv"])
            .cluster_scoped()
            .status(Value::Null)
            .returns_deleted(),
        row("v1", "ReplicationController", "replicationcontrollers", &["rc"])
            .in_all()
            .status(json!({"replicas": 0}))
            .generation()
            .scale()
            .orphans_by_default()
            .select(&["status.replicas"]),
        row("v1", "Endpoints", "endpoints", &["ep"])
            .create_on_update()
            .warns("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        row("v1", "ResourceQuota", "resourcequotas", &["quota"])
            .status(json!({}))
            .create_on_update()
            .returns_deleted(),
        row("v1", "LimitRange", "limitranges", &["limits"]).create_on_update(),
        row("v1", "PodTemplate", "podtemplates", &[]).generation().create_on_update().returns_deleted(),
        row("v1", "Binding", "bindings", &[]).verbs(WRITE_ONLY),
        row("apps/v1", "Deployment", "deployments", &["deploy"])
            .in_all()
            .status(json!({}))
            .generation_as(Generation::SpecAndAnnotations)
            .scale(),
        row("apps/v1", "ReplicaSet", "replicasets", &["rs"])
            .in_all()
            .status(json!({"replicas": 0}))
            .generation()
            .scale(),
        row("apps/v1", "StatefulSet", "statefulsets", &["sts"])
            .in_all()
            .status(json!({"replicas": 0, "availableReplicas": 0}))
            .generation()
            .scale(),
        row("apps/v1", "DaemonSet", "daemonsets", &["ds"]).in_all().status(daemon_status).generation(),
        row("apps/v1", "ControllerRevision", "controllerrevisions", &[]),
        row("batch/v1", "Job", "jobs", &[])
            .in_all()
            .status(json!({}))
            .generation()
            .orphans_by_default()
            .select(&["status.successful"]),
        row("batch/v1", "CronJob", "cronjobs", &["cj"]).in_all().status(json!({})).generation(),
        row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"])
            .status(pdb_status)
            .generation()
            .conditional_update(),
        row("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"])
            .in_all()
            .status(json!({"desiredReplicas": 0, "currentMetrics": null}))
            .generation(),
        row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", &["pc"])
            .cluster_scoped()
            .generation_as(Generation::Constant),
        row("coordination.k8s.io/v1", "Lease", "leases", &[]).conditional_update().create_on_update(),
        row("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", &[])
            .generation_as(Generation::SpecAndLabels)
            .create_on_update(),
        row("rbac.authorization.k8s.io/v1", "Role", "roles", &[]).create_on_update(),
        row("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", &[]).create_on_update(),
        row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", &[])
            .cluster_scoped()
            .create_on_update(),
        row("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", &[])
            .cluster_scoped()
            .create_on_update(),
        row(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            &[],
        )
        .cluster_scoped()
        .category("api-extensions")
        .generation()
        .conditional_update(),
        row(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            &[],
        )
        .cluster_scoped()
        .category("api-extensions")
        .generation()
        .conditional_update(),
        policy("ValidatingAdmissionPolicy", "validatingadmissionpolicies").status(json!({})),
        policy("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        policy("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        policy("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
        row("storage.k8s.io/v1", "StorageClass", "storageclasses", &["sc"])
            .cluster_scoped()
            .returns_deleted(),
        row(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            &["crd", "crds"],
        )
        .cluster_scoped()
        .category("api-extensions")
        .status(
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
        )
        .generation()
        .conditional_update(),
    ];
    kinds.extend(events());
    kinds.extend(reviews());
    kinds
}
