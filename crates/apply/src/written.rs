//! What was written lately. Until a watch tells of it, what is decided on the version before is outdated, and asking the server to say so
//! is a wasted call.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// So many objects are remembered at least; those before them were told of long ago.
const REMEMBERED: usize = 4096;

/// By UID, the version that was written over. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Written(Arc<Mutex<Generations>>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, String>,
    old: HashMap<String, String>,
}

/// Which version of which object a patch is for, if it says so.
pub fn precondition(patch: &Value) -> Option<(&str, &str)> {
    let metadata = &patch["metadata"];
    Some((metadata["uid"].as_str()?, metadata["resourceVersion"].as_str()?))
}

impl Written {
    /// Somebody here has written over that version.
    pub fn is_outdated(&self, (uid, version): (&str, &str)) -> bool {
        let known = self.0.lock();
        known.young.get(uid).or_else(|| known.old.get(uid)).is_some_and(|written| written == version)
    }

    /// What changed nothing leaves the version as it was, and no watch will tell of it.
    pub fn wrote(&self, (uid, version): (&str, &str), new: Option<&str>) {
        if new.is_none_or(|new| new == version) {
            return;
        }
        let mut known = self.0.lock();
        if known.young.len() >= REMEMBERED {
            known.old = std::mem::take(&mut known.young);
        }
        known.young.insert(uid.to_owned(), version.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_that_was_written_over_is_outdated_until_another_is_known() {
        let written = Written::default();
        let patch = json!({"metadata": {"uid": "u", "resourceVersion": "5"}});
        let read = precondition(&patch).unwrap();
        assert!(!written.is_outdated(read));
        written.wrote(read, Some("5"));
        assert!(!written.is_outdated(read), "nothing was changed");
        written.wrote(read, Some("7"));
        assert!(written.is_outdated(read));
        assert!(!written.is_outdated(("u", "7")) && !written.is_outdated(("v", "5")));
        assert_eq!(precondition(&json!({"metadata": {"uid": "u"}})), None);
    }

    #[test]
    fn what_was_written_long_ago_is_forgotten() {
        let written = Written::default();
        for number in 0..3 * REMEMBERED {
            written.wrote((&format!("u{number}"), "1"), Some("2"));
        }
        assert!(!written.is_outdated(("u0", "1")));
        assert!(written.is_outdated((&format!("u{}", 3 * REMEMBERED - 1), "1")));
        let known = written.0.lock();
        assert!(known.young.len() + known.old.len() <= 2 * REMEMBERED);
    }
}
