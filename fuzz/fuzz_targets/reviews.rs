#![no_main]

#[path = "../entries/reviews.rs"]
mod reviews;

libfuzzer_sys::fuzz_target!(|data: &[u8]| reviews::run(data));
