#!/usr/bin/env bash
# All checks and tests, one visible line per step. The lab's tests come last.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n==> [%3ds] %s\n' "$SECONDS" "$*"; }

# In CI a missing capability is a failure, not a skip.
if [ -n "${CI:-}" ]; then
    export PODRAIL_REQUIRE_LAB=1 PODRAIL_REQUIRE_NETNS=1
fi

step "format"
cargo fmt --all --check

step "lints (warnings are errors)"
cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings

step "dependencies: licences, duplicates, sources (advisories need a database that is not reachable offline)"
scripts/deny.sh

step "generated files are fresh"
cargo xtask gen --check

step "unit and property tests"
cargo test --quiet --workspace --exclude podrail-lab

step "lab: virtual rail nodes"
cargo test --package podrail-lab
