#![no_main]

#[path = "../entries/annotations.rs"]
mod annotations;

libfuzzer_sys::fuzz_target!(|data: &[u8]| annotations::run(data));
