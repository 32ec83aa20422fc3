//! What is registered with the API server: `deploy/webhooks.yaml` is generated from here.
//!
//! No outage of the webhook may stop a cluster, so each one is kept as narrow as it can be:
//! - **Eviction requests**: `Fail`. Without the webhook a request would have no interceptors and its sender's rights would not
//!   be checked. Nothing but eviction requests waits for it to come back; pods, nodes and everything else go on.
//! - **Status of eviction requests**: `Ignore`. Interceptors report their progress there, and would lose their turns to an outage
//!   of ours. Turns, progress and counters are guarded by the rules of the definition, and a ValidatingAdmissionPolicy asks for
//!   the caller's rights; both hold without the webhook, which says it in better words and refuses times in the future.
//! - **Node maintenances**: `Fail`, for the same reason; asked only about what can change what becomes of nodes: the spec, our
//!   finalizer, owners and the status. The manager's own writes are not asked about, so that it can go on whatever happens.
//! - **Nodes**: `Ignore`, and asked only if somebody cordons or uncordons one that a maintenance holds, to warn. It never refuses.
//! - **Pods**: `Ignore`, and asked only if interceptor annotations are added, changed or removed while others stay. Pods without
//!   any, updates that leave them alone, and the subresources status, binding and eviction never come here. An annotation that
//!   gets in during an outage does no harm: when an eviction is requested, annotations that break the rules do not count.
//!   Namespaces that the webhook itself depends on are left out altogether.
//! - **Plain evictions** (the gateway): `Ignore`, and not asked about where it is off, in the manager's own namespace, and for the
//!   manager's own evictions. During an outage evictions are as without Usher.
//! - **New pods of DaemonSets and StatefulSets**: `Ignore`, and asked only where no MutatingAdmissionPolicy of the API server has
//!   written their interceptor on them. A DaemonSet pod that comes to a node under maintenance during an outage is asked to leave again.

use serde_json::{Value, json};
use usher_api::names::{
    DECIDING_ANNOTATIONS, EVICTION_REQUEST_GROUP, GATEWAY_MODE_LABEL, INTERCEPTOR_ANNOTATION_PREFIX,
    MAINTENANCE_COMPLETION_FINALIZER, NODE_HELD_BY_ANNOTATION, NODE_MAINTENANCE_GROUP, VERSION,
};

use usher_api::annotation_of;
use usher_api::gateway::GatewayMode;
use usher_api::workloads::BundledInterceptor;

use crate::admission::Endpoint;

/// The name of both configurations.
pub const NAME: &str = "usher";
pub use usher_api::names::MANAGER_NAMESPACE as NAMESPACE;
/// The Service that leads to the webhook.
pub const SERVICE: &str = "usher-webhook";
/// The service account of the manager.
pub const SERVICE_ACCOUNT: &str = "usher-manager";
/// The Secret in which replicas share their certificates.
pub const SECRET: &str = "usher-webhook-certificates";

/// Where API servers find the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Behind [`SERVICE`] in this namespace. The keeper fills in whom to trust.
    Service {
        /// The namespace.
        namespace: String,
    },
    /// At a URL, for a server outside of the cluster.
    Url {
        /// Without a path.
        base: String,
        /// PEM in base64, or nothing if it is filled in later.
        ca_bundle: Option<String>,
    },
}

impl Target {
    fn client_config(&self, endpoint: Endpoint) -> Value {
        let path = endpoint.path();
        match self {
            // The keeper fills in its path, which ends with a key.
            Self::Service { namespace } if endpoint == Endpoint::Gateway => {
                json!({"service": {"namespace": namespace, "name": SERVICE, "port": 443}})
            }
            Self::Service { namespace } => {
                json!({"service": {"namespace": namespace, "name": SERVICE, "port": 443, "path": path}})
            }
            Self::Url { base, ca_bundle: None } => json!({"url": format!("{base}{path}")}),
            Self::Url { base, ca_bundle: Some(bundle) } => {
                json!({"url": format!("{base}{path}"), "caBundle": bundle})
            }
        }
    }

    /// The DNS names under which API servers call a Service.
    pub fn service_names(namespace: &str) -> Vec<String> {
        vec![format!("{SERVICE}.{namespace}.svc"), format!("{SERVICE}.{namespace}.svc.cluster.local")]
    }
}

/// As whom the manager in this namespace writes.
pub fn manager_user(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")
}

