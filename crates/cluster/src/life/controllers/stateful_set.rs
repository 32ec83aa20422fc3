//! StatefulSets: pods with names and an order.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{hash_of, is_available, owned_by, pod_from};
use crate::life::plan::{Action, Plan};
use crate::life::status;
use crate::life::view::{Pod, Resource, StatefulSet, View};
use crate::store::Key;

const REVISION: &str = "controller-revision-hash";

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.stateful_sets.get(key) else { return plan };
    let wanted = set.spec.replicas.unwrap_or(1).max(0);
    let first = set.spec.ordinals.start;
    let mut state = State {
        set,
        revision: format!("{}-{}", set.metadata.name, hash_of(&set.spec.template)),
        slots: (first..first + wanted).map(|ordinal| (ordinal, None)).collect(),
        condemned: BTreeMap::new(),
        healthy: BTreeMap::new(),
    };
    for pod in view.pods_of(&set.metadata.uid) {
        let Some(ordinal) = ordinal_of(set, pod) else { continue };
        let available = is_available(pod, set.spec.min_ready_seconds, now, |at| plan.recheck(at));
        state.healthy.insert(ordinal, available && !pod.is_deleting() && pod.status.phase == "Running");
        match state.slots.get_mut(&ordinal) {
            Some(slot) => *slot = Some(pod),
            None => _ = state.condemned.insert(ordinal, pod),
        }
    }
    if !set.is_deleting() {
        state.act(&mut plan);
    }
    state.report(&mut plan);
    plan
}

fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    pod.metadata.name.strip_prefix(&set.metadata.name)?.strip_prefix('-')?.parse().ok()
}

struct State<'a> {
    set: &'a StatefulSet,
    revision: String,
    /// Who is there and who should be, by ordinal.
    slots: BTreeMap<i64, Option<&'a Arc<Pod>>>,
    /// Who should not be there.
    condemned: BTreeMap<i64, &'a Arc<Pod>>,
    healthy: BTreeMap<i64, bool>,
}

