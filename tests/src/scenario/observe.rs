//! What happens in a scenario, as watches tell it: the effects in their order, and whether what must always hold did.

use super::form::{Always, Bound};
use super::names::{Name, Names};
use super::reach::{ClusterUnderTest, Resource};
use super::stage::Nicknames;
use anyhow::{Context, Result};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// One thing that became of one object.
#[derive(Debug, Clone)]
pub struct Effect {
    pub object: Name,
    pub what: String,
    pub at: Instant,
    /// The revision of the cluster that brought it.
    pub version: u64,
}

/// All that was seen so far.
#[derive(Default)]
pub struct Seen {
    pub effects: Vec<Effect>,
    /// What was broken that should always hold, and when.
    pub broken: Vec<String>,
    /// Why nothing more is seen.
    pub blind: Option<String>,
    objects: BTreeMap<String, Object>,
    names: BTreeMap<String, Names>,
    always: Vec<(Always, Armed)>,
}

/// A lower bound counts from when it was first reached.
#[derive(Default, Clone, Copy)]
struct Armed {
    ready: bool,
    there: bool,
}

struct Object {
    plural: String,
    name: Name,
    /// What was last seen of it; null when it is gone.
    last: Value,
}

/// Watches until it is dropped.
pub struct Observer {
    pub seen: Arc<Mutex<Seen>>,
    watching: Vec<JoinHandle<()>>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
    }
}

impl Observer {
    /// Watches objects of these kinds, from now on.
    ///
    /// # Errors
    /// They cannot be listed or watched.
    pub async fn start(
        cluster: &Arc<ClusterUnderTest>,
        namespace: &str,
        nicknames: &Nicknames,
        kinds: &[Resource],
        always: &[Always],
    ) -> Result<Self> {
        let always = always.iter().map(|always| (always.clone(), Armed::default())).collect();
        let seen = Arc::new(Mutex::new(Seen { always, ..Seen::default() }));
        let mut observer = Self { seen: seen.clone(), watching: Vec::new() };
        for kind in kinds {
            let path = kind.path(namespace, None);
            let list = cluster.get(&path).await?;
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            let watch = watch(cluster.clone(), path, version, kind.clone(), nicknames.clone(), seen.clone());
            let seen = seen.clone();
            observer.watching.push(tokio::spawn(async move {
                if let Err(why) = watch.await {
                    seen.lock().blind = Some(format!("{why:#}"));
                }
            }));
        }
        Ok(observer)
    }

    /// The name in the cluster of what is called `short` here.
    #[must_use]
    pub fn real_name(&self, plural: &str, short: &str) -> Option<String> {
        let seen = self.seen.lock();
        let is_called = |name: &Name| name.without_kind() == short;
        let object =
            seen.objects.values().find(|object| object.plural == plural && is_called(&object.name))?;
        object.last["metadata"]["name"].as_str().map(str::to_owned)
    }

    /// What an object is called here, by its uid.
    #[must_use]
    pub fn short_name(&self, uid: &str) -> Option<String> {
        self.seen.lock().objects.get(uid).map(|object| object.name.without_kind().to_owned())
    }

    /// The family of an object, by its uid.
    #[must_use]
    pub fn family(&self, uid: &str) -> Option<String> {
        self.seen.lock().objects.get(uid).map(|object| object.name.family.clone())
    }

    /// Pods that vanished although nobody deleted them, and whose name an earlier pod had. The kubelets that kwok plays delete pods by name
    /// alone: on a busy machine a late deletion hits the next pod of the name.
    #[must_use]
    pub fn deleted_by_name(&self) -> Vec<String> {
        let seen = self.seen.lock();
        let pods: Vec<&Object> = seen.objects.values().filter(|object| object.plural == "pods").collect();
        let has = |pod: &Object, what: &str| {
            seen.effects.iter().any(|effect| effect.object == pod.name && effect.what == what)
        };
        let follows_another = |pod: &Object| {
            let name = |pod: &Object| pod.last["metadata"]["name"].clone();
            pods.iter().filter(|other| name(other) == name(pod)).count() > 1
        };
        let vanished = |pod: &&&Object| has(pod, "gone") && !has(pod, "terminating") && follows_another(pod);
        pods.iter().filter(vanished).map(|pod| pod.name.short.clone()).collect()
    }