/// The MutatingWebhookConfiguration: fills in what a new request takes from its pod, and what every drain plan contains.
pub fn mutating(target: &Target) -> Value {
    let requests = request_rule(&["evictionrequests"], &["CREATE"]);
    let requests =
        hook(("fill", EVICTION_REQUEST_GROUP), Endpoint::FillRequests, target, &requests, "Fail", 5);
    let maintenances = maintenance_rule(&["nodemaintenances"], &["CREATE", "UPDATE"]);
    let mut maintenances =
        hook(("fill", NODE_MAINTENANCE_GROUP), Endpoint::FillMaintenances, target, &maintenances, "Fail", 5);
    maintenances["matchConditions"] = json!([{"name": "plan-changed", "expression": plan_changed()}]);
    let pods = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
        "scope": "Namespaced",
    });
    let mut pods =
        hook(("fill-pods", EVICTION_REQUEST_GROUP), Endpoint::FillPods, target, &pods, "Ignore", 1);
    pods["matchConditions"] = json!([{"name": "not-filled-by-a-policy", "expression": not_filled()}]);
    let mut hooks = [requests, maintenances, pods];
    for hook in &mut hooks {
        // What others change afterwards is set right again, rather than refused.
        hook["reinvocationPolicy"] = "IfNeeded".into();
    }
    configuration("Mutating", &hooks)
}

/// What the webhook for plain evictions is called.
pub fn gateway_name() -> String {
    format!("gateway.{EVICTION_REQUEST_GROUP}")
}

/// Where it is served; a key follows.
pub fn gateway_path() -> &'static str {
    Endpoint::Gateway.path()
}

/// The webhook for plain evictions. Which pod is meant stands in its name only: whether that has interceptors, no condition can know. What
/// one can know is who asks, and in which namespaces the gateway is on.
fn gateway(target: &Target, namespace: &str, mode: GatewayMode) -> Value {
    let evictions = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"],
        "scope": "Namespaced",
    });
    let mut gateway =
        hook(("gateway", EVICTION_REQUEST_GROUP), Endpoint::Gateway, target, &evictions, "Ignore", 5);
    gateway["sideEffects"] = "NoneOnDryRun".into();
    let not_the_manager = format!("request.userInfo.username != '{}'", manager_user(namespace));
    gateway["matchConditions"] = json!([{"name": "not-the-manager", "expression": not_the_manager}]);
    let on = if mode == GatewayMode::Off {
        let modes = [GatewayMode::Block.as_str(), GatewayMode::Request.as_str()];
        json!({"key": GATEWAY_MODE_LABEL, "operator": "In", "values": modes})
    } else {
        json!({"key": GATEWAY_MODE_LABEL, "operator": "NotIn", "values": [GatewayMode::Off.as_str()]})
    };
    gateway["namespaceSelector"] = json!({"matchExpressions": [
        on, {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
    ]});
    gateway
}

/// The ValidatingWebhookConfiguration: checks requests, maintenances, and pods that name interceptors, and asks for pods that are evicted
/// plainly. `namespace` is the manager's own, `mode` that of the gateway in namespaces that do not say otherwise.
pub fn validating(target: &Target, namespace: &str, mode: GatewayMode) -> Value {
    let requests = request_rule(&["evictionrequests"], &["CREATE", "UPDATE", "DELETE"]);
    let statuses = request_rule(&["evictionrequests/status"], &["UPDATE"]);
    let pods = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE", "UPDATE"],
        "scope": "Namespaced",
    });
    let mut pods = hook(("pods", EVICTION_REQUEST_GROUP), Endpoint::CheckPods, target, &pods, "Ignore", 3);
    pods["matchConditions"] = json!([
        {"name": "names-interceptors", "expression": names_interceptors()},
        {"name": "interceptors-changed", "expression": interceptors_changed()},
    ]);
    pods["namespaceSelector"] = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", namespace]},
    ]});
    let requests =
        hook(("check", EVICTION_REQUEST_GROUP), Endpoint::CheckRequests, target, &requests, "Fail", 5);
    let statuses =
        hook(("status", EVICTION_REQUEST_GROUP), Endpoint::CheckRequests, target, &statuses, "Ignore", 3);
    let maintenances =
        maintenance_rule(&["nodemaintenances", "nodemaintenances/status"], &["CREATE", "UPDATE", "DELETE"]);
    let mut maintenances = hook(
        ("check", NODE_MAINTENANCE_GROUP),
        Endpoint::CheckMaintenances,
        target,
        &maintenances,
        "Fail",
        // Nodes that are selected by name may have to be asked for one by one.
        10,
    );
    let not_the_manager = format!("request.userInfo.username != '{}'", manager_user(namespace));
    maintenances["matchConditions"] = json!([
        {"name": "not-the-manager", "expression": not_the_manager},
        {"name": "decides-on-nodes", "expression": decides_on_nodes()},
    ]);
    let nodes = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"],
        "scope": "Cluster",
    });
    let mut nodes =
        hook(("nodes", NODE_MAINTENANCE_GROUP), Endpoint::WarnOfNodes, target, &nodes, "Ignore", 1);
    nodes["matchConditions"] = json!([
        {"name": "cordon-changed", "expression": cordon_changed()},
        {"name": "stays-held", "expression": stays_held()},
        {"name": "not-the-manager", "expression": not_the_manager},
    ]);
    let gateway = gateway(target, namespace, mode);
    let mut configuration =
        configuration("Validating", &[requests, statuses, pods, maintenances, nodes, gateway]);
    // For people and `usher gateway status`: the manager's flag says the same.
    configuration["metadata"]["labels"][GATEWAY_MODE_LABEL] = mode.as_str().into();
    configuration
}

