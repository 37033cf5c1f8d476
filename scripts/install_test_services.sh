#!/bin/sh
# Makes sure that the programs the tests start are on this machine: Redis, PostgreSQL, a browser, Java 17 and Maven.
# Installs what is missing when it may (root on a system with apt), else prints the one command to run.
# Usage: scripts/install_test_services.sh [--check]   (--check installs nothing)
set -eu

missing=""
want() { # want PACKAGE WHY PROGRAM...: noted as missing when none of the programs is there
    package=$1 why=$2
    shift 2
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 && return 0
        # Debian keeps the server programs of PostgreSQL out of PATH.
        for found in /usr/lib/postgresql/*/bin/"$program"; do
            [ -x "$found" ] && return 0
        done
    done
    echo "missing: $package ($why)" >&2
    missing="$missing $package"
}

has_java_17() {
    for java in "${JAVA_HOME:-/nowhere}/bin/java" java; do
        command -v "$java" >/dev/null 2>&1 && "$java" -version 2>&1 | grep -q 'version "17[."]' && return 0
    done
    return 1
}

want redis-server "queue and events in tests" redis-server
want postgresql "catalog in tests" initdb
want chromium "tests of the page" chromium chromium-browser google-chrome-stable google-chrome
want openssl "certificates of the TLS tests" openssl
has_java_17 || {
    echo "missing: openjdk-17-jre-headless (Cassandra 5.0 runs on Java 17; or set JAVA_HOME to one)" >&2
    missing="$missing openjdk-17-jre-headless"
}
want maven "fetches Cassandra for tests" mvn

[ -z "$missing" ] && exit 0

command="apt-get install -y --no-install-recommends$missing"
if [ "${1:-}" = "--check" ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "the tests need more programs; on Debian or Ubuntu run: sudo $command" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "the tests need more programs, and installing them needs root; run: sudo $command" >&2
    exit 1
fi
echo "installing for the tests:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# The packages would start servers of their own on the standard ports; the tests start theirs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # a list of package names
$command >/dev/null
for package in $missing; do
    dpkg -s "$package" >/dev/null 2>&1 || {
        echo "$package did not install; run: $command" >&2
        exit 1
    }
done
