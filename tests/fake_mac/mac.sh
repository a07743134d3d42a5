#!/bin/sh
# Runs its arguments where /usr holds commands of a Mac and Python takes this machine for one. FAKE_MAC is an empty folder.
# Start it in a mount namespace of its own: `unshare -m sh mac.sh COMMAND`. Needs root.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mount --make-rprivate /
mount -t tmpfs tmpfs "$FAKE_MAC"
mkdir "$FAKE_MAC/upper" "$FAKE_MAC/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$FAKE_MAC/upper,workdir=$FAKE_MAC/work" /usr
for command in /usr/sbin/sysctl /usr/sbin/scutil /usr/bin/sw_vers /usr/bin/caffeinate \
  /usr/libexec/ApplicationFirewall/socketfilterfw; do
  mkdir -p "$(dirname "$command")"
  rm -f "$command"
  cp "$here/command.sh" "$command"
  chmod 755 "$command"
done
export PYTHONPATH="$here/python"
"$@"
[ ! -e "$FAKE_MAC/keychain" ] || { echo "It kept a key in the keychain." >&2; exit 70; }