/// True for pods of workloads with a bundled interceptor that is not written on them: where the API server has
/// MutatingAdmissionPolicies, these have done it before.
fn not_filled() -> String {
    let of = |it: &BundledInterceptor| {
        let (key, _) = annotation_of(&it.controller());
        format!(
            "(object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == '{}' && \
             o.apiVersion.startsWith('apps/')) && !(has(object.metadata.annotations) && '{key}' in object.metadata.annotations))",
            it.controller_kind()
        )
    };
    let any: Vec<String> = BundledInterceptor::ALL.iter().map(of).collect();
    format!("has(object.metadata.ownerReferences) && ({})", any.join(" || "))
}

/// True for a new maintenance, and for one that the schema refuses afterwards.
fn plan_changed() -> String {
    let plan = |of: &str| format!("(has({of}.spec.drainPlan) ? {of}.spec.drainPlan : [])");
    format!(
        "oldObject == null || !has(object.spec) || !has(oldObject.spec) || {} != {}",
        plan("object"),
        plan("oldObject")
    )
}

/// What an update of a maintenance can change nodes by; see `node_rights::has_effect`.
fn decides_on_nodes() -> String {
    let holds = |of: &str| {
        format!(
            "(has({of}.metadata.finalizers) && '{MAINTENANCE_COMPLETION_FINALIZER}' in {of}.metadata.finalizers)"
        )
    };
    let owners =
        |of: &str| format!("(has({of}.metadata.ownerReferences) ? {of}.metadata.ownerReferences : [])");
    let says = |of: &str, name: &str| {
        format!(
            "(has({of}.metadata.annotations) && '{name}' in {of}.metadata.annotations ? {of}.metadata.annotations['{name}'] : '')"
        )
    };
    let annotations = DECIDING_ANNOTATIONS
        .map(|name| format!("{} != {}", says("object", name), says("oldObject", name)))
        .join(" || ");
    format!(
        "object == null || oldObject == null || has(request.subResource) || object.spec != oldObject.spec || {annotations} || {} != {} || {} != {}",
        holds("object"),
        holds("oldObject"),
        owners("object"),
        owners("oldObject")
    )
}

fn cordon_changed() -> String {
    let is =
        |of: &str| format!("(has({of}.spec) && has({of}.spec.unschedulable) && {of}.spec.unschedulable)");
    format!("{} != {}", is("object"), is("oldObject"))
}

/// The first cordon and the last uncordon of a maintenance come with the mark and take it away.
fn stays_held() -> String {
    let is = |of: &str| {
        format!("has({of}.metadata.annotations) && '{NODE_HELD_BY_ANNOTATION}' in {of}.metadata.annotations")
    };
    format!("{} && {}", is("object"), is("oldObject"))
}

fn names_interceptors() -> String {
    format!(
        "has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('{INTERCEPTOR_ANNOTATION_PREFIX}'))"
    )
}

/// True for a new pod. An error cannot occur: everything optional is asked for first.
fn interceptors_changed() -> String {
    let ours = format!("k.startsWith('{INTERCEPTOR_ANNOTATION_PREFIX}')");
    format!(
        "oldObject == null || !has(object.metadata.annotations) || !has(oldObject.metadata.annotations) || \
         object.metadata.annotations.exists(k, {ours} && (!(k in oldObject.metadata.annotations) || \
         oldObject.metadata.annotations[k] != object.metadata.annotations[k])) || \
         oldObject.metadata.annotations.exists(k, {ours} && !(k in object.metadata.annotations))"
    )
}

fn request_rule(resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [EVICTION_REQUEST_GROUP], "apiVersions": [VERSION], "resources": resources,
        "operations": operations, "scope": "Namespaced",
    })
}

fn maintenance_rule(resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [NODE_MAINTENANCE_GROUP], "apiVersions": [VERSION], "resources": resources,
        "operations": operations, "scope": "Cluster",
    })
}

fn hook(
    (name, group): (&str, &str),
    endpoint: Endpoint,
    target: &Target,
    rule: &Value,
    failure_policy: &str,
    timeout: u8,
) -> Value {
    json!({
        "name": format!("{name}.{group}"),
        "clientConfig": target.client_config(endpoint),
        "rules": [rule],
        "failurePolicy": failure_policy,
        "sideEffects": "None",
        "timeoutSeconds": timeout,
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
    })
}

fn configuration(kind: &str, hooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "usher"}},
        "webhooks": hooks,
    })
}
