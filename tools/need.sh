#!/usr/bin/env bash
# Makes sure that system programs are there: `tools/need.sh program=package …`.
# Installs a missing one as root where apt is; otherwise says what is missing and goes on: what needs it will say so itself.
# Looks where distributions install, not in PATH: a box sees /usr of the host and nothing from anybody's home.
set -euo pipefail

missing=()
for pair in "$@"; do
  program=${pair%%=*}
  found=no
  for folder in /usr/bin /usr/sbin /bin /sbin; do
    [[ -x $folder/$program ]] && found=yes
  done
  [[ $found == yes ]] || missing+=("${pair#*=}")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (install by your package manager, e.g. sudo apt-get install ${missing[*]})" >&2
  exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --yes --quiet --quiet --no-install-recommends "${missing[@]}" >/dev/null; }
install 2>/dev/null || { apt-get update --quiet --quiet && install; } ||
  echo "could not install: ${missing[*]}" >&2
