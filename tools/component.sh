#!/usr/bin/env bash
# Makes the components that tests of the tier wasm run: tools/component.sh DIRECTORY
# guest.wasm from a program in Rust: it needs rustc's target wasm32-wasip2, which rustup fetches. python.wasm from one in Python: it needs
# componentize-py, which pip fetches. Where that cannot be, it is said, and the tests are skipped with that reason.
set -euo pipefail
to=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../tests/tests/wasm
mkdir -p "$to"

has_target() { [ -d "$(rustc --print target-libdir --target wasm32-wasip2)" ]; }
rust() {
  [ ! "$to/guest.wasm" -nt "$source/guest.rs" ] || return 0
  rm -f "$to/guest.wasm"
  has_target || timeout 120 rustup --quiet target add wasm32-wasip2 >/dev/null 2>&1 || true
  has_target || { echo "the component in Rust for tests is left out: rustc has no target wasm32-wasip2, and rustup cannot fetch it"; return 0; }
  rustc --edition 2024 --target wasm32-wasip2 -C opt-level=1 -C strip=symbols -o "$to/guest.wasm.new" "$source/guest.rs"
  mv "$to/guest.wasm.new" "$to/guest.wasm"
  echo "component for tests: $to/guest.wasm"
}

python() {
  [ ! "$to/python.wasm" -nt "$source/guest.py" ] || return 0
  rm -f "$to/python.wasm"
  left_out() { echo "the component in Python for tests is left out: $1"; }
  if ! "$to/venv/bin/componentize-py" --version >/dev/null 2>&1; then
    rm -rf "$to/venv"
    python3 -c 'import ensurepip' 2>/dev/null || "$here/need.sh" never-there=python3-venv || { left_out "no python3-venv"; return 0; }
    { python3 -m venv "$to/venv" &&
      "$to/venv/bin/python" -m pip install --quiet --disable-pip-version-check --timeout 20 --retries 1 componentize-py==0.25.1; } >"$to/log" 2>&1 ||
      { left_out "pip cannot fetch componentize-py: $(tail -1 "$to/log")"; return 0; }
  fi
  (cd "$source" && "$to/venv/bin/componentize-py" --quiet -d componentize -w command componentize guest -o "$to/python.wasm.new") >"$to/log" 2>&1 ||
    { left_out "componentize-py: $(tail -1 "$to/log")"; return 0; }
  mv "$to/python.wasm.new" "$to/python.wasm"
  echo "component for tests: $to/python.wasm"
}

rust
python
