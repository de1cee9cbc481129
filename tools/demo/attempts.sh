# Code that nobody has reviewed, for a host without Python. tools/demo.sh puts LOOT, HOST_HOME and PORT in front.

got_away=0
attempt() {
  boundary=$1 what=$2
  shift 2
  if answer=$("$@" 2>&1); then
    mark=✘ got_away=1 answer="GOT AWAY: $(echo "$answer" | head -c 60 | tr '\n' ' ')"
  else
    mark=✔
  fi
  printf '  %-12s %s %-40s %s\n' "$boundary" "$mark" "$what" "$(echo "$answer" | tail -n 1)"
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

attempt files "read the passwords of the host" cat /etc/shadow
attempt files "read the private key" cat "$LOOT/id_ed25519"
attempt files "find keys in ~/.ssh" keys
attempt files "plant a program in /usr/bin" plant
attempt credentials "find secrets in the environment" secrets
attempt kernel "mount a file system" mount -t tmpfs none /mnt
attempt kernel "become root in namespaces" unshare --user --map-root-user true
attempt kernel "write to the memory of process 1" dd if=/dev/zero of=/proc/1/mem bs=1 count=1
if command -v nc >/dev/null; then
  attempt network "reach the cloud's metadata service" nc -w 3 169.254.169.254 80
fi
attempt kernel "bomb the host with forks" fork_bomb
(setsid sleep "60.$PORT" </dev/null >/dev/null 2>&1 &)
printf '  %-12s … %-40s %s\n' lifecycle "leave a process behind" "started; has to end with the box: see below"
exit "$got_away"
