//! Shutdowns of the node become maintenances (KEP-4212, "kubelet: Graceful Node Shutdown"): its pods are asked to leave in the order of
//! the plan, and the shutdown waits for them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::watch;
use usher_api::lenient::Lenient;
use usher_api::names::{
    NODE_AGENT_BOOT_ANNOTATION, NODE_AGENT_CAUSE_ANNOTATION, NODE_AGENT_DEADLINE_ANNOTATION,
};
use usher_api::{
    DrainPlanEntry, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStage as Stage, PodType,
};
use usher_apply::{Clock, Events, Interceptions, kind_of};
use usher_decide::interceptors::Effect;
use usher_decide::snapshot::{Node, NodeOnWire, Owner, Pod, PodOnWire};

use crate::kubelet::GracePeriod;
use crate::logind::{Inhibitor, Logind, LogindError};
use crate::shutdown_limit::ShutdownLimit;

/// How often it is looked whether the pods have ended, and how long the API server is waited for each time.
const PAUSE: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// Between two tries to reach logind again.
const RECONNECT: Duration = Duration::from_secs(10);
/// So many priorities fit into a plan, beside those that every plan has.
const PRIORITIES_MAX: usize = 28;
/// So many pods are named.
const NAMED: usize = 10;

/// Why the node goes down: it says so in its maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// logind said so, and says so too if it is cancelled.
    Shutdown,
    /// Somebody gave notice, and takes it back by completing the maintenance.
    Notice,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Notice => "notice",
        }
    }
}

/// What is known of the node's own maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    pub uid: String,
    /// It is not completed and not being deleted.
    pub is_active: bool,
    pub is_deleting: bool,
    pub boot: String,
    pub is_of_shutdown: bool,
}

/// What is seen while the node is to go down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The API server does not answer.
    Nothing,
    /// It answers, and refuses to tell, since then.
    Refused {
        since: Timestamp,
    },
    Cluster {
        phase: Option<String>,
        own: Option<Own>,
    },
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Create,
    /// The maintenance of an earlier time has to go first.
    Remove,
    Wait,
    /// Nobody can be asked: what can be ended without the API server is ended.
    EndAlone,
    /// All pods have ended.
    Done,
    /// There is no more time.
    GiveUp,
}

/// Refusals are waited out for so long.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// A maintenance of the node that drains already is joined: there is one only if none does.
pub fn decide(seen: &Seen, until: Timestamp, now: Timestamp) -> Step {
    match seen {
        Seen::Cluster { phase: Some(phase), .. } if phase == "Drained" => Step::Done,
        _ if now >= until => Step::GiveUp,
        Seen::Nothing => Step::EndAlone,
        // A server that is busy, or is being restarted, is back soon.
        Seen::Refused { since } if now.duration_since(*since) < REFUSED_FOR => Step::Wait,
        Seen::Refused { .. } => Step::EndAlone,
        Seen::Cluster { phase: Some(phase), .. } if phase == "Draining" => Step::Wait,
        Seen::Cluster { own: Some(own), .. } if own.is_active => Step::Wait,
        Seen::Cluster { own: Some(own), .. } if own.is_deleting => Step::Wait,
        Seen::Cluster { own: Some(_), .. } => Step::Remove,
        Seen::Cluster { own: None, .. } => Step::Create,
    }
}

/// Whether the maintenance is to go while no shutdown is under way: it was cancelled, or the node has started again.
pub fn is_over(own: &Own, boot: &str, complete_after_boot: bool) -> bool {
    if own.boot == boot {
        own.is_of_shutdown && !own.is_deleting
    } else {
        complete_after_boot && !own.is_deleting
    }
}

/// The priorities of the kubelet's configuration, without the seconds: pods below each next one leave before those from it on.
pub fn plan(periods: &[GracePeriod]) -> Vec<DrainPlanEntry> {
    let priorities: BTreeSet<i32> = periods.iter().map(|it| it.priority).collect();
    let bounds: Vec<i32> = priorities.into_iter().skip(1).map(|it| it.saturating_sub(1)).collect();
    if bounds.len() > PRIORITIES_MAX {
        return Vec::new();
    }
    let kinds = [PodType::Default, PodType::DaemonSet, PodType::Static];
    kinds.into_iter().flat_map(|kind| bounds.iter().map(move |it| DrainPlanEntry::up_to(*it, kind))).collect()
}

