//! Verdicts in files: a seed, a hash of what it makes, and the verdict, line by line. And where ours may differ, with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::plugins::Subject;
use super::verdict::Verdict;

/// The verdict about one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub hash: u32,
    pub verdict: Verdict,
}

/// Where ours decides otherwise, and why. A case that nothing needs fails the test.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// What is switched on to decide so.
    pub difference: String,
    pub reason: String,
    /// Seeds, by subject.
    pub cases: BTreeMap<String, Vec<u64>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/descheduler")
}

fn file(subject: Subject) -> PathBuf {
    folder().join(format!("{}.txt", subject.name))
}

/// What is recorded, by seed.
pub fn read(subject: Subject) -> Result<BTreeMap<u64, Recording>> {
    let path = file(subject);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}: record it", path.display()))?;
    let line = |line: &str| -> Result<(u64, Recording)> {
        let mut parts = line.splitn(3, ' ');
        let seed = parts.next().context("no seed")?.parse()?;
        let hash = u32::from_str_radix(parts.next().context("no hash")?, 16)?;
        let verdict = Verdict::parse(parts.next().context("no verdict")?)?;
        Ok((seed, Recording { hash, verdict }))
    };
    text.lines().map(|one| line(one).with_context(|| format!("{}: {one:?}", path.display()))).collect()
}

pub fn write(subject: Subject, recordings: &BTreeMap<u64, Recording>) -> Result<()> {
    let mut text = String::new();
    for (seed, Recording { hash, verdict }) in recordings {
        text.push_str(&format!("{seed} {hash:08x} {verdict}\n"));
    }
    fs::create_dir_all(folder())?;
    Ok(fs::write(file(subject), text)?)
}

pub fn differences() -> Result<Vec<Difference>> {
    let text = fs::read_to_string(folder().join("differences.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}
