# Code that nobody has reviewed, for a host without Python. tools/demo.sh puts LOOT, HOST_HOME and PORT in front.

attempt() {
  what=$1
  shift
  if answer=$("$@" 2>&1); then answer="IT WORKED: $(echo "$answer" | head -c 60 | tr '\n' ' ')"; fi
  printf 'tried %-44s → %s\n' "$what" "$(echo "$answer" | tail -n 1)"
}
secrets() { env | grep -iE '^[^=]*(secret|token|key|password)' || { echo "nothing"; false; }; }
keys() { ls "$HOST_HOME/.ssh" /home/*/.ssh /root/.ssh; }
plant() { echo >/usr/bin/backdoor; }
fork_bomb() {
  count=0
  while [ "$count" -lt 300 ]; do
    sleep 5 &
    count=$((count + 1))
  done
}

attempt "to read the passwords of the host" cat /etc/shadow
attempt "to read $LOOT/id_ed25519" cat "$LOOT/id_ed25519"
attempt "to find private keys in ~/.ssh" keys
attempt "to list /home" ls /home
attempt "to find secrets in the environment" secrets
attempt "to plant a program in /usr/bin" plant
attempt "to mount a file system" mount -t tmpfs none /mnt
attempt "to unshare namespaces and become root" unshare --user --map-root-user true
attempt "to write to the memory of process 1" dd if=/dev/zero of=/proc/1/mem bs=1 count=1
if command -v nc >/dev/null; then
  attempt "to reach the cloud's metadata service" nc -w 3 169.254.169.254 80
  attempt "to reach the host's service on 127.0.0.1:$PORT" nc -w 3 127.0.0.1 "$PORT"
fi
attempt "to bomb the host with forks" fork_bomb
