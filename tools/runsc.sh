#!/usr/bin/env bash
# Puts a gVisor that this version can use beside the programs, for tests and measurements: tools/runsc.sh DIRECTORY
# Takes the host's own where it is new enough, otherwise Debian's package from backports, without installing it. Where none can be
# had, whatever needs it says so itself.
set -euo pipefail

at=$(cd "$1" && pwd) oldest=20240729
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
# Nothing of the host's own configuration but a proxy: it may have hooks that run as root, or checks switched off. By this
# variable, because it is read before the host's files are; options of the command line come too late for that.
export APT_CONFIG=$folder/apt.conf
proxy=$(APT_CONFIG='' apt-config dump --format '%v%n' Acquire::http::Proxy | head -n 1)
cat >"$APT_CONFIG" <<CONFIG
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$folder/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$folder/lists";
Dir::Cache "$folder/cache";
Debug::NoLocking "1";
Acquire::AllowInsecureRepositories "0";
Acquire::AllowDowngradeToInsecureRepositories "0";
APT::Get::AllowUnauthenticated "0";
CONFIG
if [[ $proxy =~ ^https?://[A-Za-z0-9.:@_/%-]+$ ]]; then echo "Acquire::http::Proxy \"$proxy\";" >>"$APT_CONFIG"; fi
# What is fetched is parsed by a user without rights, where there is root to be.
if [[ $(id -u) = 0 ]] && id _apt >/dev/null 2>&1; then
  chmod 711 "$folder" && mkdir "$folder/fetched" && chown -R _apt "$folder"/{lists,cache,fetched}
else
  mkdir "$folder/fetched" && echo "APT::Sandbox::User \"$(id -un)\";" >>"$APT_CONFIG"
fi
cd "$folder/fetched"
{ apt-get --quiet --quiet update && apt-get --quiet --quiet download "runsc/${VERSION_CODENAME:-bookworm}-backports" ||
  apt-get --quiet --quiet download runsc; } >/dev/null 2>&1 || { echo "could not fetch runsc" >&2; exit 0; }
cd "$folder" && dpkg-deb --extract fetched/runsc_*.deb out
new_enough out/usr/bin/runsc || { echo "the runsc that could be had is too old" >&2; exit 0; }
install -m 755 out/usr/bin/runsc "$at/runsc"
