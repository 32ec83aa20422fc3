//! Who of the components is up, and how wrong their clocks are.
//!
//! A component that is down takes no tasks; what it had in its queue and its back-offs go with it. When it is back, it
//! looks at everything of its kind again. Only its requests that are already on their way still arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::scheduler::is_waiting;
use super::tasks::{Component, Task, concerned_by_kubelet};
use super::view::View;
use embedded_apiserver::Key;

/// What is done to the components from outside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Down(Component),
    Up(Component),
    /// Of one node.
    KubeletDown(String),
    KubeletUp(String),
    RunStatic {
        node: String,
        manifest: Value,
    },
    EndStatic {
        node: String,
        namespace: String,
        name: String,
    },
    Skew(Component, SignedDuration),
}

/// One run of a component, from its start to its crash.
#[derive(Debug, Clone)]
pub(crate) struct Incarnation(Arc<AtomicBool>);

impl Default for Incarnation {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Incarnation {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Presence {
    incarnations: BTreeMap<Component, Incarnation>,
    down: BTreeSet<Component>,
    skew: BTreeMap<Component, SignedDuration>,
}

impl Presence {
    /// Takes in a command; what is to be looked at because of it.
    pub(crate) fn obey(&mut self, command: &Command, view: &mut View, now: Timestamp) -> Vec<Task> {
        match command {
            Command::Down(component) => {
                let component = component.process();
                self.down.insert(component);
                self.incarnations.retain(|part, run| {
                    let stays = part.process() != component;
                    run.0.store(stays, Ordering::Release);
                    stays
                });
                if component != Component::Kubelet {
                    return Vec::new();
                }
                view.all_fall_silent(now);
                everything(view, Component::NodeLifecycle)
            }
            Command::Up(component) => {
                let component = component.process();
                self.down.remove(&component);
                if component == Component::Kubelet {
                    view.all_speak_again();
                    let of_nodes = [Component::Node, Component::NodeLifecycle, Component::StaticPod];
                    let of_nodes = of_nodes.into_iter().flat_map(|of| everything(view, of));
                    return of_nodes.chain(everything(view, component)).collect();
                }
                everything(view, component)
            }
            Command::KubeletDown(node) => {
                view.fall_silent(node, now);
                concerned_by_kubelet(view, node)
            }
            Command::KubeletUp(node) => {
                view.speak_again(node);
                concerned_by_kubelet(view, node)
            }
            Command::RunStatic { node, manifest } => {
                vec![(Component::StaticPod, view.static_pods.run(node, manifest.clone()))]
            }
            Command::EndStatic { node, namespace, name } => {
                vec![(Component::StaticPod, view.static_pods.end(node, namespace, name))]
            }
            Command::Skew(component, offset) => {
                self.skew.insert(*component, *offset);
                Vec::new()
            }
        }
    }

    /// Whether anybody is there to look at the task.
    pub(crate) fn takes(&self, view: &View, (component, key): &Task) -> bool {
        if self.down.contains(&component.process()) {
            return false;
        }
        match component {
            Component::Node | Component::Heartbeat => view.silent_since(&key.name).is_none(),
            Component::Kubelet => {
                view.pods.get(key).is_none_or(|pod| view.silent_since(&pod.spec.node_name).is_none())
            }
            Component::StaticPod => {
                view.static_pods.get(key).is_none_or(|pod| view.silent_since(&pod.node).is_none())
            }
            _ => true,
        }
    }

    pub(crate) fn incarnation(&mut self, component: Component) -> Incarnation {
        self.incarnations.entry(component).or_default().clone()
    }

    /// What a component takes a right time for.
    pub(crate) fn as_seen_by(&self, component: Component, right: Timestamp) -> Timestamp {
        let offset = self.skew.get(&component).copied().unwrap_or_default();
        right.checked_add(offset).unwrap_or(right)
    }

