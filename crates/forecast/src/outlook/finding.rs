//! What a drain would meet, in the order of how bad it is, with what the reader can do.

use usher_api::NodeMaintenanceStage as Stage;
use usher_decide::snapshot::{BudgetRule, Key};

use super::fit::Misfit;
use super::overlap::Overlap;
use super::workloads::{Opted, Surging};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Pods that stay until somebody does something: the drain does not end by itself.
    Never,
    /// Something is lost for good.
    Loss,
    /// Pods that leave and find no place.
    NoPlace,
    /// It takes longer.
    Delay,
    /// It goes as it should, and is good to know.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// More than one budget speaks for the pods.
    TwoBudgets {
        budgets: Vec<Key>,
        pods: Vec<Key>,
    },
    /// A budget that lets nobody go, now or later.
    ClosedBudget {
        budget: Key,
        rule: BudgetRule,
        expected: i32,
        pods: Vec<Key>,
        /// Their Deployments that would surge if they had a `maxSurge`.
        without_surge: Vec<Key>,
        /// Their Deployments that would surge if there were room.
        without_room: Vec<Key>,
    },
    /// The disruption controller cannot count the pods of the budget, and so lets nobody go.
    FailedBudget {
        budget: Key,
        why: String,
        pods: Vec<Key>,
    },
    MirrorPods {
        pods: Vec<Key>,
    },
    /// They leave after all others, and come back afterwards; or they stay, if their DaemonSet opted out.
    DaemonSet {
        owner: Key,
        stays: bool,
        pods: Vec<Key>,
    },
    /// The interceptor that would take them off is switched off, and nobody else ends them.
    UnansweredDaemonSet {
        owner: Key,
        pods: Vec<Key>,
    },
    /// A workload that opted in to its `maxUnavailable`, and lets so many go at a time.
    MaxUnavailable {
        owner: Opted,
        at_once: u32,
        rounds: usize,
        pods: Vec<Key>,
    },
    /// A Deployment that surges by so many before its pods go, which asks no budget.
    Surge {
        owner: Key,
        surging: Surging,
        rounds: usize,
        pods: Vec<Key>,
    },
    /// Nobody makes new ones.
    NoOwner {
        pods: Vec<Key>,
    },
    LocalData {
        pods: Vec<Key>,
    },
    NoPlace(Misfit),
    Overlap(Overlap),
    /// The disruption controller has not counted the pods of the budget yet.
    UncountedBudget {
        budget: Key,
        pods: Vec<Key>,
    },
    SlowBudget {
        budget: Key,
        allowed: i32,
        at_once: i32,
        rounds: usize,
        pods: Vec<Key>,
    },
    /// `only_way`: so many of the pods leave by it or not at all.
    Interceptor {
        class: String,
        only_way: usize,
        pods: Vec<Key>,
    },
}

impl Finding {
    pub fn severity(&self) -> Severity {
        match self {
            Self::TwoBudgets { .. }
            | Self::ClosedBudget { .. }
            | Self::FailedBudget { .. }
            | Self::UnansweredDaemonSet { .. }
            | Self::MirrorPods { .. } => Severity::Never,
            Self::NoOwner { .. } | Self::LocalData { .. } => Severity::Loss,
            Self::NoPlace(_) => Severity::NoPlace,
            Self::Overlap(_)
            | Self::UncountedBudget { .. }
            | Self::SlowBudget { .. }
            | Self::MaxUnavailable { .. }
            | Self::Interceptor { .. } => Severity::Delay,
            Self::DaemonSet { .. } | Self::Surge { .. } => Severity::Note,
        }
    }

