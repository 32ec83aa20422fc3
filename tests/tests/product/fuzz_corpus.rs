//! Every input that the fuzzer has kept (`fuzz/corpus`) goes once more through its target, so that a change cannot break the targets,
//! nor what they found, between two runs of `make fuzz`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "targets say what they found by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

#[path = "../../../fuzz/entries/annotations.rs"]
mod annotations;
#[path = "../../../fuzz/entries/drain_plans.rs"]
mod drain_plans;
#[path = "../../../fuzz/entries/kubeconfigs.rs"]
mod kubeconfigs;
#[path = "../../../fuzz/entries/reviews.rs"]
mod reviews;
#[path = "../../../fuzz/entries/watch_events.rs"]
mod watch_events;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 5] = [
    ("annotations", annotations::run),
    ("drain_plans", drain_plans::run),
    ("kubeconfigs", kubeconfigs::run),
    ("reviews", reviews::run),
    ("watch_events", watch_events::run),
];

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn every_input_of_the_corpus_is_still_taken_by_its_target() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let paths = files(&fuzz().join(folder));
        paths.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!((stems("fuzz_targets"), stems("corpus")), (known.clone(), known), "targets without a replay");
    for (name, run) in TARGETS {
        let inputs = files(&fuzz().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            let input = fs::read(&path).unwrap();
            // As it is, and cut short: what is torn is refused, not believed.
            for input in [&input[..], &input[..input.len() / 2]] {
                assert!(catch_unwind(|| run(input)).is_ok(), "{name} breaks on {}", path.display());
            }
        }
    }
}
