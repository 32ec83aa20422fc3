//! Indexed jobs: one completion for each index.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::INDEX;
use crate::view::{Job, Pod};

pub(super) struct Indexes {
    completions: i64,
    complete: BTreeSet<i64>,
}

fn index_of(pod: &Pod) -> Option<i64> {
    pod.metadata.annotations.get(INDEX)?.parse().ok()
}

impl Indexes {
    /// As far as the job's status tells.
    pub(super) fn of(job: &Job) -> Self {
        let text = job.status["completedIndexes"].as_str().unwrap_or_default();
        let ranges = text.split(',').filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some(from.parse::<i64>().ok()?..=to.parse::<i64>().ok()?)
        });
        Self { completions: job.spec.completions.unwrap_or_default(), complete: ranges.flatten().collect() }
    }

    pub(super) fn complete(&mut self, pod: &Pod) {
        self.complete.extend(index_of(pod).filter(|index| *index < self.completions));
    }

    pub(super) fn all_complete(&self) -> bool {
        self.complete.len() as i64 >= self.completions
    }

    /// Indexes that nobody works on, the lowest first.
    pub(super) fn missing(&self, active: &[&Arc<Pod>]) -> Vec<i64> {
        let taken: BTreeSet<i64> = active.iter().filter_map(|pod| index_of(pod)).collect();
        (0..self.completions)
            .filter(|index| !self.complete.contains(index) && !taken.contains(index))
            .collect()
    }

    /// `0-2,5`.
    pub(super) fn text(&self) -> String {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for index in &self.complete {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        let text = |(from, to): &(i64, i64)| match to - from {
            0 => from.to_string(),
            1 => format!("{from},{to}"),
            _ => format!("{from}-{to}"),
        };
        ranges.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// A pod for one index; it learns it by annotation, label, name and environment.
pub(super) fn pod_for(mut pod: Value, job: &str, index: i64) -> Value {
    pod["metadata"]["annotations"][INDEX] = index.to_string().into();
    pod["metadata"]["labels"][INDEX] = index.to_string().into();
    pod["metadata"]["generateName"] = format!("{job}-{index}-").into();
    pod["spec"]["hostname"] = format!("{job}-{index}").into();
    let field = format!("metadata.labels['{INDEX}']");
    let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}});
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        match &mut container["env"] {
            Value::Array(env) => env.push(variable.clone()),
            other => *other = json!([variable]),
        }
    }
    pod
}
