//! Programs of this workspace that tests start as processes. `make test-real` builds them first.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The command that builds them.
const BUILD: &str = "run `make test-real`, or first: cargo build --locked --workspace --bins --examples";

/// The path of the binary `usher`.
///
/// # Errors
/// The binary is missing, or older than its sources.
pub fn usher() -> Result<PathBuf> {
    built(&target_folder()?, "usher")
}

/// The path of an example, such as the interceptor `database`.
///
/// # Errors
/// The example is missing, or older than its sources.
pub fn example(name: &str) -> Result<PathBuf> {
    built(&target_folder()?.join("examples"), name)
}

/// The target folder of this test, such as `target/debug`.
fn target_folder() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    // Test programs lie in `deps`.
    let folder = test.parent().and_then(Path::parent).context("the test lies in no target folder")?;
    Ok(folder.to_owned())
}

fn built(folder: &Path, name: &str) -> Result<PathBuf> {
    let program = folder.join(name);
    let missing = || format!("{} is not built: {BUILD}", program.display());
    let built_at = fs::metadata(&program).with_context(missing)?.modified()?;
    // A rule as for make: the program, a colon, and its sources.
    let rule = fs::read_to_string(folder.join(format!("{name}.d"))).with_context(missing)?;
    let sources = rule.split_once(": ").context("cargo does not list the sources of the program")?.1;
    for source in sources.replace("\\ ", "\0").split_whitespace() {
        let source = PathBuf::from(source.replace('\0', " "));
        if fs::metadata(&source).and_then(|it| it.modified()).is_ok_and(|changed| changed > built_at) {
            bail!("{name} is older than {}: {BUILD}", source.display());
        }
    }
    Ok(program)
}
