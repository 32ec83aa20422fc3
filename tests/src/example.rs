//! Examples of the workspace as processes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const HOW: &str = "'cargo test --workspace --no-run' builds it";

/// The path of an example as the tests of the whole workspace build it, beside this test.
///
/// # Errors
/// It is not built, or older than what it is made of.
pub fn built(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    // In `deps`.
    let folder = test.parent().and_then(Path::parent).context("no folder of examples")?.join("examples");
    let example = folder.join(name);
    let missing = || format!("the example {name} is not built: {HOW}");
    let of_example = fs::metadata(&example).with_context(missing)?.modified()?;
    // As for make: what it is, a colon, and what it is made of.
    let list = fs::read_to_string(folder.join(format!("{name}.d"))).with_context(missing)?;
    let sources = list.split_once(": ").context("cargo does not say what the example is made of")?.1;
    for source in sources.replace("\\ ", "\0").split_whitespace() {
        let source = PathBuf::from(source.replace('\0', " "));
        if fs::metadata(&source).and_then(|it| it.modified()).is_ok_and(|changed| changed > of_example) {
            bail!("the example {name} is older than {}: {HOW}", source.display());
        }
    }
    Ok(example)
}
