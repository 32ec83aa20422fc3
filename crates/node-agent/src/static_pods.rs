//! Static pods: they are tied to the life of the node, so they leave only under a NodeMaintenance that has reached them (KEP-4212,
//! "kubelet: Static Pods"), and come back when it completes.
//!
//! A static pod leaves when its manifest does, and the kubelet ends it then. Everything here is decided from what the API server and the
//! folder say now, so that an agent that starts anew goes on where another was killed.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use usher_api::PodType;
use usher_api::names::{KUBELET_CLASS, MOVE_CONTROL_PLANE_ANNOTATION};
use usher_api::report::Report;
use usher_decide::interceptors::carry_out::Depends;
use usher_decide::interceptors::{has_turn, next_beat};
use usher_decide::maintenance::plan::PodClass;
use usher_decide::snapshot::{Key, Maintenance, Pod, Request};
use usher_decide::waiting_on::Unevictable;

use crate::folder::{
    Contents, ManifestState, PodName, Record, Step, Taken, forget, kept_name, put_back, take,
};
use crate::shutdown::maintenance_name;

/// A request that no maintenance reaches, or a manifest that waits for its maintenance to end, is looked at again after this, whatever
/// the watches say.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(15);
const CONTROL_PLANE: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Everything that a decision depends on, but the time.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The mirror pods of the node.
    pub pods: &'a HashMap<Key, Arc<Pod>>,
    /// The requests for them.
    pub requests: &'a HashMap<Key, Arc<Request>>,
    /// The maintenances that may concern the node. `None` if they could not be read: then nothing moves.
    pub maintenances: Option<&'a [Maintenance]>,
    pub folder: &'a Contents,
    /// Where manifests are, and whether all static pods come from there.
    pub path: &'a str,
    pub has_url: bool,
    pub control_plane: ControlPlane,
    /// A shutdown of the node is under way.
    pub is_shutting_down: bool,
    /// The node shuts down and nobody can be asked: static pods up to this priority end.
    pub alone_up_to: Option<i32>,
}

/// The nodes of the control plane, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlPlane {
    /// All of them.
    pub nodes: usize,
    /// Those that are ready and whose static pods run, without this one.
    pub others_running: usize,
}

impl ControlPlane {
    /// Why a part of it must not leave, even if it is wanted.
    fn keeps(self, component: &str) -> Option<String> {
        let Self { nodes, others_running } = self;
        if others_running == 0 {
            return Some("no other control plane node runs one".to_owned());
        }
        let quorum = nodes / 2 + 1;
        (component == "etcd" && others_running < quorum).then(|| {
            format!("etcd would lose its quorum: {others_running} of {nodes} members would be left, and {quorum} are needed")
        })
    }
}

/// What is to be done, in this order for each pod: what was not reported is not done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    Report {
        request: Arc<Request>,
        report: Box<Report>,
    },
    /// The steps by which a manifest moves; `of_control_plane` is one that leaves and is a part of that.
    Move {
        pod: Option<Key>,
        steps: Vec<Step>,
        of_control_plane: Option<String>,
    },
    /// An event on the node, about the effect before it.
    RecordEvent {
        is_warning: bool,
        reason: &'static str,
        message: String,
    },
}

