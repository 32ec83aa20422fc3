//! Hours in virtual time under faults, seed by seed: a few of each kind here, 200 with `make seeds`, 2,000 with `make soak`. And what
//! waits for nothing either: the corpus of the fuzzer.

mod descheduler;
mod fuzz_corpus;
mod maintenances;
mod requests;
mod rights;
mod standing_still;
mod surges;
