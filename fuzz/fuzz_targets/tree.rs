//! Feeds libFuzzer's inputs to `tree`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("tree", input));
