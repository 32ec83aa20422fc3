#![no_main]

#[path = "../entries/watch_events.rs"]
mod watch_events;

libfuzzer_sys::fuzz_target!(|data: &[u8]| watch_events::run(data));
