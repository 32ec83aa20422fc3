//! NodeMaintenance: the intent to empty a set of nodes, in stages and in an order.
//!
//! Schema and CEL rules hold stage transitions and the shape of the drain plan. To the webhook is left what needs other objects or
//! the caller's rights: the entries every plan contains are added, the caller may delete all nodes that can ever be selected, and
//! a selector that matches every node gets a warning. That drain targets never go back is kept by the controller.

#![allow(clippy::duplicated_attributes, reason = "columns of the same type repeat their type")]

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The highest priority of user-defined priority classes.
pub const HIGHEST_USER_PRIORITY: i32 = 1_000_000_000;
/// The priority of system-cluster-critical.
pub const SYSTEM_CLUSTER_CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The priority of system-node-critical.
pub const SYSTEM_NODE_CRITICAL_PRIORITY: i32 = 2_000_001_000;

/// So many entries a drain plan holds, those included that every plan contains.
pub const MAX_DRAIN_PLAN_ENTRIES: usize = 100;

/// So many nodes that lost their labels are listed.
pub const LEFT_NODES_MAX: usize = 100;

/// Which nodes, how far, and in which order their pods leave.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "nodemaintenance.k8s.io",
    version = "v1alpha1",
    kind = "NodeMaintenance",
    plural = "nodemaintenances",
    shortname = "nm",
    status = "NodeMaintenanceStatus",
    derive = "PartialEq",
    doc = "NodeMaintenance is the intent to remove the pods from a set of nodes, so that the nodes can be worked on.",
    annotation("api-approved.kubernetes.io", "unapproved, experimental implementation of the proposed API"),
    printcolumn(
        name = "Stage",
        type_ = "string",
        json_path = ".spec.stage",
        description = "Stage that is asked for"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.nodes",
        description = "Nodes that are selected"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.drainStatus.podsPendingEviction",
        description = "Pods that have not started to leave"
    ),
    printcolumn(
        name = "Evicting",
        type_ = "integer",
        json_path = ".status.drainStatus.podsEvicting",
        description = "Pods with an eviction request"
    ),
    printcolumn(
        name = "Drained",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drained")].status"#,
        description = "Whether all targeted pods have left"
    ),
    printcolumn(
        name = "ETA",
        type_ = "string",
        json_path = ".status.drainStatus.expectedFinishTime",
        description = "When the drain is expected to be done"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".spec.reason",
        description = "Why the maintenance is done"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Drained-Nodes",
        type_ = "integer",
        json_path = ".status.drainStatus.nodesDrained",
        description = "Nodes that all targeted pods have left",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.drainStatus.drainMessage",
        priority = 1
    )
)]
#[x_kube(
    validation = Rule::new(
        "(has(self.drainPlan) && size(self.drainPlan) > 0) == (has(oldSelf.drainPlan) && size(oldSelf.drainPlan) > 0)"
    ).message("drainPlan is immutable: it cannot be added or removed after creation")
)]
pub struct NodeMaintenanceSpec {
    /// NodeSelector selects the nodes of this maintenance, those that join later included. Whoever may not delete all nodes
    /// names them: a term for each, with matchFields on metadata.name.
    #[schemars(schema_with = "crate::schema::node_selector")]
    pub node_selector: NodeSelector,

