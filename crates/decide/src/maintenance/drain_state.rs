//! Where the drain of a node, or of a maintenance, stands. `drainMessage` is its text; whoever tells people in other words what it says
//! reads it again here, and nothing is decided by it.

use std::fmt;

use usher_api::NodeMaintenance;

const TO_BE_CORDONED: &str = "To be cordoned";
const CORDONED: &str = "Cordoned";
const EVICTING: &str = "Evicting";
const WAITING: &str = "Waiting";
const NOTHING_ENDS: &str = "Waiting for pods that nothing ends";
const DRAINED: &str = "Drained";
const CANCELLED: &str = "Cancelled";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DrainState {
    #[default]
    ToBeCordoned,
    /// Its turn has not come: nobody is asked to leave.
    Cordoned,
    /// Pods are asked to leave, not as fast as one would like if other maintenances limit it.
    Evicting {
        limited_by: Vec<String>,
    },
    /// Maintenances, which may be its own, have not come as far.
    Waiting {
        on: Vec<String>,
    },
    /// Only pods are left that nothing ends. Which these are is told once, by the maintenance.
    NothingEnds,
    Drained,
    /// The maintenance was completed before.
    Cancelled,
}

/// What holds up the drain of a node, beyond the pods that are left on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeDelay {
    Nothing,
    /// Nodes of earlier waves go first.
    Wave,
    /// The plan goes on when all nodes of the maintenance are as far.
    OtherNodes,
    /// What its message says.
    Other,
}

impl DrainState {
    /// What it says of this node, without the names of others: for statuses of very many nodes.
    pub fn short(&self) -> &'static str {
        match self {
            Self::ToBeCordoned => TO_BE_CORDONED,
            Self::Cordoned => CORDONED,
            Self::Evicting { .. } => EVICTING,
            Self::Waiting { .. } | Self::NothingEnds => WAITING,
            Self::Drained => DRAINED,
            Self::Cancelled => CANCELLED,
        }
    }

    /// What a status says, if it was written by us.
    pub fn of_message(message: &str) -> Option<Self> {
        let names = |text: &str| text.split(", ").map(str::to_owned).collect();
        Some(match message {
            TO_BE_CORDONED => Self::ToBeCordoned,
            CORDONED => Self::Cordoned,
            EVICTING => Self::Evicting { limited_by: Vec::new() },
            WAITING => Self::Waiting { on: Vec::new() },
            NOTHING_ENDS => Self::NothingEnds,
            DRAINED => Self::Drained,
            CANCELLED => Self::Cancelled,
            _ => {
                let limited =
                    message.strip_prefix("Evicting (limited by ").and_then(|it| it.strip_suffix(')'));
                let waiting = message.strip_prefix("Waiting for ").and_then(|it| it.strip_suffix('.'));
                match (limited, waiting) {
                    (Some(by), _) => Self::Evicting { limited_by: names(by) },
                    (None, Some(on)) => Self::Waiting { on: names(on) },
                    (None, None) => return None,
                }
            }
        })
    }

    /// What holds up the node, for a reader of this maintenance.
    pub fn delay(&self, maintenance: &NodeMaintenance) -> NodeDelay {
        let has_begun = maintenance.status.as_ref().is_some_and(|status| status.drain_status.is_some());
        match (self, maintenance.metadata.name.as_ref()) {
            (Self::Drained, _) => NodeDelay::Nothing,
            (Self::Evicting { limited_by }, _) if limited_by.is_empty() => NodeDelay::Nothing,
            (Self::Cordoned, _) if has_begun => NodeDelay::Wave,
            (Self::Waiting { on }, Some(itself)) if on == std::slice::from_ref(itself) => {
                NodeDelay::OtherNodes
            }
            _ => NodeDelay::Other,
        }
    }
}

impl fmt::Display for DrainState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicting { limited_by } if !limited_by.is_empty() => {
                write!(f, "{EVICTING} (limited by {})", limited_by.join(", "))
            }
            Self::Waiting { on } if !on.is_empty() => write!(f, "{WAITING} for {}.", on.join(", ")),
            Self::NothingEnds => f.write_str(NOTHING_ENDS),
            other => f.write_str(other.short()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn maintenance(stage: &str, status: Value) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "m"},
            "spec": {"stage": stage, "nodeSelector": {"nodeSelectorTerms": []}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_written_can_be_read_again_and_nothing_else() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (state, message, short) in [
            (DrainState::ToBeCordoned, "To be cordoned", "To be cordoned"),
            (DrainState::Cordoned, "Cordoned", "Cordoned"),
            (DrainState::Evicting { limited_by: names(&[]) }, "Evicting", "Evicting"),
            (DrainState::Evicting { limited_by: names(&["a"]) }, "Evicting (limited by a)", "Evicting"),
            (DrainState::Waiting { on: names(&["a", "b.c"]) }, "Waiting for a, b.c.", "Waiting"),
            (DrainState::Waiting { on: names(&[]) }, "Waiting", "Waiting"),
            (DrainState::NothingEnds, "Waiting for pods that nothing ends", "Waiting"),
            (DrainState::Drained, "Drained", "Drained"),
            (DrainState::Cancelled, "Cancelled", "Cancelled"),
        ] {
            assert_eq!((state.to_string().as_str(), state.short()), (message, short));
            assert_eq!(DrainState::of_message(message), Some(state), "{message}");
        }
        for message in ["", "drained", "Evicting (limited by a", "Waiting for a", "somebody else wrote this"]
        {
            assert_eq!(DrainState::of_message(message), None, "{message}");
        }
    }

    #[test]
    fn what_holds_up_a_node_is_told_apart_from_its_pods() {
        let begun = maintenance("Drain", json!({"drainStatus": {}}));
        let cordoned = maintenance("Cordon", json!({}));
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (state, wanted) in [
            (DrainState::Drained, NodeDelay::Nothing),
            (DrainState::Evicting { limited_by: names(&[]) }, NodeDelay::Nothing),
            (DrainState::Evicting { limited_by: names(&["x"]) }, NodeDelay::Other),
            (DrainState::Cordoned, NodeDelay::Wave),
            (DrainState::Waiting { on: names(&["m"]) }, NodeDelay::OtherNodes),
            (DrainState::Waiting { on: names(&["m", "x"]) }, NodeDelay::Other),
            (DrainState::Waiting { on: names(&[]) }, NodeDelay::Other),
            (DrainState::NothingEnds, NodeDelay::Other),
            (DrainState::ToBeCordoned, NodeDelay::Other),
            (DrainState::Cancelled, NodeDelay::Other),
        ] {
            assert_eq!(state.delay(&begun), wanted, "{state:?}");
        }
        assert_eq!(DrainState::Cordoned.delay(&cordoned), NodeDelay::Other, "no wave has begun");
    }
}
