"""A host's identity: name, machine id, address, the names of the other hosts, and ssh keys; also ssh's
own files.

They are written into a host's file system from outside, before its first boot. Host keys are generated per
host: the image has none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from lab import naming
from lab.shell import run
from lab.state import LabFiles

_PREPARED = "prepared"


def make_lab_key(files: LabFiles) -> None:
    """Create the key pair that lets the controller log in as root on every host."""
    if not files.key.exists():
        _make_key(files.key, "landline-lab")


def write_ssh_files(files: LabFiles, hosts: Iterable[naming.Host]) -> None:
    """Write ssh_config and known_hosts for these hosts, which must have been prepared."""
    files.sockets.mkdir(mode=0o700, exist_ok=True)
    hosts = tuple(hosts)
    keys = {host: _host_public_key(files.root(host)) for host in hosts}
    files.known_hosts.write_text(known_hosts(keys))
    files.ssh_config.write_text(ssh_config(files, hosts))


def known_hosts(keys: dict[naming.Host, str]) -> str:
    """The text of known_hosts: each host's public key, by name and address."""
    return "".join(f"{host.name},{host.address} {key}\n" for host, key in keys.items())


def ssh_config(files: LabFiles, hosts: Iterable[naming.Host]) -> str:
    """The text of ssh_config. Inside the lab's network, `ssh -F` with it makes `ssh h1` work, by
    address too.
    """
    aliases = "".join(f"Host {host.name} {host.address}\n  HostName {host.address}\n" for host in hosts)
    return f"""{aliases}
Host *
  User root
  IdentityFile {files.key}
  IdentitiesOnly yes
  UserKnownHostsFile {files.known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  PasswordAuthentication no
  ControlMaster auto
  ControlPath {control_path(files)}
  ControlPersist 60s
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 3
  LogLevel ERROR
"""


def control_path(files: LabFiles) -> str:
    """The sockets of shared ssh connections: per lab, because other labs have the same addresses."""
    return f"{files.sockets}/%h"


def prepare(files: LabFiles, host: naming.Host) -> None:
    """Give a mounted host its identity, once only."""
    done = files.host(host) / _PREPARED
    if done.exists():
        return
    root = files.root(host)
    _write(root / "etc/hostname", f"{host.name}\n")
    _write(root / "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    _write(root / "etc/systemd/network/10-host0.network", network_unit(host))
    _write(root / "root/.ssh/authorized_keys", files.key.with_suffix(".pub").read_text(), 0o600)
    host_key = root / "etc/ssh/ssh_host_ed25519_key"
    host_key.unlink(missing_ok=True)
    _make_key(host_key, f"root@{host.name}")
    done.touch()


def network_unit(host: naming.Host) -> str:
    """The systemd-networkd file for the host's cable; it sorts before the one that systemd ships."""
    return f"""[Match]
Kind=veth
Name=host0
Virtualization=container

[Network]
Address={host.address}/{naming.PREFIX_LENGTH}
LinkLocalAddressing=no
IPv6AcceptRA=no
DHCP=no
LLMNR=no
"""


def write_hosts_file(root: Path, own_name: str, hosts: Iterable[naming.Host]) -> None:
    """Write /etc/hosts with every host and the controller, unless it is already up to date."""
    text = hosts_file(own_name, hosts)
    path = root / "etc/hosts"
    if not path.exists() or path.read_text() != text:
        _write(path, text)


def hosts_file(own_name: str, hosts: Iterable[naming.Host]) -> str:
    """The text of /etc/hosts. The host's own name maps to its real address, as services that advertise
    it need.
    """
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines.append(f"{naming.CONTROLLER_ADDRESS} {naming.CONTROLLER}")
    lines += [f"{host.address} {host.name}" for host in hosts]
    return f"# Made by Landline's lab for {own_name}.\n" + "\n".join(lines) + "\n"


def _make_key(path: Path, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def _host_public_key(root: Path) -> str:
    kind, key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
    return f"{kind} {key}"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file atomically: the host may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.lab")
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.replace(path)
