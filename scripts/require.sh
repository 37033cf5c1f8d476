#!/usr/bin/env bash
# Says in one line what is missing, why it is needed and how to get it.
set -euo pipefail

missing() {
  echo "penstock: $1 is missing: $2. Get it: $3" >&2
  exit 1
}
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

for tool in "$@"; do
  case $tool in
    python)
      command -v python3.11 >/dev/null || missing "Python 3.11" "the server and the SDK run on it" "apt-get install python3.11 python3.11-venv, or pyenv install 3.11"
      python3.11 -c 'import ensurepip' 2>/dev/null || missing "python3.11-venv" "it makes the virtual environment" "apt-get install python3.11-venv"
      ;;
    rust)
      command -v cargo >/dev/null || missing "Rust 1.88" "the native core is built with it" "rustup toolchain install stable"
      at_least 1.88.0 "$(rustc --version | cut -d' ' -f2)" || missing "Rust 1.88 (found $(rustc --version | cut -d' ' -f2))" "the native core is built with it" "rustup update stable"
      command -v cc >/dev/null || missing "a C compiler" "LMDB inside the native core is C" "apt-get install gcc"
      ;;
    node)
      command -v npm >/dev/null || missing "Node 20 with npm" "the page is built with it" "apt-get install nodejs npm, or nvm install 20"
      at_least 20.0.0 "$(node --version | tr -d v)" || missing "Node 20 (found $(node --version))" "the page is built with it" "nvm install 20"
      ;;
    java)
      command -v java >/dev/null || missing "Java 17" "the tests run a real Cassandra" "apt-get install openjdk-17-jre-headless"
      command -v mvn >/dev/null || missing "Maven" "the tests fetch Cassandra with it" "apt-get install maven"
      ;;
  esac
done
