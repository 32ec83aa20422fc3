//! docs/threat-model.md names a test for each threat, and all of them exist.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The functions that follow `#[test]` or `#[tokio::test]` in a folder's sources, and those that lines of a macro such as
/// `each_on_its_own_server!` name.
fn tests_below(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (mut is_test, mut on_both) = (false, false);
            for whole in text.lines() {
                let line = whole.trim();
                if whole.ends_with("_server! {") || (on_both && whole == "}") {
                    on_both = !on_both;
                } else if on_both {
                    into.extend(line.split(' ').next().map(str::to_owned));
                } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    is_test = true;
                } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                    into.extend(rest.split('(').next().map(str::to_owned));
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn every_test_that_the_threat_model_names_exists() {
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests", "tests-real"] {
        tests_below(&root().join(folder), &mut known);
    }
    assert!(known.contains("every_test_that_the_threat_model_names_exists"));
    let page = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(2);
    let mut named = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for test in cell.split('`').skip(1).step_by(2) {
            assert!(known.contains(test), "no test is called {test:?}, which docs/threat-model.md names");
            named += 1;
        }
        assert!(cell.contains('`'), "a threat without a test: {row}");
    }
    assert!(named > 10, "{named} tests are named");
}
