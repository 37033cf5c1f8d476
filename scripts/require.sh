#!/usr/bin/env bash
# Says in one line what is missing, why it is needed and how to get it.
set -euo pipefail

missing() {
  echo "penstock: $1 is missing: $2. Get it: $3" >&2
  exit 1
}
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

root=$(dirname "$0")/..
rust_needed=1.88.0
node_needed=$(sed -nE 's/.*"node": *">=([0-9.]+)".*/\1/p' "$root/frontend/package.json")

for tool in "$@"; do
  case $tool in
    python)
      command -v python3.11 >/dev/null || missing "Python 3.11" "the server and the SDK run on it" "apt-get install python3.11 python3.11-venv, or pyenv install 3.11"
      python3.11 -c 'import ensurepip' 2>/dev/null || missing "python3.11-venv" "it makes the virtual environment" "apt-get install python3.11-venv"
      ;;
    rust)
      get_rust="curl --proto '=https' -sSf https://sh.rustup.rs | sh"
      if command -v rustup >/dev/null; then get_rust="rustup update stable && rustup default stable"; fi
      command -v cargo >/dev/null && command -v rustc >/dev/null || missing "Rust 1.88" "the native core is built with it" "$get_rust"
      found=$(rustc --version | cut -d' ' -f2)
      at_least "$rust_needed" "$found" || missing "Rust 1.88 (found $found)" "the native core is built with it" "$get_rust"
      command -v cc >/dev/null || missing "a C compiler" "LMDB inside the native core is C" "apt-get install gcc"
      ;;
    node)
      get_node="nvm install 20, or https://nodejs.org/en/download (Debian 12's own nodejs is too old)"
      command -v node >/dev/null && command -v npm >/dev/null || missing "Node $node_needed with npm" "the page is built with it" "$get_node"
      found=$(node --version | tr -d v)
      at_least "$node_needed" "$found" || missing "Node $node_needed (found $found)" "the page is built with it" "$get_node"
      ;;
    java)
      get_java="apt-get install openjdk-17-jre-headless, or set JAVA_HOME to a Java 17"
      java=java
      if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then java=$JAVA_HOME/bin/java; fi
      command -v "$java" >/dev/null || missing "Java 17" "the tests run a real Cassandra" "$get_java"
      found=$("$java" -version 2>&1 | sed -nE 's/.*version "([0-9.]+).*/\1/p' | head -n 1)
      [ "${found%%.*}" = 17 ] || missing "Java 17 ($java is ${found:-of no known version})" "the tests run a real Cassandra" "$get_java"
      command -v mvn >/dev/null || missing "Maven" "the tests fetch Cassandra with it" "apt-get install maven"
      ;;
  esac
done
