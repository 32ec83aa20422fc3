//! The loop of the agent: it follows the node, its mirror pods and the requests for them, and does what [`crate::static_pods`] decides.
//!
//! Maintenances can be large and are written often, so that agents do not watch them: the node says which of them hold it, and those are
//! read when there is something to decide.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use usher_api::NodeMaintenance;
use usher_api::interceptor_rules::{CONTROLLER_PRIORITY, CONTROLLER_ROLE};
use usher_api::lenient::Lenient;
use usher_api::names::{INTERCEPTOR_ANNOTATION_PREFIX, KUBELET_CLASS, NODE_AGENT_ANNOTATION};
use usher_api::node_agent::NodeAgentMark;
use usher_apply::{Clock, Events, Failure, Interceptions, kind_of};
use usher_decide::interceptors::{self, carry_out::CarryOut};
use usher_decide::snapshot::{
    Key, Maintenance, Node, NodeOnWire, Owner, Pod, PodOnWire, Request, RequestOnWire,
};

use crate::folder::{Contents, Folder, FolderError, Lock};
use crate::kubelet::GracePeriod;
use crate::shutdown::{self, ShutdownState};
use crate::static_pods::{self, ControlPlane, Effect, World};

/// What could not be read or written is tried again after this.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// So long the API server is waited for after the start, before what was taken without it comes back without it.
const SYNCED_WITHIN: SignedDuration = SignedDuration::from_secs(30);
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
const FIELD_MANAGER: &str = "usher-node-agent";

/// What the agent is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of its node.
    pub node: String,
    /// Where the kubelet reads manifests of static pods, if it does.
    pub folder: Option<Folder>,
    /// The kubelet has static pods from elsewhere too.
    pub has_url: bool,
    /// The same folder as the kubelet calls it, for people.
    pub folder_name: String,
    pub version: String,
    pub warnings: Vec<String>,
}

/// What goes on beside it: see [`crate::shutdown`].
#[derive(Debug, Clone)]
pub struct Beside {
    pub shutdown: watch::Receiver<ShutdownState>,
    /// Shutdowns are delayed, or why not.
    pub delays: watch::Receiver<Result<(), String>>,
    pub periods: Vec<GracePeriod>,
    /// Gets what is written on the node.
    pub shown: Arc<watch::Sender<NodeAgentMark>>,
}

impl Beside {
    /// Shutdowns are nobody's matter here.
    pub fn nothing() -> Self {
        let delays = watch::channel(Err(String::new())).1;
        let shown = Arc::new(watch::Sender::default());
        Self { shutdown: watch::channel(ShutdownState::default()).1, delays, periods: Vec::new(), shown }
    }
}

/// Runs until `stop` resolves.
pub fn run_until(
    client: Client,
    clock: Clock,
    options: Options,
    beside: Beside,
    stop: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, ()> {
    run_boxed(client, clock, options, beside, stop.boxed())
}

/// Not generic, so that the agent is compiled here and not again in each crate that runs it.
fn run_boxed(
    client: Client,
    clock: Clock,
    options: Options,
    beside: Beside,
    stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    run(client, clock, options, beside, stop).boxed()
}

async fn run(
    client: Client,
    clock: Clock,
    options: Options,
    mut beside: Beside,
    mut stop: BoxFuture<'static, ()>,
) {
    let events = Events::start(client.clone(), clock.clone());
    let apply = Interceptions::new(client.clone(), events.clone(), clock.clone(), String::new());
    let mut agent = Agent {
        client,
        clock,
        apply,
        options,
        lock: None,
        node: None,
        pods: NodePods::default(),
        unregistered: BTreeSet::new(),
        requests: HashMap::new(),
        following: HashMap::new(),
        mark: None,
        said: NodeAgentMark::default(),
        marked: None,
        told: BTreeMap::new(),
        beside: beside.clone(),
    };
    let mut streams: SelectAll<BoxStream<'static, WatchEvent>> = SelectAll::new();
    streams.push(agent.follow_node());
    streams.push(agent.follow_pods());
    let synced_by = agent.clock.now() + SYNCED_WITHIN;
    let mut again: Option<Timestamp> = Some(synced_by);
    'work: loop {
        let pause = again.map_or(Duration::from_secs(3600), |at| agent.clock.time_until(at));
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(told) = streams.next() => {
                agent.observe(told);
                while let Some(Some(told)) = streams.next().now_or_never() {
                    agent.observe(told);
                }
            }
            Ok(()) = beside.shutdown.changed() => {}
            Ok(()) = beside.delays.changed() => {}
            () = tokio::time::sleep(pause) => again = None,
        }
        for new in agent.follow_requests() {
            streams.push(new);
        }
        while agent.has_synced() {
            // A call that hangs must not keep it from acting alone. What is left in the middle is gone on with, as after a kill.
            tokio::select! {
                biased;
                next = agent.reconcile() => {
                    again = next;
                    break;
                }
                Ok(()) = beside.shutdown.changed() => {}
                () = &mut stop => break 'work,
            }
        }
        if !agent.has_synced() && agent.clock.now() >= synced_by {
            agent.give_back_alone().await;
            again = Some(agent.clock.now() + TRY_AGAIN);
        }
    }
    agent.leave().await;
    events.flush().await;
}

