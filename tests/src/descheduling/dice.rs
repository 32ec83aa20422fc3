//! Chance, from a seed.

use serde_json::Value;

/// Throws that are the same for the same seed.
pub struct Dice(fastrand::Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.u64(least..=most)
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.0.usize(0..all.len())]
    }

    /// One of them, those with more weight more often.
    pub fn weighted<T: Copy>(&mut self, all: &[(u32, T)]) -> T {
        let total: u32 = all.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.u32(0..total.max(1));
        for (weight, one) in all {
            if left < *weight {
                return *one;
            }
            left -= weight;
        }
        all[0].1
    }

    /// Each of them with this chance.
    pub fn some<T: Clone>(&mut self, percent: u32, all: &[T]) -> Vec<T> {
        all.iter().filter(|_| self.chance(percent)).cloned().collect()
    }

    /// As `some`, and at least one.
    pub fn few<T: Clone>(&mut self, percent: u32, all: &[T]) -> Vec<T> {
        let some = self.some(percent, all);
        if some.is_empty() { vec![self.pick(all).clone()] } else { some }
    }

    /// The value with this chance, else nothing.
    pub fn maybe(&mut self, percent: u32, value: impl FnOnce(&mut Self) -> Value) -> Value {
        if self.chance(percent) { value(self) } else { Value::Null }
    }
}

/// Takes out what is nothing, so that objects say only what is said of them.
pub fn without_nulls(mut value: Value) -> Value {
    take_out_nulls(&mut value);
    value
}

fn take_out_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(take_out_nulls);
        }
        Value::Array(all) => all.iter_mut().for_each(take_out_nulls),
        _ => {}
    }
}
