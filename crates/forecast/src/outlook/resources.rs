//! What pods ask of a node and what a node offers, in thousandths of the unit: of a CPU, of a byte, of a device.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    pub cpu: i64,
    pub memory: i64,
    /// Whatever else there is to share, by its name.
    pub others: BTreeMap<String, i64>,
}

impl Resources {
    pub fn new<'a>(given: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in given {
            let amount = thousandths(&quantity.0).unwrap_or(0);
            match name.as_str() {
                "cpu" => resources.cpu = amount,
                "memory" => resources.memory = amount,
                _ if amount == 0 => {}
                _ => {
                    resources.others.insert(name.clone(), amount);
                }
            }
        }
        resources
    }

    /// Every amount of both, with its name and joined by `join`.
    fn joined(&mut self, other: &Self, join: impl Fn(i64, i64) -> i64) {
        self.cpu = join(self.cpu, other.cpu);
        self.memory = join(self.memory, other.memory);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = join(*own, *amount);
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.joined(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.joined(other, i64::saturating_sub);
    }

    pub fn at_least(&mut self, other: &Self) {
        self.joined(other, i64::max);
    }

    /// The names of what is asked for and not there. What is not asked for is never missing.
    pub fn lacking<'a>(&'a self, wanted: &'a Self) -> impl Iterator<Item = &'a str> {
        let others = wanted
            .others
            .iter()
            .filter(|(name, amount)| **amount > self.others.get(*name).copied().unwrap_or(0))
            .map(|(name, _)| name.as_str());
        let named = [("cpu", wanted.cpu, self.cpu), ("memory", wanted.memory, self.memory)];
        let named = named.into_iter().filter(|(_, wanted, there)| *wanted > 0 && wanted > there);
        named.map(|(name, ..)| name).chain(others)
    }

    pub fn is_room_for(&self, wanted: &Self) -> bool {
        self.lacking(wanted).next().is_none()
    }
}

/// What the scheduler counts for a pod: its containers and sidecars together, or the most that one of its init
/// containers needs beside the sidecars before it, and its overhead.
pub fn requests_of(containers: &[Resources], init: &[(Resources, bool)], overhead: &Resources) -> Resources {
    let mut sidecars = Resources::default();
    let mut most = Resources::default();
    for (wanted, is_sidecar) in init {
        if *is_sidecar {
            sidecars.add(wanted);
        } else {
            let mut beside = sidecars.clone();
            beside.add(wanted);
            most.at_least(&beside);
        }
    }
    let mut sum = sidecars;
    containers.iter().for_each(|wanted| sum.add(wanted));
    sum.at_least(&most);
    sum.add(overhead);
    sum
}

/// `1500m`, `2`, `1.5Gi`, `1e3`: rounded up.
fn thousandths(text: &str) -> Option<i64> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{part}").parse().ok()?;
    let places = i32::try_from(part.len()).ok()?;
    let (times, exponent): (i128, i32) = match unit {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, unit.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let exponent = exponent.checked_sub(places)?.checked_add(3)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let amount = digits.checked_mul(times)?;
    let amount = if exponent < 0 {
        (amount + power - 1) / power
    } else {
        amount.checked_mul(power).unwrap_or(i128::from(i64::MAX))
    };
    Some(sign * i64::try_from(amount).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        let rows = [
            ("2", 2000),
            ("1500m", 1500),
            ("0.1", 100),
            ("100u", 1),
            ("1n", 1),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("128M", 128_000_000_000),
            ("1e3", 1_000_000),
            ("12E-1", 1200),
            ("-1", -1000),
            ("9Ei", i64::MAX),
            ("0", 0),
        ];
        for (text, wanted) in rows {
            assert_eq!(thousandths(text), Some(wanted), "{text}");
        }
        for wrong in ["", "m", "1x", "1.2.3", "one", "1e", "1e999"] {
            assert_eq!(thousandths(wrong), None, "{wrong}");
        }
    }

    fn resources(cpu: i64, memory: i64, gpu: i64) -> Resources {
        let others = if gpu > 0 { [("gpu".to_string(), gpu)].into() } else { BTreeMap::new() };
        Resources { cpu, memory, others }
    }

    #[test]
    fn a_pod_needs_its_containers_or_its_largest_init_container_beside_the_sidecars() {
        let containers = [resources(100, 10, 0), resources(200, 10, 1)];
        let init =
            [(resources(400, 5, 0), false), (resources(50, 1, 0), true), (resources(300, 90, 0), false)];
        let overhead = resources(1, 1, 0);
        assert_eq!(requests_of(&containers, &init, &overhead), resources(401, 92, 1));
        assert_eq!(requests_of(&containers, &[], &Resources::default()), resources(300, 20, 1));
    }

    #[test]
    fn what_is_not_asked_for_is_not_missing() {
        let there = resources(100, -5, 0);
        assert!(there.is_room_for(&resources(100, 0, 0)));
        assert_eq!(there.lacking(&resources(101, 1, 1)).collect::<Vec<_>>(), ["cpu", "memory", "gpu"]);
    }
}
