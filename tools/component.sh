#!/usr/bin/env bash
# Makes the component that tests of the tier wasm run, from a program in Rust: tools/component.sh DIRECTORY
# It needs rustc's target wasm32-wasip2, which rustup fetches; where it cannot, that is said, and the tests are skipped with that reason.
set -euo pipefail
to=$1
source=$(cd "$(dirname "$0")/.." && pwd)/tests/tests/wasm/guest.rs
mkdir -p "$to"
[ ! "$to/guest.wasm" -nt "$source" ] || exit 0
rm -f "$to/guest.wasm"
has() { [ -d "$(rustc --print target-libdir --target wasm32-wasip2)" ]; }
has || timeout 120 rustup --quiet target add wasm32-wasip2 >/dev/null 2>&1 || true
has || { echo "the component for tests is left out: rustc has no target wasm32-wasip2, and rustup cannot fetch it"; exit 0; }
rustc --edition 2024 --target wasm32-wasip2 -C opt-level=1 -C strip=symbols -o "$to/guest.wasm.new" "$source"
mv "$to/guest.wasm.new" "$to/guest.wasm"
echo "component for tests: $to/guest.wasm"
