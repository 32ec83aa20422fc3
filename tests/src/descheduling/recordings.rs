//! Verdicts in files: a seed, a hash of what it makes, and the verdict, line by line. And where ours may differ, with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
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

/// Snapshots of each plugin, and of several together.
pub const SEEDS: u64 = 260;

/// The module file that pins the Go descheduler.
const MODULE: &str = include_str!("../../../testbed/modules/descheduler/go.mod");

/// The first line of a recording: which Go descheduler was asked.
#[must_use]
pub fn header() -> String {
    let version = MODULE.lines().find_map(|line| line.trim().strip_prefix("sigs.k8s.io/descheduler "));
    format!("# sigs.k8s.io/descheduler {}", version.unwrap_or("of an unknown version"))
}

/// A recording without its header.
///
/// # Errors
/// Another version of the Go descheduler was asked.
pub fn without_header(text: &str) -> Result<&str> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    ensure!(
        first == header(),
        "{first:?} was asked, but the testbed builds {:?}: run `make record`",
        header()
    );
    Ok(rest)
}

/// The folder of the recordings.
#[must_use]
pub fn folder() -> PathBuf {
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
    let lines = without_header(&text).with_context(|| path.display().to_string())?.lines();
    lines.map(|one| line(one).with_context(|| format!("{}: {one:?}", path.display()))).collect()
}

pub fn write(subject: Subject, recordings: &BTreeMap<u64, Recording>) -> Result<()> {
    let mut text = header() + "\n";
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
