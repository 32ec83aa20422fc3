#![no_main]

#[path = "../entries/drain_plans.rs"]
mod drain_plans;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drain_plans::run(data));
