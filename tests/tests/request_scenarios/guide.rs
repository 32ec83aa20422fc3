//! The guide's table of rules names tests. They are all there, and no scenario is missing from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// All texts in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_the_guide_names_exists_and_every_scenario_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = std::fs::read_to_string(root.join("docs/eviction-requests.md")).unwrap();
    let (_, table) = guide.split_once("## Every rule and its test").unwrap();
    let mut files = BTreeMap::new();
    let mut named = BTreeSet::new();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let texts: Vec<&str> = quoted(line).collect();
        if let [short, path] = texts.as_slice()
            && path.ends_with(".rs")
        {
            files.insert(*short, std::fs::read_to_string(root.join(path)).unwrap());
            continue;
        }
        let tests: Vec<_> = texts.iter().filter_map(|text| text.split_once("::")).collect();
        let is_head =
            line.starts_with("| --- ") || line.ends_with(" | test |") || line.ends_with(" | file |");
        assert!(is_head || !tests.is_empty(), "no test: {line}");
        named.extend(tests);
    }
    let (of_scenarios, of_files): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|(short, _)| *short == "scenario");
    for (short, name) in of_files {
        let file = files.get(short).unwrap_or_else(|| panic!("no file is called {short}"));
        assert!(file.contains(&format!("fn {name}(")), "{short} has no {name}");
    }
    let of_scenarios: BTreeSet<String> = of_scenarios.into_iter().map(|(_, name)| name.to_owned()).collect();
    let entries = std::fs::read_dir(super::folder().join(super::TOPIC)).unwrap();
    let name = |entry: std::fs::DirEntry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
    let there: BTreeSet<String> = entries.map(|entry| name(entry.unwrap())).collect();
    assert_eq!(of_scenarios, there);
}
