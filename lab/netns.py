"""Creates, enters and removes the lab's network namespace and bridge.

Uses nsenter and setns, never `ip netns exec`: that remounts /sys, and nspawn then cannot tell which cgroup
hierarchy is used. Links between hosts and their faults are in `links`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lab import links, naming
from lab.errors import LabError
from lab.shell import run
from lab.state import machine_lock
from lab.waiting import wait_until

NETNS_DIRECTORY = Path("/run/netns")

_CLONE_NEWNET = 0x40000000
_NSFS_MAGIC = 0x6E736673
_BRIDGE_MAC = "02:4c:4c:00:00:01"
_libc = ctypes.CDLL(None, use_errno=True)


def handle(lab: str) -> Path:
    """The file that names the lab's namespace."""
    return NETNS_DIRECTORY / naming.namespace(lab)


def enter_argv(lab: str, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` on the controller, inside the lab's network."""
    return ["nsenter", f"--net={handle(lab)}", "--", *argv]


def exists(lab: str) -> bool:
    """Is there a live namespace? The file alone is not enough: it may predate a crash of the machine."""
    path = handle(lab)
    if not path.exists():
        return False
    return run(["stat", "-f", "-c", "%t", str(path)], check=False).stdout.strip() == f"{_NSFS_MAGIC:x}"


def ensure(lab: str) -> None:
    """Create the namespace, its loopback and its bridge where they are missing."""
    with machine_lock():
        if not exists(lab):
            handle(lab).unlink(missing_ok=True)
            run(["ip", "netns", "add", naming.namespace(lab)])
    if run(enter_argv(lab, ["ip", "link", "show", naming.BRIDGE]), check=False).returncode == 0:
        return
    batch = f"""
link set lo up
link add {naming.BRIDGE} address {_BRIDGE_MAC} type bridge stp_state 0 forward_delay 0 mcast_snooping 0
addr add {naming.CONTROLLER_ADDRESS}/{naming.PREFIX_LENGTH} dev {naming.BRIDGE}
link set {naming.BRIDGE} up
"""
    run(enter_argv(lab, ["ip", "-batch", "-"]), stdin=batch)


def remove(lab: str) -> None:
    """End every process still inside, except the caller's own, then remove the namespace."""
    if exists(lab):
        _end_processes(lab)
    with machine_lock():
        if exists(lab):
            run(["ip", "netns", "delete", naming.namespace(lab)])
        handle(lab).unlink(missing_ok=True)
        if NETNS_DIRECTORY.is_mount() and not any(NETNS_DIRECTORY.iterdir()):
            run(["umount", str(NETNS_DIRECTORY)], check=False)


def apply_rules(lab: str, faults: Iterable[links.LinkFault], hosts: Iterable[naming.Host]) -> None:
    """Replace the drop rules in the namespace by those of `faults`, in one transaction."""
    run(enter_argv(lab, ["nft", "-f", "-"]), stdin=links.ruleset(faults, hosts))


def interfaces(lab: str) -> set[str]:
    """Names of the interfaces in the namespace."""
    listing = run(enter_argv(lab, ["ip", "-json", "link", "show"])).stdout
    return {link["ifname"] for link in json.loads(listing)}


@contextlib.contextmanager
def entered(path: Path) -> Iterator[None]:
    """Move the calling thread, and threads and processes it starts, into the network namespace `path`."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise LabError(f"cannot enter the lab's network: {os.strerror(error)}")


def processes(lab: str) -> set[int]:
    """Ids of the processes in the namespace, except those that run this tool."""
    wanted = handle(lab).stat()
    own = _self_and_ancestors()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in own and _is_inside(entry, wanted):
            found.add(int(entry.name))
    return found


def _is_inside(process: Path, wanted: os.stat_result) -> bool:
    try:
        there = (process / "ns/net").stat()
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino)


def _self_and_ancestors() -> set[int]:
    own, pid = set(), os.getpid()
    while pid > 0:
        own.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return own


def _end_processes(lab: str) -> None:
    """Send SIGTERM, then SIGKILL to the processes that are left after two seconds."""
    for number, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        for pid in processes(lab):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if wait_until(lambda: not processes(lab), patience_s):
            return
    raise LabError(f"processes {sorted(processes(lab))} in the network of lab {lab} do not end")
