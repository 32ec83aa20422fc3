//! A witness between the controllers and the server: it sees every eviction and every eviction request that is sent, and
//! holds it against what the server knows at that moment. Its rules are stated here anew, not taken from the code under test.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use embedded_apiserver::Cluster;
use embedded_apiserver::faults::{ClientService, NoAnswer};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use jiff::Timestamp;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use usher_api::names::{
    INTERCEPTOR_ANNOTATION_PREFIX, INTERCEPTORS_RESOLVED_ANNOTATION, MAINTENANCE_SCHEDULING_GATE,
};

use crate::scenario::beside::manager;

/// What was seen, and what should not have been.
#[derive(Debug, Default)]
pub struct Seen {
    pub evictions: usize,
    /// By method, of the requests that write.
    pub writes: usize,
    pub reads: usize,
    pub breaches: Vec<String>,
    /// UIDs of the pods that node maintenance has asked to leave.
    pub asked: HashSet<String>,
    /// By UID of the pod: when a controller last read its request and a requester stood on it. Between this read and the eviction
    /// nothing keeps a requester from withdrawing.
    read_as_wanted: HashMap<String, Timestamp>,
    /// By node: when a maintenance was last seen to reach daemons there.
    drained: HashMap<String, Timestamp>,
}

/// An answer may take a while, and news that come meanwhile are nobody's fault.
const TOLERANCE: i64 = 10;
/// So many seconds the clocks of the parts may differ, says the specification.
const SKEW: i64 = 30;

#[derive(Clone)]
pub struct Witness {
    cluster: Cluster,
    seen: Arc<Mutex<Seen>>,
}

impl Witness {
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        Self { cluster: cluster.clone(), seen: Arc::default() }
    }

    /// A client of the cluster by that name, for fault rules, under the eyes of the witness.
    #[must_use]
    pub fn client(&self, name: &str) -> kube::Client {
        self.watching(self.cluster.client(name))
    }

    /// The same for the manager, by its account.
    #[must_use]
    pub fn manager(&self, name: &str) -> kube::Client {
        self.watching(self.cluster.client_as(name, manager()))
    }

    fn watching(&self, inner: ClientService) -> kube::Client {
        kube::Client::new(Watched { witness: self.clone(), inner }, "default")
    }

    #[must_use]
    pub fn seen(&self) -> Arc<Mutex<Seen>> {
        self.seen.clone()
    }

    async fn object(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Full::new(Bytes::new())).ok()?;
        let Ok(response) = self.cluster.service().oneshot(request).await;
        let found = response.status().is_success();
        let Ok(body) = response.into_body().collect().await;
        found.then(|| serde_json::from_slice(&body.to_bytes()).ok()).flatten()
    }

    /// The rules for an eviction by the eviction request controller.
    async fn judge(&self, path: &str, body: &[u8]) -> Result<(), String> {
        let parts: Vec<&str> = path.split('/').collect();
        let (Some(namespace), Some(name)) = (parts.get(4), parts.get(6)) else {
            return Err(format!("{path} is no eviction"));
        };
        let eviction: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(uid) = eviction["deleteOptions"]["preconditions"]["uid"].as_str() else {
            return Err(format!("{name} is evicted without its UID"));
        };
        let requests = format!(
            "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/{namespace}/evictionrequests"
        );
        let pod = self.object(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await;
        let pod = pod.filter(|pod| pod["metadata"]["uid"] == uid);
        let Some(request) = self.object(&format!("{requests}/{uid}")).await else {
            let version = &eviction["deleteOptions"]["preconditions"]["resourceVersion"];
            // A pod that waits behind the gate of a maintenance which has ended never ran: its DaemonSet makes another without a gate.
            let is_fine = |pod: &Value| {
                let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
                let is_gated = gates.into_iter().any(|gate| gate["name"] == MAINTENANCE_SCHEDULING_GATE);
                is_gated || (version.is_string() && pod["metadata"]["resourceVersion"] != *version)
            };
            return match pod {
                Some(pod) if !is_fine(&pod) => Err(format!("{name} is evicted without a request")),
                _ => Ok(()),
            };
        };
        let (spec, status) = (&request["spec"], &request["status"]);
        if spec["podRef"]["uid"] != uid || spec["podRef"]["name"] != *name {
            return Err(format!("{name} is not the pod of its request"));
        }
        let forbid = status["evictionRequestCancellationPolicy"] == "Forbid";
        let read_as_wanted = self.seen.lock().read_as_wanted.get(uid).copied().unwrap_or_default();
        let since_read = self.cluster.now().duration_since(read_as_wanted).as_secs();
        if !is_wanted(&request) && !forbid && since_read > TOLERANCE {
            return Err(format!("{name} is evicted although nobody asks for it any more"));
        }
        if let Some(class) = status["activeInterceptorClass"].as_str() {
            let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
            let since = time(&status["progressTimestamp"])
                .or_else(|| time(&request["metadata"]["creationTimestamp"]))
                .unwrap_or_default();
            let silent = self.cluster.now().duration_since(since).as_secs();
            let overdue = silent + SKEW >= spec["progressDeadlineSeconds"].as_i64().unwrap_or(i64::MAX);
            let lowest = spec["interceptors"].as_array().into_iter().flatten();
            let lowest = lowest.min_by_key(|i| {
                (i["priority"].as_i64(), std::cmp::Reverse(i["interceptorClass"].as_str().map(str::to_owned)))
            });
            if lowest.is_some_and(|last| last["interceptorClass"] != class) {
                return Err(format!("{name} is evicted although interceptors after {class} are left"));
            }
            if status["activeInterceptorCompleted"] != true && !overdue && silent > TOLERANCE {
                return Err(format!("{name} is evicted although {class} reported {silent} s ago"));
            }
        } else if spec["interceptors"].as_array().is_some_and(|all| !all.is_empty()) {
            return Err(format!("{name} is evicted before its interceptors had a turn"));
        }
        if let Some(pod) = pod {
            if names_interceptors(&pod) && !admitted(&request) {
                return Err(format!("{name} names interceptors, and is evicted by a request that has none"));
            }
            let daemon = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            if daemon.into_iter().any(|owner| owner["kind"] == "DaemonSet") {
                return Err(format!("{name} belongs to a daemon set"));
            }
        }
        Ok(())
    }
}

