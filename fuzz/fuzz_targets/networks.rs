//! Feeds libFuzzer's inputs to `networks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("networks", input));