    /// Stage: Idle -> Cordon -> Drain -> Complete, Idle by default. Stages can be skipped, but a maintenance never goes back.
    /// A maintenance that is deleted moves to Complete first, unless it is Idle.
    #[serde(default)]
    #[x_kube(validation = Rule::new(
        "self == oldSelf || oldSelf == 'Idle' || (oldSelf == 'Cordon' && self != 'Idle') || self == 'Complete'"
    ).message("stage can only move forward: Idle -> Cordon -> Drain -> Complete"))]
    pub stage: NodeMaintenanceStage,

    /// DrainPlan is worked off from the first entry to the last during the Drain stage. Pod types come in the order Default ->
    /// DaemonSet -> Static, priorities ascend within each pod type, and entries are unique. With equal priority and pod type
    /// the entries with a pod selector are executed first.
    /// Entries for the priorities 1000000000, 2000000000, 2000001000 and 2147483647 of every pod type are added on creation,
    /// which leaves room for 88 others.
    /// Immutable: what was given on creation can be given again, with or without the entries that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_DRAIN_PLAN_ENTRIES))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self == oldSelf").message("drainPlan is immutable"),
        validation = Rule::new(
            "self.map(e, e.podType == 'Default' ? 0 : (e.podType == 'DaemonSet' ? 1 : 2)).isSorted()"
        ).message("drainPlan entries must be ordered by podType: Default -> DaemonSet -> Static"),
        validation = Rule::new(
            "['Default', 'DaemonSet', 'Static'].all(t, self.filter(e, e.podType == t).map(e, e.podPriority).isSorted())"
        ).message("drainPlan entries of the same podType must be in ascending order of podPriority"),
        validation = Rule::new("self.all(a, self.exists_one(b, a == b))").message("drainPlan entries must be unique")
    )]
    pub drain_plan: Vec<DrainPlanEntry>,

    /// DrainLimit: how many nodes are drained at once. All of them if it is left out. All selected nodes are cordoned from the
    /// start, so that no pod moves onto a node that comes later. Nodes are taken in waves, those with the fewest pods first; the
    /// drain plan is worked off for one wave, and the next wave starts when the nodes of the last are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DrainLimit")]
    pub drain_limit: Option<DrainLimit>,

    /// Reason for the maintenance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// How far a maintenance is to go. The order of the variants is the order of the stages.
#[derive(
    JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum NodeMaintenanceStage {
    /// Planned; nothing in the cluster is touched.
    #[default]
    Idle,
    /// The selected nodes take no new pods.
    Cordon,
    /// The nodes take no new pods, and their pods are asked to leave.
    Drain,
    /// The maintenance withdraws its requests and makes its nodes schedulable again.
    Complete,
}

impl NodeMaintenanceStage {
    /// Whether a maintenance may go from this stage to that one: stages can be skipped and never go back.
    pub fn may_become(self, next: Self) -> bool {
        self <= next
    }
}

/// Which kind of pods an entry means. The order of the variants is the order in which they leave.
#[derive(
    JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
)]
pub enum PodType {
    /// All pods but those of DaemonSets and static pods.
    #[default]
    Default,
    /// Pods of DaemonSets.
    DaemonSet,
    /// Static pods.
    Static,
}

/// A step of a drain plan: pods of a type, up to a priority, with certain labels.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainPlanEntry {
    /// PodSelector selects pods by their labels, so that some of the same priority leave first. All pods if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// PodPriority: pods of this priority or a lower one are selected.
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub pod_priority: i32,
    /// PodType: Default selects all pods but those of DaemonSets and static pods, DaemonSet and Static select these.
    #[serde(default)]
    pub pod_type: PodType,
}

impl DrainPlanEntry {
    /// An entry for all pods of a type up to a priority.
    pub fn up_to(pod_priority: i32, pod_type: PodType) -> Self {
        Self { pod_selector: None, pod_priority, pod_type }
    }
}

/// How many nodes of a maintenance are drained at once.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "string(self.maxNodes).matches('^([1-9][0-9]{0,8}|([1-9][0-9]?|100)%)$')"
).message("maxNodes must be a number of nodes, 1 or more, or a percentage from 1% to 100%"))]
pub struct DrainLimit {
    /// MaxNodes is a number of nodes or a percentage of the selected ones, rounded up.
    #[schemars(schema_with = "crate::schema::int_or_string")]
    pub max_nodes: IntOrString,
    /// TopologyKey is the label of a node by which the limit is counted, such as topology.kubernetes.io/zone: then maxNodes is
    /// for each of its values, and for the nodes without the label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 317))]
    pub topology_key: String,
}

