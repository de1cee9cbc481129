#!/usr/bin/env bash
# Makes images from packages of Debian, once, in a store of its own where the tests look for them: `tools/images.sh PROGRAMS DIRECTORY`.
# `tiny` has little more than apt; `base` and `code-interpreter` are what users get. Takes minutes, the mirror, and 2 GiB.
# Where it cannot be made (no mmdebstrap, no mirror, not Debian) that is said, and the tests that need it count themselves as skipped.
set -euo pipefail
programs=${1:?usage: tools/images.sh PROGRAMS DIRECTORY}
store=${2:?usage: tools/images.sh PROGRAMS DIRECTORY}
here=$(dirname "${BASH_SOURCE[0]}")
# Made anew when they are made otherwise.
made_by=$(cat "${BASH_SOURCE[0]}" "$here/../crates/cli/src/image/debian.rs" | sha256sum)
[[ -e $store.holds && $(<"$store.holds") == "$made_by" ]] || rm -rf "$store"
[[ -e $store/names/tiny && -e $store/names/base && -e $store/names/code-interpreter ]] && exit
"$here/need.sh" mmdebstrap=mmdebstrap

# image NAME WORD…
image() {
  [[ -e $store/names/$1 ]] && return
  echo "making the image $1: takes minutes, once"
  "$programs/blastbox" image "${@:2}" --store "$store" >"$store.$1.log" 2>&1 ||
    echo "the image $1 could not be made; its tests are skipped: $(tail -n 1 "$store.$1.log")" >&2
}

image tiny debian tiny --packages bash,adduser,libstdc++6,libatomic1
image base make base
image code-interpreter make code-interpreter
echo "$made_by" >"$store.holds"
