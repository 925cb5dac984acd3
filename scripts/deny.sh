#!/usr/bin/env bash
# Runs cargo-deny, building it once if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
tools=${PODRAIL_TOOLS_DIR:-.cache/tools}
deny=$tools/bin/cargo-deny
if ! [ -x "$deny" ]; then
    echo "    building cargo-deny $version once (a few minutes)"
    cargo install --quiet --locked --version "$version" --root "$tools" cargo-deny
fi
"$deny" --log-level error check bans licenses sources
