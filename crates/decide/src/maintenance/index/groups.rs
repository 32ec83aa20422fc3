//! Pods that are expected to leave alike: those of one owner and one class. Groups have numbers, which are given again
//! once their last pod is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::maintenance::eta::Workload;
use crate::snapshot::Pod;
use jiff::Timestamp;

pub type Number = u32;

#[derive(Debug)]
pub struct Group {
    pub workload: Arc<Workload>,
    pub class: usize,
    pods: u32,
    /// When those that are asked to leave were asked.
    asked: BTreeMap<Timestamp, u32>,
}

impl Group {
    /// Since when the first of those that are there is asked to leave.
    pub fn asked(&self) -> Option<Timestamp> {
        self.asked.first_key_value().map(|(at, _)| *at)
    }
}

#[derive(Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
    numbers: HashMap<(Arc<Workload>, usize), Number>,
    free: Vec<Number>,
}

impl Groups {
    pub fn get(&self, number: Number) -> &Group {
        &self.groups[number as usize]
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A pod of a class comes, and may have been asked to leave.
    pub fn enter(&mut self, pod: &Pod, class: usize, asked: Option<Timestamp>) -> Number {
        let workload = Arc::new(Workload::of(pod));
        let key = (workload, class);
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.make(key),
        };
        self.groups[number as usize].pods += 1;
        self.ask(number, None, asked);
        number
    }

    fn make(&mut self, key: (Arc<Workload>, usize)) -> Number {
        let group = Group { workload: key.0.clone(), class: key.1, pods: 0, asked: BTreeMap::new() };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                // Fewer than pods, which are fewer than fit.
                Number::try_from(self.groups.len() - 1).unwrap_or(Number::MAX)
            }
        };
        self.numbers.insert(key, number);
        number
    }

    /// One of its pods was asked to leave at a time, or is not any more.
    pub fn ask(&mut self, number: Number, before: Option<Timestamp>, now: Option<Timestamp>) {
        let asked = &mut self.groups[number as usize].asked;
        if let Some(before) = before
            && let Some(count) = asked.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                asked.remove(&before);
            }
        }
        if let Some(now) = now {
            *asked.entry(now).or_default() += 1;
        }
    }

    pub fn leave(&mut self, number: Number, asked: Option<Timestamp>) {
        self.ask(number, asked, None);
        let group = &mut self.groups[number as usize];
        group.pods -= 1;
        if group.pods == 0 {
            self.numbers.remove(&(group.workload.clone(), group.class));
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::PodOnWire;
    use serde_json::json;

    fn pod(owner: &str) -> Pod {
        let pod: PodOnWire = serde_json::from_value(json!({"metadata": {
            "name": "p", "namespace": "ns", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": "o", "controller": true},
            ],
        }}))
        .unwrap();
        Pod::from(pod)
    }

    #[test]
    fn a_number_is_given_again_when_its_last_pod_is_gone() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let mut groups = Groups::default();
        let db = groups.enter(&pod("db"), 0, at(5));
        assert_eq!(groups.enter(&pod("db"), 0, at(3)), db);
        let other = groups.enter(&pod("db"), 1, None);
        assert_ne!(other, db, "another class");
        assert_eq!((groups.get(db).asked(), groups.get(other).asked()), (at(3), None));
        groups.ask(db, at(3), None);
        assert_eq!(groups.get(db).asked(), at(5));
        groups.leave(db, None);
        groups.leave(db, at(5));
        let web = groups.enter(&pod("web"), 0, None);
        assert_eq!((web, &*groups.get(web).workload.name, groups.get(web).asked()), (db, "web", None));
        assert_eq!(groups.groups.len(), 2);
    }
}