/// What a watch says.
enum WatchEvent {
    Node(watcher::Event<Lenient<NodeOnWire>>),
    Pod(watcher::Event<Lenient<PodOnWire>>),
    Request(Key, watcher::Event<Lenient<RequestOnWire>>),
}

/// The pods of the node.
#[derive(Default)]
struct NodePods {
    pods: HashMap<Key, Arc<Pod>>,
    listed: BTreeSet<Key>,
    is_listed: bool,
}

/// A request that is followed by its name.
struct Following {
    /// Dropped when nobody wants to know any more.
    _end: oneshot::Sender<()>,
    is_listed: bool,
    /// Told of in the list that is being read.
    is_there: bool,
}

struct Agent {
    client: Client,
    clock: Clock,
    apply: Interceptions,
    options: Options,
    /// Held from the first time that the folder is looked at.
    lock: Option<Lock>,
    /// `None`: not told yet. The node may not be there.
    node: Option<Option<Node>>,
    pods: NodePods,
    /// Mirror pods that do not name the agent as their interceptor.
    unregistered: BTreeSet<Key>,
    requests: HashMap<Key, Arc<Request>>,
    following: HashMap<Key, Following>,
    /// What is written on the node, if it is what was written last.
    mark: Option<NodeAgentMark>,
    /// What the node says.
    said: NodeAgentMark,
    /// What was written last, and when.
    marked: Option<(NodeAgentMark, Timestamp)>,
    /// What went wrong and was told, so that it is told once.
    told: BTreeMap<&'static str, String>,
    beside: Beside,
}

fn stream<W>(api: Api<Lenient<W>>, fields: &str) -> BoxStream<'static, watcher::Event<Lenient<W>>>
where
    W: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(fields);
    watcher(api, config)
        .default_backoff()
        .filter_map(|event| async move {
            event
                .inspect_err(|why| tracing::warn!(kind = %W::kind(&()), %why, "a watch was interrupted"))
                .ok()
        })
        .boxed()
}

