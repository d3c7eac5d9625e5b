#!/bin/sh
# Makes the unpacked Debian tree $1 a base image: what every host shares, nothing that must differ per host.
set -eu
root=$1

# Per host: made by the lab before a host's first boot.
rm -f "$root"/etc/ssh/ssh_host_*
: > "$root/etc/machine-id"
: > "$root/etc/resolv.conf"
rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id"

# No host reaches anything but its lab: nothing is fetched from outside, no timer tries to.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer getty@tty1.service systemd-pstore.service; do
    chroot "$root" systemctl --quiet disable "$unit" || true
done
chroot "$root" systemctl --quiet mask console-getty.service systemd-logind.service getty.target
chroot "$root" systemctl --quiet enable ssh.service systemd-networkd.service

# The journal outlives a power loss, so that it can be read afterwards.
mkdir -p "$root/var/log/journal" "$root/etc/systemd/journald.conf.d"
cat > "$root/etc/systemd/journald.conf.d/10-persistent.conf" <<'EOF'
[Journal]
Storage=persistent
SystemMaxUse=256M
EOF

mkdir -p "$root/etc/ssh/sshd_config.d"
cat > "$root/etc/ssh/sshd_config.d/10-lab.conf" <<'EOF'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxSessions 64
MaxStartups 100
EOF
chroot "$root" passwd --quiet --lock root
mkdir -p -m 700 "$root/root/.ssh"
