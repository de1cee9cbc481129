#!/usr/bin/env bash
# `make run`: plants things worth stealing on this host, runs hostile code in a box, shows what it got and what stopped it.
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
language=sh port=9
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
echo "on this host: a key in $loot/id_ed25519, a token in AWS_SECRET_ACCESS_KEY${listener:+, a service on 127.0.0.1:$port}"
echo

# The code gets the addresses of the loot as its first line, so that it need not search: the box has to hold, not hide.
if [[ $language == python ]]; then
  code="LOOT, HOME, PORT = '$loot', '${HOME:-/root}', $port"$'\n'$(<"$here/attempts.py")
else
  code="LOOT='$loot' HOST_HOME='${HOME:-/root}' PORT=$port"$'\n'$(<"$here/attempts.sh")
fi
"$blastbox" run --lang "$language" - <<<"$code" && status=0 || status=$?

echo
if [[ $(<"$loot/id_ed25519") == demo-private-key ]]; then key=untouched; else key=CHANGED; fi
echo "on this host afterwards: the key is $key${listener:+, the service had $(grep -c visited "$loot/visits") visitors}"
exit "$status"
