#!/usr/bin/env bash
# Puts E2B's SDKs, unmodified and pinned, where the tests look for them: `tools/e2b.sh DIRECTORY`.
# What cannot be had (no pip, no npm, no registry) is said, and the tests that need it count themselves as skipped.
set -euo pipefail
dir=${1:?usage: tools/e2b.sh DIRECTORY}
here=$(dirname "${BASH_SOURCE[0]}")
python_packages=(e2b==2.63.0 pytest==9.2.0)
node_packages=(e2b@2.51.0)

mkdir -p "$dir"
missing() { echo "E2B's SDK for $1 could not be installed; its tests are skipped: $2" >&2; }

python() {
  local stamp="$dir/python/.holds" wanted="${python_packages[*]}"
  [[ -e $stamp && $(<"$stamp") == "$wanted" ]] && return
  command -v python3 >/dev/null || { missing Python "there is no python3"; return; }
  python3 -c 'import ensurepip' 2>/dev/null || "$here/need.sh" never-there=python3-venv
  rm -rf "$dir/python"
  { python3 -m venv "$dir/python" &&
    "$dir/python/bin/python" -m pip install --quiet --disable-pip-version-check --timeout 20 --retries 1 "${python_packages[@]}"; } \
    >"$dir/python.log" 2>&1 || { missing Python "$(tail -n 1 "$dir/python.log")"; return; }
  echo "$wanted" >"$stamp"
}

node() {
  local stamp="$dir/node/.holds" wanted="${node_packages[*]}"
  [[ -e $stamp && $(<"$stamp") == "$wanted" ]] && return
  command -v npm >/dev/null || { missing Node "there is no npm"; return; }
  rm -rf "$dir/node" && mkdir -p "$dir/node"
  npm install --prefix "$dir/node" --no-audit --no-fund --fetch-retries=1 --fetch-timeout=20000 "${node_packages[@]}" \
    >"$dir/node.log" 2>&1 || { missing Node "$(tail -n 1 "$dir/node.log")"; return; }
  echo "$wanted" >"$stamp"
}

python
node
