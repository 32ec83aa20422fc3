//! From a review to its answer: gather what the verdict needs, have it made, and say it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use usher_api::EvictionRequest;
use usher_api::names::{MANAGER_NAMESPACE, NODE_HELD_BY_ANNOTATION, NODE_WAS_UNSCHEDULABLE_ANNOTATION};
use usher_api::workloads::BundledInterceptor;
use usher_decide::admission::workload_pods::{self, NewPod};
use usher_decide::admission::{
    Access, FoundPod, Verdict, eviction_request, node_cordon, pods as pod_verdicts,
};
use usher_decide::snapshot::PodOnWire;

use crate::Clock;
use crate::gateway::{Gateway, GatewayOptions};
use crate::gateway_key::GatewayKey;
use crate::held_nodes::HeldNodes;
use crate::objects::{Object, is_namespace, is_pod_name};
use crate::review::{self, Operation, Request, Review};
use crate::rights::Rights;
use crate::{maintenances, pods};
use usher_client::kind_of;

const GATE_OFF: &str =
    "the feature gate EvictionRequestAPI is off: nobody acts on this request until it is on again";

/// What is asked for, by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// Mutating, CREATE of eviction requests.
    FillRequests,
    /// Validating, every write of eviction requests.
    CheckRequests,
    /// Mutating, CREATE of pods of DaemonSets and StatefulSets.
    FillPods,
    /// Validating, CREATE and UPDATE of pods.
    CheckPods,
    /// Mutating, CREATE of node maintenances and UPDATE of their plans.
    FillMaintenances,
    /// Validating, writes of node maintenances.
    CheckMaintenances,
    /// Validating: plain evictions of pods, which become requests.
    Gateway,
    /// Validating, and never refusing: nodes that a maintenance holds are cordoned or uncordoned.
    WarnOfNodes,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::FillRequests,
        Self::CheckRequests,
        Self::FillPods,
        Self::CheckPods,
        Self::FillMaintenances,
        Self::CheckMaintenances,
        Self::Gateway,
        Self::WarnOfNodes,
    ];

    /// Where it is served.
    pub fn path(self) -> &'static str {
        match self {
            Self::FillRequests => "/admit/evictionrequests",
            Self::CheckRequests => "/validate/evictionrequests",
            Self::FillPods => "/admit/pods",
            Self::CheckPods => "/validate/pods",
            Self::FillMaintenances => "/admit/nodemaintenances",
            Self::CheckMaintenances => "/validate/nodemaintenances",
            Self::Gateway => "/gateway/evictions",
            Self::WarnOfNodes => "/validate/nodes",
        }
    }

    /// What is served at a path.
    pub fn at(path: &str) -> Option<Self> {
        let is_gateway = path.strip_prefix(Self::Gateway.path()).is_some_and(|rest| rest.starts_with('/'));
        if is_gateway {
            return Some(Self::Gateway);
        }
        Self::ALL.into_iter().find(|endpoint| endpoint.path() == path)
    }
}