    /// The last effects, a line each, with the seconds since `start`.
    #[must_use]
    pub fn told(&self, start: Instant, last: usize) -> Vec<String> {
        let seen = self.seen.lock();
        let from = seen.effects.len().saturating_sub(last);
        let line = |effect: &Effect| {
            let at = effect.at.saturating_duration_since(start).as_secs_f64();
            format!("{at:7.2}s {} {}", effect.object.short, effect.what)
        };
        seen.effects[from..].iter().map(line).collect()
    }
}

/// A watch that ends goes on where it was.
async fn watch(
    cluster: Arc<ClusterUnderTest>,
    path: String,
    mut version: String,
    kind: Resource,
    nicknames: Nicknames,
    seen: Arc<Mutex<Seen>>,
) -> Result<()> {
    loop {
        let mut body = cluster.open(&format!("{path}?watch=true&resourceVersion={version}")).await?;
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { break };
            pending.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).context("a watch event")?;
                anyhow::ensure!(event["type"] != "ERROR", "the watch of {path} says {}", event["object"]);
                if let Some(now) = event["object"]["metadata"]["resourceVersion"].as_str() {
                    version = now.to_owned();
                }
                let object = nicknames.shorten(event["object"].take());
                if kind.namespaced || nicknames.is_own(&object) {
                    seen.lock().note(&kind.plural, event["type"] == "DELETED", object);
                }
            }
        }
    }
}

impl Seen {
    fn note(&mut self, plural: &str, gone: bool, object: Value) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if !self.objects.contains_key(&uid) {
            let pod = object["spec"]["podRef"]["uid"].as_str().and_then(|uid| self.objects.get(uid));
            let pod = pod.map(|pod| pod.name.short.clone());
            let names = self.names.entry(plural.to_owned()).or_default();
            let mut name = match pod {
                Some(pod) => names.again(pod),
                None => names.name(&object),
            };
            if plural != "pods" {
                let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
                name = Name {
                    short: format!("{kind}/{}", name.short),
                    family: format!("{kind}/{}", name.family),
                };
            }
            self.objects.insert(uid.clone(), Object { plural: plural.to_owned(), name, last: Value::Null });
        }
        let Some(known) = self.objects.get_mut(&uid) else { return };
        let what = if plural == "pods" {
            pod_effects(&known.last, &object, gone)
        } else {
            effects(&known.last, &object, gone)
        };
        let (name, at) = (known.name.clone(), Instant::now());
        let version = object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(u64::MAX);
        known.last = object;
        if gone {
            known.last["status"] = Value::Null;
            known.last["metadata"]["deletionTimestamp"] = "gone".into();
        }
        // Watches of several kinds do not wait for each other, but revisions have one order.
        let position = self.effects.partition_point(|effect| effect.version <= version);
        let new = what.into_iter().map(|what| Effect { object: name.clone(), what, at, version });
        self.effects.splice(position..position, new);
        self.check_always();
    }

    fn check_always(&mut self) {
        let pods = self.objects.values().filter(|object| object.plural == "pods");
        let there: Vec<&Value> = pods.map(|pod| &pod.last).filter(|pod| is_there(pod)).collect();
        let number = self.effects.len();
        for (always, armed) in &mut self.always {
            let count = |wanted: fn(&Value) -> bool| {
                there.iter().filter(|pod| always.pods.selects(pod) && wanted(pod)).count()
            };
            let (ready, all) = (count(is_ready), count(|_| true));
            for (what, bound, count, armed) in [
                ("ready", always.ready, ready, &mut armed.ready),
                ("there", always.there, all, &mut armed.there),
            ] {
                if let Some(wanted) = bound.and_then(|bound| bound.broken_by(count, armed)) {
                    let line = format!(
                        "pods {} should always be {wanted} {what}, but {count} are, after effect {number}",
                        always.pods
                    );
                    self.broken.push(line);
                }
            }
        }
    }
}

impl Bound {
    fn broken_by(self, count: usize, armed: &mut bool) -> Option<String> {
        *armed |= self.at_least.is_none_or(|least| count >= least);
        match (self.at_least, self.at_most) {
            (Some(least), _) if *armed && count < least => Some(format!("at least {least}")),
            (_, Some(most)) if count > most => Some(format!("at most {most}")),
            _ => None,
        }
    }
}