/// Up to which priority static pods are ended after this long, if nobody can be asked: each group has its seconds, and the next one
/// begins after them.
pub fn alone_up_to(periods: &[GracePeriod], since: SignedDuration) -> i32 {
    let mut sorted: Vec<&GracePeriod> = periods.iter().collect();
    sorted.sort_by_key(|it| it.priority);
    let mut passed = SignedDuration::ZERO;
    for (at, period) in sorted.iter().enumerate() {
        passed += SignedDuration::from_secs(period.shutdown_grace_period_seconds.max(0));
        if since < passed {
            return sorted.get(at + 1).map_or(i32::MAX, |next| next.priority.saturating_sub(1));
        }
    }
    i32::MAX
}

#[derive(Debug, Clone)]
pub struct Options {
    pub node: String,
    pub boot: String,
    pub periods: Vec<GracePeriod>,
    pub complete_after_boot: bool,
    /// If logind is to let shutdowns wait longer than it does by itself.
    pub limit: Option<ShutdownLimit>,
}

/// The name of the maintenance that an agent makes for its node. Policies let it have no other.
pub fn maintenance_name(node: &str) -> String {
    format!("shutdown-{node}")
}

pub fn maintenance(
    options: &Options,
    cause: Cause,
    reason: &str,
    deadline: Option<Timestamp>,
) -> NodeMaintenance {
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![options.node.clone()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![by_name]), match_expressions: None };
    let spec = NodeMaintenanceSpec {
        node_selector: NodeSelector { node_selector_terms: vec![term] },
        stage: Stage::Drain,
        drain_plan: plan(&options.periods),
        reason: reason.to_owned(),
        ..NodeMaintenanceSpec::default()
    };
    let mut object = NodeMaintenance::new(&maintenance_name(&options.node), spec);
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(NODE_AGENT_BOOT_ANNOTATION.to_owned(), options.boot.clone());
    annotations.insert(NODE_AGENT_CAUSE_ANNOTATION.to_owned(), cause.name().to_owned());
    if let Some(deadline) = deadline {
        annotations.insert(NODE_AGENT_DEADLINE_ANNOTATION.to_owned(), deadline.to_string());
    }
    object
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
}

/// The agent is on its own: since when.
pub type Alone = Option<Timestamp>;

/// What shutdowns do in the cluster.
#[derive(Clone)]
pub struct Shutdown {
    pub client: Client,
    pub clock: Clock,
    pub options: Options,
}