impl Effect {
    /// What was not reported on a pod is not done, and what was not done is not told.
    pub fn depends(&self) -> Depends<Key> {
        match self {
            Self::Report { request, .. } => Depends::On(request.pod_key()),
            Self::Move { pod, .. } => pod.clone().map_or(Depends::OnNothing, Depends::On),
            Self::RecordEvent { .. } => Depends::OnPrevious,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub effects: Vec<Effect>,
    pub recheck_at: Option<Timestamp>,
}

impl Decision {
    fn again(&mut self, at: Timestamp) {
        self.recheck_at = Some(self.recheck_at.map_or(at, |known| known.min(at)));
    }

    fn move_file(&mut self, pod: Option<Key>, steps: Vec<Step>) {
        self.effects.push(Effect::Move { pod, steps, of_control_plane: None });
    }

    /// The manifests of the control plane that leave.
    pub fn control_plane_files(&self) -> Vec<String> {
        let file = |effect: &Effect| match effect {
            Effect::Move { of_control_plane, .. } => of_control_plane.clone(),
            _ => None,
        };
        self.effects.iter().filter_map(file).collect()
    }

    fn record_event(&mut self, is_warning: bool, reason: &'static str, message: String) {
        self.effects.push(Effect::RecordEvent { is_warning, reason, message });
    }
}

pub fn decide(world: &World<'_>, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let was_alone = |taken: &&Taken| taken.record.as_ref().is_some_and(|record| record.alone);
    let Some(maintenances) = world.maintenances else {
        if let Some(up_to) = world.alone_up_to {
            end_alone(world, up_to, now, &mut decision);
        } else if !world.is_shutting_down {
            for taken in world.folder.taken.iter().filter(was_alone) {
                give_back(world, taken, &mut decision);
            }
        }
        return decision;
    };
    // What has ended for a shutdown does not start again while the node goes down.
    let stays = |taken: &&Taken| !(world.is_shutting_down && was_alone(taken));
    for taken in world.folder.taken.iter().filter(stays) {
        decide_taken(world, maintenances, taken, now, &mut decision);
    }
    for (file, record) in &world.folder.stale_records {
        let steps = forget(file).to_vec();
        decision.move_file(None, steps);
        if !world.folder.manifests.contains_key(file) {
            let pod = record.as_ref().map_or(String::new(), |record| format!(" of pod {}", record.pod.name));
            decision.record_event(
                true,
                "StaticPodManifestGone",
                format!("the manifest {file}{pod} was taken for a maintenance, and somebody has removed it: it does not come back"),
            );
        }
    }
    let mut requests: Vec<&Arc<Request>> = world.requests.values().collect();
    requests.sort_by(|a, b| a.key.cmp(&b.key));
    for request in requests {
        decide_request(world, maintenances, request, now, &mut decision);
    }
    decision
}

/// The control plane is left to the system, which ends it last.
fn end_alone(world: &World<'_>, up_to: i32, now: Timestamp, decision: &mut Decision) {
    let mut pods: Vec<&Arc<Pod>> = world.pods.values().collect();
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    for pod in pods.into_iter().filter(|pod| pod.priority <= up_to && component_of(pod, world.node).is_none())
    {
        let mirror = (&*pod.key.namespace, &*pod.key.name);
        let is_taken = world.folder.taken_of(mirror, world.node).is_some();
        let ([file], false) = (&world.folder.files_of(mirror, world.node)[..], is_taken) else { continue };
        // What has the name of one that was taken is somebody's own: it stays.
        if world.folder.taken.iter().any(|taken| taken.file == *file) {
            continue;
        }
        let record = Record { alone: true, ..record(world, pod, file, &maintenance_name(world.node), now) };
        decision.move_file(Some(pod.key.clone()), take(file, &record));
        decision.record_event(
            true,
            "StaticPodTaken",
            format!("the manifest {file} of pod {} is taken: the node shuts down, and the API server does not answer", pod.key),
        );
    }
}

/// Whether maintenances have to be read before anything can be decided.
pub fn needs_maintenances(requests: &HashMap<Key, Arc<Request>>, folder: &Contents) -> bool {
    !folder.taken.is_empty()
        || !folder.stale_records.is_empty()
        || requests.values().any(|request| has_turn(request, KUBELET_CLASS) || is_left(request))
}

/// A manifest that is taken comes back when no maintenance targets its pod any more.
fn decide_taken(
    world: &World<'_>,
    maintenances: &[Maintenance],
    taken: &Taken,
    now: Timestamp,
    decision: &mut Decision,
) {
    let is_wanted_gone = maintenances.iter().any(|maintenance| match &taken.record {
        Some(record) => {
            let class = PodClass {
                kind: PodType::Static,
                priority: record.priority,
                labels: Arc::new(record.labels.clone()),
            };
            reaches(maintenance, world.node, &class)
        }
        // Nobody knows any more what it was: it waits until no static pod is to leave.
        None => {
            let targets = maintenance.targets.get(world.node);
            maintenance.drains() && targets.is_some_and(|targets| targets.reach(PodType::Static))
        }
    });
    // One that was about to come back does so; it may leave again.
    if is_wanted_gone && taken.place != ManifestState::Linked {
        decision.again(now + LOOK_AGAIN);
        return;
    }
    give_back(world, taken, decision);
}

fn give_back(world: &World<'_>, taken: &Taken, decision: &mut Decision) {
    let Taken { file, place, .. } = taken;
    decision.move_file(None, put_back(world.folder, taken));
    match place {
        ManifestState::Free | ManifestState::Linked | ManifestState::Copied => {
            let message = format!("the manifest {file} is back: the kubelet starts its pod again");
            decision.record_event(false, "StaticPodReturned", message);
        }
        ManifestState::Replaced => {
            let kept = kept_name(world.folder, file);
            let message = format!(
                "somebody has put another manifest in place while {file} was taken, which stays; the one before is kept as {kept} in {}",
                world.path
            );
            decision.record_event(true, "StaticPodManifestReplaced", message);
        }
    }
}

fn reaches(maintenance: &Maintenance, node: &str, class: &PodClass) -> bool {
    maintenance.drains() && maintenance.targets.get(node).is_some_and(|targets| targets.selects(class))
}

fn decide_request(
    world: &World<'_>,
    maintenances: &[Maintenance],
    request: &Arc<Request>,
    now: Timestamp,
    decision: &mut Decision,
) {
    let is_left = is_left(request);
    if !is_left && !has_turn(request, KUBELET_CLASS) {
        return;
    }
    let key = request.pod_key();
    let is_its_pod =
        |pod: &&Arc<Pod>| pod.uid == request.pod_uid && pod.is_mirror && !pod.phase.is_terminal();
    // Whether a pod is gone is found out by the eviction request controller.
    let Some(pod) = world.pods.get(&key).filter(is_its_pod) else { return };
    let mirror = (&*key.namespace, &*key.name);
    let grace = SignedDuration::from_secs(pod.grace_seconds.into());
    let taken = world.folder.taken_of(mirror, world.node);
    let files = world.folder.files_of(mirror, world.node);
    if taken.is_some_and(|taken| taken.place == ManifestState::Linked) {
        return;
    }
    if let Some(Taken { record: Some(record), place: ManifestState::Free, .. }) = taken
        && files.is_empty()
    {
        // The kubelet ends it; until its grace ends, that is progress.
        let (beat, ends) = (next_beat(request), record.taken_at + grace);
        if now >= beat && now < ends && !is_left {
            decision.effects.push(progress(request, ends, request.status.message.clone()));
        } else if beat < ends {
            decision.again(beat);
        }
        return;
    }
    let class = PodClass { kind: pod.kind(), priority: pod.priority, labels: pod.labels.clone() };
    let mut reaching = maintenances.iter().filter(|it| reaches(it, world.node, &class));
    // An eviction request by itself is no reason, and saying that the turn is over would encourage it.
    let Some(maintenance) = reaching.next() else { return decision.again(now + LOOK_AGAIN) };
    let file = match judge(world, maintenances, &class, pod, taken, &files) {
        Ok(file) => file,
        Err(why) => {
            if is_left {
                // Somebody may change it, or other nodes of the control plane come back.
                decision.again(now + LOOK_AGAIN);
            } else {
                let report = Report { completed: true, message: Some(why.clone()), ..Report::default() };
                decision.effects.push(Effect::Report { request: request.clone(), report: Box::new(report) });
                decision.record_event(true, "StaticPodStays", why);
            }
            return;
        }
    };
    let reason = if maintenance.reason.is_empty() { &*maintenance.name } else { &maintenance.reason };
    let message = format!("{} is terminating the pod due to node maintenance ({reason}).", key.name);
    let is_told =
        request.status.message == message && request.status.expected_interceptor_finish_time.is_some();
    if !is_told && !is_left {
        decision.effects.push(progress(request, now + grace, message));
    }
    let record = record(world, pod, file, &maintenance.name, now);
    let of_control_plane = is_control_plane(pod, world.node).then(|| file.to_owned());
    let steps = take(file, &record);
    decision.effects.push(Effect::Move { pod: Some(key.clone()), steps, of_control_plane });
    decision.record_event(
        false,
        "StaticPodTaken",
        format!(
            "the manifest {file} of pod {key} is taken for maintenance {}, and comes back when that ends",
            maintenance.name
        ),
    );
}

fn record(world: &World<'_>, pod: &Pod, file: &str, maintenance: &str, now: Timestamp) -> Record {
    let named = world.folder.manifests.get(file).cloned().flatten();
    Record {
        maintenance: maintenance.to_owned(),
        pod: named.unwrap_or_else(|| PodName {
            namespace: pod.key.namespace.to_string(),
            name: pod.key.name.to_string(),
        }),
        pod_uid: pod.uid.to_string(),
        priority: pod.priority,
        labels: (*pod.labels).clone(),
        taken_at: now,
        alone: false,
    }
}

/// The manifest that is to be moved, or why none is.
fn judge<'a>(
    world: &World<'a>,
    maintenances: &[Maintenance],
    class: &PodClass,
    pod: &Pod,
    taken: Option<&Taken>,
    files: &[&'a str],
) -> Result<&'a str, String> {
    let (name, path) = (&pod.key.name, world.path);
    if let Some(component) = component_of(pod, world.node) {
        let is_allowed = |it: &Maintenance| it.moves_control_plane && reaches(it, world.node, class);
        if !maintenances.iter().any(is_allowed) {
            return Err(format!(
                "{name} is a part of the control plane and stays: annotate the maintenance with \
                 {MOVE_CONTROL_PLANE_ANNOTATION}=true to have it moved"
            ));
        }
        if let Some(why) = world.control_plane.keeps(component) {
            return Err(format!("{name} is a part of the control plane and stays: {why}"));
        }
    }
    match files {
        [file] => match taken {
            Some(taken) => Err(format!(
                "somebody has put the manifest {file} of {name} into {path} while that of {} was taken for a maintenance: it stays, \
                 remove it to end the pod",
                taken.file
            )),
            None if world.folder.taken.iter().any(|taken| taken.file == *file) => Err(format!(
                "the manifest {file} of {name} has the name of one that was taken for a maintenance: it stays, remove it to end the pod"
            )),
            None => Ok(file),
        },
        [] if world.has_url => Err(format!(
            "{name} has no manifest in {path}: it comes from the kubelet's staticPodURL, which cannot be moved; take it out there"
        )),
        [] => Err(format!("{name} has no manifest in {path}: remove it where the kubelet has it from")),
        several => Err(format!(
            "{name} is named by several manifests in {path} ({}): leave one of them there",
            several.join(", ")
        )),
    }
}

pub fn is_control_plane(pod: &Pod, node: &str) -> bool {
    component_of(pod, node).is_some()
}

/// Which part of the control plane the pod is, if it is one.
fn component_of(pod: &Pod, node: &str) -> Option<&'static str> {
    if &*pod.key.namespace != "kube-system" {
        return None;
    }
    let label = |key: &str| pod.labels.get(key).map(String::as_str);
    let suffix = format!("-{}", node.to_lowercase());
    let name = pod.key.name.strip_suffix(&suffix).unwrap_or(&pod.key.name);
    let known = |text: &str| CONTROL_PLANE.into_iter().find(|component| *component == text);
    let named = label("component").and_then(known).or_else(|| known(name));
    named.or_else(|| (label("tier") == Some("control-plane")).then_some("control-plane"))
}

/// The turn is over or there never was one, and nobody else ends the pod.
fn is_left(request: &Request) -> bool {
    request.requesters().next().is_some() && request.is_blocked_as(&[Unevictable::MirrorPod])
}

fn progress(request: &Arc<Request>, finish: Timestamp, message: String) -> Effect {
    let report = Report { progress: true, finish: Some(finish), message: Some(message), ..Report::default() };
    Effect::Report { request: request.clone(), report: Box::new(report) }
}

#[cfg(test)]
#[path = "static_pods_tests.rs"]
mod tests;
