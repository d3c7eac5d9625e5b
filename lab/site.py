"""`Site`: the parts of one lab put together: state, disks, cgroups, connections. Also boots a host.

The common base of `Lab` and `Faults`. Takes no lock: a caller that changes something must hold the
lab's lock.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import links, machine, naming, netns, storage
from lab.cgroups import HostCgroup
from lab.errors import LabError, UsageError
from lab.links import LinkFaultKind
from lab.shell import run
from lab.state import LabFiles, LabState
from lab.storage import HostStorage

BOOT_TIMEOUT_S = 90.0


class Site:
    """The parts of the lab with this name, whether it exists or not."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = naming.checked_lab_name(name)
        self.files = LabFiles(root, self.name)

    @property
    def state(self) -> LabState:
        """The requested state; `LabError` when the lab does not exist."""
        state = self.files.load()
        if state is None:
            raise LabError(
                f"there is no lab {self.name!r}: make it with `.venv/bin/lab up --name {self.name}`"
            )
        return state

    def host(self, name: str) -> naming.Host:
        """The host of that name; `UsageError` when the lab has none."""
        hosts = self.state.host_list()
        for host in hosts:
            if host.name == name:
                return host
        raise UsageError(f"lab {self.name!r} has no host {name!r}, only {' '.join(h.name for h in hosts)}")

    def cgroup(self, host: naming.Host) -> HostCgroup:
        """The host's cgroups."""
        return HostCgroup(self.name, host)

    def storage(self, host: naming.Host) -> HostStorage:
        """The host's disks."""
        return HostStorage(self.files.host(host), self.state.data_disk_mb)

    def console(self, host: naming.Host) -> Path:
        """The file with all output of the host's console."""
        return self.files.host(host) / "console.log"

    def ssh_argv(self, host: naming.Host, command: str | Sequence[str] = ()) -> list[str]:
        """The ssh command line to a host, with a command or for a shell; to be run inside the
        lab's network.
        """
        line = command if isinstance(command, str) else shlex.join(command)
        return ["ssh", "-F", str(self.files.ssh_config), host.name, *([line] if line else [])]

    def boot(self, host: naming.Host) -> None:
        """Boot a host that is off; returns when it answers ssh, or earlier if the link to it is cut."""
        state, disks, cgroup = self.state, self.storage(host), self.cgroup(host)
        self.forget_ssh(host)
        cgroup.kill()
        disks.mount(Path(state.image))
        disks.check_data_disk()
        data = disks.data if disks.has_data_disk else None
        arguments = machine.nspawn_argv(host, disks.root, state.binds, data, storage.DATA_TARGET)
        machine.start(self.name, cgroup, arguments, self.console(host))
        machine.wait_for_leader(host, cgroup, self.console(host), BOOT_TIMEOUT_S)
        self.wait_until_reachable(host)

    def wait_until_reachable(self, host: naming.Host) -> None:
        """Return when a host that has just started answers ssh. Restores its cable's speed limit first."""
        self.shape(host)
        if not links.is_cut_off(self.state.link_faults, host.name):
            login = ["ssh", "-F", str(self.files.ssh_config), "-o", "ConnectTimeout=1", host.name, "true"]
            machine.wait_for_ssh(host, netns.enter_argv(self.name, login), self.console(host), BOOT_TIMEOUT_S)

    def shape(self, host: naming.Host) -> None:
        """Set both ends of a running host's cable to the speed in the state."""
        leader = self.cgroup(host).leader()
        faults = [f for f in self.state.link_faults if (f.kind, f.host) == (LinkFaultKind.SLOW, host.name)]
        if leader is None:
            return
        kbit = faults[0].amount if faults else None
        run(netns.enter_argv(self.name, links.shaping(host.interface, kbit)), check=bool(faults))
        inside = ["nsenter", "--net", f"--target={leader}", "--", *links.shaping("host0", kbit)]
        run(inside, check=bool(faults))

    def forget_ssh(self, host: naming.Host) -> None:
        """Close the shared ssh connection to a host that goes down, so that the next command does not hang
        on it.
        """
        if (self.files.sockets / host.address).exists():
            close = ["ssh", "-F", str(self.files.ssh_config), "-O", "exit", host.name]
            run(netns.enter_argv(self.name, close), check=False, timeout_s=10)


def in_parallel(task: Callable[[naming.Host], None], hosts: Iterable[naming.Host]) -> None:
    """Run the task for all hosts in parallel; raise the first error after all have ended."""
    todo = list(hosts)
    if not todo:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(todo))) as pool:
        for done in [pool.submit(task, host) for host in todo]:
            done.result()