impl DrainLimit {
    /// How many of so many nodes. At least one, so that a limit never stops a drain.
    pub fn of(&self, nodes: usize) -> usize {
        let at_most = match &self.max_nodes {
            IntOrString::Int(count) => usize::try_from(*count).unwrap_or(1),
            IntOrString::String(text) => match text.strip_suffix('%') {
                Some(percent) => (nodes * percent.parse::<usize>().unwrap_or(0).min(100)).div_ceil(100),
                None => text.parse().unwrap_or(1),
            },
        };
        at_most.max(1)
    }
}

/// The entries that every drain plan contains once it is admitted, in order.
pub fn default_drain_plan() -> Vec<DrainPlanEntry> {
    let priorities =
        [HIGHEST_USER_PRIORITY, SYSTEM_CLUSTER_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY, i32::MAX];
    [PodType::Default, PodType::DaemonSet, PodType::Static]
        .into_iter()
        .flat_map(|pod_type| priorities.map(|priority| DrainPlanEntry::up_to(priority, pod_type)))
        .collect()
}

/// How far a maintenance has come.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceStatus {
    /// StageStatuses has an entry for every stage that was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub stage_statuses: Vec<StageStatus>,

    /// Nodes is the number of nodes that are selected.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes: i32,

    /// DrainStatus sums up the drain over all selected nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DrainStatus")]
    pub drain_status: Option<DrainStatus>,

    /// NodeStatuses has the drain of every selected node. The list has one writer and is replaced as a whole: its key would be
    /// nodeRef.name, and a list cannot be keyed by a nested field. Where not all fit into an object, nodes without targets and
    /// drained nodes are left out first, and the condition StatusComplete is False.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub node_statuses: Vec<NodeStatus>,

    /// LeftNodes are nodes that were selected, are still there, and have lost the labels by which they were: they were let go
    /// without having been drained, and "Drained" is False as long. At most 100 are listed. The annotation
    /// nodemaintenance.k8s.io/keep-nodes=true keeps nodes in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LEFT_NODES_MAX))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub left_nodes: Vec<NodeReference>,

    /// DrainTargetLists are lists of entries that drainTargetSets refer to. Both are there only where a node has many targets, or
    /// where there are many nodes; then nodes have a drainTargetSet in place of drainTargets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub drain_target_lists: Vec<DrainTargetList>,

    /// DrainTargetSets are the different targets that nodes have; nodes refer to them by their place, counted from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub drain_target_sets: Vec<DrainTargetSet>,

    /// Conditions; "Drained" is true once all targeted pods have terminated on all selected nodes, of which there is at least one.
    /// "StatusComplete" is there only where it is False: the status could not be written, or nodes had to be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A stage that was started.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StageStatus {
    /// Name of the stage.
    pub name: NodeMaintenanceStage,
    /// StartTimestamp is when the stage was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::schema::Time")]
    pub start_timestamp: Option<Time>,
}

/// The drain over all nodes of a maintenance.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainStatus {
    /// ReachedDrainTargets are the lowest drain targets among all nodes: what is targeted everywhere. A node can be further.
    /// DaemonSet entries appear once the Default pods are gone, Static entries once the DaemonSet pods are. Targets only grow,
    /// and with several maintenances on a node they are the least powerful among them, so that they need not be entries of
    /// this drain plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub reached_drain_targets: Vec<DrainPlanEntry>,

    /// DrainTargetSet stands in place of reachedDrainTargets where these are many: the place in drainTargetSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drain_target_set: Option<i32>,

    /// PlanPosition is the entry of the drain plan that is being worked off, counted from 0: the pods of all entries up to this
    /// one are targeted as far as other maintenances of their nodes agree. The drain goes on from here when its controller
    /// starts again. With a drainLimit it is the position of the present wave. It goes back where nodes join whose pods belong to
    /// earlier entries.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub plan_position: i32,

    /// DrainMessage tells people where the drain stands and which other maintenance holds it up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub drain_message: String,

    /// PodsPendingEviction is the number of pods that have not started to leave.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pods_pending_eviction: i32,

    /// PodsEvicting is the number of pods that have an eviction request.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pods_evicting: i32,

    /// NodesDrained is the number of selected nodes that all targeted pods have left.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes_drained: i32,

    /// ExpectedFinishTime is when the drain is expected to be done, learned from how long pods of the same owner took. It is
    /// absent while nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::schema::Time")]
    pub expected_finish_time: Option<Time>,
}

