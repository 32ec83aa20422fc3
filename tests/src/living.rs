//! An embedded cluster that lives, in virtual time: on a paused runtime, time passes only when all is idle.

use anyhow::{Result, bail, ensure};
use cluster_simulator::{self as life, Life, Meter, Times};
use embedded_apiserver::clock::TokioClock;
use embedded_apiserver::{Cluster, Options};
use http::{Method, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// How long, in virtual time, something may take that the cluster does by itself.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Pods take 2 seconds to start and 3 to end.
pub const TIMES: Times =
    Times { start: Duration::from_secs(2), run: Duration::from_secs(10), terminate: Duration::from_secs(3) };

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const NODES: &str = "/api/v1/nodes";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
pub const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A cluster with its life, and the trace of what its components wrote.
pub struct Living {
    pub cluster: Cluster,
    pub life: Life,
    trace: UnboundedReceiver<String>,
}

impl Living {
    /// With so many nodes of 4 CPUs. Pods take 2 seconds to start and 3 to end. Needs a paused runtime.
    ///
    /// # Errors
    /// A node was refused.
    pub async fn start(seed: u64, nodes: usize) -> Result<Self> {
        let (sender, trace) = unbounded_channel();
        let options = life::Options {
            times: TIMES,
            trace: Some(sender),
            node_heartbeats: true,
            ..life::Options::default()
        };
        let living = Self::start_with(seed, nodes, options).await?;
        Ok(Self { trace, ..living })
    }

    /// The same, with life as given; its trace goes where that says.
    ///
    /// # Errors
    /// A node was refused.
    pub async fn start_with(seed: u64, nodes: usize, options: life::Options) -> Result<Self> {
        let start = jiff::Timestamp::from_second(1_800_000_000)?;
        let clock = Arc::new(TokioClock::starting_at(start));
        let cluster = Cluster::new(Options { clock, seed: Some(seed), ..Options::default() });
        let (_, trace) = unbounded_channel();
        let life = life::start(&cluster, options);
        let living = Self { cluster, life, trace };
        for number in 1..=nodes {
            living.create(NODES, &node(&format!("n{number}"))).await?;
        }
        Ok(living)
    }

    /// The answer's code and object.
    ///
    /// # Errors
    /// The path cannot be requested.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let (code, answer) = self.answer(method, path, body).await?;
        Ok((code, serde_json::from_slice(&answer).unwrap_or_default()))
    }

    async fn answer(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Bytes)> {
        let content =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .body(Full::new(Bytes::from(body)))?;
        let Ok(response) = self.cluster.service().oneshot(request).await;
        let code = response.status().as_u16();
        let Ok(body) = response.into_body().collect().await;
        Ok((code, body.to_bytes()))
    }

    /// The part of what is there that somebody looks at often.
    ///
    /// # Errors
    /// It was refused, or is something else.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let (code, answer) = self.answer(Method::GET, path, &Value::Null).await?;
        ensure!(code < 300, "{path}: {code} {}", String::from_utf8_lossy(&answer));
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn accepted(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let (code, object) = self.send(method, path, body).await?;
        if code >= 300 {
            bail!("{path}: {code} {object}");
        }
        Ok(object)
    }

    /// # Errors
    /// It was refused, as for all of these.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.accepted(Method::POST, path, object).await
    }

    /// # Errors
    /// It was refused.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.accepted(Method::PATCH, path, patch).await
    }

    /// # Errors
    /// It was refused.
    pub async fn delete(&self, path: &str) -> Result<Value> {
        self.accepted(Method::DELETE, path, &Value::Null).await
    }

    /// # Errors
    /// It is not there.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.accepted(Method::GET, path, &Value::Null).await
    }

    /// The pods with the label `app`, by name.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn pods(&self, app: &str) -> Result<Vec<Value>> {
        let list = self.get(&format!("{PODS}?labelSelector=app%3D{app}")).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until the object at a path is as wanted.
    ///
    /// # Errors
    /// It did not become so in an hour of virtual time.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(100);
        loop {
            let object = self.get(path).await?;
            if wanted(&object) {
                return Ok(object);
            }
            if Instant::now() > deadline {
                bail!("{path} stays {object:#}");
            }
            sleep(pause).await;
            // What takes minutes may be noticed a second late.
            pause = (pause * 11 / 10).min(Duration::from_secs(1));
        }
    }

    /// Creates a deployment with a budget that keeps so many of its pods, and waits until it has rolled out.
    ///
    /// # Errors
    /// One was refused.
    pub async fn deployment(&self, name: &str, replicas: usize, keeps: usize) -> Result<()> {
        self.create(DEPLOYMENTS, &workload("Deployment", name, json!({"replicas": replicas}))).await?;
        self.budget(name, name, json!({"minAvailable": keeps})).await?;
        self.rolled_out(name).await.map(drop)
    }

    /// Creates a budget of an application.
    ///
    /// # Errors
    /// It was refused.
    pub async fn budget(&self, name: &str, app: &str, rule: Value) -> Result<Value> {
        let mut budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": rule,
        });
        budget["spec"]["selector"] = json!({"matchLabels": {"app": app}});
        self.create(BUDGETS, &budget).await
    }

    /// Waits until a deployment has rolled out, as `kubectl rollout status` understands it.
    ///
    /// # Errors
    /// It does not.
    pub async fn rolled_out(&self, name: &str) -> Result<Value> {
        self.until(&format!("{DEPLOYMENTS}/{name}"), |deployment| {
            let (spec, status) = (&deployment["spec"], &deployment["status"]);
            let count = |field: &str| status[field].as_i64().unwrap_or_default();
            let replicas = spec["replicas"].as_i64().unwrap_or(1);
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && [count("replicas"), count("updatedReplicas"), count("availableReplicas")] == [replicas; 3]
        })
        .await
    }

    /// Evicts as `kubectl drain` does: cordon, then each pod that is no daemon, every 5 seconds until it is allowed.
    ///
    /// # Errors
    /// A refusal that is no budget's, or no end in an hour.
    pub async fn drain(&self, node: &str) -> Result<()> {
        self.patch(&format!("{NODES}/{node}"), &json!({"spec": {"unschedulable": true}})).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = self.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D{node}")).await?;
            let mut left = false;
            for pod in list["items"].as_array().into_iter().flatten() {
                let meta = &pod["metadata"];
                if meta["ownerReferences"][0]["kind"] == "DaemonSet" {
                    continue;
                }
                left = true;
                if meta["deletionTimestamp"].is_null() {
                    let name = meta["name"].as_str().unwrap_or_default();
                    let eviction =
                        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
                    let (code, answer) =
                        self.send(Method::POST, &format!("{PODS}/{name}/eviction"), &eviction).await?;
                    if !matches!(code, 201 | 404 | 429) {
                        bail!("eviction of {name}: {code} {answer}");
                    }
                }
            }
            if !left {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{node} does not get empty");
            }
            sleep(Duration::from_secs(5)).await;
        }
    }

    /// From now on writes of this resource are refused unless the expression holds, by a policy of this name.
    ///
    /// # Errors
    /// It was refused.
    pub async fn refuse_unless(&self, name: &str, rule: Value, expression: &str) -> Result<()> {
        let policy = json!({
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]},
        });
        let binding = json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        self.create(POLICIES, &policy).await?;
        self.create(BINDINGS, &binding).await.map(drop)
    }

    /// The policy of this name is no more.
    ///
    /// # Errors
    /// There is none.
    pub async fn refuse_no_more(&self, name: &str) -> Result<()> {
        self.delete(&format!("{BINDINGS}/{name}")).await?;
        self.delete(&format!("{POLICIES}/{name}")).await.map(drop)
    }

    /// Counts ready pods with the label `app` from now on.
    #[must_use]
    pub fn meter(&self, app: &str) -> Meter {
        Meter::start(&self.cluster, "default", &format!("app={app}"))
    }

    /// All that was written so far, in order.
    pub fn trace(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.trace.try_recv().ok()).collect()
    }
}

/// A node with 4 CPUs and nothing else said.
#[must_use]
pub fn node(name: &str) -> Value {
    let size = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": size, "allocatable": size},
    })
}

/// A workload of pods that ask for one CPU each.
#[must_use]
pub fn workload(kind: &str, app: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": app}});
    spec["template"] = template(app, "1");
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": spec})
}

/// A pod template that asks for so much CPU.
#[must_use]
pub fn template(app: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

/// A pod on a node, of nobody.
#[must_use]
pub fn bare_pod(name: &str, node: &str) -> Value {
    let mut pod = template("solo", "100m");
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// The names of pods.
#[must_use]
pub fn names(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect()
}
