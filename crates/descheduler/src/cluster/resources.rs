//! Amounts of resources as integers: CPU in thousandths, everything else in units.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

pub const CPU: u16 = 0;
pub const MEMORY: u16 = 1;
pub const PODS: u16 = 2;

type Quantities = BTreeMap<String, Quantity>;

/// What pods name beyond the resources that are numbered: no node has it.
const OTHER: u16 = 3;
/// So many resources are numbered that only pods name. Whoever makes pods names what he likes, and a number takes room on every node.
const NAMED_BY_PODS: usize = 256;

/// The resources that were ever named, by number.
#[derive(Debug)]
pub struct ResourceNames {
    names: Vec<String>,
    numbers: HashMap<String, u16>,
    named_by_pods: usize,
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut known = Self { names: Vec::new(), numbers: HashMap::new(), named_by_pods: 0 };
        for name in ["cpu", "memory", "pods", "other resources"] {
            known.number(name);
        }
        known
    }
}

impl ResourceNames {
    /// Of a resource that a node has.
    pub fn number(&mut self, name: &str) -> u16 {
        if let Some(number) = self.find(name) {
            return number;
        }
        let Ok(number) = u16::try_from(self.names.len()) else { return OTHER };
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Of a resource that a pod names.
    pub fn number_of_pod(&mut self, name: &str) -> u16 {
        match self.find(name) {
            Some(number) => number,
            None if self.named_by_pods < NAMED_BY_PODS => {
                self.named_by_pods += 1;
                self.number(name)
            }
            None => OTHER,
        }
    }

    pub fn find(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    pub fn name(&self, number: u16) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

/// Amounts by resource, sorted by number. A resource that is asked for with 0 is there too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Amounts(Box<[(u16, i64)]>);

impl Amounts {
    pub fn of(quantities: Option<&Quantities>, names: &mut ResourceNames) -> Self {
        Self::from_map(amounts(quantities, |name| names.number(name)))
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

fn amounts(quantities: Option<&Quantities>, mut number: impl FnMut(&str) -> u16) -> BTreeMap<u16, i64> {
    let mut map = BTreeMap::new();
    for (name, quantity) in quantities.into_iter().flatten() {
        let number = number(name);
        let amount = if number == CPU { quantity::milli(&quantity.0) } else { quantity::value(&quantity.0) };
        let one: &mut i64 = map.entry(number).or_default();
        *one = one.saturating_add(amount);
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
    let mut amounts = |quantities: Option<&Quantities>| amounts(quantities, |name| names.number_of_pod(name));
    let mut of =
        |container: &Container| amounts(container.resources.as_ref().and_then(|one| one.requests.as_ref()));
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
            sum.extend(amounts(Some(&one)));
        }
    }
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    Amounts::from_map(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pods_that_name_thousands_of_resources_take_the_room_of_one() {
        let mut names = ResourceNames::default();
        let pod = |prefix: &str, count: usize| -> PodSpec {
            let requests: BTreeMap<String, Value> =
                (0..count).map(|index| (format!("{prefix}.example/r{index}"), json!("1"))).collect();
            serde_json::from_value(
                json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}),
            )
            .unwrap()
        };
        let many = pod_requests(&pod("a", 100_000), &mut names);
        assert_eq!(many.iter().count(), NAMED_BY_PODS + 1);
        assert_eq!(many.get(OTHER), Some(100_000 - NAMED_BY_PODS as i64));
        // Others are told apart as before, once a node has what they ask for.
        let gpu: Quantities = [("gpu.example/one".to_owned(), Quantity("4".to_owned()))].into();
        let node = Amounts::of(Some(&gpu), &mut names);
        let number = names.find("gpu.example/one").unwrap();
        assert_eq!((node.get(number), names.name(number)), (Some(4), "gpu.example/one"));
        let asks: PodSpec = serde_json::from_value(
            json!({"containers": [{"name": "c", "resources": {"requests": {"gpu.example/one": "1", "cpu": "2"}}}]}),
        )
        .unwrap();
        let asks = pod_requests(&asks, &mut names);
        assert_eq!((asks.get(number), asks.get(CPU), asks.get(OTHER)), (Some(1), Some(2_000), None));
    }
}
