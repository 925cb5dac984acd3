#!/usr/bin/env bash
# Installs what building needs on Debian: a C compiler, make, iproute2. Says what is missing where it cannot.
set -euo pipefail

step() { printf '==> %s\n' "$*"; }

if ! command -v cargo >/dev/null; then
    echo "error: cargo is not there" >&2
    echo "hint: install the Rust toolchain 1.95 with rustup, then run this again" >&2
    exit 1
fi

declare -A package_of=([cc]=gcc [make]=make [git]=git [ip]=iproute2)
missing=()
for program in "${!package_of[@]}"; do
    command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
if [ ${#missing[@]} -eq 0 ]; then
    step "build tools: there"
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: missing: ${missing[*]}" >&2
    echo "hint: install these packages, or run this as root on Debian 12" >&2
    exit 1
fi
step "build tools: installing ${missing[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" libc6-dev >/dev/null
step "build tools: installed"
