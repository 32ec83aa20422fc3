//! Scales of controllers that are not followed, as the API last told them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Owner, View};

/// What asking for a scale has given: whose it is and how many replicas it asks for, nothing if that object is not
/// there, or why nobody can tell.
pub(crate) type Scale = Result<Option<(String, i64)>, String>;

/// An answer is used for the decision that asked for it, not for later ones.
const FRESH: SignedDuration = SignedDuration::from_secs(1);

type Asked = (String, String, String, String);

#[derive(Debug, Default)]
pub(super) struct Scales {
    known: BTreeMap<Asked, (Timestamp, Scale)>,
}

fn asked(namespace: &str, owner: &Owner) -> Asked {
    (namespace.to_string(), owner.api_version.clone(), owner.kind.clone(), owner.name.clone())
}

impl View {
    /// The scale of an owner, if it was asked for just now.
    pub(crate) fn scale_of(&self, namespace: &str, owner: &Owner, now: Timestamp) -> Option<&Scale> {
        let (at, scale) = self.scales.known.get(&asked(namespace, owner))?;
        (*at + FRESH >= now).then_some(scale)
    }

    pub(crate) fn observe_scale(&mut self, namespace: &str, owner: &Owner, scale: Scale, now: Timestamp) {
        self.scales.known.retain(|_, (at, _)| *at + FRESH >= now);
        self.scales.known.insert(asked(namespace, owner), (now, scale));
    }
}