/// Whether a requester stands on the request.
fn is_wanted(request: &Value) -> bool {
    let asks = |finalizer: &Value| finalizer.as_str().is_some_and(|text| text.contains("/name_"));
    request["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(asks))
}

/// Whether the pod's annotations name an interceptor.
#[must_use]
pub fn names_interceptors(pod: &Value) -> bool {
    let annotations = pod["metadata"]["annotations"].as_object();
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(INTERCEPTOR_ANNOTATION_PREFIX)))
}

/// Whether the interceptors of the pod were looked up when the request was made: it has some, or a mark that there were none.
#[must_use]
pub fn admitted(request: &Value) -> bool {
    let some = request["spec"]["interceptors"].as_array().is_some_and(|all| !all.is_empty());
    some || request["metadata"]["annotations"][INTERCEPTORS_RESOLVED_ANNOTATION] == "true"
}

impl Witness {
    async fn note_read(&self, path: &str) {
        let request = self.object(path).await.filter(is_wanted);
        if let Some(uid) = request.as_ref().and_then(|request| request["spec"]["podRef"]["uid"].as_str()) {
            self.seen.lock().read_as_wanted.insert(uid.to_owned(), self.cluster.now());
        }
    }

    /// The rules for a deletion of a pod: only those of DaemonSets, by UID, and only off a node that a maintenance drains or from behind
    /// the gate.
    async fn judge_deletion(&self, path: &str, body: &[u8]) -> Result<(), String> {
        let Some(pod) = self.object(path).await else { return Ok(()) };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(uid) = options["preconditions"]["uid"].as_str() else {
            return Err(format!("{name} is deleted without its UID"));
        };
        if pod["metadata"]["uid"] != uid {
            return Ok(());
        }
        let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        if !owners.any(|owner| owner["kind"] == "DaemonSet") {
            return Err(format!("{name} is deleted and belongs to no DaemonSet"));
        }
        let Some(node) = pod["spec"]["nodeName"].as_str() else {
            let gates = pod["spec"]["schedulingGates"].as_array();
            let is_gated = gates
                .is_some_and(|gates| gates.iter().any(|gate| gate["name"] == MAINTENANCE_SCHEDULING_GATE));
            return if is_gated { Ok(()) } else { Err(format!("{name} waits for a node and is deleted")) };
        };
        let now = self.cluster.now();
        if self.is_drained_by_somebody(node, &pod).await {
            return Ok(());
        }
        // A maintenance may have let go of the node in this moment.
        let last = self.seen.lock().drained.get(node).copied().unwrap_or_default();
        if now.duration_since(last).as_secs() > TOLERANCE {
            return Err(format!("{name} is deleted on {node}, where no maintenance reaches it"));
        }
        Ok(())
    }

    async fn is_drained_by_somebody(&self, node: &str, pod: &Value) -> bool {
        let maintenances =
            self.object("/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances").await.unwrap_or_default();
        let drains = maintenances["items"].as_array().into_iter().flatten().any(|maintenance| {
            let mut statuses = maintenance["status"]["nodeStatuses"].as_array().into_iter().flatten();
            let reaches = |status: &Value| {
                let mut targets = status["drainTargets"].as_array().into_iter().flatten();
                status["nodeRef"]["name"] == node && targets.any(|entry| selects(entry, pod))
            };
            maintenance["spec"]["stage"] == "Drain" && statuses.any(reaches)
        });
        if drains {
            self.seen.lock().drained.insert(node.to_owned(), self.cluster.now());
        }
        drains
    }

