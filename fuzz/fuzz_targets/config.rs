//! Feeds libFuzzer's inputs to `config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("config", input));
