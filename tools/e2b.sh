#!/usr/bin/env bash
# Puts E2B's SDKs, frameworks for agents and the official client of the Model Context Protocol, unmodified and pinned, where the tests look for
# them: `tools/e2b.sh DIRECTORY`.
# What cannot be had (no pip, no npm, no registry) is said, and the tests that need it count themselves as skipped.
set -euo pipefail
dir=${1:?usage: tools/e2b.sh DIRECTORY}
here=$(dirname "${BASH_SOURCE[0]}")
# vite by its version too: vitest takes whatever is newest, which may want a newer Node than Debian has.
node_packages=(e2b@2.51.0 @e2b/code-interpreter@2.8.0 vitest@4.1.12 vite@6.4.6)

mkdir -p "$dir"
missing() { echo "$1 could not be installed; its tests are skipped: $2" >&2; }

# python NAME WHAT PACKAGE…: an environment of its own, made anew when other packages are wanted.
python() {
  local name=$1 what=$2 wanted="${*:3}"
  local stamp="$dir/$name/.holds"
  [[ -e $stamp && $(<"$stamp") == "$wanted" ]] && return
  command -v python3 >/dev/null || { missing "$what" "there is no python3"; return; }
  python3 -c 'import ensurepip' 2>/dev/null || "$here/need.sh" never-there=python3-venv
  rm -rf "${dir:?}/$name"
  { python3 -m venv "$dir/$name" &&
    "$dir/$name/bin/python" -m pip install --quiet --disable-pip-version-check --timeout 20 --retries 1 "${@:3}"; } \
    >"$dir/$name.log" 2>&1 || { missing "$what" "$(tail -n 1 "$dir/$name.log")"; return; }
  echo "$wanted" >"$stamp"
}

node() {
  local stamp="$dir/node/.holds" wanted="${node_packages[*]}"
  [[ -e $stamp && $(<"$stamp") == "$wanted" ]] && return
  command -v npm >/dev/null || { missing "E2B's SDK for Node" "there is no npm"; return; }
  rm -rf "$dir/node" && mkdir -p "$dir/node"
  npm install --prefix "$dir/node" --no-audit --no-fund --fetch-retries=1 --fetch-timeout=20000 "${node_packages[@]}" \
    >"$dir/node.log" 2>&1 || { missing "E2B's SDK for Node" "$(tail -n 1 "$dir/node.log")"; return; }
  echo "$wanted" >"$stamp"
}

python python "E2B's SDK for Python" e2b==2.63.0 pytest==9.2.0
python interpreter "E2B's code interpreter SDK for Python" e2b==2.63.0 e2b-code-interpreter==2.11.5 pytest==9.2.0
python inspect "inspect-ai" inspect-ai==0.3.285 httpx==0.28.1 pytest==9.2.0 pytest-asyncio==1.4.1.post1
python agents "smolagents and OpenAI's Agents SDK" 'smolagents[e2b]==1.26.0' openai-agents==0.24.0 e2b==2.63.0 e2b-code-interpreter==2.11.5 \
  pytest==9.2.0
python langchain "LangChain" langchain==1.4.7 langchain-e2b==0.0.6 e2b==2.63.0 e2b-code-interpreter==2.11.5 pytest==9.2.0
# With the versions of E2B's SDKs that it asks for itself.
python older "E2B's SDK for Python before its second version" e2b==1.11.1 e2b-code-interpreter==1.5.2 pytest==9.2.0
python openai "OpenAI's Agents SDK with its own extra" 'openai-agents[e2b]==0.24.0' pytest==9.2.0
python mcp "the client of MCP for Python" mcp==2.3.0 pytest==9.2.0
node
