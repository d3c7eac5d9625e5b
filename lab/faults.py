"""The faults of a lab: power, freezing, cables, disks. Each call returns when the fault is in effect.

All are idempotent. Link faults are recorded in the lab's state and last across reboots of the hosts until
healed. A power loss kills processes, but the page cache belongs to the controller and survives. Only a data
disk can be made to lose what was not synced (`power_loss(host, lose_unsynced=True)`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from lab import links, machine, naming, netns
from lab.errors import LabError, UsageError
from lab.links import Direction, LinkFault, LinkFaultKind
from lab.site import BOOT_TIMEOUT_S, Site
from lab.state import lab_lock
from lab.waiting import wait_until


class Faults:
    """The faults on the hosts of one lab, named h1, h2, …, and their repair; raises `LabError` when
    it cannot.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    # Power

    def power_loss(self, host: str, *, lose_unsynced: bool = False) -> None:
        """Kill every process of the host at once. It stays off until `boot`.

        With `lose_unsynced` the data disk also loses what was written and not synced, as a real disk does.
        """
        with self._change(host) as target:
            self._site.forget_ssh(target)
            if lose_unsynced and self._site.cgroup(target).leader() is not None:
                self._site.storage(target).lose_unsynced()
            self._site.cgroup(target).kill()

    def power_off(self, host: str) -> None:
        """Shut the host down in an orderly way: its services are stopped. It stays off until `boot`."""
        with self._change(host) as target:
            cgroup = self._site.cgroup(target)
            if cgroup.leader() is None:
                return
            self._site.forget_ssh(target)
            machine.ask_to_power_off(cgroup)
            if not wait_until(lambda: not cgroup.all_processes(), BOOT_TIMEOUT_S):
                raise LabError(
                    f"{host} does not power off: is a service refusing to stop, or the host frozen?"
                )

    def boot(self, host: str) -> None:
        """Boot the host if it is off; returns when it answers ssh (at once when it is cut off)."""
        with self._change(host) as target:
            if self._site.cgroup(target).leader() is None:
                self._site.boot(target)

    def reboot(self, host: str) -> None:
        """Reboot the host in an orderly way; returns when it answers ssh again."""
        with self._change(host) as target:
            cgroup = self._site.cgroup(target)
            self._site.forget_ssh(target)
            before = machine.ask_to_reboot(cgroup)
            if not wait_until(lambda: cgroup.leader() not in (None, before), BOOT_TIMEOUT_S):
                raise LabError(f"{host} does not reboot: is a service refusing to stop, or the host frozen?")
            self._site.wait_until_reachable(target)

    # Freezing

    def freeze(self, host: str) -> None:
        """Stop every process of the host in place: it answers ping and nothing else."""
        self._set_frozen(host, True)

    def thaw(self, host: str) -> None:
        """Resume a frozen host."""
        self._set_frozen(host, False)

    # Processor

    def throttle(self, host: str, percent: float) -> None:
        """Limit the host to this share of one processor, in per cent; 0 lifts the limit."""
        if percent != 0 and not 1 <= percent <= 100:
            raise UsageError(f"{percent:g} per cent of a processor: give 1 to 100, or 0 for no limit")
        with self._change(host) as target:
            self._site.cgroup(target).limit_cpu(percent)

    # Cables

    def cut(self, host: str, peer: str | None = None, direction: Direction | str = Direction.BOTH) -> None:
        """Drop traffic from or to the host, or only between it and `peer` (a host or `controller`)."""
        if peer is not None and peer != naming.CONTROLLER:
            self._site.host(peer)
        if peer == host:
            raise UsageError(f"{host} cannot be cut from itself")
        self._add(LinkFault(LinkFaultKind.CUT, host, peer, Direction(direction)))

    def lose(self, host: str, percent: float) -> None:
        """Drop this percentage of the frames from and to the host, at random; 0 heals it."""
        if not 0 <= percent <= 100:
            raise UsageError(f"{percent:g} per cent: give 0 to 100")
        self._set_amount(LinkFaultKind.LOSE, host, percent)

    def slow(self, host: str, kbit: float) -> None:
        """Limit the host's cable to this many kbit/s each way; 0 heals it."""
        if kbit != 0 and kbit < 8:
            raise UsageError(f"{kbit:g} kbit/s: give 8 or more, or 0 for full speed")
        self._set_amount(LinkFaultKind.SLOW, host, kbit)

    def heal(self, host: str | None = None, peer: str | None = None) -> None:
        """Heal all faults of a host's cable (no host: of every cable), or only those between it
        and `peer`.
        """
        if host is not None:
            self._site.host(host)
        self._change_links(lambda faults: links.healed(faults, host, peer))

    # Disks

    def fill_disk(self, host: str) -> int:
        """Fill all free space of the host's data disk; returns the number of bytes."""
        with self._change(host) as target:
            return self._site.storage(target).fill()

    def free_disk(self, host: str) -> None:
        """Release the space that `fill_disk` took."""
        with self._change(host) as target:
            self._site.storage(target).free()

    def freeze_disk(self, host: str) -> None:
        """Block all writes to the data disk: writers and syncs wait until `thaw-disk` or a boot."""
        with self._change(host) as target:
            self._site.storage(target).freeze()

    def thaw_disk(self, host: str) -> None:
        """Unblock writes to the data disk."""
        with self._change(host) as target:
            self._site.storage(target).thaw()

    def read_only_disk(self, host: str) -> None:
        """Make the data disk refuse writes.

        While files on it are open for writing, this is done as the kernel does it after an I/O error. Then
        only a power loss and a boot, with its file system check, make the disk writable again.
        """
        with self._change(host) as target:
            self._site.storage(target).make_read_only()

    def writable_disk(self, host: str) -> None:
        """Undo `read_only_disk`, if no file on the disk was open for writing then."""
        with self._change(host) as target:
            self._site.storage(target).make_writable()

    # Internals

    @contextlib.contextmanager
    def _change(self, host: str) -> Iterator[naming.Host]:
        """The host, with the lab locked against changes by other processes."""
        with lab_lock(self._site.name):
            yield self._site.host(host)

    def _set_frozen(self, host: str, frozen: bool) -> None:
        with self._change(host) as target:
            cgroup = self._site.cgroup(target)
            if cgroup.leader() is None:
                raise LabError(f"{host} is off: boot it first")
            cgroup.set_frozen(frozen)

    def _set_amount(self, kind: LinkFaultKind, host: str, amount: float) -> None:
        if amount:
            self._add(LinkFault(kind, host, amount=amount))
        else:
            self._site.host(host)
            self._change_links(lambda faults: tuple(f for f in faults if (f.kind, f.host) != (kind, host)))

    def _add(self, fault: LinkFault) -> None:
        self._site.host(fault.host)
        self._change_links(lambda faults: links.added(faults, fault))

    def _change_links(self, change: Callable[[tuple[LinkFault, ...]], tuple[LinkFault, ...]]) -> None:
        with lab_lock(self._site.name):
            old = self._site.state
            new = old.with_link_faults(change(old.link_faults))
            if new == old:
                return
            netns.apply_rules(old.name, new.link_faults, new.host_list())
            self._site.files.save(new)
            for changed in links.slow_faults(old.link_faults) ^ links.slow_faults(new.link_faults):
                self._site.shape(self._site.host(changed.host))