impl State<'_> {
    fn ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    fn is_healthy(&self, ordinal: i64) -> bool {
        self.healthy.get(&ordinal).copied().unwrap_or_default()
    }

    fn act(&self, plan: &mut Plan) {
        if self.fill(plan) && self.shrink(plan) {
            self.update(plan);
        }
    }

    /// From the first to the last; in order, each waits for the one before. True if all may go on.
    fn fill(&self, plan: &mut Plan) -> bool {
        for (ordinal, slot) in &self.slots {
            let waits = match slot {
                None => {
                    self.create(*ordinal, plan);
                    true
                }
                Some(pod) if pod.is_deleting() => true,
                Some(pod) if pod.is_terminal() => {
                    plan.act(Action::delete(Resource::Pods, &pod.metadata));
                    true
                }
                Some(_) => !self.is_healthy(*ordinal),
            };
            if waits && self.ordered() {
                return false;
            }
        }
        true
    }

    /// From the last to the first. In order, a pod goes when all before it are healthy or it is the only one that is not.
    fn shrink(&self, plan: &mut Plan) -> bool {
        let first_unhealthy = self.condemned.keys().find(|ordinal| !self.is_healthy(**ordinal));
        for (ordinal, pod) in self.condemned.iter().rev() {
            if pod.is_deleting() {
                if self.ordered() {
                    return false;
                }
                continue;
            }
            if self.ordered() && !self.is_healthy(*ordinal) && first_unhealthy != Some(ordinal) {
                return false;
            }
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
            if self.ordered() {
                return false;
            }
        }
        true
    }

    /// From the last to the partition, one at a time, each healthy before the next.
    fn update(&self, plan: &mut Plan) {
        let strategy = &self.set.spec.update_strategy;
        if strategy.kind == "OnDelete" {
            return;
        }
        let partition = usize::try_from(strategy.rolling_update.partition).unwrap_or_default();
        for (ordinal, slot) in self.slots.iter().skip(partition).rev() {
            let Some(pod) = slot else { return };
            if pod.metadata.labels.get(REVISION) != Some(&self.revision) && !pod.is_deleting() {
                plan.act(Action::delete(Resource::Pods, &pod.metadata));
                return;
            }
            if !self.is_healthy(*ordinal) {
                return;
            }
        }
    }

    fn create(&self, ordinal: i64, plan: &mut Plan) {
        let meta = &self.set.metadata;
        let name = format!("{}-{ordinal}", meta.name);
        let mut pod = pod_from(&self.set.spec.template, meta, owned_by("apps/v1", "StatefulSet", meta));
        pod["metadata"]["name"] = name.clone().into();
        pod["metadata"]["labels"][REVISION] = self.revision.clone().into();
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.clone().into();
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        pod["spec"]["hostname"] = name.into();
        if !self.set.spec.service_name.is_empty() {
            pod["spec"]["subdomain"] = self.set.spec.service_name.clone().into();
        }
        for claim in &self.set.spec.volume_claim_templates {
            let volume = claim["metadata"]["name"].as_str().unwrap_or_default();
            let claimed = format!("{volume}-{}-{ordinal}", meta.name);
            let mount = json!({"name": volume, "persistentVolumeClaim": {"claimName": claimed}});
            match &mut pod["spec"]["volumes"] {
                Value::Array(volumes) => {
                    volumes.retain(|known| known["name"] != volume);
                    volumes.push(mount);
                }
                other => *other = json!([mount]),
            }
            let mut object = claim.clone();
            object["metadata"]["name"] = claimed.into();
            plan.act(Action::Ensure {
                resource: Resource::Claims,
                namespace: meta.namespace.clone(),
                object,
            });
        }
        plan.act(Action::create(Resource::Pods, &meta.namespace, pod));
    }

    fn report(&self, plan: &mut Plan) {
        let there = self.slots.iter().filter_map(|(ordinal, pod)| Some((*ordinal, (*pod)?)));
        let there: Vec<(i64, &Arc<Pod>)> =
            there.chain(self.condemned.iter().map(|(ordinal, pod)| (*ordinal, *pod))).collect();
        let of = |revision: &str| {
            let matches = |pod: &Pod| pod.metadata.labels.get(REVISION).is_some_and(|is| is == revision);
            there.iter().filter(|(_, pod)| matches(pod) && !pod.is_deleting()).count()
        };
        let ready = there.iter().filter(|(_, pod)| pod.is_ready() && pod.status.phase == "Running").count();
        let available = there.iter().filter(|(ordinal, _)| self.is_healthy(*ordinal)).count();
        let known = self.set.status["currentRevision"].as_str().unwrap_or(&self.revision);
        let done =
            of(&self.revision) == there.len() && ready == there.len() && there.len() == self.slots.len();
        let current = if done { &self.revision } else { known };
        let wanted = json!({
            "observedGeneration": self.set.metadata.generation, "replicas": there.len(), "readyReplicas": ready,
            "availableReplicas": available, "currentReplicas": of(current), "updatedReplicas": of(&self.revision),
            "currentRevision": current, "updateRevision": self.revision,
        });
        if let Some(new) = status::difference(&self.set.status, wanted) {
            plan.act(Action::status(Resource::StatefulSets, &self.set.metadata, new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::testing::{at, created, deleted, owned_pod, view};

    fn set(replicas: i64, policy: &str) -> Value {
        json!({
            "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default", "uid": "set", "generation": 1},
            "spec": {
                "replicas": replicas, "podManagementPolicy": policy, "serviceName": "db",
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}},
            },
        })
    }

    /// A healthy pod of the present template.
    fn pod(ordinal: i64) -> Value {
        let mut pod = owned_pod(&format!("db-{ordinal}"), "StatefulSet", "db", "set");
        let hash = hash_of(&set(1, "")["spec"]["template"]);
        pod["metadata"]["labels"][REVISION] = format!("db-{hash}").into();
        pod
    }

    fn old(ordinal: i64) -> Value {
        let mut pod = pod(ordinal);
        pod["metadata"]["labels"][REVISION] = "db-old".into();
        pod
    }

    fn unready(mut pod: Value) -> Value {
        pod["status"]["conditions"][0]["status"] = "False".into();
        pod
    }

    fn leaving(mut pod: Value) -> Value {
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        pod
    }

    /// A rule, what there is, and the pods that are made and deleted.
    type Case = (&'static str, Vec<Value>, &'static [&'static str], &'static [&'static str]);

    #[test]
    fn pods_come_go_and_change_in_order() {
        let cases: [Case; 10] = [
            ("the first comes alone", vec![set(3, "")], &["db-0"], &[]),
            ("the next waits until the one before is ready", vec![set(3, ""), unready(pod(0))], &[], &[]),
            ("then it comes", vec![set(3, ""), pod(0)], &["db-1"], &[]),
            ("in parallel all come", vec![set(3, "Parallel"), unready(pod(0))], &["db-1", "db-2"], &[]),
            ("the last goes first", vec![set(1, ""), pod(0), pod(1), pod(2)], &[], &["db-2"]),
            ("one after another", vec![set(1, ""), pod(0), pod(1), leaving(pod(2))], &[], &[]),
            ("in parallel all go", vec![set(1, "Parallel"), pod(0), pod(1), pod(2)], &[], &["db-2", "db-1"]),
            ("an update begins with the last", vec![set(3, ""), old(0), old(1), old(2)], &[], &["db-2"]),
            ("and waits for it", vec![set(3, ""), old(0), old(1), unready(pod(2))], &[], &[]),
            ("then takes the one before", vec![set(3, ""), old(0), old(1), pod(2)], &[], &["db-1"]),
        ];
        for (rule, objects, creates, deletes) in cases {
            let plan = decide(&view(&objects), &Key::new("default", "db"), at(100));
            let made: Vec<&str> =
                created(&plan).iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
            assert_eq!((made, deleted(&plan)), (creates.to_vec(), deletes.to_vec()), "{rule}");
        }
    }

    #[test]
    fn the_partition_and_on_delete_hold_an_update_back() {
        let pods = [old(0), old(1), old(2)];
        let with = |strategy: Value| {
            let mut set = set(3, "");
            set["spec"]["updateStrategy"] = strategy;
            let objects: Vec<Value> = std::iter::once(set).chain(pods.clone()).collect();
            let plan = decide(&view(&objects), &Key::new("default", "db"), at(100));
            deleted(&plan).join(" ")
        };
        assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}})), "");
        assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})), "db-2");
        assert_eq!(with(json!({"type": "OnDelete"})), "");
    }
}
