//! Watches over disruption budgets by what the server has stored, step by step, whatever anybody else believes.
//!
//! An eviction overdraws a budget if too few healthy pods are left. Losses that nobody asked a budget for (a rollout, a
//! lost node, a deletion) are forgiven for a while, as the controller that counts may not have heard of them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use embedded_apiserver::Cluster;
use embedded_apiserver::{EventKind, Key, LogEvent, Object};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::task::JoinHandle;

/// A budget as the test knows it: of the pods with this `app` label, so many must be healthy.
#[derive(Debug, Clone)]
pub struct Watched {
    pub app: &'static str,
    pub least: usize,
}

struct Pod {
    is_deleting: bool,
    status: Status,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
}

impl Pod {
    /// The status is the last field of a stored object. All before it is of no interest here, and is not parsed.
    fn read(object: &Object) -> Option<Self> {
        let (before, status) = object.text().rsplit_once(",\"status\":{")?;
        let status = format!("{{{}", status.strip_suffix('}')?);
        let is_deleting = before.contains("\"deletionTimestamp\":");
        Some(Self { is_deleting, status: serde_json::from_str(&status).ok()? })
    }

    fn has(&self, kind: &str, reason: Option<&str>) -> bool {
        self.status.conditions.iter().any(|condition| {
            condition.kind == kind
                && condition.status == "True"
                && reason.is_none_or(|reason| condition.reason == reason)
        })
    }

    fn is_healthy(&self) -> bool {
        !self.is_deleting && self.has("Ready", None)
    }

    fn is_evicted(&self) -> bool {
        self.has("DisruptionTarget", Some("EvictionByEvictionAPI"))
    }
}

/// What a budget's pods have been through.
struct Ledger {
    watched: Watched,
    healthy: BTreeSet<Key>,
    /// When a healthy pod was lost otherwise than by eviction.
    losses: VecDeque<Timestamp>,
}

/// How many evictions of healthy pods there were, and what was wrong with them.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    pub evictions: usize,
    pub overdrawn: Vec<String>,
    /// Evictions are counted and not judged.
    is_lenient: bool,
}

/// Watches until it is dropped.
pub struct BudgetWatch {
    verdict: Arc<Mutex<Verdict>>,
    watching: JoinHandle<()>,
}

impl Drop for BudgetWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl BudgetWatch {
    /// Watches from the beginning of the cluster on.
    #[must_use]
    pub fn start(cluster: &Cluster, watched: &[Watched], forgiven: SignedDuration) -> Self {
        let verdict = Arc::new(Mutex::new(Verdict::default()));
        let ledgers = watched
            .iter()
            .map(|watched| Ledger {
                watched: watched.clone(),
                healthy: BTreeSet::new(),
                losses: VecDeque::new(),
            })
            .collect();
        let watching = tokio::spawn(watch(cluster.clone(), ledgers, forgiven, verdict.clone()));
        Self { verdict, watching }
    }

    /// While two controllers count, with views of different age, no budget can be relied on: not in a real cluster either.
    pub fn be_lenient(&self, lenient: bool) {
        self.verdict.lock().is_lenient = lenient;
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict.lock().clone()
    }
}

async fn watch(
    cluster: Cluster,
    mut ledgers: Vec<Ledger>,
    forgiven: SignedDuration,
    verdict: Arc<Mutex<Verdict>>,
) {
    let store = &cluster.store();
    let Some(mut grown) = store.grown("pods") else { return };
    let mut revision = 0;
    loop {
        match store.events_after("pods", revision, usize::MAX) {
            Ok((events, reached)) => {
                let now = cluster.now();
                for event in &events {
                    step(&mut ledgers, event, now, forgiven, &mut verdict.lock());
                }
                revision = reached;
            }
            Err(_) => {
                verdict.lock().overdrawn.push("the store has forgotten steps that were not checked".into());
                return;
            }
        }
        if !grown.grown().await {
            return;
        }
    }
}

fn step(
    ledgers: &mut [Ledger],
    event: &LogEvent,
    now: Timestamp,
    forgiven: SignedDuration,
    verdict: &mut Verdict,
) {
    let app = event.object.meta.label("app");
    let Some(ledger) = ledgers.iter_mut().find(|ledger| Some(ledger.watched.app) == app) else { return };
    let Some(after) = Pod::read(&event.object) else {
        verdict.overdrawn.push(format!("{} cannot be read", event.object.key.name));
        return;
    };
    // Every step is seen, so what was healthy before needs not be read again.
    let key = &event.object.key;
    let is = event.kind != EventKind::Deleted && after.is_healthy();
    let was = if is { !ledger.healthy.insert(key.clone()) } else { ledger.healthy.remove(key) };
    while ledger.losses.front().is_some_and(|at| *at + forgiven < now) {
        ledger.losses.pop_front();
    }
    if !was || is {
        return;
    }
    if !after.is_evicted() {
        ledger.losses.push_back(now);
        return;
    }
    verdict.evictions += 1;
    let Ledger { watched, healthy, losses } = ledger;
    let healthy = healthy.len();
    if healthy + losses.len() < watched.least && !verdict.is_lenient {
        verdict.overdrawn.push(format!(
            "{now}: evicting {} left {healthy} of {} healthy, and {} others lost lately, where {} must be",
            event.object.key.name,
            watched.app,
            losses.len(),
            watched.least
        ));
    }
}
