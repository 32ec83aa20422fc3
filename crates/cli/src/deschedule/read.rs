//! A cluster for the descheduler, live or from a dump, with what the dry run tells beside the plan.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use usher_api::names::DESCHEDULER_CONFIG_MAP_SUFFIX;
use usher_decide::snapshot::{
    DaemonSet, DaemonSetOnWire, Deployment, DeploymentOnWire, Key, NamespaceOnWire, Request, RequestOnWire,
    StatefulSet, StatefulSetOnWire,
};
use usher_descheduler::requester::{Memory, Options, PodId, PodMarks, Requester};
use usher_descheduler::{Cluster, InProgress, Plan, Problem};
use usher_forecast::outlook::{self, Budget, Finding, NodeOnWire, PodOnWire, Workloads};

use crate::Error;
use crate::reading::Read;
use crate::world::list_exactly;

/// What was read.
#[derive(Default)]
pub struct ClusterRead {
    pub cluster: Cluster,
    pods: HashMap<Key, outlook::Pod>,
    nodes: Vec<outlook::Node>,
    budgets: Vec<Budget>,
    daemon_sets: Vec<DaemonSet>,
    stateful_sets: Vec<StatefulSet>,
    deployments: Vec<Deployment>,
    namespaces: Vec<usher_decide::snapshot::Namespace>,
    requests: Vec<Request>,
    marks: Vec<(PodId, PodMarks)>,
    /// Which descheduler is meant, by the namespace and name of its lease.
    pub descheduler: String,
    /// What it remembers.
    pub memory: Memory,
    /// Kinds that may not be read, so that nothing can be said about them.
    pub hidden: Vec<&'static str>,
    /// Why real usage by which the policy goes is not known.
    pub unknown_usage: Vec<String>,
}

/// The kinds that matter, in the words of kubectl.
const KINDS: [&str; 10] = [
    "nodes",
    "pods",
    "namespaces",
    "poddisruptionbudgets",
    "priorityclasses",
    "persistentvolumeclaims",
    // The group, or servers that have a built-in kind of that name would give that.
    "evictionrequests.evictionrequest.coordination.k8s.io",
    "deployments",
    "statefulsets",
    "daemonsets",
];

const PRIORITY_CLASSES: &str = "priorityclasses";
const REQUESTS: &str = "evictionrequests";
const COOL_DOWNS: &str = "the descheduler's cool-downs";

/// The cluster, with what the descheduler of this namespace and name remembers.
pub async fn cluster(client: &Client, descheduler: (&str, &str)) -> Result<ClusterRead, Error> {
    let mut read = ClusterRead::new();
    // Without these two there is no plan.
    each(client, |it| read.node(it)).await?;
    each(client, |it| read.pod(it)).await?;
    let mut hidden = Vec::new();
    allowed(each(client, |it| read.namespace(it)).await, "namespaces", &mut hidden)?;
    allowed(each(client, |it| read.budget(it)).await, "poddisruptionbudgets", &mut hidden)?;
    allowed(each(client, |it| read.priority_class(it)).await, PRIORITY_CLASSES, &mut hidden)?;
    allowed(each(client, |it| read.claim(it)).await, "persistentvolumeclaims", &mut hidden)?;
    match allowed(each(client, |it| read.request(it)).await, REQUESTS, &mut hidden) {
        // Policies can be tried where Usher is not installed.
        Err(Error::NotInstalled) => {}
        other => other?,
    }
    allowed(each(client, |it| read.deployment(it)).await, "deployments", &mut hidden)?;
    allowed(each(client, |it| read.stateful_set(it)).await, "statefulsets", &mut hidden)?;
    allowed(each(client, |it| read.daemon_set(it)).await, "daemonsets", &mut hidden)?;
    // Who may not read it sees a plan without cool-downs, and is told.
    let remembered = remembered(client, descheduler).await.map(|memory| read.memory = memory);
    allowed(remembered, COOL_DOWNS, &mut hidden)?;
    read.hidden = hidden;
    Ok(read)
}

