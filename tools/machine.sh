#!/usr/bin/env bash
# A store with a kernel and an image that holds this host's own python3 and nothing else, for `make escape` in virtual machines:
# tools/machine.sh PROGRAMS KERNEL STORE. Where something is missing it says so, and the campaign has no such column.
set -euo pipefail

programs=$1 kernel=$2 store=$3
[[ -e $store/names/python && -e $store/kernels/current ]] && exit 0
without() { echo "no virtual machines in the matrix: $1" >&2; exit 0; }
python=$(readlink -f /usr/bin/python3 || true)
[[ -x $python ]] || without "there is no /usr/bin/python3"
command -v qemu-system-x86_64 >/dev/null || without "there is no qemu-system-x86_64"
image=$(compgen -G "$kernel/boot/vmlinuz-*" | head -n 1 || true)
[[ -n $image ]] || without "there is no kernel in $kernel"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
library=/usr/lib/$(basename "$python")
mkdir -p "$root"/{usr/bin,usr/lib,lib64,etc,tmp,proc,dev}
ln -s usr/bin "$root/bin" && ln -s usr/lib "$root/lib"
cp "$python" "$root/usr/bin/python3"
cp -r "$library" "$root/usr/lib/"
rm -rf "$root$library"/{test,config-*,idlelib,lib2to3,ensurepip,tkinter}
# Every library that Python or one of its modules is linked with, where the loader looks for it.
{ ldd "$python"; find "$library/lib-dynload" -name '*_ctypes*.so' -o -name '*_socket*.so' -o -name '*mmap*.so' | xargs -r ldd; } |
  grep -o '/[^ ]*' | grep -v ':$' | sort -u | while read -r file; do
    [[ ! -f $file ]] || install -D "$file" "$root/$(realpath --no-symlinks --relative-to=/ "$file" | sed 's|^lib/|usr/lib/|')"
  done
"$programs/blastbox" image import "$root" --name python --store "$store" >/dev/null
"$programs/blastbox" kernel add "$image" --modules "$kernel/lib/modules/${image##*/vmlinuz-}" --store "$store" >/dev/null
