//! Shutdowns of the node become maintenances (KEP-4212, "kubelet: Graceful Node Shutdown"): its pods are asked to leave in the order of
//! the plan, and the shutdown waits for them.

mod decision;

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;
use usher_api::lenient::Lenient;
use usher_api::names::{NODE_AGENT_BOOT_ANNOTATION, NODE_AGENT_CAUSE_ANNOTATION};
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_apply::{Clock, Events, FailureClass, Interceptions, kind_of};
use usher_decide::interceptors::Effect;
use usher_decide::snapshot::{Node, NodeOnWire, NodePhase, Owner, Pod, PodOnWire};

use crate::kubelet::GracePeriod;
use crate::logind::{Inhibitor, Logind, LogindError};
use crate::shutdown_limit::ShutdownLimit;
pub use decision::{
    Cause, Observed, Own, Step, UnderWay, alone_up_to, decide, is_over, maintenance, maintenance_name, plan,
};

/// How often it is looked whether the pods have ended, and how long the API server is waited for each time.
const PAUSE: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// Some time is left for what comes after the last moment.
const FOR_THE_END: SignedDuration = SignedDuration::from_millis(500);
/// A maintenance of a shutdown that is over is looked for so often, for so long: a call that nobody waited for may still be carried out.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_FOR: Duration = Duration::from_secs(60);
/// Between two tries to reach logind again.
const RECONNECT: Duration = Duration::from_secs(10);
/// So many pods are named.
const NAMED: usize = 10;

#[derive(Debug, Clone)]
pub struct Options {
    pub node: String,
    pub boot: String,
    pub periods: Vec<GracePeriod>,
    pub complete_after_boot: bool,
    /// If logind is to let shutdowns wait longer than it does by itself.
    pub limit: Option<ShutdownLimit>,
}

/// A notice that could not be given.
#[derive(Debug, thiserror::Error)]
pub enum NoNotice {
    #[error(
        "the maintenance of the node could not be made: {0}; see that the service account has the rights of deploy/node-agent"
    )]
    Refused(String),
    #[error("the maintenance of the node could not be made until the deadline: {0}")]
    TooLate(String),
    #[error("there is no node {0}: name it with --node")]
    NoNode(String),
}

/// What came of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    Made,
    /// There is a maintenance of the node already, whose deadline stands.
    Joined,
    /// There is one of a shutdown, which goes if that is cancelled.
    JoinedShutdown,
}

/// What the agent has to know of a shutdown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShutdownState {
    pub is_under_way: bool,
    /// The agent is on its own: since when.
    pub alone_since: Option<Timestamp>,
}