    /// The rule for a request by node maintenance: pods of one node leave in the order of the plan. Whoever was asked before may
    /// be asked again.
    async fn judge_order(&self, path: &str, body: &[u8]) -> Result<(), String> {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let (name, uid) = (&request["spec"]["podRef"]["name"], &request["spec"]["podRef"]["uid"]);
        let (Some(name), Some(uid)) = (name.as_str(), uid.as_str()) else { return Ok(()) };
        let namespace = path.split('/').nth(5).unwrap_or_default();
        let pod = self.object(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await;
        let Some(pod) = pod.filter(|pod| pod["metadata"]["uid"] == uid) else { return Ok(()) };
        if !self.seen.lock().asked.insert(uid.to_owned()) {
            return Ok(());
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let there = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let there = self.object(&there).await.unwrap_or_default();
        let maintenances = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";
        let maintenances = self.object(maintenances).await.unwrap_or_default();
        for maintenance in maintenances["items"].as_array().into_iter().flatten() {
            let targets = maintenance["status"]["nodeStatuses"].as_array().into_iter().flatten();
            let mut targets = targets.filter(|status| status["nodeRef"]["name"] == node);
            let drains = targets.any(|status| status["drainTargets"].is_array());
            if maintenance["spec"]["stage"] != "Drain" || !drains {
                continue;
            }
            let plan = plan_of(maintenance);
            let step = |pod: &Value| plan.iter().position(|entry| selects(entry, pod)).unwrap_or(usize::MAX);
            let is_earlier = |other: &&Value| {
                let phase = other["status"]["phase"].as_str().unwrap_or_default();
                !matches!(phase, "Succeeded" | "Failed") && step(other) < step(&pod)
            };
            if let Some(earlier) = there["items"].as_array().into_iter().flatten().find(is_earlier) {
                return Err(format!(
                    "{name} is asked to leave {node} while {} of an earlier entry of {} is there",
                    earlier["metadata"]["name"], maintenance["metadata"]["name"],
                ));
            }
        }
        Ok(())
    }
}

/// The entries that are given and the twelve that every plan has, in order.
fn plan_of(maintenance: &Value) -> Vec<Value> {
    const TYPES: [&str; 3] = ["Default", "DaemonSet", "Static"];
    let given = maintenance["spec"]["drainPlan"].as_array().cloned().unwrap_or_default();
    let priorities = [1_000_000_000, 2_000_000_000, 2_000_001_000, i32::MAX];
    let always = TYPES
        .into_iter()
        .flat_map(|kind| priorities.map(|priority| json!({"podPriority": priority, "podType": kind})));
    let mut plan: Vec<Value> = given.into_iter().chain(always).collect();
    plan.sort_by_key(|entry| {
        let kind = TYPES.iter().position(|kind| entry["podType"] == *kind);
        (kind, entry["podPriority"].as_i64())
    });
    plan
}

/// Whether an entry of a plan without label selectors selects a pod.
fn selects(entry: &Value, pod: &Value) -> bool {
    let meta = &pod["metadata"];
    let owners = || meta["ownerReferences"].as_array().into_iter().flatten();
    let is_annotated = meta["annotations"]["kubernetes.io/config.mirror"].is_string();
    let kind = if is_annotated && owners().any(|owner| owner["kind"] == "Node") {
        "Static"
    } else if owners().any(|owner| owner["kind"] == "DaemonSet") {
        "DaemonSet"
    } else {
        "Default"
    };
    entry["podType"] == kind
        && entry["podSelector"].is_null()
        && pod["spec"]["priority"].as_i64().unwrap_or(0) <= entry["podPriority"].as_i64().unwrap_or(0)
}

#[derive(Clone)]
struct Watched {
    witness: Witness,
    inner: ClientService,
}

impl Service<Request<Body>> for Watched {
    type Response = <ClientService as Service<Request<Full<Bytes>>>>::Response;
    type Error = NoAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NoAnswer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { witness, inner } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let is_eviction = head.method == Method::POST && head.uri.path().ends_with("/eviction");
            {
                let mut seen = witness.seen.lock();
                match head.method {
                    Method::GET => seen.reads += 1,
                    // Events are told beside the work.
                    _ if head.uri.path().contains("/events") => {}
                    _ => seen.writes += 1,
                }
                seen.evictions += usize::from(is_eviction);
            }
            let path = head.uri.path();
            let verdict = if is_eviction {
                witness.judge(path, &body).await
            } else if head.method == Method::POST && path.ends_with("/evictionrequests") {
                witness.judge_order(path, &body).await
            } else if head.method == Method::DELETE && path.contains("/pods/") {
                witness.judge_deletion(path, &body).await
            } else {
                if head.method == Method::GET && path.contains("/evictionrequests/") {
                    witness.note_read(path).await;
                }
                Ok(())
            };
            if let Err(breach) = verdict {
                witness.seen.lock().breaches.push(breach);
            }
            inner.oneshot(Request::from_parts(head, Full::new(body))).await
        })
    }
}