/// What was sent is no AdmissionReview.
#[derive(Debug, thiserror::Error)]
#[error("no AdmissionReview of admission.k8s.io/v1: {0}")]
pub struct NoReview(#[from] serde_json::Error);

/// So many reviews are judged at a time; others wait, as long as their callers do.
const REVIEWS_MAX: usize = 32;

/// Admission for one cluster.
pub struct Admission {
    pub(crate) client: Client,
    pub(crate) rights: Rights,
    gateway: Gateway,
    gateway_key: Option<Arc<GatewayKey>>,
    held_nodes: HeldNodes,
    pub(crate) enabled: Arc<AtomicBool>,
    /// The bundled interceptors that are on.
    interceptors: Vec<BundledInterceptor>,
    pub(crate) clock: Clock,
    /// Each review costs the API server some calls: strangers cannot have it flooded.
    at_a_time: Semaphore,
}

impl Admission {
    /// The client needs to get pods, to list nodes and to create SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self {
            client: client.clone(),
            rights: Rights::new(client.clone()),
            gateway: Gateway::new(client.clone(), GatewayOptions::default()),
            gateway_key: None,
            held_nodes: HeldNodes::new(client, MANAGER_NAMESPACE),
            enabled: Arc::new(AtomicBool::new(true)),
            interceptors: BundledInterceptor::ALL.to_vec(),
            clock: Clock::system(),
            at_a_time: Semaphore::new(REVIEWS_MAX),
        }
    }

    /// Takes the time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The feature gate EvictionRequestAPI. While it is off pods are not checked. Requests are checked and filled all the same,
    /// with a warning: they are kept, and once the gate is on again they act, by then as safe as any other.
    #[must_use]
    pub fn with_gate(mut self, enabled: Arc<AtomicBool>) -> Self {
        self.enabled = enabled;
        self
    }

    /// The manager runs in this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.held_nodes = HeldNodes::new(self.client.clone(), namespace);
        self
    }

    /// What becomes of plain evictions.
    #[must_use]
    pub fn with_gateway(mut self, options: GatewayOptions) -> Self {
        self.gateway = Gateway::new(self.client.clone(), options);
        self
    }

    /// Reviews of plain evictions come with this key. Without one, whoever sends reviews is trusted.
    #[must_use]
    pub fn with_gateway_key(mut self, key: Arc<GatewayKey>) -> Self {
        self.gateway_key = Some(key);
        self
    }

    /// Whether a review at this path comes from an API server, as far as that is asked for.
    pub fn is_proven(&self, endpoint: Endpoint, path: &str) -> bool {
        endpoint != Endpoint::Gateway || self.gateway_key.as_ref().is_none_or(|key| key.is_known_to(path))
    }

    /// Only these bundled interceptors are on.
    #[must_use]
    pub fn with_interceptors(mut self, interceptors: Vec<BundledInterceptor>) -> Self {
        self.interceptors = interceptors;
        self
    }

    /// The AdmissionReview that answers the one in `body`.
    ///
    /// # Errors
    /// The body is no AdmissionReview. Everything else is an answer.
    pub fn answer<'a>(
        &'a self,
        endpoint: Endpoint,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<Value, NoReview>> {
        self.judge(endpoint, body).boxed()
    }

    async fn judge(&self, endpoint: Endpoint, body: &[u8]) -> Result<Value, NoReview> {
        let request = serde_json::from_slice::<Review<'_>>(body)?.request;
        if endpoint == Endpoint::Gateway {
            // It asks the API server to create requests, which come here in turn: it must not hold the places of these.
            return Ok(self.gateway.answer(self, request).await);
        }
        // It is never closed.
        let _one_of_few = self.at_a_time.acquire().await.ok();
        Ok(match endpoint {
            Endpoint::FillPods => review::answer(&request.uid, &self.fill_pod(&request).await),
            Endpoint::CheckPods => review::answer(&request.uid, &self.check_pod(&request)),
            Endpoint::FillRequests | Endpoint::CheckRequests => self.judge_request(endpoint, request).await,
            Endpoint::FillMaintenances | Endpoint::CheckMaintenances => {
                maintenances::judge(&self.client, &self.rights, endpoint, request).await
            }
            Endpoint::Gateway | Endpoint::WarnOfNodes => {
                let node = Object::new(request.object);
                let annotations = node.annotations();
                let held_by = annotations.get(NODE_HELD_BY_ANNOTATION).map_or("", String::as_str);
                let was_unschedulable =
                    annotations.get(NODE_WAS_UNSCHEDULABLE_ANNOTATION).is_some_and(|text| text == "true");
                let (name, unschedulable) = (node.name(), node.is_unschedulable());
                let verdict = node_cordon::on_update(&name, held_by, was_unschedulable, unschedulable);
                review::answer(&request.uid, &verdict)
            }
        })
    }

    /// No pod has to wait for us: what cannot be found out is left out.
    async fn fill_pod(&self, request: &Request<'_>) -> Verdict {
        let read = request.object.map(|object| serde_json::from_str::<PodOnWire>(object.get()));
        let (Some(Ok(pod)), Operation::Create) = (read, request.operation) else { return Verdict::allow() };
        let pod = NewPod::read(&pod);
        let held = if pod.may_be_held() {
            self.held_nodes.get(self.clock.now()).await.unwrap_or_else(|why| {
                tracing::warn!(
                    why = kind_of(&why),
                    "which nodes are held cannot be read; a pod goes to its node"
                );
                Arc::default()
            })
        } else {
            Arc::default()
        };
        workload_pods::on_create(&pod, &Object::new(request.object).annotations(), &self.interceptors, &held)
    }

    fn check_pod(&self, request: &Request<'_>) -> Verdict {
        let on = self.enabled.load(Ordering::Relaxed);
        let annotations = |object| Object::new(object).annotations();
        match request.operation {
            Operation::Create if on => pod_verdicts::on_create(&annotations(request.object)),
            Operation::Update if on => {
                pod_verdicts::on_update(&annotations(request.old_object), &annotations(request.object))
            }
            _ => Verdict::allow(),
        }
    }

    async fn judge_request(&self, endpoint: Endpoint, request: Request<'_>) -> Value {
        let Request { uid, operation, namespace, sub_resource, user_info, object, old_object, .. } = request;
        if !is_namespace(&namespace) {
            return review::malformed(&uid, "request.namespace is no name of a namespace");
        }
        let (object, old_object) = (Object::new(object), Object::new(old_object));
        let read = match operation {
            Operation::Connect => return review::answer(&uid, &Verdict::allow()),
            Operation::Create => object.request(&namespace, None).map(|new| (new, None)),
            Operation::Update => {
                match (old_object.request(&namespace, None), object.request(&namespace, Some(&old_object))) {
                    (Ok(old), new) => new.map(|new| (old, Some(new))),
                    // What is there cannot be read, and must not stay for ever: the schema judges what becomes of it.
                    (Err(_), _) => Ok((old_object.request_to_delete(&namespace), None)),
                }
            }
            Operation::Delete => Ok((old_object.request_to_delete(&namespace), None)),
        };
        let (subject, new) = match read {
            Ok(read) => read,
            // The schema is checked after the changes are made, and says it better.
            Err(_) if endpoint == Endpoint::FillRequests => {
                return review::answer(&uid, &Verdict::allow());
            }
            Err(why) => return review::unreadable::<EvictionRequest>(&uid, &why.to_string()),
        };

        let pod = &subject.spec.pod_ref.name;
        let access = match self.rights.may_delete_pod(&user_info, &namespace, pod).await {
            Ok(access) => access,
            // Interceptors must not lose their turns because we cannot ask; the API server's own policy asks as well.
            Err(_) if sub_resource == "status" => Access::Allowed,
            Err(why) => {
                let what = format!(
                    "whether you may delete pod {pod} cannot be found out: {}; try again",
                    kind_of(&why)
                );
                return review::failure(&uid, &what);
            }
        };
        let found = match self.pod_for(operation, &subject, &namespace, &access).await {
            Ok(found) => found,
            Err(why) => {
                let what = format!("pod {pod} cannot be looked up: {}; try again", kind_of(&why));
                return review::failure(&uid, &what);
            }
        };
        let mut verdict = match (operation, &new) {
            (Operation::Update, new) => {
                let new = new.as_ref().unwrap_or(&subject);
                eviction_request::on_update(&subject, new, &access, self.clock.now())
            }
            (Operation::Delete, _) => eviction_request::on_delete(&subject, found.as_ref(), &access),
            _ if endpoint == Endpoint::FillRequests => {
                eviction_request::on_create(&subject, found.as_ref(), &access)
            }
            _ => eviction_request::on_created(&subject, found.as_ref(), &access),
        };
        if let Verdict::Allow { warnings, .. } = &mut verdict
            && endpoint == Endpoint::FillRequests
            && !self.enabled.load(Ordering::Relaxed)
        {
            warnings.push(GATE_OFF.to_owned());
        }
        review::answer(&uid, &verdict)
    }

    /// The pod, where the verdict depends on it.
    async fn pod_for(
        &self,
        operation: Operation,
        subject: &EvictionRequest,
        namespace: &str,
        access: &Access,
    ) -> kube::Result<Option<FoundPod>> {
        let wanted = &subject.spec.pod_ref;
        let matters = match operation {
            Operation::Create => true,
            Operation::Delete => eviction_request::forbids_deletion(subject),
            Operation::Update | Operation::Connect => false,
        };
        // It becomes part of a path. An empty name would read the list, others something else; no pod has it.
        if !matters || *access != Access::Allowed || !is_pod_name(wanted) {
            return Ok(None);
        }
        self.find_pod(namespace, &wanted.name, operation == Operation::Create).await
    }

    /// The pod of this name, and where it matters the interceptor of the autoscaler over it. Both names have been checked.
    pub(crate) async fn find_pod(
        &self,
        namespace: &str,
        name: &str,
        with_autoscaler: bool,
    ) -> kube::Result<Option<FoundPod>> {
        let found = pods::find(&self.client, namespace, name).await?;
        let mut found = found.map(|pod| pod.with_only(&self.interceptors));
        if with_autoscaler
            && let Some(pod) =
                found.as_mut().filter(|pod| pod.bundled == Some(BundledInterceptor::Deployment))
            && let Some(deployment) = &pod.deployment
        {
            pod.autoscaler = pods::autoscaler_over(&self.client, namespace, deployment).await?;
        }
        Ok(found)
    }
}
