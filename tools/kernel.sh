#!/usr/bin/env bash
# Fetches Debian's kernel for virtual machines for the tests into a directory, without installing it, and unpacks it there too: a guest on
# an emulated processor takes a third of its boot for that. Where the one cannot be had, the tests that need it say so themselves; where
# the other cannot, they boot what is shipped.
set -euo pipefail

at=$1
unpack() {
  compgen -G "$at/boot/vmlinux-*" >/dev/null && return
  local image
  image=$(compgen -G "$at/boot/vmlinuz-*" | head -n 1) || return 0
  command -v python3 >/dev/null || { echo "no python3 to unpack $image with: guests of the tests do it themselves" >&2; return 0; }
  python3 - "$image" "${image/vmlinuz-/vmlinux-}" 2>/dev/null <<'EOF' || echo "could not unpack $image: guests of the tests do it themselves" >&2
import lzma, os, struct, subprocess, sys, zlib

def lz4_block(packed):
    out, at = bytearray(), 0
    def length(short):
        nonlocal at
        more = short == 15
        while more:
            short, more, at = short + packed[at], packed[at] == 255, at + 1
        return short
    while at < len(packed):
        token, at = packed[at], at + 1
        literal = length(token >> 4)
        out += packed[at:at + literal]
        at += literal
        if at >= len(packed):
            break
        (back,), at = struct.unpack_from("<H", packed, at), at + 2
        count, begin = length(token & 15) + 4, len(out) - back
        # A match may reach into what it makes itself.
        out += (out[begin:begin + count] * (count // back + 1))[:count]
    return out

def lz4(packed):
    out, at = bytearray(), 4
    while at < len(packed):
        (size,) = struct.unpack_from("<I", packed, at)
        out += lz4_block(packed[at + 4:at + 4 + size])
        at += 4 + size
    return out

def zstd(packed):
    return subprocess.run(["zstd", "-dc"], input=packed, stdout=subprocess.PIPE, check=True).stdout

image, to = sys.argv[1:]
with open(image, "rb") as file:
    whole = file.read()
# Where it says itself that it is packed, and how long that is: its real-mode part comes first. At the end stands how large it will be.
setup = (whole[0x1F1] or 4) + 1
offset, size = struct.unpack_from("<II", whole, 0x248)
packed = whole[setup * 512 + offset:setup * 512 + offset + size]
(large,) = struct.unpack("<I", packed[-4:])
# What comes behind a stream is no trouble to those that know its end.
ways = {
    b"\x02\x21\x4c\x18": lambda packed: lz4(packed[:-4]),
    b"\x28\xb5\x2f\xfd": lambda packed: zstd(packed[:-4]),
    b"\xfd7zX": lambda packed: lzma.LZMADecompressor().decompress(packed),
    b"\x1f\x8b\x08\0": lambda packed: zlib.decompressobj(31).decompress(packed),
}
way = ways.get(packed[:4])
unpacked = way(packed) if way else b""
if unpacked[:4] != b"\x7fELF" or len(unpacked) != large:
    sys.exit(1)
with open(to + ".draft", "wb") as file:
    file.write(unpacked)
os.rename(to + ".draft", to)
EOF
}

compgen -G "$at/boot/vmlinuz-*" >/dev/null && { unpack; exit 0; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 0
mkdir -p "$at"
package() { apt-cache depends --no-recommends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[a-z0-9.+-]*\)$/\1/p' | head -n 1; }
fetch() { [[ -n $(package) ]] && (cd "$at" && apt-get download --quiet --quiet "$(package)" >/dev/null 2>&1); }
fetch || { [[ $EUID -eq 0 ]] && apt-get update --quiet --quiet && fetch; } || { echo "could not fetch linux-image-cloud-amd64" >&2; exit 0; }
dpkg-deb --extract "$at"/linux-image-*.deb "$at"
rm "$at"/linux-image-*.deb
unpack
