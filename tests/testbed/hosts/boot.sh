#!/bin/sh
# Boot one host: the first process of fresh mount, pid, uts, ipc and net namespaces runs this as `boot.sh FOLDER`.
# FOLDER has up/ and work/ (its disk: what differs from the machine's own files), host.env and extra.sh.
# A line on standard input says that the network card is plugged in.
set -eu
folder=$1
# shellcheck disable=SC1091 # made for each host: HOST_NAME ADDRESS ADDRESS6 GATEWAY GATEWAY6
. "$folder/host.env"
root=$folder/root

read -r _
ip -batch - <<NETWORK
link set lo up
addr add $ADDRESS/24 dev eth0
addr add $ADDRESS6/64 dev eth0 nodad
link set eth0 up
route add default via $GATEWAY
route add default via $GATEWAY6
NETWORK
printf %s "$HOST_NAME" >/proc/sys/kernel/hostname # hostname(1) takes ASCII only

mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/up,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for volatile in /dev/shm /run /tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root$volatile"; done
mkdir -m 755 "$root/run/sshd"
cat /proc/sys/kernel/random/uuid >"$root/run/boot_id"
mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"

if [ ! -e "$folder/installed" ]; then # what the machine's own users have at home must not shine through
  for mine in .bashrc .bash_profile .bash_login .profile .ssh .config .local/state; do rm -rf "$root/root/$mine"; done
  if [ -d "$folder/files" ]; then cp -a "$folder/files/." "$root/"; fi
  touch "$folder/installed"
fi
# shellcheck disable=SC1091 # likewise: its mounts
. "$folder/extra.sh"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" \
  tini -- sh -c '/usr/sbin/sshd -f /etc/ssh/sshd_testbed.conf -E /var/log/sshd.log; exec sleep infinity'
