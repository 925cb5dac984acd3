//! Feeds libFuzzer's inputs to `state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("state", input));
