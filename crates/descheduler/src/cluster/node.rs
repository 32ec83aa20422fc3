//! A node, with what its pods request.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::Map;
use super::labels::Labels;
use super::resources::{Amounts, PODS, ResourceNames};

/// A node, or only its name where pods are bound to one that is not known.
#[derive(Debug)]
pub struct Node {
    pub name: Box<str>,
    pub object: Option<NodeObject>,
    /// All pods that are bound to it, in no order.
    pub pods: Vec<u32>,
    /// What those of them that are not over request, by resource.
    pub requested: Vec<i64>,
    /// How many of them are not over.
    pub active: i64,
    /// What it uses by metrics.k8s.io.
    pub usage: Option<Amounts>,
    /// What queries say of it.
    pub fractions: Map<Box<str>, f64>,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeObject {
    pub labels: Arc<Labels>,
    pub taints: Box<[Taint]>,
    pub unschedulable: bool,
    pub ready: bool,
    pub allocatable: Amounts,
    /// What it has in all; only looked at if nothing is allocatable.
    pub capacity: Amounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl Taint {
    /// It keeps pods off the node.
    pub fn is_hard(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.is_empty() {
            true => write!(f, "{}:{}", self.key, self.effect),
            false => write!(f, "{}={}:{}", self.key, self.value, self.effect),
        }
    }
}

impl Node {
    pub fn is_ready(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.ready)
    }

    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            object: None,
            pods: Vec::new(),
            requested: Vec::new(),
            active: 0,
            usage: None,
            fractions: Map::default(),
            version: 0,
        }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.object.as_ref()?.labels.get(key)
    }

    pub fn requested_of(&self, resource: u16) -> i64 {
        if resource == PODS {
            self.active
        } else {
            self.requested.get(resource as usize).copied().unwrap_or(0)
        }
    }

    pub(super) fn count(&mut self, requests: &Amounts, sign: i64) {
        self.active += sign;
        for (resource, amount) in requests.iter() {
            let index = resource as usize;
            if self.requested.len() <= index {
                self.requested.resize(index + 1, 0);
            }
            self.requested[index] = self.requested[index].saturating_add(sign.saturating_mul(amount));
        }
    }
}

impl NodeObject {
    pub fn of(node: &core::Node, names: &mut ResourceNames) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        Self {
            labels: Arc::new(Labels::of_object(node.metadata.labels.as_ref())),
            taints: taints
                .iter()
                .map(|taint| Taint {
                    key: taint.key.clone(),
                    value: taint.value.clone().unwrap_or_default(),
                    effect: taint.effect.clone(),
                })
                .collect(),
            unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false),
            // One that says nothing of being ready is taken for ready.
            ready: !conditions.iter().any(|one| one.type_ == "Ready" && one.status != "True"),
            allocatable: Amounts::of(status.and_then(|status| status.allocatable.as_ref()), names),
            capacity: Amounts::of(status.and_then(|status| status.capacity.as_ref()), names),
        }
    }

    /// What utilization is measured against.
    pub fn total(&self) -> &Amounts {
        if self.allocatable.is_empty() { &self.capacity } else { &self.allocatable }
    }
}
