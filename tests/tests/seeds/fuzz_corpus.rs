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

/// Random inputs for each target: two seconds of work for the slowest one.
const INPUTS: u64 = 2000;

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

/// What `make fuzz` does, without the compiler's counters, whose build takes minutes.
#[test]
fn inputs_made_at_random_from_the_corpus_break_no_target() {
    for (name, run) in TARGETS {
        let seed = std::env::var("USHER_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let mut random = fastrand::Rng::with_seed(seed);
        let corpus: Vec<Vec<u8>> =
            files(&fuzz().join("corpus").join(name)).iter().map(|path| fs::read(path).unwrap()).collect();
        for tried in 1..=INPUTS {
            let input = mutated(&corpus, &mut random);
            if catch_unwind(|| run(&input)).is_err() {
                let text = String::from_utf8_lossy(&input);
                panic!("{name} breaks on input {tried} of USHER_SEED={seed}: {text:?}");
            }
        }
    }
}

/// An input of the corpus, changed in up to eight places.
fn mutated(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(corpus).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..=8) {
        let at = random.usize(..=input.len());
        let end = (at + random.usize(..64)).min(input.len());
        match random.u8(..6) {
            0 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            1 if at < input.len() => input[at] = random.u8(..),
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            4 => {
                let words = [
                    "null",
                    "-1",
                    "1e400",
                    "9999-12-31T23:59:59Z",
                    "\"\"",
                    "{}",
                    "[]",
                    "\u{0}",
                    "\u{202e}",
                    "/",
                ];
                input.splice(at..end, random.choice(words).into_iter().flat_map(str::bytes));
            }
            _ => {
                let other = random.choice(corpus).map(Vec::as_slice).unwrap_or_default();
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..256)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    input.truncate(16_384);
    input
}
