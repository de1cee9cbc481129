#!/usr/bin/env bash
# `make run`: plants things worth stealing on this host, runs hostile code in a box, shows which boundary stopped what, and the receipt.
# usage: tools/demo.sh PATH-OF-BLASTBOX
set -euo pipefail
blastbox=${1:?usage: tools/demo.sh PATH-OF-BLASTBOX}
here=$(dirname "${BASH_SOURCE[0]}")/demo

loot=$(mktemp -d)
listener=
finish() {
  [[ -z $listener ]] || kill "$listener" 2>/dev/null || true
  rm -rf "$loot"
}
trap finish EXIT

# The loot: a key in a file that everybody may read, a token in the environment, a service that listens on loopback.
chmod 755 "$loot"
echo demo-private-key >"$loot/id_ed25519"
export AWS_SECRET_ACCESS_KEY=demo-secret-of-the-host
language=sh port=$$ colour=0
if [[ -t 1 && ${TERM:-dumb} != dumb && -z ${NO_COLOR:-} ]]; then colour=1; fi
if [[ -x /usr/bin/python3 ]]; then
  language=python
  /usr/bin/python3 "$here/listener.py" >"$loot/visits" &
  listener=$!
  for _ in {1..50}; do
    [[ -s $loot/visits ]] && break
    sleep 0.1
  done
  read -r port <"$loot/visits"
fi
echo "on this host: a private key in $loot/id_ed25519, a token in AWS_SECRET_ACCESS_KEY${listener:+, a service on 127.0.0.1:$port}"
echo

# The code gets the addresses of the loot as its first line, so that it need not search: the box has to hold, not hide.
if [[ $language == python ]]; then
  code="LOOT, HOME, PORT, COLOUR = '$loot', '${HOME:-/root}', $port, $colour"$'\n'$(<"$here/attempts.py")
else
  code="LOOT='$loot' HOST_HOME='${HOME:-/root}' PORT=$port"$'\n'$(<"$here/attempts.sh")
fi
"$blastbox" run --quiet --receipt "$loot/receipt.json" --lang "$language" - <<<"$code" && status=0 || status=$?

echo
if [[ ! -s $loot/receipt.json ]]; then
  echo "there is no receipt: blastbox returned $status"
elif [[ $language == python ]]; then
  /usr/bin/python3 "$here/receipt.py" "$loot/receipt.json" "$colour"
else
  echo "the receipt:"
  cat "$loot/receipt.json"
fi

# What the code tried to leave behind has a name that no other process has.
echo
left=0
for line in /proc/[0-9]*/cmdline; do
  if [[ $(tr '\0' ' ' <"$line" 2>/dev/null) == "sleep 60.$port " ]]; then left=$((left + 1)); fi
done
if [[ $(<"$loot/id_ed25519") == demo-private-key ]]; then key=untouched; else key=CHANGED; fi
visitors=$(grep -c visited "$loot/visits" 2>/dev/null || true)
echo "on this host afterwards: the key is $key, $left processes of the box are left${listener:+, the service had $visitors visitors}"
[[ $key == untouched && $left == 0 && ${visitors:-0} == 0 ]] || status=1
exit "$status"
