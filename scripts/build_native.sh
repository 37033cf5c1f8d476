#!/usr/bin/env bash
# Builds the native core and installs the SDK, editable, into the environment given.
set -euo pipefail
environment=$1
cd "$(dirname "$0")/../sdk"

CARGO_ENCODED_RUSTFLAGS="$("$environment/bin/python" penstock_build.py)"
export CARGO_ENCODED_RUSTFLAGS VIRTUAL_ENV="$environment" PATH="$PWD/../build/tools/bin:$PATH"
"$environment/bin/maturin" develop --release --uv --quiet --locked
