//! What has been listed: nothing is decided before the first list of every kind is complete, on what may be missing.

use std::collections::BTreeSet;

/// The kinds of which all there is has been told, out of so many.
#[derive(Debug)]
pub(crate) struct Listed<K> {
    kinds: usize,
    told: BTreeSet<K>,
}

impl<K: Ord> Listed<K> {
    /// For a controller that watches so many kinds.
    pub fn out_of(kinds: usize) -> Self {
        Self { kinds, told: BTreeSet::new() }
    }

    /// A list of this kind is complete, if an event says so. It may be listed again, which changes nothing.
    pub fn observe(&mut self, kind: K, is_listed: bool) {
        if is_listed {
            self.told.insert(kind);
        }
    }

    pub fn is_complete(&self) -> bool {
        self.told.len() == self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_have_to_be_listed_and_one_that_is_listed_again_stands_for_no_other() {
        let mut listed = Listed::out_of(2);
        listed.observe("pods", true);
        listed.observe("pods", true);
        listed.observe("nodes", false);
        assert!(!listed.is_complete());
        listed.observe("nodes", true);
        listed.observe("pods", false);
        assert!(listed.is_complete());
    }
}
