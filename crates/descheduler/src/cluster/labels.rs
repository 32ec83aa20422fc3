//! Labels, sorted by key.

use std::collections::BTreeMap;

/// A set of labels that can be looked up, compared and shared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    pub fn of<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let sorted: BTreeMap<&str, &str> = pairs.collect();
        Self(sorted.into_iter().map(|(key, value)| (Box::from(key), Box::from(value))).collect())
    }

    pub fn of_object(labels: Option<&BTreeMap<String, String>>) -> Self {
        let pairs = labels.into_iter().flatten();
        Self(pairs.map(|(key, value)| (Box::from(key.as_str()), Box::from(value.as_str()))).collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(one, _)| one.as_ref().cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }
}