    /// When it really is what a component takes for this time.
    pub(crate) fn really(&self, component: Component, seen: Timestamp) -> Timestamp {
        let offset = self.skew.get(&component).copied().unwrap_or_default();
        seen.checked_sub(offset).unwrap_or(seen)
    }
}

/// All that a component looks at when it starts.
fn everything(view: &View, component: Component) -> Vec<Task> {
    fn all<'a, T: 'a>(table: impl Iterator<Item = (&'a Key, T)>) -> Vec<Key> {
        table.map(|(key, _)| key.clone()).collect()
    }
    let keys = match component {
        Component::Node | Component::Heartbeat | Component::NodeLifecycle => all(view.nodes.iter()),
        Component::Kubelet | Component::StaleDisruption | Component::PodGc | Component::TaintEviction => {
            all(view.pods.iter())
        }
        Component::StaticPod => view.static_pods.keys().cloned().collect(),
        Component::Scheduler => all(view.pods.iter().filter(|(_, pod)| is_waiting(pod))),
        // It has no objects of its own: whoever waits is looked at by the scheduler.
        Component::Waiting => Vec::new(),
        Component::ReplicaSet => all(view.replica_sets.iter()),
        Component::Deployment => all(view.deployments.iter()),
        Component::StatefulSet => all(view.stateful_sets.iter()),
        Component::DaemonSet => all(view.daemon_sets.iter()),
        Component::Job => all(view.jobs.iter()),
        Component::Claim => all(view.claims.iter()),
        Component::Autoscaler => all(view.autoscalers.iter()),
        Component::Budget => all(view.budgets.iter()),
    };
    keys.into_iter().map(|key| (component, key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{at, node, pod, view};

    fn of(component: Component, name: &str) -> Task {
        (component, Key::new("default", name))
    }

    #[test]
    fn who_is_down_takes_nothing_and_looks_at_everything_when_back() {
        let mut view = view(&[node("n"), pod("a", "n"), pod("b", "n")]);
        let mut presence = Presence::default();
        let run = presence.incarnation(Component::PodGc);
        assert_eq!(presence.obey(&Command::Down(Component::PodGc), &mut view, at(0)), []);
        assert!(!run.is_alive());
        assert!(!presence.takes(&view, &of(Component::PodGc, "a")));
        assert!(presence.takes(&view, &of(Component::Kubelet, "a")), "the others are up");
        let again = presence.obey(&Command::Up(Component::PodGc), &mut view, at(0));
        assert_eq!(again, [of(Component::PodGc, "a"), of(Component::PodGc, "b")]);
        assert!(presence.takes(&view, &of(Component::PodGc, "a")));
        assert!(presence.incarnation(Component::PodGc).is_alive());
    }

    #[test]
    fn parts_of_a_process_are_down_with_it() {
        let mut view = view(&[node("n"), pod("a", "n"), pod("waits", "")]);
        let mut presence = Presence::default();
        let run = presence.incarnation(Component::Waiting);
        presence.obey(&Command::Down(Component::Scheduler), &mut view, at(0));
        assert!(!run.is_alive() && !presence.takes(&view, &of(Component::Waiting, "n")));
        let again = presence.obey(&Command::Up(Component::Scheduler), &mut view, at(0));
        assert_eq!(again, [of(Component::Scheduler, "waits")]);
    }

    #[test]
    fn kubelets_that_crash_are_all_silent() {
        let mut view = view(&[node("n"), node("m"), pod("a", "n")]);
        let mut presence = Presence::default();
        let node = |component, name: &str| (component, Key::new("", name));
        presence.obey(&Command::KubeletDown("m".into()), &mut view, at(5));
        let watched = presence.obey(&Command::Down(Component::Kubelet), &mut view, at(7));
        assert_eq!(watched, [node(Component::NodeLifecycle, "m"), node(Component::NodeLifecycle, "n")]);
        assert_eq!(["m", "n"].map(|name| view.silent_since(name)), [Some(at(5)), Some(at(7))]);
        let takes = |presence: &Presence, view: &View| {
            [of(Component::Kubelet, "a"), node(Component::Heartbeat, "n"), node(Component::Heartbeat, "m")]
                .map(|task| presence.takes(view, &task))
        };
        assert_eq!(takes(&presence, &view), [false; 3]);
        let again = presence.obey(&Command::Up(Component::Kubelet), &mut view, at(9));
        assert!(again.contains(&of(Component::Kubelet, "a")) && again.contains(&node(Component::Node, "n")));
        assert_eq!(takes(&presence, &view), [true, true, false], "one is still silent by itself");
    }

    #[test]
    fn a_lost_node_has_no_kubelet_but_the_others_do() {
        let mut view = view(&[node("n"), node("m"), pod("a", "n"), pod("b", "m")]);
        let lost = "n".to_string();
        let mut presence = Presence::default();
        presence.obey(&Command::KubeletDown(lost.clone()), &mut view, at(0));
        let takes = |presence: &Presence, view: &View| {
            let node = (Component::Node, Key::new("", &lost));
            [of(Component::Kubelet, "a"), of(Component::Kubelet, "b"), node]
                .map(|task| presence.takes(view, &task))
        };
        assert_eq!(takes(&presence, &view), [false, true, false]);
        let again = presence.obey(&Command::KubeletUp(lost.clone()), &mut view, at(1));
        let node = |component| (component, Key::new("", &lost));
        let expected = [node(Component::Node), node(Component::NodeLifecycle), of(Component::Kubelet, "a")];
        assert_eq!(again, expected);
        assert_eq!(takes(&presence, &view), [true; 3]);
    }

    #[test]
    fn a_skewed_component_sees_another_time_and_is_woken_at_its_own() {
        let mut presence = Presence::default();
        let mut view = view(&[]);
        presence.obey(&Command::Skew(Component::Job, SignedDuration::from_secs(30)), &mut view, at(0));
        assert_eq!(presence.as_seen_by(Component::Job, at(100)), at(130));
        assert_eq!(presence.really(Component::Job, at(130)), at(100));
        assert_eq!(presence.as_seen_by(Component::Budget, at(100)), at(100));
    }
}
