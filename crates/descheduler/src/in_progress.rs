//! Pods that are leaving already, and pods that are to be left alone for a while.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// What was asked before the cycle. Pods that are leaving count against the limits from the start, come first where pods are sorted, and
/// are not proposed again. Pods in cool-down are not proposed before their time.
#[derive(Debug, Clone, Default)]
pub struct InProgress {
    /// By namespace and name.
    pods: BTreeMap<(String, String), Asked>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub uid: String,
    pub by: Vec<String>,
    pub cools_until: Option<Timestamp>,
}

impl InProgress {
    /// The pod is leaving, or was asked to, by this requester. Another pod of that name is another pod.
    pub fn set_leaving(&mut self, namespace: &str, name: &str, uid: &str, by: &str) {
        let asked = self.entry(namespace, name, uid);
        if !asked.by.iter().any(|one| one == by) {
            asked.by.push(by.to_owned());
        }
    }

    /// The pod is not to be asked before that time.
    pub fn set_cool_down(&mut self, namespace: &str, name: &str, uid: &str, until: Timestamp) {
        self.entry(namespace, name, uid).cools_until = Some(until);
    }

    /// Nothing is known of the pod any more.
    pub fn remove(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = (&str, &str, &Asked)> {
        self.pods.iter().map(|((namespace, name), asked)| (namespace.as_str(), name.as_str(), asked))
    }

    fn entry(&mut self, namespace: &str, name: &str, uid: &str) -> &mut Asked {
        let asked = self.pods.entry((namespace.to_owned(), name.to_owned())).or_default();
        if asked.uid != uid {
            *asked = Asked { uid: uid.to_owned(), ..Asked::default() };
        }
        asked
    }
}

#[cfg(test)]
#[path = "in_progress_tests.rs"]
mod tests;
