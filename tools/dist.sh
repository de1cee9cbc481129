#!/usr/bin/env bash
# Puts everything that a machine without a toolchain needs into a directory: tools/dist.sh PROGRAMS DIRECTORY [PREFIX [WASM]]
# Laid out as beneath PREFIX: bin, share, lib/systemd, and libexec with the tier wasm where WASM is a directory that `make wasm` has filled.
set -euo pipefail
programs=$1 to=$2 prefix=${3:-/usr/local} wasm=${4:-}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

install -d "$to/bin" "$to/lib/systemd/system" "$to/share/doc/blastbox" "$to/share/man/man1" \
  "$to/share/bash-completion/completions" "$to/share/zsh/site-functions" "$to/share/fish/vendor_completions.d"
for program in "$programs"/blastbox*; do
  [ -f "$program" ] && install -m 755 "$program" "$to/bin/"
done
if [ -n "$wasm" ] && [ -x "$wasm/blastbox-wasm" ]; then
  # A guest that was replaced since goes first: what lies there is read-only.
  rm -rf "$to/libexec/blastbox/wasm" && install -d "$to/libexec/blastbox/wasm"
  find "$wasm" -mindepth 1 -maxdepth 1 ! -name '.*' ! -name '*.seal' -exec cp -r {} "$to/libexec/blastbox/wasm/" \;
  echo "with the tier wasm: $(cd "$wasm" && ls ./*.guest | sed 's|^\./||; s|\.guest$||' | tr '\n' ' ')"
elif [ -n "$wasm" ]; then
  echo "without the tier wasm: run \`make wasm\` before to have it"
fi
sed "s|@BINDIR@|$prefix/bin|" packaging/blastbox.service >"$to/lib/systemd/system/blastbox.service"
chmod 644 "$to/lib/systemd/system/blastbox.service"
install -m 644 packaging/daemon.toml "$to/share/doc/blastbox/daemon.toml"
"$programs/blastbox" papers man "$to/share/man/man1"
"$programs/blastbox" papers bash >"$to/share/bash-completion/completions/blastbox"
"$programs/blastbox" papers zsh >"$to/share/zsh/site-functions/_blastbox"
"$programs/blastbox" papers fish >"$to/share/fish/vendor_completions.d/blastbox.fish"
# The documents keep their tree, so that what they link to is where they say.
install -m 644 LICENSE ./*.md "$to/share/doc/blastbox/"
# Of a checkout what belongs to it: what else lies there was made by whoever worked in it.
# A checkout that git will not read is an error, and no reason to ship whatever lies there.
list=$(mktemp)
trap 'rm -f "$list"' EXIT
if [ -e .git ]; then
  git ls-files -z docs profiles sdk >"$list"
else
  find docs profiles sdk -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' -print0 >"$list"
fi
mapfile -d '' -t files <"$list"
[ "${#files[@]}" -gt 0 ] || { echo "no documents were found in $root" >&2; exit 1; }
for file in "${files[@]}"; do
  case /$file in */.*) continue ;; esac
  install -D -m 644 "$file" "$to/share/doc/blastbox/$file"
done
cargo xtask licences >"$to/share/doc/blastbox/THIRD-PARTY"
