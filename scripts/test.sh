#!/usr/bin/env bash
# All checks and tests, one visible line per step.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n==> [%4ds] %s\n' "$SECONDS" "$*"; }

# In CI a missing capability is a failure, not a skip.
if [ -n "${CI:-}" ]; then
    export PODRAIL_REQUIRE_LAB=1 PODRAIL_REQUIRE_NETNS=1
fi

step "format"
cargo fmt --all --check

step "lints (warnings are errors)"
cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings

# One selection of packages and features for everything below: cargo then builds each dependency once.
step "building programs and tests"
cargo build --quiet --workspace --all-targets --all-features
programs=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
export PODRAIL_BIN_PODRAIL=$programs/podrail
export PODRAIL_BIN_PODRAIL_CNI=$programs/podrail-cni
export PODRAIL_BIN_PODRAIL_CNI_WITH_FAULTS=$programs/podrail-cni
export PODRAIL_BIN_STANDIN_KUBELET=$programs/standin-kubelet
export PODRAIL_BIN_STANDIN_GPU_PLUGIN=$programs/standin-gpu-plugin
export PODRAIL_BIN_PODRAIL_WITH_FAULTS=$programs/podrail
export PODRAIL_BIN_PODRAIL_LAB_AGENT=$programs/podrail-lab-agent

step "virtual nodes: kernel and programs"
"$programs/xtask" lab setup

step "dependencies: licences, duplicates, sources (advisories need a database that cannot be reached here)"
scripts/deny.sh

step "generated files are fresh"
"$programs/xtask" gen --check

# `make test-long` has the scenarios in containers too, which take minutes of a quiet machine.
step "tests: units, properties, namespaces, virtual nodes"
cargo test --workspace --all-targets --all-features -- ${TEST_OPTIONS:-}