/// The drain of one node. Kubernetes' own Node status has no room for it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// NodeRef is the node.
    pub node_ref: NodeReference,

    /// DrainTargets are the pods of this node that are asked to leave. Targets only grow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub drain_targets: Vec<DrainPlanEntry>,

    /// DrainTargetSet stands in place of drainTargets where there are many nodes or targets: the place in drainTargetSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drain_target_set: Option<i32>,

    /// DrainMessage tells people where the drain of this node stands and why its targets are what they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub drain_message: String,

    /// PodsPendingEviction is the number of pods that have not started to leave.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pods_pending_eviction: i32,

    /// PodsEvicting is the number of pods that have an eviction request.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pods_evicting: i32,
}

/// A list of entries. A pod is selected if one of them selects it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainTargetList {
    /// Entries of the list.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub entries: Vec<DrainPlanEntry>,
}

/// Targets that nodes have. A pod is targeted if all lists of one of the intersections select it.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainTargetSet {
    /// AnyOf are intersections of lists: what overlapping maintenances have all reached, and what was reached before.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub any_of: Vec<DrainTargetIntersection>,
    /// UnlistedNodes are nodes with these targets whose names did not fit into nodeStatuses: the FNV-1a hashes (64 bits, as
    /// hexadecimal digits) of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub unlisted_nodes: Vec<String>,
}

/// Pods that all of these lists select.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DrainTargetIntersection {
    /// AllOf are places in drainTargetLists, counted from 0.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub all_of: Vec<i32>,
}

/// A node, by name.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeReference {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Why the condition "Drained" is true or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainedReason {
    /// No node is selected.
    NoNodes,
    /// Nodes lost the labels by which they were selected, and were not drained.
    NodesLeft,
    /// Nodes are not cordoned yet, or have only just been.
    Cordoning,
    /// Other maintenances have not come as far.
    Waiting,
    /// Pods are asked to leave.
    Draining,
    Drained,
    /// The maintenance was completed before.
    Cancelled,
}

impl DrainedReason {
    pub const ALL: [Self; 7] = [
        Self::NoNodes,
        Self::NodesLeft,
        Self::Cordoning,
        Self::Waiting,
        Self::Draining,
        Self::Drained,
        Self::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoNodes => "NoNodes",
            Self::NodesLeft => "NodesLeft",
            Self::Cordoning => "Cordoning",
            Self::Waiting => "Waiting",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
            Self::Cancelled => "Cancelled",
        }
    }

    /// What a condition says.
    pub fn of(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == reason)
    }

    /// What the condition is with this reason.
    pub fn condition_status(self) -> &'static str {
        if self == Self::Drained { "True" } else { "False" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_a_share_of_the_nodes_and_at_least_one() {
        let limit = |max_nodes| DrainLimit { max_nodes, topology_key: String::new() };
        let percent = |text: &str| limit(IntOrString::String(text.to_owned()));
        let rows = [
            (limit(IntOrString::Int(3)), 10, 3),
            (limit(IntOrString::Int(0)), 10, 1),
            (percent("10%"), 15, 2),
            (percent("1%"), 3, 1),
            (percent("100%"), 7, 7),
            (percent("4"), 7, 4),
            (percent("all"), 7, 1),
        ];
        for (limit, nodes, wanted) in rows {
            assert_eq!(limit.of(nodes), wanted, "{limit:?} of {nodes}");
        }
    }
}
