//! Pods to look at again because their budget has changed. A budget can speak for ten thousand pods and change with each of
//! them that leaves, so they are looked at some at a time, in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use usher_decide::snapshot::Key;

#[derive(Debug, Clone, Default)]
pub struct CatchUp {
    /// The pods that each budget speaks for.
    pods: BTreeMap<Key, BTreeSet<Key>>,
    /// Where each budget that has changed stands, and how many pods are left to look at.
    open: BTreeMap<Key, (Option<Key>, usize)>,
    /// The open ones, in the order of their turns.
    turns: VecDeque<Key>,
}

impl CatchUp {
    pub fn add(&mut self, budget: &Key, pod: &Key) {
        match self.pods.get_mut(budget) {
            Some(pods) => pods.insert(pod.clone()),
            None => self.pods.entry(budget.clone()).or_default().insert(pod.clone()),
        };
    }

    pub fn remove(&mut self, budget: &Key, pod: &Key) {
        if let Some(pods) = self.pods.get_mut(budget) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(budget);
            }
        }
    }

    /// All its pods are to be looked at, going on from where it stands.
    pub fn budget_changed(&mut self, budget: &Key) {
        let Some(pods) = self.pods.get(budget) else { return };
        match self.open.get_mut(budget) {
            Some((_, left)) => *left = pods.len(),
            None => {
                self.open.insert(budget.clone(), (None, pods.len()));
                self.turns.push_back(budget.clone());
            }
        }
    }

    /// The next ones to look at, `limit` at most.
    pub fn take(&mut self, limit: usize) -> Vec<Key> {
        let mut taken: Vec<Key> = Vec::new();
        while taken.len() < limit
            && let Some(budget) = self.turns.pop_front()
        {
            let Some((from, left)) = self.open.remove(&budget) else { continue };
            let Some(pods) = self.pods.get(&budget) else { continue };
            let left = left.min(pods.len());
            let count = left.min(limit - taken.len());
            let begin = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let after = pods.range::<Key, _>((begin, Bound::Unbounded));
            taken.extend(after.chain(pods).take(count).cloned());
            if count < left {
                self.open.insert(budget.clone(), (taken.last().cloned(), left - count));
                self.turns.push_back(budget);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: impl ToString) -> Key {
        Key::new("shop", name.to_string())
    }

    fn of_budgets(budgets: &[(&str, usize)]) -> CatchUp {
        let mut all = CatchUp::default();
        for (budget, pods) in budgets {
            (0..*pods).for_each(|number| all.add(&key(budget), &key(format!("{budget}-{number:05}"))));
        }
        all
    }

    #[test]
    fn a_large_budget_that_always_changes_leaves_no_pod_of_it_or_of_others_behind() {
        let mut all = of_budgets(&[("large", 1000), ("small", 10)]);
        let mut seen = BTreeSet::new();
        for _ in 0..13 {
            all.budget_changed(&key("large"));
            all.budget_changed(&key("small"));
            let taken = all.take(100);
            assert!(taken.len() <= 100);
            seen.extend(taken);
        }
        assert_eq!(seen.len(), 1010);
    }

    #[test]
    fn each_pod_is_looked_at_once_for_one_change() {
        let mut all = of_budgets(&[("a", 25), ("b", 3)]);
        all.budget_changed(&key("a"));
        all.budget_changed(&key("b"));
        all.budget_changed(&key("unknown"));
        let taken: Vec<Vec<Key>> = (0..5).map(|_| all.take(10)).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 8, 0, 0]);
        assert_eq!(taken.iter().flatten().collect::<BTreeSet<_>>().len(), 28);
        all.budget_changed(&key("b"));
        all.remove(&key("b"), &key("b-00001"));
        assert_eq!(all.take(10).len(), 2);
    }
}
