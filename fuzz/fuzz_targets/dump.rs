//! Feeds libFuzzer's inputs to `dump`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("dump", input));
