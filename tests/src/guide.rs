//! A guide's table of rules names tests. They are all there, and no scenario is missing from it.

use anyhow::{Context, Result, anyhow, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The heading below which a guide has its tables.
const HEADING: &str = "## Every rule and its test";

/// All texts in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Checks the tables of a guide in `docs` against the sources, and against the scenarios in a folder. A file of tests
/// has a line `| short | path |`; a rule names tests of it as `short::name`, and scenarios as `scenario::name`.
///
/// # Errors
/// A rule has no test, a test is not there, or a scenario is not named.
pub fn check(guide: &str, scenarios: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = std::fs::read_to_string(root.join("docs").join(guide))?;
    let (_, table) = guide.split_once(HEADING).context(HEADING)?;
    let mut files = BTreeMap::new();
    let mut named = BTreeSet::new();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let texts: Vec<&str> = quoted(line).collect();
        if let [short, path] = texts.as_slice()
            && path.ends_with(".rs")
        {
            let source =
                std::fs::read_to_string(root.join(path)).with_context(|| format!("{short} is {path}"))?;
            files.insert(*short, source);
            continue;
        }
        let tests: Vec<_> = texts.iter().filter_map(|text| text.split_once("::")).collect();
        let is_head =
            line.starts_with("| --- ") || line.ends_with(" | test |") || line.ends_with(" | file |");
        ensure!(is_head || !tests.is_empty(), "no test: {line}");
        named.extend(tests);
    }
    let (of_scenarios, of_files): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|(short, _)| *short == "scenario");
    for (short, name) in of_files {
        let file = files.get(short).ok_or_else(|| anyhow!("no file is called {short}"))?;
        ensure!(file.contains(&format!("fn {name}(")), "{short} has no {name}");
    }
    let of_scenarios: BTreeSet<String> = of_scenarios.into_iter().map(|(_, name)| name.to_owned()).collect();
    let mut there = BTreeSet::new();
    for entry in std::fs::read_dir(scenarios)? {
        let path = entry?.path();
        there.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    ensure!(of_scenarios == there, "the guide names\n{of_scenarios:?}\nbut there are\n{there:?}");
    Ok(())
}