/// The last moment of a shutdown that logind has told of just now.
async fn end_of(told: Timestamp, logind: &Logind, before: Duration) -> Timestamp {
    later(told, logind.longest_delay().await.unwrap_or(before)) - FOR_THE_END
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// What shutdowns do in the cluster.
#[derive(Clone)]
pub struct Shutdown {
    pub client: Client,
    pub clock: Clock,
    pub options: Options,
}

impl Shutdown {
    /// Delays shutdowns until it is dropped. What it needs of logind it asks for again when that was away.
    pub fn run(
        self,
        bus: String,
        progress: watch::Sender<ShutdownState>,
        state: watch::Sender<Result<(), String>>,
    ) -> BoxFuture<'static, ()> {
        let running = async move {
            loop {
                if let Err(why) = self.follow(&bus, &progress, &state).await {
                    tracing::warn!("{why}");
                    let _ = state.send_replace(Err(why.to_string()));
                }
                progress.send_replace(ShutdownState::default());
                tokio::time::sleep(RECONNECT).await;
            }
        };
        running.boxed()
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a timer between two looks at logind, by which nothing is decided"
    )]
    async fn follow(
        &self,
        bus: &str,
        progress: &watch::Sender<ShutdownState>,
        state: &watch::Sender<Result<(), String>>,
    ) -> Result<(), LogindError> {
        let logind = Logind::connect(bus).await?;
        if let Some(limit) = &self.options.limit
            && let Err(why) = limit.raise(&logind).await
        {
            tracing::warn!(%why, "the time that logind lets shutdowns wait is not raised");
        }
        let mut signals = logind.shutdowns().await?;
        let mut inhibitor = Some(logind.inhibit().await?);
        let _ = state.send_replace(Ok(()));
        let longest = logind.longest_delay().await?;
        tracing::info!(?longest, "shutdowns of the node are delayed");
        let (mut pause, mut look_until) = (Duration::ZERO, Instant::now() + LOOK_FOR);
        loop {
            let look = async {
                tokio::time::sleep(pause).await;
                Ok::<_, LogindError>(logind.is_shutting_down().await? || self.tidy().await)
            };
            tokio::select! {
                biased;
                signal = signals.next() => {
                    match signal {
                        None => return Ok(()),
                        Some(true) => {
                            self.shut_down((&logind, longest), &mut inhibitor, &mut signals, progress).await;
                        }
                        Some(false) => {}
                    }
                    (pause, look_until) = (PAUSE, Instant::now() + LOOK_FOR);
                }
                is_tidy = look, if pause < LOOK_EVERY || Instant::now() < look_until => {
                    pause = if is_tidy? { LOOK_EVERY } else { PAUSE };
                }
            }
            if inhibitor.is_none() && !logind.is_shutting_down().await? {
                inhibitor = Some(logind.inhibit().await?);
            }
        }
    }

    /// From the signal until the shutdown goes on, or was cancelled. `longest` is what logind granted before: the bus may go at any time.
    async fn shut_down(
        &self,
        (logind, longest): (&Logind, Duration),
        inhibitor: &mut Option<Inhibitor>,
        signals: &mut (impl futures::Stream<Item = bool> + Unpin),
        progress: &watch::Sender<ShutdownState>,
    ) {
        let begun = self.clock.now();
        progress.send_replace(ShutdownState { is_under_way: true, alone_since: None });
        let mut under_way = UnderWay::new(begun, end_of(begun, logind, longest).await);
        let message = format!(
            "the node shuts down: its pods are asked to leave until {}",
            under_way.until + FOR_THE_END
        );
        self.record_event_beside(false, "NodeShutdown", message);
        let mut nothing_since = None;
        // The bus may go before logind does, which holds on to the inhibitor.
        let mut is_deaf = false;
        loop {
            let asked_at = self.clock.now();
            let seen = match self.see(under_way.answer_within(asked_at)).await {
                Some((phase, own)) => {
                    nothing_since = None;
                    under_way.is_asked |= phase.is_some() || own.as_ref().is_some_and(|own| own.is_active);
                    Observed::Cluster { phase, own }
                }
                None => Observed::Nothing { since: *nothing_since.get_or_insert(asked_at) },
            };
            let step = decide(&seen, &under_way, self.clock.now());
            let is_alone = matches!(step, Step::EndAlone | Step::Create { is_alone: true });
            let now = self.clock.now();
            progress.send_if_modified(|state| {
                let alone_since = if is_alone { state.alone_since.or(Some(now)) } else { None };
                std::mem::replace(&mut state.alone_since, alone_since) != alone_since
            });
            match step {
                Step::Create { .. } => {
                    let new =
                        maintenance(&self.options, Cause::Shutdown, "node shutdown", Some(under_way.until));
                    let is_made = self.create(&new, under_way.answer_within(now)).await;
                    under_way.unmade_since = (!is_made).then(|| under_way.unmade_since.unwrap_or(now));
                }
                Step::Remove => self.remove(&seen).await,
                Step::Wait | Step::EndAlone => {}
                Step::Done => {
                    let message = "all pods have ended: the shutdown goes on".to_owned();
                    self.record_event(false, "NodeShutdownGoesOn", message).await;
                    break;
                }
                Step::GiveUp => {
                    let left = self.left(Duration::try_from(FOR_THE_END / 2).unwrap_or_default()).await;
                    let message =
                        format!("there is no more time, and the shutdown goes on; left are: {left}");
                    self.record_event_beside(true, "NodeShutdownGoesOn", message);
                    tokio::time::sleep(Duration::try_from(FOR_THE_END / 2).unwrap_or_default()).await;
                    break;
                }
            }
            tokio::select! {
                signal = signals.next(), if !is_deaf => match signal {
                    // Asked once more, logind gives the whole time again.
                    Some(true) => under_way.until = end_of(self.clock.now(), logind, longest).await,
                    Some(false) => {
                        let message = "the shutdown was cancelled: what was begun for it is taken back".to_owned();
                        self.record_event_beside(false, "NodeShutdownCancelled", message);
                        break;
                    }
                    None => {
                        tracing::warn!("the bus is gone: whether the shutdown is cancelled is not heard any more");
                        is_deaf = true;
                    }
                },
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        progress.send_replace(ShutdownState::default());
        *inhibitor = None;
    }

    fn record_event_beside(&self, is_warning: bool, reason: &'static str, message: String) {
        let this = self.clone();
        tokio::spawn(async move { this.record_event(is_warning, reason, message).await });
    }

    /// An event on the node, if the API server takes it at once: the shutdown does not wait for it.
    async fn record_event(&self, is_warning: bool, reason: &'static str, message: String) {
        tracing::warn!(reason, message, "shutdown");
        let telling = async {
            let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
            let node: Node = nodes.get_opt(&self.options.node).await.ok()??.read().ok()?.into();
            let workload =
                Owner { api_version: "v1".into(), kind: "Node".into(), name: node.name, uid: node.uid };
            let events = Events::start(self.client.clone(), self.clock.clone());
            let apply =
                Interceptions::new(self.client.clone(), events.clone(), self.clock.clone(), String::new());
            let tell = Effect::RecordEvent { namespace: "".into(), workload, is_warning, reason, message };
            apply.carry_out(&tell).await.ok()?;
            events.flush().await;
            Some(())
        };
        let _ = tokio::time::timeout(TELL_WITHIN, telling).await;
    }

    /// What the node says, and its own maintenance. `None` if that is not told.
    async fn see(&self, within: Duration) -> Option<(Option<NodePhase>, Option<Own>)> {
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        let both =
            async { Ok::<_, kube::Error>((nodes.get_opt(&self.options.node).await?, self.own().await?)) };
        let (node, own) = tokio::time::timeout(within, both)
            .await
            .ok()?
            .inspect_err(|why| tracing::warn!(why = kind_of(why), "the API server cannot be asked"))
            .ok()?;
        let node: Option<Node> = node.and_then(|node| node.read().ok()).map(Node::from);
        // What the node says counts while a maintenance holds it.
        let phase = node.filter(|node| node.held_by.is_some()).and_then(|node| node.phase);
        Some((phase, own))
    }

    async fn own(&self) -> Result<Option<Own>, kube::Error> {
        let api: Api<NodeMaintenance> = Api::all(self.client.clone());
        let found = api.get_opt(&maintenance_name(&self.options.node)).await?;
        Ok(found.map(|found| {
            let annotations = found.metadata.annotations.unwrap_or_default();
            let says = |name: &str| annotations.get(name).cloned().unwrap_or_default();
            let is_deleting = found.metadata.deletion_timestamp.is_some();
            Own {
                uid: found.metadata.uid.unwrap_or_default(),
                is_active: !is_deleting && found.spec.stage != Stage::Complete,
                is_deleting,
                boot: says(NODE_AGENT_BOOT_ANNOTATION),
                is_of_shutdown: says(NODE_AGENT_CAUSE_ANNOTATION) == Cause::Shutdown.name(),
            }
        }))
    }

    /// Tries until the deadline, unless it must not.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn give_notice(&self, reason: &str, deadline: Timestamp) -> Result<Noticed, NoNotice> {
        let new = maintenance(&self.options, Cause::Notice, reason, Some(deadline));
        loop {
            let why = match tokio::time::timeout(ANSWER_WITHIN, self.notify(&new)).await {
                Ok(Ok(Some(noticed))) => return Ok(noticed),
                Ok(Ok(None)) => return Err(NoNotice::NoNode(self.options.node.clone())),
                // A server that is just changed may answer 400: that is tried again, as long as there is time.
                Ok(Err(kube::Error::Api(status)))
                    if status.code != 400 && FailureClass::of_code(status.code).is_refused() =>
                {
                    return Err(NoNotice::Refused(status.message));
                }
                Ok(Err(why)) => why.to_string(),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if later(self.clock.now(), PAUSE) >= deadline {
                return Err(NoNotice::TooLate(why));
            }
            tracing::warn!(why, "the notice is tried again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// `None` if there is no such node.
    async fn notify(&self, new: &NodeMaintenance) -> Result<Option<Noticed>, kube::Error> {
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        if nodes.get_opt(&self.options.node).await?.is_none() {
            return Ok(None);
        }
        match self.own().await? {
            Some(own) if own.is_active && own.is_of_shutdown => return Ok(Some(Noticed::JoinedShutdown)),
            Some(own) if own.is_active => return Ok(Some(Noticed::Joined)),
            Some(own) if !own.is_deleting => self.delete(&own.uid).await?,
            _ => {}
        }
        self.post(new).await.map(|()| Some(Noticed::Made))
    }

    /// Whether the node is drained, as far as is known.
    pub async fn is_drained(&self) -> bool {
        let seen = self.see(ANSWER_WITHIN).await;
        seen.and_then(|(phase, _)| phase).is_some_and(|phase| phase == NodePhase::Drained)
    }

    /// Whether there is no maintenance of this node, as far as is known.
    pub async fn is_withdrawn(&self) -> bool {
        self.see(ANSWER_WITHIN).await.is_some_and(|(_, own)| own.is_none())
    }

    /// The pods that are still on the node, for people.
    pub async fn left(&self, within: Duration) -> String {
        let pods: Api<Lenient<PodOnWire>> = Api::all(self.client.clone());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.options.node));
        let Ok(Ok(list)) = tokio::time::timeout(within, pods.list(&on_node)).await else {
            return "which pods are left cannot be found out".to_owned();
        };
        let pods = list.items.into_iter().filter_map(|pod| pod.read().ok()).map(Pod::from);
        let names: Vec<String> =
            pods.filter(|pod| !pod.phase.is_terminal()).map(|pod| pod.key.to_string()).collect();
        if names.is_empty() {
            return "none, but no manager has said that the node is drained".to_owned();
        }
        let more = names.len().saturating_sub(NAMED);
        let named = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if more == 0 { named } else { format!("{named} and {more} more") }
    }

    /// Whether it was made, or somebody was faster.
    async fn create(&self, new: &NodeMaintenance, within: Duration) -> bool {
        match tokio::time::timeout(within, self.post(new)).await {
            Ok(Ok(())) => {
                tracing::info!("the maintenance of the node was made");
                return true;
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return true,
            Ok(Err(why)) => tracing::warn!(%why, "the maintenance of the node could not be made"),
            Err(_) => tracing::warn!("the API server does not answer"),
        }
        false
    }

    async fn post(&self, new: &NodeMaintenance) -> Result<(), kube::Error> {
        let api: Api<NodeMaintenance> = Api::all(self.client.clone());
        api.create(&PostParams::default(), new).await.map(drop)
    }

    async fn remove(&self, seen: &Observed) {
        let Observed::Cluster { own: Some(own), .. } = seen else { return };
        match tokio::time::timeout(ANSWER_WITHIN, self.delete(&own.uid)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                tracing::warn!(
                    why = kind_of(&why),
                    "an earlier maintenance of the node could not be removed"
                );
            }
            Err(_) => tracing::warn!("the API server does not answer"),
        }
    }

    async fn delete(&self, uid: &str) -> Result<(), kube::Error> {
        let api: Api<NodeMaintenance> = Api::all(self.client.clone());
        let this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let name = maintenance_name(&self.options.node);
        match api.delete(&name, &DeleteParams::default().preconditions(this)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Without a shutdown under way, no maintenance is left of one that was cancelled. Whether nothing is left to do.
    async fn tidy(&self) -> bool {
        match tokio::time::timeout(ANSWER_WITHIN, self.own()).await {
            Ok(Ok(None)) => true,
            Ok(Ok(Some(own))) if is_over(&own, &self.options.boot, self.options.complete_after_boot) => {
                tracing::info!("the maintenance of the node is withdrawn: there is no shutdown");
                matches!(tokio::time::timeout(ANSWER_WITHIN, self.delete(&own.uid)).await, Ok(Ok(())))
            }
            Ok(Ok(Some(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
