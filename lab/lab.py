"""`Lab`: create, inspect, use and destroy one lab of systemd hosts.

The API for tests and the command line. Every change converges and leaves alone what exists already. A second
`up` changes nothing, and an `up` after a crash of the machine boots the same hosts again.
"""

from __future__ import annotations

import contextlib
import enum
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import cgroups, identity, image, machine, mounts, naming, netns, preflight, storage
from lab.errors import LabError, UsageError
from lab.faults import Faults
from lab.shell import DEFAULT_TIMEOUT_S, Completed, run
from lab.site import Site, in_parallel
from lab.state import Bind, LabState, lab_lock, state_root

Report = Callable[[str], None]


class HostState(enum.StrEnum):
    """The current state of a host, read from the kernel."""

    RUNNING = "running"
    FROZEN = "frozen"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host's current status."""

    host: naming.Host
    state: HostState
    leader: int | None
    faults: tuple[str, ...]


def _check_data_disk(size_mb: int | None) -> None:
    """Raise `UsageError` for a data disk that no file system fits on."""
    if size_mb and size_mb < storage.MIN_DATA_DISK_MB:
        raise UsageError(f"a data disk of {size_mb} MB is too small: {storage.MIN_DATA_DISK_MB} at least")


def _silent(_: str) -> None:
    """Discard the report."""


