//! Feeds libFuzzer's inputs to `pod_resources`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| podrail_fuzz::run("pod_resources", input));
