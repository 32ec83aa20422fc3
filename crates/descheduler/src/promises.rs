//! Pods that somebody has promised to move in the background, and which of them were moved.

use std::collections::HashMap;

use crate::Proposal;
use crate::requester::PodId;

/// What a change of a pod means for its move in the background.
#[derive(Debug, Clone, PartialEq)]
pub enum MoveChange {
    /// Nothing.
    Unchanged,
    Began,
    /// Nobody moves it any more.
    Ended {
        /// The promise was kept.
        kept: Option<Box<Proposal>>,
    },
}

/// The proposals of such pods.
#[derive(Debug, Default)]
pub struct Promises(HashMap<PodId, Box<Proposal>>);

impl Promises {
    pub fn made(&mut self, proposal: &Proposal) {
        self.0.insert(PodId::from(&proposal.pod), Box::new(proposal.clone()));
    }

    /// A pod has changed that was moved before, and is now. One that has come to its end without being gone has nothing left to move.
    pub fn pod_changed(
        &mut self,
        pod: &PodId,
        was_moving: bool,
        is_moving: bool,
        is_over: bool,
    ) -> MoveChange {
        match (was_moving, is_moving) {
            (true, false) => MoveChange::Ended { kept: self.0.remove(pod).filter(|_| is_over) },
            (false, true) => MoveChange::Began,
            (true, true) | (false, false) => MoveChange::Unchanged,
        }
    }

    /// Where nobody moved it any more, nobody has kept the promise in time.
    pub fn pod_gone(&mut self, pod: &PodId, was_moving: bool) -> MoveChange {
        let kept = self.0.remove(pod);
        if was_moving { MoveChange::Ended { kept } } else { MoveChange::Unchanged }
    }
}
