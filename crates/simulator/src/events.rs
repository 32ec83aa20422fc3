//! Events: what components did and could not do, for people to look up. The same event again only counts up, and no
//! object is flooded with them.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::api::ActionResult;
use super::plan::{About, Action, Note, Target};
use super::tasks::{Component, Task};
use super::view::{Change, Container, Meta, Pod, Resource, View};
use embedded_apiserver::clock::rfc3339;

/// So many events are known at once; older ones would be written anew.
const KNOWN: usize = 4096;
/// So many events about one object at once, and then one in this time.
const BURST: i64 = 25;
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// An event by what it says.
type Said = (&'static str, About, &'static str, String);

/// Turns notes into writes of events.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    known: BTreeMap<Said, (Target, i64)>,
    order: VecDeque<Said>,
    /// How many events were written about an object, less those that time has made up for, and since when.
    written: BTreeMap<(&'static str, About), (i64, Timestamp)>,
    /// From so many objects on, those that time has made up for are forgotten.
    sweep_from: usize,
    made: u64,
    /// Events that are being written, by name.
    pending: BTreeMap<String, Said>,
}

impl Recorder {
    /// The write that a note stands for; nothing if there were too many about this object.
    pub(crate) fn record(&mut self, who: Component, note: Note, now: Timestamp) -> Option<Action> {
        let source = source(who);
        if !self.may(source, &note.about, now) {
            return None;
        }
        let said = (source, note.about, note.reason, note.message);
        if let Some((target, count)) = self.known.get_mut(&said) {
            *count += 1;
            let patch = json!({"count": *count, "lastTimestamp": rfc3339(now)});
            let target = target.clone();
            return Some(Action::Patch { target, subresource: None, patch, pinned: None });
        }
        self.made += 1;
        let (source, about, reason, message) = &said;
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        // Real names end in a time; a number is as unique, and the same every time.
        let name = format!("{}.{:016x}", about.name, self.made ^ (now.as_nanosecond() as u64));
        let (prefix, _, _) = about.resource.path();
        let version = prefix.trim_start_matches("/apis/").trim_start_matches("/api/");
        let at = rfc3339(now);
        let object = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": version, "kind": kind(about.resource), "namespace": about.namespace, "name": about.name,
                "uid": about.uid,
            },
            "type": if note.warning { "Warning" } else { "Normal" }, "reason": reason, "message": message,
            "source": {"component": source}, "reportingComponent": source, "reportingInstance": "",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        let action = Action::create(Resource::Events, namespace, object);
        self.pending.insert(name, said);
        Some(action)
    }

    /// What became of a write: only what is stored can be counted up.
    pub(crate) fn written(&mut self, action: &Action, outcome: &ActionResult) {
        match action {
            Action::Create { object, .. } => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let Some(said) = self.pending.remove(name) else { return };
                let Some(meta) = outcome.object.as_ref().and_then(|(_, json)| meta_of(json)) else { return };
                self.known.insert(said.clone(), (Target::of(Resource::Events, &meta), 1));
                self.order.push_back(said);
                while self.order.len() > KNOWN
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.known.remove(&oldest);
                }
            }
            Action::Patch { target, .. } if !outcome.succeeded() => {
                self.known.retain(|_, (known, _)| known != target);
                self.order.retain(|said| self.known.contains_key(said));
            }
            _ => {}
        }
    }

    fn may(&mut self, source: &'static str, about: &About, now: Timestamp) -> bool {
        if self.written.len() > self.sweep_from.max(KNOWN) {
            self.written.retain(|_, (_, since)| *since + REFILL * i32::try_from(BURST).unwrap_or(1) > now);
            // Most of them may have to stay: not again before there are twice as many.
            self.sweep_from = 2 * self.written.len();
        }
        let (count, since) = self.written.entry((source, about.clone())).or_insert((0, now));
        let made_up = now.duration_since(*since).as_secs() / REFILL.as_secs();
        *count = (*count - made_up).max(0);
        *since = if *count == 0 { now } else { *since + REFILL * i32::try_from(made_up).unwrap_or(i32::MAX) };
        let may = *count < BURST;
        *count += i64::from(may);
        may
    }
}

fn meta_of(json: &[u8]) -> Option<Meta> {
    #[derive(Deserialize)]
    struct Only {
        metadata: Meta,
    }
    serde_json::from_slice::<Only>(json).ok().map(|only| only.metadata)
}

