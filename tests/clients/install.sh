#!/bin/bash
# Installs the clients that the tests in this directory drive, at pinned
# versions, from npm and PyPI.
#
# usage: install.sh [inspector | conformance | conformance2 | py | schemathesis | claude | claude-sdk | codex | opencode]…
#
# No name: all but the last four, which are large.
#
# They are kept in $CLIENTS_DIR (default: target/clients) and installed once: a
# client whose pinned version is already there is left alone. Node itself comes
# from npm, because with an older system Node npm quietly picks old releases.
set -euo pipefail
cd "$(dirname "$0")/../.."
CLIENTS_DIR=${CLIENTS_DIR:-target/clients}
mkdir -p "$CLIENTS_DIR"
cd "$CLIENTS_DIR"
wanted=" $* "
[ $# -eq 0 ] && wanted=" inspector conformance conformance2 py schemathesis "

npm_client() { # directory, package@version, options of npm…
  local directory=$1 package=$2
  shift 2
  local stamp=installed-${package//\//_}
  if [ -f "$directory/$stamp" ]; then return; fi
  mkdir -p "$directory"
  (
    cd "$directory"
    [ -f package.json ] || echo '{"private": true}' >package.json
    npm install --save-exact --no-audit --no-fund "$@" "$package" >install.log 2>&1 || {
      cat install.log >&2
      exit 1
    }
    touch "$stamp"
  )
  echo "installed $package"
}

npm_client node24 node@24.21.0
export PATH=$PWD/node24/node_modules/.bin:$PATH

for client in $wanted; do
  case $client in
  inspector) npm_client inspector @modelcontextprotocol/inspector@2.12.0 ;;
  conformance) npm_client conformance @modelcontextprotocol/conformance@0.1.16 ;;
  conformance2) npm_client conformance2 @modelcontextprotocol/conformance@0.2.0-alpha.12 ;;
  claude) npm_client claude @anthropic-ai/claude-code@2.1.325 ;;
  # Of the SDK only what reads sessions: the optional part is Claude Code once more.
  claude-sdk) npm_client claude-sdk @anthropic-ai/claude-agent-sdk@0.3.325 --omit=optional ;;
  codex) npm_client codex @openai/codex@0.166.0 ;;
  opencode) npm_client opencode opencode-ai@1.18.33 ;;
  py)
    [ -x py/v/bin/python ] || python3 -m venv py/v
    py/v/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0 websockets==17.4
    ;;
  schemathesis)
    # Apart from the others: it wants versions of its own of what they share.
    [ -x schemathesis/v/bin/python ] || python3 -m venv schemathesis/v
    schemathesis/v/bin/pip install --quiet --disable-pip-version-check schemathesis==4.32.5
    ;;
  *)
    echo "unknown client: $client" >&2
    exit 2
    ;;
  esac
done
