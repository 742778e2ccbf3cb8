#!/bin/bash
# Drives `sess mcp` with the MCP Inspector's command line.
#
# usage: inspector.sh path/to/sess
#
# Needs install.sh first; uses $CLIENTS_DIR (default: target/clients). The server
# runs in a scratch home, and each call is a process of its own, so the session is
# named from outside for the plan to be the same one.
set -euo pipefail
sess=$(realpath "${1:?usage: inspector.sh path/to/sess}")
cd "$(dirname "$0")/../.."
clients=$(realpath "${CLIENTS_DIR:-target/clients}")
export PATH=$clients/node24/node_modules/.bin:$PATH
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

inspect() {
  HOME=$home "$clients/inspector/node_modules/.bin/mcp-inspector" --cli \
    -e "SESS_HOME=$home" -e "HOME=$home" -e "CLAUDE_CODE_SESSION_ID=inspector-1" \
    "$sess" mcp "$@"
}

expect() { # what, expected text, arguments of the inspector…
  local what=$1 expected=$2 answer
  shift 2
  answer=$(inspect "$@" 2>&1) || true
  if ! grep -qF -- "$expected" <<<"$answer"; then
    echo "FAIL inspector, $what: expected $expected in"
    echo "$answer"
    exit 1
  fi
  echo "PASS inspector, $what"
}

tools=$(inspect --method tools/list)
for tool in write_session_plan read_session_plan exit_plan_mode list_sessions read_session; do
  grep -qF "\"$tool\"" <<<"$tools" || { echo "FAIL inspector, $tool is not listed"; exit 1; }
done
echo "PASS inspector, tools/list"
inspect --method tools/list --strict >/dev/null || { echo "FAIL inspector, schemas are not portable"; exit 1; }
echo "PASS inspector, portable schemas"
expect "read before write" 'no plan written yet' --method tools/call --tool-name read_session_plan
expect "write" 'Plan saved to' --method tools/call --tool-name write_session_plan --tool-arg 'content=1. measure'
expect "read" '1. measure' --method tools/call --tool-name read_session_plan
expect "exit" 'Plan ready for review.' --method tools/call --tool-name exit_plan_mode
expect "list sessions" '"sessions"' --method tools/call --tool-name list_sessions --tool-arg limit=5
expect "unknown session" 'not found' --method tools/call --tool-name read_session --tool-arg session_id=no-such-session
expect "unknown tool" 'no_such_tool' --method tools/call --tool-name no_such_tool
expect "resources" 'plan://current' --method resources/list
expect "resource templates" 'session://{id}' --method resources/templates/list
expect "plan resource" '1. measure' --method resources/read --uri plan://current
expect "prompts" 'review-plan' --method prompts/list
expect "prompt" '1. measure' --method prompts/get --prompt-name review-plan