/// Who says it.
fn source(who: Component) -> &'static str {
    match who {
        Component::Node | Component::Heartbeat | Component::Kubelet | Component::StaticPod => "kubelet",
        Component::Scheduler | Component::Waiting => "default-scheduler",
        Component::ReplicaSet => "replicaset-controller",
        Component::Deployment => "deployment-controller",
        Component::StatefulSet => "statefulset-controller",
        Component::DaemonSet => "daemonset-controller",
        Component::Job => "job-controller",
        Component::Budget | Component::StaleDisruption => "controllermanager",
        Component::NodeLifecycle => "node-controller",
        Component::TaintEviction => "taint-eviction-controller",
        Component::PodGc => "pod-garbage-collector",
        Component::Claim => "persistentvolume-controller",
        Component::Autoscaler => "horizontal-pod-autoscaler",
    }
}

fn kind(resource: Resource) -> &'static str {
    match resource {
        Resource::Nodes => "Node",
        Resource::Pods => "Pod",
        Resource::ReplicaSets => "ReplicaSet",
        Resource::Deployments => "Deployment",
        Resource::StatefulSets => "StatefulSet",
        Resource::DaemonSets => "DaemonSet",
        Resource::Jobs => "Job",
        Resource::Budgets => "PodDisruptionBudget",
        Resource::ReplicationControllers => "ReplicationController",
        Resource::Revisions => "ControllerRevision",
        Resource::Claims => "PersistentVolumeClaim",
        Resource::Autoscalers => "HorizontalPodAutoscaler",
        Resource::Volumes => "PersistentVolume",
        Resource::Events => "Event",
        Resource::Leases => "Lease",
    }
}

/// The workload that a task is about.
fn workload(view: &View, (component, key): &Task) -> Option<About> {
    let (resource, meta) = match component {
        Component::ReplicaSet => (Resource::ReplicaSets, &view.replica_sets.get(key)?.metadata),
        Component::StatefulSet => (Resource::StatefulSets, &view.stateful_sets.get(key)?.metadata),
        Component::DaemonSet => (Resource::DaemonSets, &view.daemon_sets.get(key)?.metadata),
        Component::Job => (Resource::Jobs, &view.jobs.get(key)?.metadata),
        _ => return None,
    };
    Some(About::of(resource, meta))
}

/// What an action that was carried out, or refused, has to say for itself.
pub(crate) fn of_outcome(view: &View, task: &Task, action: &Action, outcome: &ActionResult) -> Vec<Note> {
    match (task.0, action) {
        (Component::Scheduler, Action::Bind { pod, node }) if outcome.succeeded() => {
            let message = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
            vec![Note::normal(about(pod), "Scheduled", message)]
        }
        (Component::Scheduler, Action::Patch { target, patch, .. }) if outcome.succeeded() => {
            let why = &patch["status"]["conditions"][0];
            let message = why["message"].as_str().unwrap_or_default();
            let failed = why["reason"] == "Unschedulable";
            failed.then(|| Note::warning(about(target), "FailedScheduling", message)).into_iter().collect()
        }
        (Component::Kubelet, Action::Patch { target, patch, .. })
            if outcome.succeeded() && patch["status"]["phase"] == "Running" =>
        {
            let containers = patch["status"]["containerStatuses"].as_array();
            let started = |_| Note::normal(about(target), "Started", "Container started");
            containers.into_iter().flatten().map(started).collect()
        }
        (component, Action::Create { resource: Resource::Pods, object, .. }) => {
            let Some(workload) = workload(view, task) else { return Vec::new() };
            let made = outcome.object.as_ref().and_then(|(_, json)| meta_of(json));
            let name = made.map(|meta| meta.name).or(object["metadata"]["name"].as_str().map(String::from));
            vec![pod_note(component, workload, "create", &name.unwrap_or_default(), outcome)]
        }
        (component, Action::Delete { target, .. }) if target.resource == Resource::Pods => {
            let Some(workload) = workload(view, task) else { return Vec::new() };
            vec![pod_note(component, workload, "delete", &target.name, outcome)]
        }
        _ => Vec::new(),
    }
}

fn about(target: &Target) -> About {
    let Target { resource, namespace, name, uid } = target.clone();
    About { resource, namespace, name, uid }
}

