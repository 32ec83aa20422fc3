//! StatefulSets: pods with names and an order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::revisions::{LABEL, Templated, template_of};
use super::{is_available, owned_by, pod_from};
use crate::life::plan::{Action, Plan};
use crate::life::status;
use crate::life::view::{Amount, Pod, Resource, StatefulSet, View};
use crate::store::Key;

pub fn decide(view: &View, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(set) = view.stateful_sets.get(key) else { return plan };
    let wanted = set.spec.replicas.unwrap_or(1).max(0);
    let first = set.spec.ordinals.start;
    let template = Templated {
        kind: "StatefulSet",
        meta: &set.metadata,
        template: &set.spec.template,
        collisions: set.status["collisionCount"].as_i64().unwrap_or_default(),
    };
    let update = template.settle(view, &mut plan);
    let known = set.status["currentRevision"].as_str().unwrap_or_default();
    let current =
        template_of(view, &set.metadata.namespace, known).map(|template| (known.to_string(), template));
    let mut state = State {
        view,
        set,
        current: current.unwrap_or_else(|| (update.name.clone(), set.spec.template.clone())),
        update: (update.name.clone(), set.spec.template.clone()),
        collisions: update.collisions,
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
    state.report(&mut plan);
    if !set.is_deleting() {
        state.act(&mut plan);
    }
    let mut used: BTreeSet<&str> = state.there().filter_map(|(_, pod)| revision_of(pod)).collect();
    used.extend([state.current.0.as_str(), state.update.0.as_str()]);
    template.prune(view, &used, set.spec.revision_history_limit, &mut plan);
    plan
}

fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    pod.metadata.name.strip_prefix(&set.metadata.name)?.strip_prefix('-')?.parse().ok()
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.get(LABEL).map(String::as_str)
}

struct State<'a> {
    view: &'a View,
    set: &'a StatefulSet,
    /// The template that the set comes from and the one that it goes to, by name.
    current: (String, Value),
    update: (String, Value),
    collisions: i64,
    /// Who is there and who should be, by ordinal.
    slots: BTreeMap<i64, Option<&'a Arc<Pod>>>,
    /// Who should not be there.
    condemned: BTreeMap<i64, &'a Arc<Pod>>,
    healthy: BTreeMap<i64, bool>,
}

impl<'a> State<'a> {
    fn ordered(&self) -> bool {
        self.set.spec.pod_management_policy != "Parallel"
    }

    fn is_healthy(&self, ordinal: i64) -> bool {
        self.healthy.get(&ordinal).copied().unwrap_or_default()
    }

    fn there(&self) -> impl Iterator<Item = (i64, &'a Arc<Pod>)> {
        let slots = self.slots.iter().filter_map(|(ordinal, pod)| Some((*ordinal, (*pod)?)));
        slots.chain(self.condemned.iter().map(|(ordinal, pod)| (*ordinal, *pod)))
    }

