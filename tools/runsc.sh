#!/usr/bin/env bash
# Puts a gVisor that this version can use beside the programs, for tests and measurements: tools/runsc.sh DIRECTORY
# Takes the host's own where it is new enough, otherwise Debian's package from backports, without installing it. Where none can be
# had, whatever needs it says so itself.
set -euo pipefail

at=$1 oldest=20240729
new_enough() {
  [[ -x $1 ]] || return 1
  local said
  said=$("$1" --version 2>/dev/null) || return 1
  [[ ${said%%$'\n'*} =~ 20[0-9]{6} && ${BASH_REMATCH[0]} -ge $oldest ]]
}
for own in "$at/runsc" /usr/local/bin/runsc /usr/bin/runsc; do
  new_enough "$own" && exit 0
done
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no runsc of $oldest or newer" >&2; exit 0; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{sources,lists/partial,cache/archives/partial}
. /etc/os-release
cat >"$folder/sources/backports.sources" <<SOURCES
Types: deb
URIs: http://deb.debian.org/debian
Suites: ${VERSION_CODENAME:-bookworm} ${VERSION_CODENAME:-bookworm}-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
apt=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/sources" -o "Dir::State::lists=$folder/lists"
  -o "Dir::Cache=$folder/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" --quiet --quiet)
cd "$folder"
{ apt-get "${apt[@]}" update && apt-get "${apt[@]}" download "runsc/${VERSION_CODENAME:-bookworm}-backports" ||
  apt-get "${apt[@]}" download runsc; } >/dev/null 2>&1 || { echo "could not fetch runsc" >&2; exit 0; }
dpkg-deb --extract runsc_*.deb .
new_enough usr/bin/runsc && install -m 755 usr/bin/runsc "$at/runsc" || echo "the runsc that could be had is too old" >&2
