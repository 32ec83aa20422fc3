#![no_main]

#[path = "../entries/kubeconfigs.rs"]
mod kubeconfigs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubeconfigs::run(data));
