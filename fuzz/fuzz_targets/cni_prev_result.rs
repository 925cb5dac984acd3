//! Feeds libFuzzer's inputs to `cni_prev_result`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("cni_prev_result", input));
