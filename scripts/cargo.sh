#!/usr/bin/env bash
# cargo on the SDK's crates with the flags of the native core's own build: other flags would compile every dependency anew.
set -euo pipefail
cd "$(dirname "$0")/../sdk"

CARGO_ENCODED_RUSTFLAGS="$(python3.11 penstock_build.py)"
export CARGO_ENCODED_RUSTFLAGS
# It would look for make's jobs, which only recursive makes are given.
unset MAKEFLAGS MFLAGS
exec cargo "$@"
