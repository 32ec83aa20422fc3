//! What was last read of the records on objects, until they are taken back here. A tool that replaces whole objects takes the record
//! along, and is one that sets back what the record is about all the same.

use std::collections::HashMap;
use std::sync::Arc;

use crate::snapshot::Key;

/// Records of one kind, and the numbers that they are about.
#[derive(Debug)]
pub(super) struct Records<R, N> {
    seen: HashMap<Key, (Arc<str>, R)>,
    /// The UID of objects whose record is being taken back, and the numbers that they have then.
    taking_back: HashMap<Key, (Arc<str>, N)>,
}

impl<R, N> Default for Records<R, N> {
    fn default() -> Self {
        Self { seen: HashMap::new(), taking_back: HashMap::new() }
    }
}

impl<R: Clone, N: PartialEq> Records<R, N> {
    /// The record of an object as it was told; or the one that it had, if only somebody else can have removed that.
    pub fn of(&mut self, key: &Key, uid: &Arc<str>, told: Option<R>, numbers: &N) -> Option<R> {
        if let Some(record) = told {
            self.seen.insert(key.clone(), (uid.clone(), record.clone()));
            return Some(record);
        }
        // What is written here may be told by a watch before the answer comes, or the answer may be lost.
        let is_own = |(of, written): &(Arc<str>, N)| of == uid && written == numbers;
        if self.taking_back.get(key).is_some_and(is_own) {
            self.seen.remove(key);
        }
        self.seen.get(key).filter(|(of, _)| of == uid).map(|(_, record)| record.clone())
    }

    /// The object is gone.
    pub fn forget(&mut self, key: &Key) {
        self.seen.remove(key);
        self.taking_back.remove(key);
    }

    /// A record is about to be written, or removed, with these numbers: before a watch can tell of it.
    pub fn writes(&mut self, key: &Key, uid: &Arc<str>, record: Option<&R>, numbers: N) {
        if record.is_some() {
            self.taking_back.remove(key);
        } else {
            self.taking_back.insert(key.clone(), (uid.clone(), numbers));
        }
    }

    /// The record was removed. What a watch has not told yet may still have it.
    pub fn has_removed(&mut self, key: &Key) {
        self.seen.remove(key);
    }
}
