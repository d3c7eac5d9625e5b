"""A lab's hosts as an operator may have them: a user with sudo, ssh at another port behind a bastion, two disks for the
data, and a network of IPv6 for the services.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import Host, Lab, naming

USER = "debian"
SSH_PORT = 2222
# In a host: a disk is a directory that /etc/fstab mounts, and that can be missing.
DISKS = {"/srv/disk1": "/data/1", "/srv/disk2": "/data/2"}
_NETWORK = "fd00:89::"
# The first host is the bastion too, at another address: ssh does not jump to a host from the same host.
BASTION = f"{naming.SUBNET}.200"
_FSTAB = "".join(f"{disk} {point} none bind,nofail 0 0\n" for disk, point in DISKS.items())


def on_controller(lab: Lab, *command: str, stdin: str | None = None) -> None:
    """Runs a command on this machine, in the lab's network."""
    subprocess.run(lab.enter_argv(command), input=stdin, text=True, check=True)


def service_address(host: Host) -> str:
    """The host's address for its services. The other one is that of its ssh."""
    return f"{_NETWORK}{10 + host.index}"


def prepare(lab: Lab) -> None:
    """What whoever sets up the hosts has done. The account is as Debian's own images for clouds have it, with the key
    that root has here.
    """
    on_controller(lab, "ip", "addr", "add", f"{_NETWORK}1/64", "dev", naming.BRIDGE)
    bastion = f"Address={BASTION}/{naming.PREFIX_LENGTH}"
    for host in lab.hosts:
        lab.run(
            host.name,
            f"""
useradd --create-home --shell /bin/bash {USER}
install --directory --owner={USER} --group={USER} --mode=700 /home/{USER}/.ssh
install --owner={USER} --group={USER} --mode=600 /root/.ssh/authorized_keys /home/{USER}/.ssh/
echo '{USER} ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/{USER}
printf 'Port 22\\nPort {SSH_PORT}\\n' >/etc/ssh/sshd_config.d/20-ports.conf
systemctl restart ssh
mkdir -p {" ".join(DISKS)} {" ".join(DISKS.values())}
printf '{_FSTAB}' >>/etc/fstab
systemctl daemon-reload && mount -a
mkdir /etc/systemd/network/10-host0.network.d
cat >/etc/systemd/network/10-host0.network.d/service.conf <<'EOF'
[Network]
Address={service_address(host)}/64
{bastion if host == lab.hosts[0] else ""}
EOF
networkctl reload
""",
        )


def ssh_options(lab: Lab, directory: Path) -> str:
    """What stands in ansible_ssh_common_args."""
    lines = [line.partition(" ")[::2] for line in lab.files.known_hosts.read_text().splitlines()]
    known = directory / "known_hosts"
    keys = {names.split(",")[1]: key for names, key in lines}
    keys[BASTION] = keys[lab.hosts[0].address]
    known.write_text("".join(f"[{address}]:{SSH_PORT} {key}\n" for address, key in keys.items()))
    config = directory / "ssh_config"
    config.write_text(
        f"Host *\n  IdentityFile {lab.files.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
        "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
    )
    # Other labs have the same addresses.
    shared = f"-o ControlPath={lab.files.sockets}/o-%h"
    return f"-F {config} {shared} -o ProxyJump={USER}@{BASTION}:{SSH_PORT}"


@contextmanager
def sudo_asks(lab: Lab) -> Iterator[str]:
    """Meanwhile sudo wants the user's password, which it gives."""
    password, rule = "correct horse", f"/etc/sudoers.d/{USER}"
    for host in lab.hosts:
        lab.run(host.name, f"echo '{USER}:{password}' | chpasswd; sed -i 's/NOPASSWD/PASSWD/' {rule}")
    try:
        yield password
    finally:
        for host in lab.hosts:
            lab.run(host.name, f"sed -i 's/ PASSWD/ NOPASSWD/' {rule}; passwd --lock {USER}")


@contextmanager
def ssh_may_be_lost(lab: Lab, port: int = SSH_PORT) -> Iterator[Callable[[], None]]:
    """Gives what makes every ssh connection of this machine silent, those that are open too, until the end."""
    rules = (
        f"table inet lost {{ chain out {{ type filter hook output priority 0; tcp dport {port} drop; }}; }}"
    )
    on_controller(lab, "nft", "add", "table", "inet", "lost")
    try:
        yield lambda: on_controller(lab, "nft", "-f", "-", stdin=rules)
    finally:
        on_controller(lab, "nft", "delete", "table", "inet", "lost")


@contextmanager
def only_the_bastion_is_reached(lab: Lab) -> Iterator[None]:
    """Meanwhile this machine reaches the bastion's ssh and nothing else of the lab. The hosts reach each other."""
    rules = f"""
table inet wall {{
    chain out {{
        type filter hook output priority 0
        oifname {naming.BRIDGE} ip daddr {BASTION} tcp dport {SSH_PORT} accept
        oifname {naming.BRIDGE} meta l4proto {{ tcp, udp }} drop
    }}
}}"""
    on_controller(lab, "nft", "-f", "-", stdin=rules)
    try:
        yield
    finally:
        on_controller(lab, "nft", "delete", "table", "inet", "wall")