    /// Within a severity, what is seldom meant comes before what most clusters have.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::TwoBudgets { .. } => 0,
            Self::ClosedBudget { .. } => 1,
            Self::FailedBudget { .. } => 2,
            Self::UnansweredDaemonSet { .. } => 3,
            Self::MirrorPods { .. } => 4,
            Self::NoOwner { .. } => 5,
            Self::LocalData { .. } => 6,
            Self::NoPlace(_) => 7,
            Self::Overlap(overlap) if overlap.is_waited_for || overlap.pushes => 8,
            Self::UncountedBudget { .. } => 9,
            Self::SlowBudget { .. } => 10,
            Self::Interceptor { .. } => 11,
            Self::MaxUnavailable { .. } => 12,
            Self::Overlap(_) => 13,
            Self::Surge { .. } => 14,
            Self::DaemonSet { .. } => 15,
        }
    }

    pub fn pods(&self) -> &[Key] {
        match self {
            Self::TwoBudgets { pods, .. }
            | Self::ClosedBudget { pods, .. }
            | Self::FailedBudget { pods, .. }
            | Self::MirrorPods { pods }
            | Self::DaemonSet { pods, .. }
            | Self::UnansweredDaemonSet { pods, .. }
            | Self::MaxUnavailable { pods, .. }
            | Self::Surge { pods, .. }
            | Self::NoOwner { pods }
            | Self::LocalData { pods }
            | Self::UncountedBudget { pods, .. }
            | Self::SlowBudget { pods, .. }
            | Self::Interceptor { pods, .. } => pods,
            Self::NoPlace(misfit) => &misfit.pods,
            Self::Overlap(_) => &[],
        }
    }

    pub fn sentence(&self) -> String {
        let count = self.pods().len();
        let pods = pods(count);
        let have = if count == 1 { "has" } else { "have" };
        match self {
            Self::TwoBudgets { budgets, .. } => format!(
                "{pods} {have} more than one disruption budget ({}), and the eviction API refuses such pods",
                joined(budgets)
            ),
            Self::ClosedBudget { budget, rule, expected, .. } => {
                format!(
                    "{pods} cannot be evicted: budget {budget} has {rule} and {}",
                    self::pods(usize::try_from(*expected).unwrap_or(0))
                )
            }
            Self::FailedBudget { budget, why, .. } => {
                format!("{pods} cannot be evicted: the pods of budget {budget} cannot be counted ({why})")
            }
            Self::MirrorPods { .. } => {
                let are = if count == 1 { "is" } else { "are" };
                format!("{pods} {are} static: only the kubelet can stop a static pod")
            }
            Self::DaemonSet { owner, stays: true, .. } => {
                let (stay, them) = if count == 1 { ("stays", "it") } else { ("stay", "them") };
                format!(
                    "{pods} of DaemonSet {owner} {stay}, as it opted out; the drain does not wait for {them}"
                )
            }
            Self::DaemonSet { owner, stays: false, .. } => {
                let (leave, come) = if count == 1 { ("leaves", "comes") } else { ("leave", "come") };
                format!(
                    "{pods} of DaemonSet {owner} {leave} last, and {come} back when the maintenance completes"
                )
            }
            Self::UnansweredDaemonSet { owner, .. } => {
                let stay = if count == 1 { "stays" } else { "stay" };
                format!(
                    "{pods} of DaemonSet {owner} {stay}: the manager runs without the interceptor of DaemonSets"
                )
            }
            Self::MaxUnavailable { owner, at_once, rounds, .. } => {
                let rounds = format!("{rounds} round{}", if *rounds == 1 { "" } else { "s" });
                let Opted { kind, key } = owner;
                format!("{pods} of {kind} {key}, which lets {at_once} go at a time: at least {rounds}")
            }
            Self::Surge { owner, surging: Surging { by, hands_over }, rounds, .. } => {
                let rounds = format!("{rounds} round{}", if *rounds == 1 { "" } else { "s" });
                let how = match (hands_over, by) {
                    (false, by) => format!("surges by {by}"),
                    (true, 1) => "hands over 1 pod at a time".to_string(),
                    (true, by) => format!("hands over {by} pods at a time"),
                };
                format!("{pods} of Deployment {owner}, which {how}: no downtime, at least {rounds}")
            }
            Self::NoOwner { .. } => format!("{pods} {have} no controller and will not be recreated"),
            Self::LocalData { .. } => format!("{pods} {have} emptyDir data, which is deleted with the pod"),
            Self::NoPlace(misfit) => no_place(misfit, &pods),
            Self::Overlap(overlap) => overlap_sentence(overlap),
            Self::UncountedBudget { budget, .. } => {
                format!(
                    "{pods} cannot be evicted until budget {budget} is counted by the disruption controller"
                )
            }
            Self::SlowBudget { budget, allowed, at_once, rounds, .. } => {
                format!(
                    "{pods} of budget {budget}, which allows {allowed} now and {at_once} at a time: at least {rounds} round{}",
                    if *rounds == 1 { "" } else { "s" }
                )
            }
            Self::Interceptor { class, only_way, .. } => {
                let only = match only_way {
                    0 => String::new(),
                    only => format!("; {only} of them cannot be evicted otherwise"),
                };
                format!("{pods} {have} the interceptor {class}, which the drain waits for{only}")
            }
        }
    }

    pub fn advice(&self) -> String {
        match self {
            Self::TwoBudgets { budgets, .. } => {
                format!("change the selectors of {} so that only one selects the pod", joined(budgets))
            }
            Self::ClosedBudget { rule, expected, without_surge, without_room, .. } => {
                let first = "so that new pods come first and no budget is asked";
                let mut ways = Vec::new();
                if !without_surge.is_empty() {
                    ways.push(format!("set maxSurge of Deployment {} to 1, {first}", joined(without_surge)));
                }
                if !without_room.is_empty() {
                    ways.push(format!("make room for Deployment {}, {first}", joined(without_room)));
                }
                ways.push(rule.remedy(*expected));
                ways.join("; or ")
            }
            Self::FailedBudget { .. } => {
                "see the events of the budget; its pods need a controller with a scale".to_string()
            }
            Self::MirrorPods { .. } => {
                "run the node agent there (deploy/node-agent), remove the manifests on the node, or follow the drain with --ignore-daemonsets"
                    .to_string()
            }
            Self::DaemonSet { .. } => "nothing".to_string(),
            Self::Surge { .. } => "nothing; a larger maxSurge makes it faster".to_string(),
            Self::UnansweredDaemonSet { .. } => {
                "name daemonset in the manager's flag --interceptors, or follow the drain with --ignore-daemonsets"
                    .to_string()
            }
            Self::MaxUnavailable { .. } => "nothing; a larger maxUnavailable, or evict-max-unavailable where it is annotated with that, makes it faster".to_string(),
            Self::NoOwner { .. } => "save what you need; drain them with --force".to_string(),
            Self::LocalData { .. } => {
                "copy the data first, unless it is a cache; drain them with --delete-emptydir-data".to_string()
            }
            Self::NoPlace(misfit) if misfit.nodes == 0 => {
                "leave some nodes out: a drainLimit does not help, for all selected nodes are cordoned from the start"
                    .to_string()
            }
            Self::NoPlace(_) => {
                "add nodes, or drain fewer at a time in separate maintenances; until then the pods stay Pending, and those of Deployments \
                 that surge stay where they are until their deadline"
                    .to_string()
            }
            Self::Overlap(overlap) if overlap.is_waited_for => {
                format!("nothing, or complete {} first", overlap.maintenance)
            }
            Self::Overlap(overlap) if overlap.pushes => {
                format!("give both the same plan, or wait until {} is complete", overlap.maintenance)
            }
            Self::Overlap(_) => "nothing".to_string(),
            Self::UncountedBudget { .. } => {
                "wait; if it lasts, see whether the disruption controller runs".to_string()
            }
            Self::SlowBudget { allowed: ..=0, .. } => {
                "see that its pods that are not ready become ready".to_string()
            }
            Self::SlowBudget { .. } => "nothing; more replicas or a wider budget make it faster".to_string(),
            Self::Interceptor { .. } => {
                "check that it runs; without progress it loses its turn after the deadline".to_string()
            }
        }
    }
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_string() } else { format!("{count} pods") }
}