    fn is_old(&self, pod: &Pod) -> bool {
        revision_of(pod) != Some(&self.update.0)
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
            if self.set.spec.claim_retention.when_scaled == "Delete" {
                self.tie_claims(*ordinal, pod, plan);
            }
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
            if self.ordered() {
                return false;
            }
        }
        true
    }

    /// Claims of a pod that is not to come back go with it.
    fn tie_claims(&self, ordinal: i64, pod: &Pod, plan: &mut Plan) {
        let owner =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}]);
        for template in &self.set.spec.volume_claim_templates {
            let key = Key::new(&self.set.metadata.namespace, &self.claim_name(template, ordinal));
            if let Some(claim) = self.view.claims.get(&key).filter(|claim| !claim.is_deleting()) {
                let patch = json!({"metadata": {"ownerReferences": owner}});
                plan.act(Action::patch(Resource::Claims, &claim.metadata, patch));
            }
        }
    }

    fn claim_name(&self, template: &Value, ordinal: i64) -> String {
        let volume = template["metadata"]["name"].as_str().unwrap_or_default();
        format!("{volume}-{}-{ordinal}", self.set.metadata.name)
    }

    /// From the last to the partition, as many at a time as may be unavailable.
    fn update(&self, plan: &mut Plan) {
        let strategy = &self.set.spec.update_strategy;
        if strategy.kind == "OnDelete" {
            return;
        }
        let most = strategy.rolling_update.max_unavailable.as_ref().unwrap_or(&Amount::Number(1));
        let most = most.of(self.slots.len() as i64, false).max(1);
        let unavailable = self.slots.keys().filter(|ordinal| !self.is_healthy(**ordinal)).count() as i64;
        let mut left = most - unavailable;
        let partition = usize::try_from(strategy.rolling_update.partition).unwrap_or_default();
        let outdated = self.slots.iter().skip(partition).rev().filter_map(|(ordinal, slot)| {
            slot.filter(|pod| self.is_old(pod) && !pod.is_deleting())
                .map(|pod| (self.is_healthy(*ordinal), pod))
        });
        // What does not serve anyway goes at once, where no order is kept.
        let (serving, broken): (Vec<_>, Vec<_>) =
            outdated.partition(|(healthy, _)| *healthy || self.ordered());
        for (_, pod) in broken {
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
        }
        for (_, pod) in serving {
            if left <= 0 {
                return;
            }
            plan.act(Action::delete(Resource::Pods, &pod.metadata));
            left -= 1;
        }
    }

    fn create(&self, ordinal: i64, plan: &mut Plan) {
        let meta = &self.set.metadata;
        let name = format!("{}-{ordinal}", meta.name);
        let strategy = &self.set.spec.update_strategy;
        // Below the partition, a pod that has gone comes back as it was.
        let held = strategy.kind != "OnDelete"
            && ordinal < self.set.spec.ordinals.start + strategy.rolling_update.partition;
        let (revision, template) = if held { &self.current } else { &self.update };
        let mut pod = pod_from(template, meta, owned_by("apps/v1", "StatefulSet", meta));
        if let Some(fields) = pod["metadata"].as_object_mut() {
            fields.remove("generateName");
        }
        pod["metadata"]["name"] = name.clone().into();
        pod["metadata"]["labels"][LABEL] = revision.clone().into();
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.clone().into();
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = ordinal.to_string().into();
        pod["spec"]["hostname"] = name.into();
        if !self.set.spec.service_name.is_empty() {
            pod["spec"]["subdomain"] = self.set.spec.service_name.clone().into();
        }
        for claim in &self.set.spec.volume_claim_templates {
            let volume = claim["metadata"]["name"].as_str().unwrap_or_default();
            let claimed = self.claim_name(claim, ordinal);
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
            for (label, value) in self.set.spec.selector["matchLabels"].as_object().into_iter().flatten() {
                object["metadata"]["labels"][label] = value.clone();
            }
            if self.set.spec.claim_retention.when_deleted == "Delete" {
                object["metadata"]["ownerReferences"] = owned_by("apps/v1", "StatefulSet", meta);
            }
            plan.act(Action::Ensure {
                resource: Resource::Claims,
                namespace: meta.namespace.clone(),
                object,
            });
        }
        plan.act(Action::create(Resource::Pods, &meta.namespace, pod));
    }

    fn report(&self, plan: &mut Plan) {
        let there: Vec<(i64, &Arc<Pod>)> = self.there().collect();
        let of = |revision: &str| {
            there.iter().filter(|(_, pod)| revision_of(pod) == Some(revision) && !pod.is_deleting()).count()
        };
        let ready = there.iter().filter(|(_, pod)| pod.is_ready() && pod.status.phase == "Running").count();
        let available = there.iter().filter(|(ordinal, _)| self.is_healthy(*ordinal)).count();
        let update = &self.update.0;
        let done = self.set.spec.update_strategy.kind != "OnDelete"
            && of(update) == there.len()
            && ready == there.len()
            && there.len() == self.slots.len();
        let current = if done { update } else { &self.current.0 };
        let wanted = json!({
            "observedGeneration": self.set.metadata.generation, "replicas": there.len(), "readyReplicas": ready,
            "availableReplicas": available, "currentReplicas": of(current), "updatedReplicas": of(update),
            "currentRevision": current, "updateRevision": update, "collisionCount": self.collisions,
        });
        if let Some(new) = status::difference(&self.set.status, wanted) {
            plan.act(Action::status(Resource::StatefulSets, &self.set.metadata, new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::controllers::revisions;
    use crate::life::controllers::testing::{at, created, deleted, owned_pod, set_status, view};

    fn set(replicas: i64, policy: &str) -> Value {
        json!({
            "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default", "uid": "set", "generation": 1},
            "spec": {
                "replicas": replicas, "podManagementPolicy": policy, "serviceName": "db",
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}},
            },
        })
    }

    /// The revision of the present template, as an object, and its name.
    fn revision() -> (Value, String) {
        let (object, named) = revisions::testing::revision_of("StatefulSet", &set(1, ""), 2);
        (object, named.name)
    }

    /// A healthy pod of the present template.
    fn pod(ordinal: i64) -> Value {
        let mut pod = owned_pod(&format!("db-{ordinal}"), "StatefulSet", "db", "set");
        pod["metadata"]["labels"][LABEL] = revision().1.into();
        pod
    }

    fn old(ordinal: i64) -> Value {
        let mut pod = pod(ordinal);
        pod["metadata"]["labels"][LABEL] = "db-old".into();
        pod
    }

    fn plan(objects: &[Value]) -> Plan {
        let all: Vec<Value> = [revision().0].into_iter().chain(objects.iter().cloned()).collect();
        decide(&view(&all), &Key::new("default", "db"), at(100))
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
            let plan = plan(&objects);
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
            deleted(&plan(&objects)).join(" ")
        };
        assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}})), "");
        assert_eq!(with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})), "db-2");
        assert_eq!(with(json!({"type": "OnDelete"})), "");
    }

    #[test]
    fn a_new_template_is_recorded_before_any_pod_has_it() {
        let plan = decide(&view(&[set(1, "")]), &Key::new("default", "db"), at(100));
        let kinds: Vec<&str> = created(&plan).iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ControllerRevision", "Pod"]);
        let status = set_status(&plan);
        assert_eq!(
            (&status["updateRevision"], &status["currentRevision"]),
            (&json!(revision().1), &json!(revision().1))
        );
        assert_eq!(created(&plan)[1]["metadata"]["labels"][LABEL], revision().1.as_str());
    }

    #[test]
    fn below_the_partition_pods_come_back_as_they_were() {
        let mut was = set(3, "");
        was["spec"]["template"]["spec"]["priority"] = json!(1);
        let (old_revision, named) = revisions::testing::revision_of("StatefulSet", &was, 1);
        let mut held = set(3, "");
        held["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        held["status"] = json!({"currentRevision": named.name});
        let comes = |there: &[Value]| {
            let objects: Vec<Value> =
                [old_revision.clone(), held.clone()].into_iter().chain(there.iter().cloned()).collect();
            let plan = plan(&objects);
            let pod = created(&plan)[0];
            (pod["metadata"]["name"].clone(), pod["spec"]["priority"].clone())
        };
        assert_eq!(comes(&[]), (json!("db-0"), json!(1)));
        assert_eq!(comes(&[pod(0), pod(1)]), (json!("db-2"), Value::Null));
    }

    #[test]
    fn an_update_takes_as_many_as_may_be_unavailable() {
        let mut two = set(4, "Parallel");
        two["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
        let gone = |pods: [Value; 4]| {
            let objects: Vec<Value> = std::iter::once(two.clone()).chain(pods).collect();
            deleted(&plan(&objects)).join(" ")
        };
        assert_eq!(gone([old(0), old(1), old(2), old(3)]), "db-3 db-2");
        assert_eq!(gone([old(0), old(1), old(2), unready(pod(3))]), "db-2");
        assert_eq!(
            gone([unready(old(0)), old(1), old(2), old(3)]),
            "db-0 db-3",
            "what does not serve goes anyway"
        );
    }

    #[test]
    fn an_update_that_is_through_makes_the_new_template_the_current_one() {
        let mut updating = set(2, "");
        updating["status"] = json!({"currentRevision": "db-old"});
        let current = |pods: [Value; 2]| {
            let objects: Vec<Value> = std::iter::once(updating.clone()).chain(pods).collect();
            set_status(&plan(&objects))["currentRevision"].clone()
        };
        assert_eq!(current([pod(0), pod(1)]), json!(revision().1));
    }

    #[test]
    fn claims_follow_their_retention_policy() {
        let mut with_claims = set(1, "");
        with_claims["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        with_claims["spec"]["persistentVolumeClaimRetentionPolicy"] =
            json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
        let made = plan(&[with_claims.clone()]);
        let claim = made.actions.iter().find_map(|action| match action {
            Action::Ensure { object, .. } => Some(object.clone()),
            _ => None,
        });
        let claim = claim.unwrap();
        assert_eq!(claim["metadata"]["name"], "data-db-0");
        assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
        let there = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-1", "namespace": "default", "uid": "c"}});
        let shrinks = plan(&[with_claims, pod(0), pod(1), there]);
        let tied = shrinks.actions.iter().any(|action| {
            matches!(action, Action::Patch { target, patch, .. }
                if target.name == "data-db-1" && patch["metadata"]["ownerReferences"][0]["name"] == "db-1")
        });
        assert!(tied && deleted(&shrinks) == ["db-1"]);
    }
}