async fn remembered(client: &Client, (namespace, name): (&str, &str)) -> Result<Memory, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get_opt(&format!("{name}{DESCHEDULER_CONFIG_MAP_SUFFIX}")).await?;
    Ok(Memory::of_data(&map.and_then(|map| map.data).unwrap_or_default()))
}

async fn each<K>(client: &Client, mut take: impl FnMut(Read<K>)) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<Read<K>> = Api::all(client.clone());
    list_exactly(&api, None).await?.into_iter().for_each(&mut take);
    Ok(())
}

fn allowed(
    listed: Result<(), Error>,
    kind: &'static str,
    hidden: &mut Vec<&'static str>,
) -> Result<(), Error> {
    match listed {
        Err(Error::Forbidden(_)) => {
            hidden.push(kind);
            Ok(())
        }
        other => other,
    }
}

/// A list, as kubectl prints it.
#[derive(Deserialize)]
struct Dump {
    items: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// A dump of a cluster, as JSON; `place` is where it comes from.
pub fn dump(text: &str, place: &str) -> Result<ClusterRead, Error> {
    let wrong = |why: String| {
        Error::Usage(format!(
            "the dump {place} {why}: make one with kubectl get {} -A -o json",
            KINDS.join(",")
        ))
    };
    let dump: Dump =
        serde_json::from_str(text).map_err(|why| wrong(format!("is no list of objects as JSON ({why})")))?;
    let mut read = ClusterRead::new();
    for item in dump.items {
        let item = item.get();
        let head: Head = serde_json::from_str(item)
            .map_err(|why| wrong(format!("has an item that is no object ({why})")))?;
        read.object(&head, item)
            .map_err(|why| wrong(format!("has a {} that cannot be read ({why})", head.kind)))?;
    }
    if read.nodes.is_empty() {
        return Err(wrong("has no nodes".to_owned()));
    }
    Ok(read)
}

impl ClusterRead {
    fn new() -> Self {
        let mut read = Self::default();
        // Every cluster has these, by these values: who may not list them knows them all the same.
        for (name, value) in
            [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
        {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            read.cluster.set_priority_class(&PriorityClass {
                metadata,
                value: Some(value),
                ..PriorityClass::default()
            });
        }
        read
    }

    /// What is not looked at, for want of the right to.
    pub fn not_considered(&self) -> Option<String> {
        let hidden = self.hidden.join(", ");
        (!hidden.is_empty()).then(|| format!("Not considered, as you may not read them: {hidden}."))
    }

    /// Why plugins do not work, in the eyes of who may not see everything.
    pub fn problem(&self, problem: &Problem) -> String {
        match problem {
            Problem::UnknownPriorityClass { profile, class } if self.hidden.contains(&PRIORITY_CLASSES) => {
                format!(
                    "nothing can be said of profile {profile}: you may not list priority classes, and its priorityThreshold names {class}"
                )
            }
            problem => problem.to_string(),
        }
    }

    fn object(&mut self, head: &Head, text: &str) -> Result<(), serde_json::Error> {
        let group = head.api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, head.kind.as_str()) {
            ("", "Node") => self.node(serde_json::from_str(text)?),
            ("", "Pod") => self.pod(serde_json::from_str(text)?),
            ("", "Namespace") => self.namespace(serde_json::from_str(text)?),
            ("", "PersistentVolumeClaim") => self.claim(serde_json::from_str(text)?),
            ("policy", "PodDisruptionBudget") => self.budget(serde_json::from_str(text)?),
            ("scheduling.k8s.io", "PriorityClass") => self.priority_class(serde_json::from_str(text)?),
            ("apps", "Deployment") => self.deployment(serde_json::from_str(text)?),
            ("apps", "StatefulSet") => self.stateful_set(serde_json::from_str(text)?),
            ("apps", "DaemonSet") => self.daemon_set(serde_json::from_str(text)?),
            (usher_api::names::EVICTION_REQUEST_GROUP, "EvictionRequest") => {
                self.request(serde_json::from_str(text)?);
            }
            // Whatever else was dumped is not needed.
            _ => {}
        }
        Ok(())
    }

