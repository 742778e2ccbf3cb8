#!/bin/bash
# Runs the scenarios of the official MCP conformance suites that apply to
# `sess mcp`: those that need no fixture tools and are not about HTTP itself.
#
# usage: conformance.sh path/to/sess
#
# Needs install.sh first; uses $CLIENTS_DIR (default: target/clients). The suites
# speak HTTP only, so stdio_to_http.py stands between; what it does itself proves
# nothing about `sess`, and such checks are left out below.
set -euo pipefail
sess=$(realpath "${1:?usage: conformance.sh path/to/sess}")
cd "$(dirname "$0")/../.."
clients=$(realpath "${CLIENTS_DIR:-target/clients}")
export PATH=$clients/node24/node_modules/.bin:$PATH
scratch=$(mktemp -d)

# Checks that cannot pass here, and why.
left_out="
sep-2575-http-server-header-mismatch-400: HTTP headers, which stdio does not have
sep-2575-server-rejects-undeclared-capability: needs the fixture tool test_missing_capability
sep-2575-missing-capability-http-400: needs the fixture tool test_missing_capability
sep-2575-http-server-no-independent-requests-on-stream: needs the fixture tool test_streaming_elicitation
sep-2575-server-no-log-without-loglevel: needs the fixture tool test_logging_tool
"

env HOME="$scratch" SESS_HOME="$scratch" python3 tests/clients/stdio_to_http.py 0 "$sess" mcp >"$scratch/bridge" 2>&1 &
bridge=$!
trap 'kill "$bridge" 2>/dev/null; rm -rf "$scratch"' EXIT
until port=$(grep -oP '^listening on \K[0-9]+' "$scratch/bridge"); do
  kill -0 "$bridge" || { cat "$scratch/bridge"; exit 1; }
  sleep 0.1
done

failed=0
scenario() { # suite, revision, scenario
  local suite=$1 revision=$2 name=$3 output check passed unexpected=""
  output=$("$clients/$suite/node_modules/.bin/conformance" server --url "http://127.0.0.1:$port/mcp" \
    --scenario "$name" --spec-version "$revision" -o "$scratch/results" 2>&1 | sed 's/\x1b\[[0-9;]*m//g') || true
  passed=$(grep -c '\] SUCCESS ' <<<"$output") || true
  for check in $(sed -n 's/.*\[\([^] ]*\) *\] FAILURE .*/\1/p' <<<"$output"); do
    grep -q "^$check:" <<<"$left_out" || unexpected="$unexpected $check"
  done
  if [ "$passed" -gt 0 ] && [ -z "$unexpected" ]; then
    echo "PASS $suite, $revision, $name: $passed checks"
  else
    echo "FAIL $suite, $revision, $name:$unexpected"
    echo "$output" | grep -E 'Error|FAILURE' | head -20
    failed=1
  fi
}

for name in server-initialize ping tools-list resources-list prompts-list; do
  scenario conformance 2025-06-18 "$name"
  scenario conformance2 2025-06-18 "$name"
  scenario conformance2 2025-11-25 "$name"
done
for name in server-stateless tools-list resources-list prompts-list sep-2164-resource-not-found caching; do
  scenario conformance2 2026-07-28 "$name"
done
exit "$failed"
