//! How many there are of each name, with a bounded number of labels.
//!
//! Classes and requesters are names that anybody can make up. So many at a time have a label of their own; further
//! ones are counted together as `other`. A name gives its label back once nobody has it any more.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// So many names have a label of their own.
pub const MOST_LABELS: usize = 100;
/// The label of all further names.
pub const OTHER: &str = "other";

#[derive(Debug)]
struct Named {
    count: u64,
    /// Whether it is counted under its own name: settled when it comes, so that it leaves from where it entered.
    own: bool,
}

#[derive(Debug)]
pub struct Tally<L> {
    label: fn(String) -> L,
    gauges: Family<L, Gauge>,
    names: HashMap<String, Named>,
    own: usize,
}

impl<L: Clone + Eq + Hash + Debug + EncodeLabelSet> Tally<L> {
    pub fn new(gauges: Family<L, Gauge>, label: fn(String) -> L) -> Self {
        Self { label, gauges, names: HashMap::new(), own: 0 }
    }

    pub fn enter(&mut self, name: &str) {
        let own = match self.names.get_mut(name) {
            Some(known) => {
                known.count += 1;
                known.own
            }
            None => {
                let own = self.own < MOST_LABELS && name != OTHER;
                self.own += usize::from(own);
                self.names.insert(name.to_string(), Named { count: 1, own });
                own
            }
        };
        self.gauges.get_or_create(&(self.label)(label_of(name, own))).inc();
    }

    pub fn leave(&mut self, name: &str) {
        let Some(known) = self.names.get_mut(name) else { return };
        known.count -= 1;
        let (own, is_last) = (known.own, known.count == 0);
        if is_last {
            self.names.remove(name);
            self.own -= usize::from(own);
        }
        let label = (self.label)(label_of(name, own));
        if own && is_last {
            self.gauges.remove(&label);
        } else {
            self.gauges.get_or_create(&label).dec();
        }
    }
}

fn label_of(name: &str, own: bool) -> String {
    if own { name } else { OTHER }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally<Vec<(String, String)>> {
        Tally::new(Family::default(), |name| vec![("name".to_string(), name)])
    }

    fn value(tally: &Tally<Vec<(String, String)>>, name: &str) -> Option<i64> {
        tally.gauges.get(&(tally.label)(name.to_string())).map(|gauge| gauge.get())
    }

    fn labels(tally: &Tally<Vec<(String, String)>>) -> usize {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register("x", "x", tally.gauges.clone());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| line.starts_with('x')).count()
    }

    #[test]
    fn each_name_is_counted_until_it_leaves() {
        let mut tally = tally();
        tally.enter("a");
        tally.enter("a");
        tally.enter("b");
        tally.leave("a");
        assert_eq!((value(&tally, "a"), value(&tally, "b")), (Some(1), Some(1)));
        tally.leave("a");
        tally.leave("never entered");
        assert_eq!((value(&tally, "a"), labels(&tally)), (None, 1));
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together_and_leave_from_there() {
        let mut tally = tally();
        for number in 0..MOST_LABELS + 20 {
            tally.enter(&format!("n{number}"));
        }
        assert_eq!((labels(&tally), value(&tally, OTHER)), (MOST_LABELS + 1, Some(20)));
        // A label that is free again goes to the next new name, not to one that is already among the others.
        tally.leave("n0");
        tally.enter("n110");
        assert_eq!((value(&tally, "n110"), value(&tally, OTHER)), (None, Some(21)));
        tally.enter("new");
        assert_eq!(value(&tally, "new"), Some(1));
        for number in 1..MOST_LABELS + 20 {
            tally.leave(&format!("n{number}"));
        }
        tally.leave("n110");
        assert_eq!((labels(&tally), value(&tally, OTHER), tally.names.len()), (2, Some(0), 1));
    }

    #[test]
    fn somebody_called_other_is_among_the_others() {
        let mut tally = tally();
        tally.enter(OTHER);
        tally.leave(OTHER);
        assert_eq!((value(&tally, OTHER), tally.own), (Some(0), 0));
    }
}