impl Shutdown {
    /// Delays shutdowns until it is dropped. What it needs of logind it asks for again when that was away.
    pub async fn run(
        self,
        bus: String,
        alone: watch::Sender<Alone>,
        state: watch::Sender<Result<(), String>>,
    ) {
        loop {
            if let Err(why) = self.follow(&bus, &alone, &state).await {
                tracing::warn!("{why}");
                let _ = state.send_replace(Err(why.to_string()));
            }
            alone.send_replace(None);
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn follow(
        &self,
        bus: &str,
        alone: &watch::Sender<Alone>,
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
        let mut is_tidy = logind.is_shutting_down().await? || self.tidy().await;
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    None => return Ok(()),
                    Some(true) => {
                        let until = self.clock.now() + logind.longest_delay().await?;
                        self.shut_down(until, &mut inhibitor, &mut signals, alone).await;
                        is_tidy = false;
                    }
                    Some(false) => is_tidy = false,
                },
                () = tokio::time::sleep(PAUSE), if !is_tidy => {
                    is_tidy = logind.is_shutting_down().await? || self.tidy().await;
                }
            }
            if inhibitor.is_none() && !logind.is_shutting_down().await? {
                inhibitor = Some(logind.inhibit().await?);
            }
        }
    }

    /// From the signal until the shutdown goes on, or was cancelled.
    async fn shut_down(
        &self,
        until: Timestamp,
        inhibitor: &mut Option<Inhibitor>,
        signals: &mut (impl futures::Stream<Item = bool> + Unpin),
        alone: &watch::Sender<Alone>,
    ) {
        self.tell(
            false,
            "NodeShutdown",
            format!("the node shuts down: its pods are asked to leave until {until}"),
        )
        .await;
        // Some time is left for what comes after the last moment.
        let until = until - SignedDuration::from_millis(500);
        let mut refused_since = None;
        loop {
            let mut seen = self.see().await;
            match &mut seen {
                Seen::Refused { since } => *since = *refused_since.get_or_insert(*since),
                _ => refused_since = None,
            }
            match decide(&seen, until, self.clock.now()) {
                Step::Create => {
                    alone.send_replace(None);
                    let deadline = Some(until);
                    self.create(&maintenance(&self.options, Cause::Shutdown, "node shutdown", deadline))
                        .await;
                }
                Step::Remove => self.remove(&seen).await,
                Step::Wait => {
                    alone.send_replace(None);
                }
                Step::EndAlone => {
                    let now = self.clock.now();
                    alone.send_if_modified(|since| {
                        since.is_none() && {
                            *since = Some(now);
                            true
                        }
                    });
                }
                Step::Done => {
                    let message = "all pods have ended: the shutdown goes on".to_owned();
                    self.tell(false, "NodeShutdownGoesOn", message).await;
                    break;
                }
                Step::GiveUp => {
                    let left = self.left().await;
                    let message =
                        format!("there is no more time, and the shutdown goes on; left are: {left}");
                    self.tell(true, "NodeShutdownGoesOn", message).await;
                    break;
                }
            }
            tokio::select! {
                signal = signals.next() => if signal != Some(true) {
                    let message = "the shutdown was cancelled: the maintenance is withdrawn".to_owned();
                    self.tell(false, "NodeShutdownCancelled", message).await;
                    break;
                },
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        alone.send_replace(None);
        *inhibitor = None;
    }

    /// An event on the node, if the API server takes it at once: the shutdown does not wait for it.
    async fn tell(&self, is_warning: bool, reason: &'static str, message: String) {
        tracing::warn!(reason, message, "shutdown");
        let telling = async {
            let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
            let node: Node = nodes.get_opt(&self.options.node).await.ok()??.read().ok()?.into();
            let workload =
                Owner { api_version: "v1".into(), kind: "Node".into(), name: node.name, uid: node.uid };
            let events = Events::start(self.client.clone(), self.clock.clone());
            let apply =
                Interceptions::new(self.client.clone(), events.clone(), self.clock.clone(), String::new());
            let tell = Effect::Tell { namespace: "".into(), workload, is_warning, reason, message };
            apply.carry_out(&tell).await.ok()?;
            events.written().await;
            Some(())
        };
        let _ = tokio::time::timeout(TELL_WITHIN, telling).await;
    }

    async fn see(&self) -> Seen {
        let nodes: Api<Lenient<NodeOnWire>> = Api::all(self.client.clone());
        let both =
            async { Ok::<_, kube::Error>((nodes.get_opt(&self.options.node).await?, self.own().await?)) };
        match tokio::time::timeout(ANSWER_WITHIN, both).await {
            Ok(Ok((node, own))) => {
                let node: Option<Node> = node.and_then(|node| node.read().ok()).map(Node::from);
                // What the node says counts while a maintenance holds it.
                let phase = node.filter(|node| node.held_by.is_some()).and_then(|node| node.phase);
                Seen::Cluster { phase, own }
            }
            Ok(Err(why)) => {
                tracing::warn!(why = kind_of(&why), "the API server cannot be asked");
                match why {
                    kube::Error::Api(_) => Seen::Refused { since: self.clock.now() },
                    _ => Seen::Nothing,
                }
            }
            Err(_) => Seen::Nothing,
        }
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
    pub async fn give_notice(&self, reason: &str, deadline: Timestamp) -> Result<(), NoNotice> {
        let new = maintenance(&self.options, Cause::Notice, reason, Some(deadline));
        loop {
            let why = match tokio::time::timeout(ANSWER_WITHIN, self.notify(&new)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(kube::Error::Api(status))) if [401, 403, 422].contains(&status.code) => {
                    return Err(NoNotice::Refused(status.message));
                }
                Ok(Err(why)) => why.to_string(),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if self.clock.now() + SignedDuration::from_secs(1) >= deadline {
                return Err(NoNotice::TooLate(why));
            }
            tracing::warn!(why, "the notice is tried again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn notify(&self, new: &NodeMaintenance) -> Result<(), kube::Error> {
        match self.own().await? {
            Some(own) if own.is_active => return Ok(()),
            Some(own) if !own.is_deleting => self.delete(&own.uid).await?,
            _ => {}
        }
        self.post(new).await
    }

    /// Whether the node is drained, as far as is known.
    pub async fn is_drained(&self) -> bool {
        matches!(self.see().await, Seen::Cluster { phase: Some(phase), .. } if phase == "Drained")
    }

    /// The pods that are still on the node, for people.
    pub async fn left(&self) -> String {
        let pods: Api<Lenient<PodOnWire>> = Api::all(self.client.clone());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.options.node));
        let Ok(Ok(list)) = tokio::time::timeout(ANSWER_WITHIN, pods.list(&on_node)).await else {
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

    async fn create(&self, new: &NodeMaintenance) {
        match tokio::time::timeout(ANSWER_WITHIN, self.post(new)).await {
            Ok(Ok(())) => tracing::info!("the maintenance of the node was made"),
            Ok(Err(why)) => tracing::warn!(%why, "the maintenance of the node could not be made"),
            Err(_) => tracing::warn!("the API server does not answer"),
        }
    }

    async fn post(&self, new: &NodeMaintenance) -> Result<(), kube::Error> {
        let api: Api<NodeMaintenance> = Api::all(self.client.clone());
        api.create(&PostParams::default(), new).await.map(drop)
    }

    async fn remove(&self, seen: &Seen) {
        let Seen::Cluster { own: Some(own), .. } = seen else { return };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn own(is_active: bool, is_deleting: bool) -> Option<Own> {
        let (uid, boot) = ("u".to_owned(), "b".to_owned());
        Some(Own { uid, is_active, is_deleting, boot, is_of_shutdown: true })
    }

    #[test]
    fn a_shutdown_makes_a_maintenance_or_joins_one_and_waits_until_all_pods_have_ended() {
        let seen = |phase: Option<&str>, own| Seen::Cluster { phase: phase.map(str::to_owned), own };
        for (seen, now, wanted) in [
            (seen(None, None), 0, Step::Create),
            (seen(Some("Cordoned"), None), 0, Step::Create),
            (seen(Some("Draining"), None), 0, Step::Wait),
            (seen(None, own(true, false)), 0, Step::Wait),
            (seen(None, own(false, true)), 0, Step::Wait),
            (seen(None, own(false, false)), 0, Step::Remove),
            (seen(Some("Drained"), own(true, false)), 0, Step::Done),
            (seen(Some("Drained"), None), 100, Step::Done),
            (seen(Some("Draining"), None), 60, Step::GiveUp),
            (seen(None, None), 60, Step::GiveUp),
            (Seen::Nothing, 59, Step::EndAlone),
            (Seen::Refused { since: at(40) }, 49, Step::Wait),
            (Seen::Refused { since: at(40) }, 50, Step::EndAlone),
            (Seen::Nothing, 60, Step::GiveUp),
        ] {
            assert_eq!(decide(&seen, at(60), at(now)), wanted, "{seen:?} at {now}");
        }
    }

    #[test]
    fn a_maintenance_survives_restarts_and_goes_when_the_shutdown_was_cancelled_or_the_node_has_started() {
        let of = |boot: &str, is_of_shutdown| Own {
            boot: boot.into(),
            is_of_shutdown,
            ..own(true, false).unwrap()
        };
        for (own, complete_after_boot, wanted) in [
            (of("now", true), false, true),
            (of("now", false), true, false),
            (of("before", true), false, false),
            (of("before", true), true, true),
            (of("before", false), true, true),
        ] {
            assert_eq!(is_over(&own, "now", complete_after_boot), wanted, "{own:?}");
        }
    }

    fn periods(all: &[(i32, i64)]) -> Vec<GracePeriod> {
        let period = |(priority, seconds): &(i32, i64)| GracePeriod {
            priority: *priority,
            shutdown_grace_period_seconds: *seconds,
        };
        all.iter().map(period).collect()
    }

    #[test]
    fn the_plan_has_the_kubelets_priorities_without_the_seconds() {
        let given = periods(&[(100_000, 10), (10_000, 180), (1000, 120), (0, 60)]);
        let wanted: Vec<DrainPlanEntry> = [PodType::Default, PodType::DaemonSet, PodType::Static]
            .into_iter()
            .flat_map(|kind| [999, 9999, 99_999].map(|it| DrainPlanEntry::up_to(it, kind)))
            .collect();
        assert_eq!(plan(&given), wanted);
        assert!(plan(&[]).is_empty());
        let many: Vec<(i32, i64)> = (0..60).map(|it| (it, 1)).collect();
        assert!(plan(&periods(&many)).is_empty(), "the default entries are left");
    }

    #[test]
    fn alone_pods_end_by_priority_and_each_group_has_its_time() {
        let given = periods(&[(1000, 120), (0, 60)]);
        let up_to = |seconds| alone_up_to(&given, SignedDuration::from_secs(seconds));
        assert_eq!((up_to(0), up_to(59), up_to(60), up_to(500)), (999, 999, i32::MAX, i32::MAX));
        assert_eq!(alone_up_to(&[], SignedDuration::ZERO), i32::MAX);
    }
}
