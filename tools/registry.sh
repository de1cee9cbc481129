#!/usr/bin/env bash
# Fetches Debian's registry server for the tests into a directory, without installing it: the package would start a
# service that listens for other hosts. Where it cannot be had, the test that needs it says so itself.
set -euo pipefail

at=$1
[[ -x $at/usr/bin/docker-registry || -x /usr/bin/docker-registry ]] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 0
mkdir -p "$at"
cd "$at"
fetch() { apt-get download --quiet --quiet docker-registry >/dev/null 2>&1; }
fetch || { [[ $EUID -eq 0 ]] && apt-get update --quiet --quiet && fetch; } || { echo "could not fetch docker-registry" >&2; exit 0; }
dpkg-deb --extract docker-registry_*.deb .
rm docker-registry_*.deb