impl Agent {
    fn follow_node(&self) -> BoxStream<'static, WatchEvent> {
        let nodes = Api::all(self.client.clone());
        stream(nodes, &format!("metadata.name={}", self.options.node)).map(WatchEvent::Node).boxed()
    }

    fn follow_pods(&self) -> BoxStream<'static, WatchEvent> {
        let pods = Api::all(self.client.clone());
        stream(pods, &format!("spec.nodeName={}", self.options.node)).map(WatchEvent::Pod).boxed()
    }

    /// Each mirror pod has at most one request, by the name of its UID.
    fn follow_requests(&mut self) -> Vec<BoxStream<'static, WatchEvent>> {
        let wanted: BTreeSet<Key> = self.pods.pods.values().map(|pod| pod.request_key()).collect();
        self.following.retain(|key, _| wanted.contains(key));
        self.requests.retain(|key, _| wanted.contains(key));
        let mut streams = Vec::new();
        for key in wanted {
            if self.following.contains_key(&key) {
                continue;
            }
            let (end, ended) = oneshot::channel::<()>();
            let following = Following { _end: end, is_listed: false, is_there: false };
            self.following.insert(key.clone(), following);
            let requests = Api::namespaced(self.client.clone(), &key.namespace);
            let told = stream(requests, &format!("metadata.name={}", key.name));
            streams.push(told.map(move |it| WatchEvent::Request(key.clone(), it)).take_until(ended).boxed());
        }
        streams
    }

    fn has_synced(&self) -> bool {
        self.node.is_some() && self.pods.is_listed && self.following.values().all(|it| it.is_listed)
    }

    fn observe(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Node(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                if let Ok(node) = node.read() {
                    let annotations = node.metadata.annotations.as_ref();
                    let says = annotations.and_then(|all| all.get(NODE_AGENT_ANNOTATION));
                    // Agents of other nodes go by it: what somebody has made of it is set right.
                    self.mark.take_if(|mark| says != Some(&mark.text()));
                    self.said = says.and_then(|text| NodeAgentMark::read(text)).unwrap_or_default();
                    self.node = Some(Some(node.into()));
                }
            }
            WatchEvent::Node(watcher::Event::Delete(_)) => self.node = Some(None),
            WatchEvent::Node(watcher::Event::InitDone) => {
                self.node.get_or_insert(None);
            }
            WatchEvent::Node(watcher::Event::Init) => {}
            WatchEvent::Pod(event) => self.observe_pod(event),
            WatchEvent::Request(key, event) => self.observe_request(&key, event),
        }
    }

    fn observe_pod(&mut self, event: watcher::Event<Lenient<PodOnWire>>) {
        match event {
            watcher::Event::Init => self.pods.listed.clear(),
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.pods.listed);
                self.pods.pods.retain(|key, _| listed.contains(key));
                self.unregistered.retain(|key| listed.contains(key));
                self.pods.is_listed = true;
            }
            watcher::Event::Delete(pod) => {
                let key = key_of(&pod);
                self.pods.pods.remove(&key);
                self.unregistered.remove(&key);
            }
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                let Ok(pod) = pod.read() else { return };
                let annotations = pod.metadata.annotations.as_ref();
                let is_registered = annotations.is_some_and(|all| all.contains_key(&annotation()));
                let pod = Pod::from(pod);
                // Of the others nothing is kept.
                if !pod.is_mirror {
                    return;
                }
                if is_registered || pod.phase.is_terminal() {
                    self.unregistered.remove(&pod.key);
                } else {
                    self.unregistered.insert(pod.key.clone());
                }
                self.pods.listed.insert(pod.key.clone());
                self.pods.pods.insert(pod.key.clone(), Arc::new(pod));
            }
        }
    }

    fn observe_request(&mut self, key: &Key, event: watcher::Event<Lenient<RequestOnWire>>) {
        let Some(following) = self.following.get_mut(key) else { return };
        match event {
            watcher::Event::Init => following.is_there = false,
            watcher::Event::InitDone => {
                following.is_listed = true;
                if !following.is_there {
                    self.requests.remove(key);
                }
            }
            watcher::Event::Delete(_) => drop(self.requests.remove(key)),
            watcher::Event::Apply(request) | watcher::Event::InitApply(request) => {
                following.is_there = true;
                if let Ok(request) = request.read() {
                    self.requests.insert(key.clone(), Arc::new(request.into()));
                }
            }
        }
    }

    /// One look at everything. When the next one is due.
    async fn reconcile(&mut self) -> Option<Timestamp> {
        let soon = Some(self.clock.now() + TRY_AGAIN);
        let is_alone = self.beside.shutdown.borrow().alone_since.is_some();
        let mut contents = match self.contents() {
            Ok(contents) => contents,
            Err(why) if why.is_in_use() => {
                let why = format!("{}: another agent is at work there, and this one does nothing", why.path);
                self.log_once("StaticPodFolderInUse", why);
                return soon;
            }
            Err(why) => {
                self.log_once(
                    "StaticPodFolderUnusable",
                    format!("{why}: static pods stay until it can be used"),
                );
                if !is_alone {
                    // What is in it nobody knows: others go on by what was said last.
                    self.mark(&self.said.taken.clone()).await;
                }
                return soon;
            }
        };
        self.told.remove("StaticPodFolderInUse");
        self.told.remove("StaticPodFolderUnusable");
        self.log_missing_folder();
        if !is_alone {
            self.register().await;
        }
        let maintenances = if is_alone {
            None
        } else if static_pods::needs_maintenances(&self.requests, &contents) {
            self.maintenances(&contents).await
        } else {
            Some(Vec::new())
        };
        let mut announced = Vec::new();
        let mut decision = self.decide(&contents, maintenances.as_deref(), ControlPlane::default());
        if !is_alone
            && self.pods.pods.values().any(|pod| static_pods::is_control_plane(pod, &self.options.node))
        {
            let Some(others) = self.control_plane().await else { return soon };
            decision = self.decide(&contents, maintenances.as_deref(), others);
            announced = decision.control_plane_files();
            if !announced.is_empty() {
                // Agents of other nodes are told first, and only then it is looked whether enough are left.
                if !self.mark(&taken(&contents, &announced)).await {
                    return soon;
                }
                let Some(others) = self.control_plane().await else { return soon };
                decision = self.decide(&contents, maintenances.as_deref(), others);
            }
        }
        let (mut has_moved, mut has_failed) = (false, maintenances.is_none());
        let mut carry_out = CarryOut::default();
        for effect in decision.effects {
            let depends = effect.depends();
            if !carry_out.may_try(&depends) {
                continue;
            }
            let done = self.carry_out(effect, &contents).await;
            carry_out.tried(depends, done.is_ok());
            match done {
                Ok(moved) => {
                    has_moved |= moved;
                    if moved && let Ok(now_there) = self.contents() {
                        contents = now_there;
                    }
                }
                Err(why) => {
                    tracing::warn!(%why, "not done, and tried again");
                    has_failed = true;
                }
            }
        }
        if is_alone {
            return soon;
        }
        let is_marked = self.mark(&taken(&contents, &[])).await;
        let now = self.clock.now();
        let mut again = decision.recheck_at.filter(|at| *at > now);
        if has_moved && announced.is_empty() {
            again = Some(now);
        }
        if has_failed || !is_marked || has_moved {
            again = Some(again.map_or(now + TRY_AGAIN, |at| at.min(now + TRY_AGAIN)));
        }
        again
    }

    fn contents(&mut self) -> Result<Contents, FolderError> {
        let Some(folder) = &self.options.folder else { return Ok(Contents::default()) };
        if self.lock.is_none() && folder.path().is_dir() {
            self.lock = Some(folder.lock()?);
        }
        folder.read()
    }

    fn decide(
        &self,
        contents: &Contents,
        maintenances: Option<&[Maintenance]>,
        control_plane: ControlPlane,
    ) -> static_pods::Decision {
        let (shutdown, now) = (*self.beside.shutdown.borrow(), self.clock.now());
        let world = World {
            node: &self.options.node,
            pods: &self.pods.pods,
            requests: &self.requests,
            maintenances,
            folder: contents,
            path: &self.options.folder_name,
            has_url: self.options.has_url,
            control_plane,
            is_shutting_down: shutdown.is_under_way,
            alone_up_to: shutdown
                .alone_since
                .map(|since| shutdown::alone_up_to(&self.beside.periods, now.duration_since(since))),
        };
        static_pods::decide(&world, now)
    }

    /// Whether something in the folder has moved.
    async fn carry_out(&mut self, effect: Effect, decided_by: &Contents) -> Result<bool, String> {
        match effect {
            Effect::Report { request, report } => {
                let done = self.apply.carry_out(&interceptors::Effect::Report { request, report }).await;
                match done {
                    Ok(()) => Ok(false),
                    Err(Failure::Outdated) => Err("the request has changed meanwhile".to_owned()),
                    Err(Failure::Later(why)) => Err(why),
                    Err(why) => Err(format!("{why:?}")),
                }
            }
            Effect::Move { steps, .. } => {
                let Some(folder) = self.options.folder.clone() else { return Ok(false) };
                // The API server was asked since: an administrator may have changed something.
                if folder.read().is_ok_and(|now_there| now_there != *decided_by) {
                    return Err("the folder has changed meanwhile".to_owned());
                }
                if let Err(why) = folder.carry_out(&steps) {
                    let message = format!("a manifest could not be moved, and is tried again: {why}");
                    if self.log_once("StaticPodNotMoved", message.clone()) {
                        self.record_event(true, "StaticPodNotMoved", message).await;
                    }
                    return Err(why.to_string());
                }
                self.told.remove("StaticPodNotMoved");
                Ok(true)
            }
            Effect::RecordEvent { is_warning, reason, message } => {
                self.record_event(is_warning, reason, message).await;
                Ok(false)
            }
        }
    }

    /// Whether it was not told before.
    fn log_once(&mut self, reason: &'static str, message: String) -> bool {
        let is_new = self.told.get(reason) != Some(&message);
        if is_new {
            tracing::error!(reason, message, "static pods");
            self.told.insert(reason, message);
        }
        is_new
    }

    fn log_missing_folder(&mut self) {
        match &self.options.folder {
            Some(folder) if !folder.path().is_dir() => {
                let message = format!(
                    "there is no folder {}: no static pod is moved until there is; an agent in a pod sees it only if it is mounted there",
                    self.options.folder_name
                );
                self.log_once("StaticPodFolderMissing", message);
            }
            _ => drop(self.told.remove("StaticPodFolderMissing")),
        }
    }

    /// Without the API server, what was taken without it comes back: no shutdown is under way any more.
    async fn give_back_alone(&mut self) {
        let Ok(mut contents) = self.contents() else { return };
        for effect in self.decide(&contents, None, ControlPlane::default()).effects {
            match self.carry_out(effect, &contents).await {
                Ok(_) => contents = self.contents().unwrap_or(contents),
                Err(why) => {
                    tracing::warn!(why, "not done, and tried again");
                    return;
                }
            }
        }
    }

    /// An agent that ends and has taken nothing leaves no trace: nobody waits for it.
    async fn leave(&mut self) {
        let has_taken = self.contents().map_or(true, |contents| !contents.taken.is_empty());
        if has_taken || self.beside.shutdown.borrow().is_under_way {
            return;
        }
        for pod in self.pods.pods.values().filter(|pod| !self.unregistered.contains(&pod.key)) {
            let _ = self.name_interceptor(pod, None).await;
        }
        if self.mark.is_some() {
            let patch = json!({"metadata": {"annotations": {NODE_AGENT_ANNOTATION: null}}});
            let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
            let _ = nodes
                .patch(&self.options.node, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch))
                .await;
        }
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
    }

    async fn record_event(&self, is_warning: bool, reason: &'static str, message: String) {
        tracing::info!(reason, message, "static pods");
        let Some(Some(node)) = &self.node else { return };
        let workload = Owner {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.name.clone(),
            uid: node.uid.clone(),
        };
        let tell =
            interceptors::Effect::RecordEvent { namespace: "".into(), workload, is_warning, reason, message };
        // Events are written beside the work.
        let _ = self.apply.carry_out(&tell).await;
    }

    /// Mirror pods name the agent as their interceptor, so that requests know it.
    async fn register(&mut self) {
        let as_controller = format!("{CONTROLLER_PRIORITY}/{CONTROLLER_ROLE}");
        for key in self.unregistered.clone() {
            let Some(pod) = self.pods.pods.get(&key) else { continue };
            match self.name_interceptor(pod, Some(&as_controller)).await {
                Ok(()) => drop(self.unregistered.remove(&key)),
                // Without it the agent acts all the same, once nobody else is left to.
                Err(why) => {
                    tracing::warn!(pod = %key, why = kind_of(&why), "a static pod could not be given its interceptor");
                }
            }
        }
    }

    async fn name_interceptor(&self, pod: &Pod, value: Option<&str>) -> Result<(), kube::Error> {
        let patch = json!({"metadata": {"uid": &*pod.uid, "annotations": {annotation(): value}}});
        let pods: Api<Lenient<PodOnWire>> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        pods.patch(&pod.key.name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch)).await.map(drop)
    }

    /// Those that hold the node, and those that manifests were taken for. `None` if one could not be read.
    async fn maintenances(&self, contents: &Contents) -> Option<Vec<Maintenance>> {
        let held_by = self.node.iter().flatten().flat_map(|node| node.held_by.iter().flatten());
        let mut names: BTreeSet<String> = held_by.map(ToString::to_string).collect();
        let records = contents.taken.iter().filter_map(|taken| taken.record.as_ref());
        names.extend(records.map(|record| record.maintenance.clone()));
        let api: Api<Lenient<NodeMaintenance>> = Api::all(self.client.clone());
        let mut found = Vec::new();
        for name in names {
            match api.get_opt(&name).await {
                Ok(None) => {}
                Ok(Some(maintenance)) => match maintenance.read() {
                    Ok(maintenance) => found.push(maintenance.into()),
                    Err(why) => {
                        tracing::error!(name, %why, "a maintenance cannot be read: static pods stay as they are");
                        return None;
                    }
                },
                Err(why) => {
                    tracing::warn!(name, why = kind_of(&why), "a maintenance could not be read");
                    return None;
                }
            }
        }
        Some(found)
    }

    async fn control_plane(&self) -> Option<ControlPlane> {
        let nodes: Api<Lenient<core::Node>> = Api::all(self.client.clone());
        let list = nodes.list(&ListParams::default().labels(CONTROL_PLANE_LABEL)).await;
        let list = list
            .inspect_err(|why| tracing::warn!(why = kind_of(why), "control plane nodes could not be read"))
            .ok()?;
        let all = list.items.len();
        let others = list.items.into_iter().filter_map(|node| node.read().ok()).filter(|node| {
            node.metadata.name.as_deref() != Some(&*self.options.node) && runs_its_static_pods(node)
        });
        Some(ControlPlane { nodes: all, others_running: others.count() })
    }

    /// Marks the node, for people and for agents of other nodes, with what this one does. Whether that was done.
    async fn mark(&mut self, taken: &[String]) -> bool {
        if !matches!(self.node, Some(Some(_))) {
            return true;
        }
        let mut warnings = self.options.warnings.clone();
        warnings.extend(self.told.values().cloned());
        let delays = self.beside.delays.borrow().clone();
        warnings.extend(delays.as_ref().err().filter(|why| !why.is_empty()).cloned());
        let mark = NodeAgentMark {
            version: self.options.version.clone(),
            static_pods: self.options.folder_name.clone(),
            taken: taken.to_vec(),
            delays_shutdown: delays.is_ok(),
            warnings,
        };
        self.beside.shown.send_replace(mark.clone());
        if self.mark.as_ref() == Some(&mark) {
            return true;
        }
        let now = self.clock.now();
        // Somebody else writes it too: that is no reason to write it without end.
        if self.marked.as_ref().is_some_and(|(last, at)| *last == mark && now < *at + TRY_AGAIN) {
            return false;
        }
        let patch = json!({"metadata": {"annotations": {NODE_AGENT_ANNOTATION: mark.text()}}});
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        let done =
            nodes.patch(&self.options.node, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch)).await;
        match done {
            Ok(_) => {
                self.marked = Some((mark.clone(), now));
                self.mark = Some(mark);
            }
            Err(why) => tracing::warn!(why = kind_of(&why), "the node could not be marked"),
        }
        self.mark.as_ref().is_some_and(|mark| mark.taken == taken)
    }
}

fn taken(contents: &Contents, announced: &[String]) -> Vec<String> {
    let mut files: Vec<String> = contents.taken.iter().map(|taken| taken.file.clone()).collect();
    files.extend(announced.iter().filter(|file| !contents.taken.iter().any(|it| it.file == **file)).cloned());
    files.sort();
    files
}

fn runs_its_static_pods(node: &core::Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let mark = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_AGENT_ANNOTATION));
    let has_taken =
        mark.and_then(|text| NodeAgentMark::read(text)).is_some_and(|mark| !mark.taken.is_empty());
    is_ready && !has_taken
}

fn annotation() -> String {
    format!("{INTERCEPTOR_ANNOTATION_PREFIX}{KUBELET_CLASS}")
}

fn key_of(pod: &Lenient<PodOnWire>) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&pod.meta().namespace), text(&pod.meta().name))
}