fn is_there(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == Some("True")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// The steps of a pod's life. What its readiness does while it ends is nobody's business.
fn pod_effects(before: &Value, now: &Value, gone: bool) -> Vec<String> {
    let phase = |pod: &Value, phase: &str| pod["status"]["phase"] == phase;
    let bound = |pod: &Value| pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ending = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let ended = |pod: &Value| phase(pod, "Succeeded") || phase(pod, "Failed");
    let mut what = Vec::new();
    let mut add = |happened: bool, effect: &str| {
        if happened {
            what.push(effect.to_owned());
        }
    };
    add(before.is_null(), "created");
    add(bound(now) && !bound(before), "scheduled");
    if !ending(before) {
        add(is_ready(now) && !is_ready(before), "ready");
        add(is_ready(before) && !is_ready(now) && !ended(now), "unready");
    }
    add(phase(now, "Succeeded") && !phase(before, "Succeeded"), "succeeded");
    add(phase(now, "Failed") && !phase(before, "Failed"), "failed");
    add(!gone && ending(now) && !ending(before), "terminating");
    add(gone, "gone");
    what
}

/// The life of any other object, with the conditions it takes on: `Evicted=True`.
fn effects(before: &Value, now: &Value, gone: bool) -> Vec<String> {
    let mut what = Vec::new();
    if before.is_null() {
        what.push("created".to_owned());
    }
    for kind in
        now["status"]["conditions"].as_array().into_iter().flatten().filter_map(|c| c["type"].as_str())
    {
        let status = condition(now, kind);
        if status != condition(before, kind) {
            what.push(format!("{kind}={}", status.unwrap_or_default()));
        }
    }
    let ending = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    if !gone && ending(now) && !ending(before) {
        what.push("terminating".to_owned());
    }
    if gone {
        what.push("gone".to_owned());
    }
    what
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::selector::Selector;
    use serde_json::json;

    fn pod(uid: &str, ready: bool, ending: bool) -> Value {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid, "labels": {"app": "web"}},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        });
        if ending {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        pod
    }

    fn told(seen: &Seen) -> Vec<String> {
        seen.effects.iter().map(|effect| format!("{} {}", effect.object.short, effect.what)).collect()
    }

    #[test]
    fn a_pod_lives_in_steps() {
        let mut seen = Seen::default();
        seen.note("pods", false, pod("p", false, false));
        seen.note("pods", false, pod("p", true, false));
        seen.note("pods", false, pod("p", true, true));
        seen.note("pods", true, pod("p", false, true));
        assert_eq!(told(&seen), ["p created", "p scheduled", "p ready", "p terminating", "p gone"]);
    }

    #[test]
    fn a_lower_bound_counts_from_when_it_is_first_reached() {
        let bound = Bound { at_least: Some(2), at_most: None };
        let always = Always { pods: Selector::parse("app=web").unwrap(), ready: Some(bound), there: None };
        let mut seen = Seen { always: vec![(always, Armed::default())], ..Seen::default() };
        seen.note("pods", false, pod("p", true, false));
        assert!(seen.broken.is_empty());
        seen.note("pods", false, pod("q", true, false));
        assert!(seen.broken.is_empty());
        seen.note("pods", false, pod("p", true, true));
        assert_eq!(seen.broken.len(), 1, "{:?}", seen.broken);
    }

    #[test]
    fn a_pod_that_vanishes_is_deleted_by_name_only_if_an_earlier_pod_had_its_name() {
        let named = |name: &str, uid: &str| json!({"metadata": {"name": name, "uid": uid}});
        let observer = Observer { seen: Arc::default(), watching: Vec::new() };
        let note = |gone, object| observer.seen.lock().note("pods", gone, object);
        note(true, named("other-0", "0"));
        let mut first = named("db-0", "1");
        first["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        note(false, first.clone());
        note(true, first);
        assert!(observer.deleted_by_name().is_empty());
        note(true, named("db-0", "2"));
        assert_eq!(observer.deleted_by_name(), ["db-0#2"]);
    }

    #[test]
    fn effects_stand_in_the_order_of_revisions_whichever_watch_is_first() {
        let of = |kind: &str, version: u64| json!({"kind": kind, "metadata": {"name": "x", "uid": kind, "resourceVersion": version.to_string()}});
        let mut seen = Seen::default();
        seen.note("pods", false, of("Pod", 7));
        seen.note("nodes", false, of("Node", 5));
        assert_eq!(told(&seen), ["node/x created", "x created"]);
    }

    #[test]
    fn other_objects_take_on_conditions() {
        let with = |status: &str| json!({"status": {"conditions": [{"type": "Done", "status": status}]}});
        assert_eq!(effects(&Value::Null, &with("False"), false), ["created", "Done=False"]);
        assert_eq!(effects(&with("False"), &with("True"), false), ["Done=True"]);
        assert_eq!(effects(&with("True"), &with("True"), true), ["gone"]);
    }
}
