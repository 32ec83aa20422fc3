//! An embedded cluster with Usher's definitions, pods, requests, and the controller's part by hand.

use embedded_apiserver::clock::{Clock, TokioClock};
use embedded_apiserver::{Cluster, Options};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use usher_api::{EvictionRequest, EvictionRequestStatus};
use usher_interceptors::{HandlerError, InterceptorClass, InterceptorRunner, Turn};
use usher_tests::crds;
pub use usher_tests::sdk::{CLASS, DRAIN, NEXT, pod, request};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

pub struct World {
    pub client: Client,
    pub clock: TokioClock,
    pub pods: Api<Pod>,
    pub requests: Api<EvictionRequest>,
}

impl World {
    pub async fn new() -> Self {
        let clock = TokioClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
        let cluster = Cluster::new(Options { clock: Arc::new(clock), seed: Some(7), ..Options::default() });
        let client = Client::new(cluster.service(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in crds::definitions().unwrap() {
            let definition = serde_json::from_value(definition).unwrap();
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let requests: Api<EvictionRequest> = Api::default_namespaced(client.clone());
        until("the definitions are served", async || requests.list(&Default::default()).await.is_ok()).await;
        Self { pods: Api::default_namespaced(client.clone()), requests, client, clock }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub async fn pod(&self, name: &str) -> Pod {
        self.pods.create(&PostParams::default(), &pod(name)).await.unwrap()
    }

    /// A request as admission would leave it: the drain's, with our interceptor and another one after it.
    pub async fn ask(&self, pod: &Pod) -> EvictionRequest {
        self.requests.create(&PostParams::default(), &request(pod)).await.unwrap()
    }

    /// As the controller does when it gives out a turn.
    pub async fn give_turn(&self, pod: &Pod, class: &str) {
        let status = json!({
            "activeInterceptorClass": class, "activeInterceptorCompleted": false, "progressTimestamp": stamp(self.now()),
            "expectedInterceptorFinishTime": null, "message": "it is the turn of another interceptor",
        });
        self.patch_status(pod, status).await;
    }

    pub async fn patch_status(&self, pod: &Pod, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.requests.patch_status(&pod.uid().unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn set_finalizers(&self, pod: &Pod, finalizers: Value) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.requests.patch(&pod.uid().unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes the request, whoever wants it. A requester that holds on could come back in between the other way round.
    pub async fn collect(&self, pod: &Pod) {
        self.requests.delete(&pod.uid().unwrap(), &DeleteParams::default()).await.unwrap();
        if self.requests.get_opt(&pod.uid().unwrap()).await.unwrap().is_some() {
            self.set_finalizers(pod, json!(null)).await;
        }
    }

    pub async fn request(&self, pod: &Pod) -> EvictionRequest {
        self.requests.get(&pod.uid().unwrap()).await.unwrap()
    }

    pub async fn status(&self, pod: &Pod) -> EvictionRequestStatus {
        self.request(pod).await.status.unwrap()
    }

    /// Age of the last sign of progress.
    pub async fn silence(&self, pod: &Pod) -> SignedDuration {
        self.now().duration_since(self.status(pod).await.progress_timestamp.unwrap().0)
    }

    /// Runs an interceptor that does this on its turns.
    pub fn intercept(
        &self,
        handler: impl Fn(Turn) -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync + 'static,
    ) -> Running {
        let clock = self.clock;
        let class = InterceptorClass::new(CLASS).unwrap();
        let runner = InterceptorRunner::new(self.client.clone(), class).with_clock(move || clock.now());
        Running(tokio::spawn(async move { match runner.run(handler).await {} }))
    }

    /// Runs an interceptor whose turns are given to the test; each is held until the test ends it.
    pub fn intercept_by_hand(&self) -> (Running, UnboundedReceiver<ByHand>) {
        let (sender, turns) = unbounded_channel();
        let running = self.intercept(move |turn| {
            let (end, ended) = tokio::sync::oneshot::channel();
            sender.send(ByHand { turn, end }).unwrap();
            Box::pin(async move { ended.await.unwrap_or(Ok(())) })
        });
        (running, turns)
    }
}

/// A turn in the hands of the test.
pub struct ByHand {
    pub turn: Turn,
    pub end: tokio::sync::oneshot::Sender<Result<(), HandlerError>>,
}

/// An interceptor that ends, as by kill -9, when dropped.
pub struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn stamp(at: Timestamp) -> String {
    embedded_apiserver::clock::rfc3339(at)
}

/// Waits in virtual time.
pub async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + HOUR;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within an hour: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}
