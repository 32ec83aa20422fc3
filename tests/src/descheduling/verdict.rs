//! What the Go descheduler decided about a snapshot, in a few words.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use usher_descheduler::Plan;

use super::plugins::Subject;

/// What the Go descheduler answered about a snapshot.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// Why it refused the policy.
    #[serde(default)]
    pub refused: Option<String>,
    /// All distinct outcomes: lists of `plugin namespace/name`, in the order of the evictions.
    #[serde(default)]
    pub outcomes: Vec<Vec<String>>,
    /// How long each run took.
    #[serde(default)]
    pub runs: Vec<Timing>,
}

/// How long one run of the Go descheduler took, in seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Timing {
    /// In the plugins, without the calls that evict.
    pub planning: f64,
    /// In the calls that evict, on a fake client.
    pub evicting: f64,
}

/// A verdict. Pods are `namespace/name`, or `plugin:namespace/name` where there are several plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The policy is refused.
    Refused,
    /// These pods, in this order.
    Exactly(Vec<String>),
    /// These pods, in an order that is left to chance.
    InAnyOrder(BTreeSet<String>),
    /// Which pods is left to chance too: some are always evicted, others only sometimes.
    Between { always: BTreeSet<String>, sometimes: BTreeSet<String>, least: usize, most: usize },
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(str::to_owned)
}

impl Verdict {
    pub fn of(answer: &Answer, subject: Subject) -> Self {
        if answer.refused.is_some() {
            return Self::Refused;
        }
        let short = |pod: &String| match (subject.plugin(), pod.split_once(' ')) {
            (Some(_), Some((_, pod))) => pod.to_owned(),
            _ => pod.replacen(' ', ":", 1),
        };
        let outcomes: Vec<Vec<String>> =
            answer.outcomes.iter().map(|outcome| outcome.iter().map(short).collect()).collect();
        if let [only] = &outcomes[..] {
            return Self::Exactly(only.clone());
        }
        let sets: BTreeSet<BTreeSet<String>> =
            outcomes.into_iter().map(|one| one.into_iter().collect()).collect();
        let all: BTreeSet<String> = sets.iter().flatten().cloned().collect();
        if sets.len() == 1 {
            return Self::InAnyOrder(all);
        }
        let (sometimes, always) = all.into_iter().partition(|pod| sets.iter().any(|set| !set.contains(pod)));
        let sizes = || sets.iter().map(BTreeSet::len);
        Self::Between {
            always,
            sometimes,
            least: sizes().min().unwrap_or(0),
            most: sizes().max().unwrap_or(0),
        }
    }

    /// The pods of a plan, as verdicts name them.
    pub fn pods_of(plan: &Plan, subject: Subject) -> Vec<String> {
        let name = |proposal: &usher_descheduler::Proposal| {
            let pod = format!("{}/{}", proposal.pod.namespace, proposal.pod.name);
            if subject.plugin().is_some() { pod } else { format!("{}:{pod}", proposal.plugin) }
        };
        plan.proposals.iter().map(name).collect()
    }

    /// Whether the Go descheduler could have decided so.
    pub fn admits(&self, pods: &[String]) -> bool {
        let set: BTreeSet<String> = pods.iter().cloned().collect();
        match self {
            Self::Refused => false,
            Self::Exactly(expected) => expected == pods,
            Self::InAnyOrder(expected) => *expected == set,
            Self::Between { always, sometimes, least, most } => {
                always.is_subset(&set)
                    && set.iter().all(|pod| always.contains(pod) || sometimes.contains(pod))
                    && (*least..=*most).contains(&set.len())
            }
        }
    }

    pub fn parse(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match kind {
            "refused" => Self::Refused,
            "=" => Self::Exactly(words(rest).collect()),
            "~" => Self::InAnyOrder(words(rest).collect()),
            "?" => {
                let mut parts = rest.split('|');
                let mut next = || parts.next().context("a part of the verdict is missing");
                let (least, most) = next()?.trim().split_once("..").context("a verdict without sizes")?;
                Self::Between {
                    least: least.parse()?,
                    most: most.parse()?,
                    always: words(next()?).collect(),
                    sometimes: words(next()?).collect(),
                }
            }
            other => bail!("{other:?} begins no verdict"),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods = |f: &mut fmt::Formatter<'_>, pods: &mut dyn Iterator<Item = &String>| -> fmt::Result {
            for pod in pods {
                write!(f, " {pod}")?;
            }
            Ok(())
        };
        match self {
            Self::Refused => write!(f, "refused"),
            Self::Exactly(expected) => {
                write!(f, "=")?;
                pods(f, &mut expected.iter())
            }
            Self::InAnyOrder(expected) => {
                write!(f, "~")?;
                pods(f, &mut expected.iter())
            }
            Self::Between { always, sometimes, least, most } => {
                write!(f, "? {least}..{most} |")?;
                pods(f, &mut always.iter())?;
                write!(f, " |")?;
                pods(f, &mut sometimes.iter())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_as_they_are_written() {
        for text in [
            "refused",
            "=",
            "= a/p01 b/p02",
            "~ a/p01 b/p02",
            "? 0..1 | | a/p01 a/p02",
            "? 2..3 | a/p01 | b/p02 b/p03",
        ] {
            assert_eq!(Verdict::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_left_to_chance_has_bounds() {
        let verdict = Verdict::parse("? 2..2 | a/1 | a/2 a/3").unwrap();
        let admits =
            |pods: &[&str]| verdict.admits(&pods.iter().map(|pod| (*pod).to_owned()).collect::<Vec<_>>());
        assert!(admits(&["a/1", "a/3"]));
        assert!(!admits(&["a/2", "a/3"]));
        assert!(!admits(&["a/1", "a/2", "a/3"]));
        assert!(!admits(&["a/1", "a/4"]));
    }
}