    fn node(&mut self, node: Read<Node>) {
        if let Some(node) = node.as_object() {
            self.cluster.set_node(node);
        }
        self.nodes.extend(node.again::<NodeOnWire>().object().map(Into::into));
    }

    fn pod(&mut self, pod: Read<Pod>) {
        if let Some(pod) = pod.as_object() {
            self.cluster.set_pod(pod);
            let (namespace, uid) = (pod.namespace().unwrap_or_default(), pod.uid().unwrap_or_default());
            let marks = PodMarks::of(pod);
            if marks != PodMarks::default() {
                self.marks.push((PodId::new(&namespace, &pod.name_any(), &uid), marks));
            }
        }
        if let Some(pod) = pod.again::<PodOnWire>().object() {
            let pod = outlook::Pod::from(pod);
            self.pods.insert(pod.pod.key.clone(), pod);
        }
    }

    fn namespace(&mut self, namespace: Read<Namespace>) {
        if let Some(namespace) = namespace.as_object() {
            self.cluster.set_namespace(namespace);
        }
        self.namespaces.extend(namespace.again::<NamespaceOnWire>().object().map(Into::into));
    }

    fn budget(&mut self, budget: Read<PodDisruptionBudget>) {
        if let Some(budget) = budget.object() {
            self.cluster.set_budget(&budget);
            self.budgets.push(budget.into());
        }
    }

    fn priority_class(&mut self, class: Read<PriorityClass>) {
        if let Some(class) = class.object() {
            self.cluster.set_priority_class(&class);
        }
    }

    fn claim(&mut self, claim: Read<PersistentVolumeClaim>) {
        if let Some(claim) = claim.object() {
            self.cluster.set_claim(&claim);
        }
    }

    fn request(&mut self, request: Read<RequestOnWire>) {
        self.requests.extend(request.object().map(Into::into));
    }

    fn deployment(&mut self, deployment: Read<DeploymentOnWire>) {
        self.deployments.extend(deployment.object().map(Into::into));
    }

    fn stateful_set(&mut self, set: Read<StatefulSetOnWire>) {
        self.stateful_sets.extend(set.object().map(Into::into));
    }

    fn daemon_set(&mut self, set: Read<DaemonSetOnWire>) {
        self.daemon_sets.extend(set.object().map(Into::into));
    }

    /// What is not known of usage, and what follows from that.
    pub fn missing_usage(&self) -> impl Iterator<Item = String> {
        self.unknown_usage.iter().map(|why| format!("{why}; plugins that go by it do nothing"))
    }

    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// What is under way already, and who is left alone for a while, as it is for a descheduler that begins now.
    pub fn in_progress(&self, now: Timestamp) -> InProgress {
        let mut requester =
            Requester::new(Options { instance: self.descheduler.clone(), ..Options::default() });
        for request in &self.requests {
            requester.request_changed(&request.key, Some(request.clone().into()), now);
        }
        for (pod, marks) in &self.marks {
            requester.pod_changed(pod, *marks, now);
        }
        requester.remembered(self.memory.clone());
        // Who may not see requests does not know which of them are gone.
        if !self.hidden.contains(&REQUESTS) {
            let is_there = |pod: &PodId| self.pods.get(&pod.key).is_some_and(|it| it.pod.uid == pod.uid);
            requester.synced(is_there, now);
        }
        requester.in_progress(now)
    }

    /// What the pods of a plan would meet on their way out.
    pub fn findings(&self, plan: &Plan, now: Timestamp) -> Vec<Finding> {
        let leaving: HashSet<Key> = plan
            .proposals
            .iter()
            .map(|it| Key::new(it.pod.namespace.as_str(), it.pod.name.as_str()))
            .collect();
        let mut pods: Vec<&outlook::Pod> = leaving.iter().filter_map(|key| self.pods.get(key)).collect();
        pods.sort_by(|a, b| a.pod.key.cmp(&b.pod.key));
        let workloads = Workloads::new(
            Some(self.daemon_sets.clone()),
            self.stateful_sets.clone(),
            self.namespaces.clone(),
        );
        outlook::of_pods(&pods, &self.budgets, &workloads.with_deployments(self.deployments.clone()), now)
    }
}
