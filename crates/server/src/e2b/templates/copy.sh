# COPY of a template: SOURCE TARGET MODE UPLOADED. Runs in the box of the step.
set -eu
to=$2 mode=$3
cd "$4"
IFS=
count=0
for entry in $1; do
  [ -e "$entry" ] || [ -L "$entry" ] || { echo "$1 is not among the files that were uploaded" >&2; exit 1; }
  count=$((count + 1))
done
for entry in $1; do
  [ -z "$mode" ] || find "$entry" -type f -exec chmod "$mode" {} +
  if [ -d "$entry" ] && [ ! -L "$entry" ]; then
    mkdir -p "$to"
    cp -RP "$entry/." "$to/"
    continue
  fi
  case $to in */) folder=yes ;; *) folder=no ;; esac
  if [ -d "$to" ] || [ "$count" -gt 1 ]; then folder=yes; fi
  if [ "$folder" = yes ]; then
    mkdir -p "$to"
    cp -P "$entry" "$to/"
  else
    mkdir -p "$(dirname "$to")"
    cp -P "$entry" "$to"
  fi
done
