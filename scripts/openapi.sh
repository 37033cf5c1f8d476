#!/bin/sh
# Writes openapi.json from the code and the page's API client from openapi.json, or checks that both are fresh.
# Usage: scripts/openapi.sh [write|check]     PYTHON names the interpreter (default: the test environment's).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
mode=${1:-write}
file=$root/openapi.json
client=$root/frontend/src/api/generated
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT INT TERM

python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in "$root/.venv-test/bin/python" "$root/.venv/bin/python"; do
    if [ -x "$candidate" ]; then python=$candidate; break; fi
  done
fi
if [ -z "$python" ]; then
  echo "openapi: no Python environment is there; run 'make run' or 'make test' first, or set PYTHON" >&2
  exit 1
fi
case $mode in
  write | check) ;;
  *) echo "usage: scripts/openapi.sh [write|check]" >&2; exit 2 ;;
esac

"$python" -m penstock_server.openapi_file > "$fresh/openapi.json"

if [ "$mode" = write ]; then
  cp "$fresh/openapi.json" "$file"
  echo "openapi: wrote openapi.json"
elif ! cmp -s "$fresh/openapi.json" "$file"; then
  diff -u "$file" "$fresh/openapi.json" | head -40 >&2 || true
  echo "openapi: openapi.json is not what the code says; run 'make openapi' and commit the result" >&2
  exit 1
fi

if [ ! -d "$root/frontend/node_modules" ]; then
  echo "openapi: frontend/node_modules is not there, the page's client is left as it is"
  exit 0
fi
# A check changes nothing: others read the client meanwhile.
if [ "$mode" = check ]; then output=$fresh/client; else output=$client; fi
(cd "$root/frontend" && OPENAPI_OUTPUT=$output npm run --silent generate-api)
if ! diff -r "$output" "$client" > "$fresh/differences" 2>&1; then
  head -40 "$fresh/differences" >&2
  echo "openapi: frontend/src/api/generated is not fresh; run 'make openapi' and commit the result" >&2
  exit 1
fi
echo "openapi: openapi.json and the page's client are fresh"
