//! Differences that are meant to be, and the report on those that are not.

use super::compare::{Difference, compare};
use super::recorded::RecordedTopic;
use super::topic::Topic;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// One entry of `differences.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excuse {
    /// The case; `*` stands for any text.
    pub case: String,
    /// The place within the answer; `*` stands for any text.
    pub path: String,
    /// Why the embedded server may differ here.
    pub reason: String,
}

impl Excuse {
    fn covers(&self, case: &str, path: &str) -> bool {
        fits(&self.case, case) && fits(&self.path, path)
    }
}

/// Whether `text` fits a pattern in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(tail, &rest[at..]))
}

/// Reads `differences.yaml`.
///
/// # Errors
/// The file cannot be read.
pub fn load(folder: &Path) -> Result<Vec<Excuse>> {
    let path = folder.join("differences.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("in {}", path.display()))
}

/// What came out of comparing a whole run.
#[derive(Debug, Default)]
pub struct Verdict {
    pub cases: usize,
    pub answers: usize,
    /// Differences that nothing excuses, as `(topic, case, step, difference)`.
    pub found: Vec<(String, String, String, Difference)>,
    /// Excuses that nothing needed.
    pub stale: Vec<String>,
    /// Differences that were excused.
    pub excused: usize,
}

/// Compares all answers with the recorded ones.
#[must_use]
pub fn judge(
    topics: &[Topic],
    expected: &BTreeMap<String, RecordedTopic>,
    actual: &BTreeMap<String, RecordedTopic>,
    excuses: &[Excuse],
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut needed = vec![false; excuses.len()];
    for (topic, case) in topics.iter().flat_map(|topic| topic.cases.iter().map(move |case| (topic, case))) {
        verdict.cases += 1;
        let answers = |of: &BTreeMap<String, RecordedTopic>| {
            of.get(&topic.name).and_then(|answers| answers.get(&case.name)).cloned().unwrap_or_default()
        };
        let (expected, actual) = (answers(expected), answers(actual));
        for (number, step) in case.steps.iter().enumerate() {
            verdict.answers += 1;
            let differences = match (expected.get(number), actual.get(number)) {
                (Some(expected), Some(actual)) => compare(expected, actual, &step.compare),
                (expected, actual) => vec![Difference {
                    path: "answer".to_owned(),
                    expected: expected.map(|answer| answer.status.into()),
                    actual: actual.map(|answer| answer.status.into()),
                }],
            };
            for difference in differences {
                let mut covering =
                    excuses.iter().zip(&mut needed).filter(|(e, _)| e.covers(&case.name, &difference.path));
                if let Some((_, needed)) = covering.next() {
                    *needed = true;
                    verdict.excused += 1;
                    continue;
                }
                let (method, path) =
                    step.target().map_or_else(|_| (String::new(), ""), |(m, path)| (m.to_string(), path));
                let place = format!("{}. {method} {path}", number + 1);
                verdict.found.push((topic.name.clone(), case.name.clone(), place, difference));
            }
        }
    }
    for (excuse, _) in excuses.iter().zip(needed).filter(|(_, needed)| !needed) {
        verdict.stale.push(format!("{} {}: {}", excuse.case, excuse.path, excuse.reason));
    }
    verdict
}

impl Verdict {
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.found.is_empty() && self.stale.is_empty()
    }

    /// Everything a reader needs to find the cause, grouped by topic and case, with a count at the end.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        let mut last = (String::new(), String::new(), String::new());
        let mut by_topic: BTreeMap<&str, usize> = BTreeMap::new();
        let mut bad_cases: BTreeMap<&str, ()> = BTreeMap::new();
        for (topic, case, step, difference) in &self.found {
            if last.0 != *topic {
                let _ = writeln!(text, "\n== {topic}");
            }
            if last.1 != *case {
                let _ = writeln!(text, "  {case}");
            }
            if (&last.1, &last.2) != (case, step) {
                let _ = writeln!(text, "    {step}");
            }
            let _ = writeln!(text, "      {difference}");
            last = (topic.clone(), case.clone(), step.clone());
            *by_topic.entry(topic).or_default() += 1;
            bad_cases.insert(case, ());
        }
        for stale in &self.stale {
            let _ = writeln!(text, "\nno longer needed in differences.yaml: {stale}");
        }
        let _ = writeln!(
            text,
            "\n{} answers in {} cases; {} differences in {} cases, {} excused",
            self.answers,
            self.cases,
            self.found.len(),
            bad_cases.len(),
            self.excused
        );
        for (topic, count) in by_topic {
            let _ = writeln!(text, "  {topic}: {count}");
        }
        let _ = writeln!(text, "most frequent places:");
        for (path, count) in self.most_frequent_places(25) {
            let _ = writeln!(text, "  {count} x {path}");
        }
        text
    }

    /// One cause mostly shows at one place in many answers, so counting places finds causes.
    fn most_frequent_places(&self, count: usize) -> Vec<(String, usize)> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (_, _, _, difference) in &self.found {
            *places.entry(without_indices(&difference.path)).or_default() += 1;
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        places.truncate(count);
        places
    }
}

fn without_indices(path: &str) -> String {
    let mut parts = path.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((_, rest)) => out.push_str(&format!("[]{rest}")),
            None => out.push_str(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_whatever_the_index() {
        assert_eq!(without_indices("body[0].object.rows[12].cells[3]"), "body[].object.rows[].cells[]");
        assert_eq!(without_indices("status"), "status");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(fits("body.*.time", "body.metadata.time"));
        assert!(fits("*", ""));
        assert!(!fits("body.a", "body.ab"));
        assert!(!fits("body.*.time", "body.time"));
    }
}
