//! What is tried a second time on the real cluster is counted over all tests of a run, in whichever binary they are: `scenario::suite`
//! lets few of them pass.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};

/// The file that `hack/test` has for this. Without it a process counts what it tries itself.
const FILE: &str = "USHER_SECOND_TRIES";
static IN_THIS_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// Whether those of other binaries count with one's own.
#[must_use]
pub fn are_counted() -> bool {
    std::env::var_os(FILE).is_some()
}

/// Tells what is tried again. How much was until now, with this.
///
/// # Errors
/// It cannot be told.
pub fn tell(what: &[impl AsRef<str>]) -> Result<usize> {
    let Some(file) = std::env::var_os(FILE) else {
        return Ok(IN_THIS_PROCESS.fetch_add(what.len(), Ordering::AcqRel) + what.len());
    };
    let first_line = |it: &str| format!("{}\n", it.lines().next().unwrap_or_default());
    let lines: String = what.iter().map(|it| first_line(it.as_ref())).collect();
    let told = || {
        OpenOptions::new().create(true).append(true).open(&file)?.write_all(lines.as_bytes())?;
        fs::read_to_string(&file)
    };
    let all = told().with_context(|| format!("{FILE}={}", file.display()))?;
    Ok(all.lines().count())
}