fn joined(keys: &[Key]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn no_place(misfit: &Misfit, pods: &str) -> String {
    if misfit.nodes == 0 {
        return format!("{pods} will not fit: no node remains");
    }
    let why: Vec<String> = misfit.why.iter().map(|(why, nodes)| format!("{nodes} {why}")).collect();
    format!("{pods} will not fit: 0/{} nodes are available: {}", misfit.nodes, why.join(", "))
}

fn overlap_sentence(overlap: &Overlap) -> String {
    let (name, nodes) = (&overlap.maintenance, overlap.nodes.len());
    match overlap.stage {
        Stage::Idle => {
            format!("maintenance {name} is planned for {nodes} of these nodes, and changes nothing yet")
        }
        Stage::Cordon | Stage::Complete => {
            format!(
                "maintenance {name} also holds {nodes} of these nodes; they stay cordoned until both are complete"
            )
        }
        Stage::Drain => {
            let order = match (overlap.is_waited_for, overlap.waits, overlap.pushes) {
                (_, _, true) => {
                    "its plan contradicts this one and, being older, wins: some pods are evicted earlier than planned"
                }
                (true, ..) => "this one waits until it has reached the same pods",
                (_, true, _) => "it would wait until this one has reached the same pods",
                _ => "their plans agree",
            };
            format!("maintenance {name} also drains {nodes} of these nodes: {order}")
        }
    }
}
