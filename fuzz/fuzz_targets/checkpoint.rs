//! Feeds libFuzzer's inputs to `checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("checkpoint", input));