/// Stateful sets word it in their own way.
fn pod_note(component: Component, workload: About, verb: &str, pod: &str, outcome: &ActionResult) -> Note {
    let create = verb == "create";
    let why = &outcome.message;
    let message = match (component, outcome.succeeded(), create) {
        (Component::StatefulSet, true, _) => {
            format!("{verb} Pod {pod} in StatefulSet {} successful", workload.name)
        }
        (Component::StatefulSet, false, _) => {
            format!("{verb} Pod {pod} in StatefulSet {} failed error: {why}", workload.name)
        }
        (_, true, true) => format!("Created pod: {pod}"),
        (_, true, false) => format!("Deleted pod: {pod}"),
        (_, false, true) => format!("Error creating: {why}"),
        (_, false, false) => format!("Error deleting: {why}"),
    };
    match (outcome.succeeded(), create) {
        (true, true) => Note::normal(workload, "SuccessfulCreate", message),
        (true, false) => Note::normal(workload, "SuccessfulDelete", message),
        (false, true) => Note::warning(workload, "FailedCreate", message),
        (false, false) => Note::warning(workload, "FailedDelete", message),
    }
}

/// What is said when something is seen, and by whom.
pub(crate) fn of_change(view: &View, change: &Change) -> Option<(Component, Vec<Note>)> {
    match change {
        Change::Pod { before: Some(before), after: Some(pod) } => {
            let stops = !before.is_deleting() && pod.is_deleting() && pod.status.phase == "Running";
            let heard = stops && view.silent_since(&pod.spec.node_name).is_none();
            heard.then(|| (Component::Kubelet, killing(pod)))
        }
        Change::Node { before: None, after: Some(node) } => {
            let name = &node.metadata.name;
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            let about = About::of(Resource::Nodes, &node.metadata);
            Some((Component::NodeLifecycle, vec![Note::normal(about, "RegisteredNode", message)]))
        }
        _ => None,
    }
}

/// A kubelet stops the containers of a pod that is deleted.
fn killing(pod: &Pod) -> Vec<Note> {
    let killing = |container: &Container| {
        let message = format!("Stopping container {}", container.name);
        Note::normal(About::of(Resource::Pods, &pod.metadata), "Killing", message)
    };
    pod.spec.containers.iter().map(killing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::at;

    fn note(message: &str) -> Note {
        let [namespace, name, uid] = ["default", "web", "u"].map(String::from);
        let about = About { resource: Resource::ReplicaSets, namespace, name, uid };
        Note::normal(about, "SuccessfulCreate", message)
    }

    fn stored(action: &Action) -> ActionResult {
        let Action::Create { object, .. } = action else { panic!("{action:?}") };
        let mut object = object.clone();
        object["metadata"]["uid"] = "event".into();
        let object = Some((Resource::Events, object.to_string().into()));
        ActionResult { code: 201, object, message: String::new(), scale: None }
    }

    #[test]
    fn the_same_event_again_counts_up() {
        let mut recorder = Recorder::default();
        let first = recorder.record(Component::ReplicaSet, note("a"), at(0)).unwrap();
        recorder.written(&first, &stored(&first));
        let Action::Patch { patch, target, .. } =
            recorder.record(Component::ReplicaSet, note("a"), at(7)).unwrap()
        else {
            panic!("written anew");
        };
        assert_eq!((&patch["count"], &patch["lastTimestamp"]), (&json!(2), &json!("1970-01-01T00:00:07Z")));
        assert_eq!(target.uid, "event");
        assert!(matches!(
            recorder.record(Component::ReplicaSet, note("b"), at(7)),
            Some(Action::Create { .. })
        ));
    }

    #[test]
    fn an_event_that_is_gone_is_written_anew() {
        let mut recorder = Recorder::default();
        let first = recorder.record(Component::ReplicaSet, note("a"), at(0)).unwrap();
        recorder.written(&first, &stored(&first));
        let again = recorder.record(Component::ReplicaSet, note("a"), at(1)).unwrap();
        let gone = ActionResult { code: 404, object: None, message: String::new(), scale: None };
        recorder.written(&again, &gone);
        assert!(matches!(
            recorder.record(Component::ReplicaSet, note("a"), at(2)),
            Some(Action::Create { .. })
        ));
    }

    #[test]
    fn one_object_is_not_flooded() {
        let mut recorder = Recorder::default();
        let mut accepted = |second: i64| {
            (0..40)
                .filter(|number| {
                    recorder.record(Component::ReplicaSet, note(&number.to_string()), at(second)).is_some()
                })
                .count()
        };
        assert_eq!(accepted(0), 25);
        assert_eq!(accepted(299), 0);
        assert_eq!(accepted(600), 2);
    }
}
