//! Answers to pods that got no node, so that pods that are alike need to be looked at only once.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::view::Pod;

/// More kinds of pods than this are not remembered; the oldest knowledge goes first, all at once.
const REMEMBERED: usize = 10_000;

/// What was answered since something changed for the better. Only a memory: the same answer would be found again.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    known: Mutex<HashMap<u64, Refusal>>,
    /// Counts changes after which any pod may fit: a node is new or different, a pod has left.
    room: u64,
    /// Counts changes after which pods with rules about others may fit: a pod came, or has other labels.
    company: u64,
}

#[derive(Debug)]
struct Refusal {
    room: u64,
    company: Option<u64>,
    why: Arc<str>,
}

impl Refusals {
    pub(crate) fn there_is_room(&mut self) {
        self.room += 1;
    }

    pub(crate) fn there_is_company(&mut self) {
        self.company += 1;
    }

    /// The answer for the pod: a known refusal, or what `choose` finds.
    pub(crate) fn ask(
        &self,
        pod: &Pod,
        choose: impl FnOnce() -> Result<String, String>,
    ) -> Result<String, Arc<str>> {
        let kind = (!self.known.lock().is_empty()).then(|| kind_of(pod));
        if let Some(known) = self.known.lock().get(&kind.unwrap_or_default())
            && known.room == self.room
            && known.company.is_none_or(|company| company == self.company)
        {
            return Err(known.why.clone());
        }
        choose().map_err(|why| {
            let why: Arc<str> = why.into();
            let company = pod.affinity_terms().rules().next().map(|_| self.company);
            let mut known = self.known.lock();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            let kind = kind.unwrap_or_else(|| kind_of(pod));
            known.insert(kind, Refusal { room: self.room, company, why: why.clone() });
            why
        })
    }
}

/// The same for pods that differ in nothing that the scheduler looks at.
fn kind_of(pod: &Pod) -> u64 {
    struct Digest(DefaultHasher);
    impl fmt::Write for Digest {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let (meta, spec) = (&pod.metadata, &pod.spec);
    let mut digest = Digest(DefaultHasher::new());
    let requests = pod.requests();
    (&meta.namespace, &meta.labels, &spec.node_selector, requests.cpu, requests.memory).hash(&mut digest.0);
    let others = (&spec.tolerations, &spec.affinity, &spec.topology_spread_constraints);
    // A digest takes any text.
    _ = write!(digest, "{others:?}");
    digest.0.finish()
}
