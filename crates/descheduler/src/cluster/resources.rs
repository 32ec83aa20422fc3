//! Amounts of resources as integers: CPU in thousandths, everything else in units.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

pub const CPU: u16 = 0;
pub const MEMORY: u16 = 1;
pub const PODS: u16 = 2;

type Quantities = BTreeMap<String, Quantity>;

/// The resources that were ever named, by number.
#[derive(Debug)]
pub struct ResourceNames(Vec<String>);

impl Default for ResourceNames {
    fn default() -> Self {
        Self(vec!["cpu".to_owned(), "memory".to_owned(), "pods".to_owned()])
    }
}

impl ResourceNames {
    pub fn number(&mut self, name: &str) -> u16 {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            u16::try_from(self.0.len() - 1).unwrap_or(u16::MAX)
        })
    }

    pub fn find(&self, name: &str) -> Option<u16> {
        self.0.iter().position(|one| one == name).and_then(|index| u16::try_from(index).ok())
    }

    pub fn name(&self, number: u16) -> &str {
        self.0.get(number as usize).map_or("", String::as_str)
    }
}

/// Amounts by resource, sorted by number. A resource that is asked for with 0 is there too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Amounts(Box<[(u16, i64)]>);

impl Amounts {
    pub fn of(quantities: Option<&Quantities>, names: &mut ResourceNames) -> Self {
        Self::from_map(amounts(quantities, names))
    }

    fn from_map(map: BTreeMap<u16, i64>) -> Self {
        Self(map.into_iter().collect())
    }

    pub fn get(&self, resource: u16) -> Option<i64> {
        self.0.iter().find(|(one, _)| *one == resource).map(|(_, amount)| *amount)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, i64)> {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn amounts(quantities: Option<&Quantities>, names: &mut ResourceNames) -> BTreeMap<u16, i64> {
    let mut map = BTreeMap::new();
    for (name, quantity) in quantities.into_iter().flatten() {
        let number = names.number(name);
        map.insert(
            number,
            if number == CPU { quantity::milli(&quantity.0) } else { quantity::value(&quantity.0) },
        );
    }
    map
}

fn add(sum: &mut BTreeMap<u16, i64>, more: &BTreeMap<u16, i64>) {
    for (resource, amount) in more {
        let one = sum.entry(*resource).or_default();
        *one = one.saturating_add(*amount);
    }
}

fn raise(most: &mut BTreeMap<u16, i64>, other: &BTreeMap<u16, i64>) {
    for (resource, amount) in other {
        let one = most.entry(*resource).or_insert(*amount);
        *one = (*one).max(*amount);
    }
}

/// What a pod requests: containers and sidecars together or the largest init container, what the pod says as a whole, and its overhead.
pub fn pod_requests(spec: &PodSpec, names: &mut ResourceNames) -> Amounts {
    let mut of = |container: &Container| {
        amounts(container.resources.as_ref().and_then(|one| one.requests.as_ref()), names)
    };
    let mut sum = BTreeMap::new();
    for container in &spec.containers {
        add(&mut sum, &of(container));
    }
    let mut sidecars = BTreeMap::new();
    let mut initial = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let mut requests = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &requests);
            add(&mut sidecars, &requests);
            raise(&mut initial, &sidecars);
        } else {
            add(&mut requests, &sidecars);
            raise(&mut initial, &requests);
        }
    }
    raise(&mut sum, &initial);
    for (resource, quantity) in spec.resources.iter().filter_map(|one| one.requests.as_ref()).flatten() {
        if matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-") {
            let one = Quantities::from([(resource.clone(), quantity.clone())]);
            sum.extend(amounts(Some(&one), names));
        }
    }
    add(&mut sum, &amounts(spec.overhead.as_ref(), names));
    Amounts::from_map(sum)
}