class Lab:
    """One lab by its name, whether it exists or not. Several labs can exist at once, with the
    same addresses.
    """

    def __init__(self, name: str = naming.DEFAULT_LAB, *, root: Path | None = None) -> None:
        self._site = Site(name, root or state_root())
        self.name = self._site.name
        self.files = self._site.files
        self.faults = Faults(self._site)

    def __repr__(self) -> str:
        state = self.files.load()
        return f"<Lab {self.name}: {f'{state.hosts} hosts' if state else 'not made'}>"

    @property
    def exists(self) -> bool:
        """Has it been created (by `up`) and not destroyed?"""
        return self.files.load() is not None

    @property
    def state(self) -> LabState:
        """The requested state; `LabError` when the lab does not exist."""
        return self._site.state

    @property
    def hosts(self) -> tuple[naming.Host, ...]:
        """The hosts, starting with h1."""
        return self.state.host_list()

    def host(self, name: str) -> naming.Host:
        """The host of that name; `UsageError` when the lab has none."""
        return self._site.host(name)

    # Creating and destroying

    def up(
        self,
        hosts: int | None = None,
        *,
        binds: Sequence[Bind] | None = None,
        data_disk_mb: int | None = None,
        suite: str | None = None,
        report: Report = _silent,
    ) -> list[str]:
        """Create the lab or its missing hosts; return the names of the hosts that were booted.

        An argument that is not given keeps the lab's value, or for a new lab: 3 hosts, no binds, no data
        disk, `image.SUITES`' first. Returns when every booted host answers ssh. Raises `UsageError` when the
        lab exists with other binds, disks or another suite, or has more hosts.
        """
        preflight.check()
        with lab_lock(self.name):
            old = self.files.load()
            if old is None:
                wanted = self._new(hosts, binds, data_disk_mb, image.suite_of(suite), report)
            else:
                self._refuse_other_shape(old, hosts, binds, data_disk_mb, suite)
                wanted = old.with_hosts(len(naming.hosts(self.name, hosts or old.hosts)))
            if old is None and netns.exists(self.name):
                raise LabError(
                    f"a lab {self.name!r} runs, but not from {self.files.home}: use its LANDLINE_LAB_STATE, "
                    f"another name, or remove it with `.venv/bin/lab down --name {self.name}`"
                )
            self._write(wanted)
            booted = self._converge(wanted, report)
        return [host.name for host in booted]

    def down(self) -> bool:
        """Destroy the lab, even a broken one: no process, mount, cgroup, namespace or file of it is left.

        Returns whether there was anything to destroy.
        """
        preflight.check()
        with lab_lock(self.name):
            known = cgroups.hosts_with_cgroups(self.name)
            found = self.files.home.exists() or netns.exists(self.name) or bool(known)
            in_parallel(self._destroy_cgroup, [naming.host(self.name, int(name[1:])) for name in known])
            cgroups.remove_parents(self.name)
            netns.remove(self.name)
            mounts.unmount_all_below(self.files.home)
            shutil.rmtree(self.files.home, ignore_errors=True)
            if self.files.home.exists():
                run(["rm", "-rf", "--one-file-system", "--", str(self.files.home)], timeout_s=300)
            with contextlib.suppress(OSError):
                self.files.home.parent.rmdir()
        return found

    def status(self) -> list[HostStatus]:
        """The current status of each host."""
        state = self.state
        return [self._host_status(state, host) for host in state.host_list()]

    # Using

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        check: bool = True,
        stdin: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        """Run a command (a shell line, or a list of arguments) as root on a host, over ssh."""
        argv = self.enter_argv(self.ssh_argv(host, command))
        return run(argv, check=check, stdin=stdin, timeout_s=timeout_s)

    def run_on_console(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        check: bool = True,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        """Run a command as root on a host, without the network: works on a host that is cut off."""
        return run(self.console_argv(host, command), check=check, timeout_s=timeout_s)

    def ssh_argv(self, host: str, command: str | Sequence[str] = ()) -> list[str]:
        """The ssh command line to a host, with a command or for a shell; to be run inside the
        lab's network.
        """
        return self._site.ssh_argv(self.host(host), command)

    def console_argv(self, host: str, command: str | Sequence[str]) -> list[str]:
        """The command line that enters a host without its network."""
        leader = self._site.cgroup(self.host(host)).leader()
        if leader is None:
            raise LabError(f"{host} is off: boot it first")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        return ["nsenter", f"--target={leader}", *namespaces, "--root", "--wd=/", "--", *argv]

    def leader(self, host: str) -> int | None:
        """The process id of the host's PID 1, as the controller sees it; None while the host is off."""
        return self._site.cgroup(self.host(host)).leader()

    def processes(self, host: str) -> list[int]:
        """Every process of the host, as the controller sees it."""
        return self._site.cgroup(self.host(host)).all_processes()

    def cpu_us(self, host: str) -> int:
        """CPU time that the host has used over all its boots, in microseconds."""
        return self._site.cgroup(self.host(host)).cpu_us()

    def enter_argv(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on the controller, inside the lab's network."""
        return netns.enter_argv(self.name, argv)

    def check_up(self) -> None:
        """Raise `LabError` when the lab's network does not exist."""
        if not netns.exists(self.name):
            raise LabError(f"lab {self.name!r} is not up: run `.venv/bin/lab up --name {self.name}`")

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Move this thread, and the threads and processes it starts meanwhile, into the lab's network."""
        self.check_up()
        return netns.entered(netns.handle(self.name))

    def journal_argv(self, host: str, options: Sequence[str] = ()) -> list[str]:
        """The journalctl command line that reads a host's journal from outside, even while the host
        is off.
        """
        directory = self.files.root(self.host(host)) / "var/log/journal"
        return ["journalctl", f"--directory={directory}", *options]

    # Internals

    def _new(
        self,
        hosts: int | None,
        binds: Sequence[Bind] | None,
        data_disk_mb: int | None,
        suite: str,
        report: Report,
    ) -> LabState:
        _check_data_disk(data_disk_mb)
        count = 3 if hosts is None else hosts
        naming.hosts(self.name, count)
        base = image.ensure(report, suite)
        return LabState(self.name, str(base), count, tuple(binds or ()), data_disk_mb or 0, suite=suite)

    def _refuse_other_shape(
        self,
        old: LabState,
        hosts: int | None,
        binds: Sequence[Bind] | None,
        data_disk_mb: int | None,
        suite: str | None,
    ) -> None:
        _check_data_disk(data_disk_mb)
        remedy = f"`.venv/bin/lab down --name {self.name}` first, or use another name"
        if hosts is not None and hosts < old.hosts:
            raise UsageError(f"lab {self.name!r} has {old.hosts} hosts, more than {hosts}: {remedy}")
        if binds is not None and set(binds) != set(old.binds):
            raise UsageError(f"lab {self.name!r} was made with other binds: {remedy}")
        if data_disk_mb is not None and data_disk_mb != old.data_disk_mb:
            raise UsageError(f"lab {self.name!r} was made with data disks of {old.data_disk_mb} MB: {remedy}")
        if suite is not None and suite != old.suite:
            raise UsageError(f"lab {self.name!r} was made of {old.suite}, not {suite}: {remedy}")
        if not Path(old.image).is_dir():
            raise UsageError(f"the base image {old.image} of lab {self.name!r} is gone: {remedy}")

    def _write(self, state: LabState) -> None:
        self.files.hosts.mkdir(parents=True, exist_ok=True)
        mounts.share(self.files.home)
        identity.make_lab_key(self.files)
        if self.files.load() != state:
            self.files.save(state)

    def _converge(self, state: LabState, report: Report) -> list[naming.Host]:
        netns.ensure(self.name)
        hosts = state.host_list()
        dark = [host for host in hosts if self._site.cgroup(host).leader() is None]
        if dark:
            begin = time.monotonic()
            in_parallel(self._prepare, hosts)
            identity.write_ssh_files(self.files, hosts)
            netns.apply_rules(self.name, state.link_faults, hosts)
            report(f"booting {' '.join(host.name for host in dark)}")
            in_parallel(self._site.boot, dark)
            report(f"{len(dark)} hosts up in {time.monotonic() - begin:.1f} s")
        return dark

    def _prepare(self, host: naming.Host) -> None:
        self._site.storage(host).mount(Path(self.state.image))
        identity.prepare(self.files, host)
        identity.write_hosts_file(self.files.root(host), host.name, self.hosts)

    def _destroy_cgroup(self, host: naming.Host) -> None:
        cgroup = self._site.cgroup(host)
        cgroup.kill()
        cgroup.remove()
        machine.forget(host)

    def _host_status(self, state: LabState, host: naming.Host) -> HostStatus:
        cgroup, disks = self._site.cgroup(host), self._site.storage(host)
        leader = cgroup.leader()
        faults = [str(fault) for fault in state.link_faults if fault.host == host.name]
        if disks.is_full():
            faults.append("disk full")
        if disks.is_read_only():
            faults.append("disk read-only")
        if leader is None:
            return HostStatus(host, HostState.OFF, None, tuple(faults))
        now = HostState.FROZEN if cgroup.is_frozen() else HostState.RUNNING
        return HostStatus(host, now, leader, tuple(faults))


def all_labs(root: Path | None = None) -> list[str]:
    """Sorted names of the labs below `root` (by default the environment's state root)."""
    home = root or state_root()
    return sorted(entry.name for entry in home.iterdir() if entry.is_dir()) if home.is_dir() else []
