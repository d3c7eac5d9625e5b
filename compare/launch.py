"""Starts members by one of the models.

The independent model sends nothing to the hosts over the network: each host's own systemd starts its units,
on all hosts at once.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from typing import Protocol

from compare.events import now_us
from compare.hosts import Hosts
from compare.members import Member
from compare.push import Pushed, read, script
from compare.scenarios import Model
from compare.settings import MASTER

PUSH_USER = "spark"


class Launcher(Protocol):
    """The interface of a model's launcher, which starts members."""

    @property
    def busy(self) -> bool: ...
    @property
    def ended_us(self) -> int: ...
    def can_start(self) -> bool: ...
    def start(self, members: Sequence[Member]) -> None: ...
    def finish(self) -> None: ...
    def launches(self) -> list[Pushed]: ...


class Independent:
    """Each host starts its own units; a host that is off does so when it boots."""

    busy = False

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.ended_us = 0

    def can_start(self) -> bool:
        return True

    def start(self, members: Sequence[Member]) -> None:
        """Raises LabError."""

        def trigger(host: str) -> None:
            units = [member.unit for member in members if member.host == host]
            self._hosts.systemctl(host, "start", "--no-block", *units)

        on = set(self._hosts.on())
        self._hosts.everywhere(trigger, sorted({member.host for member in members} & on))
        self.ended_us = now_us()

    def finish(self) -> None:
        pass

    def launches(self) -> list[Pushed]:
        return []


class Push:
    """A person at the master runs a script that connects to each host by ssh."""

    def __init__(self, hosts: Hosts, *, parallel: bool) -> None:
        self._hosts = hosts
        self._parallel = parallel
        self._pushes: list[_Running] = []

    @property
    def busy(self) -> bool:
        return bool(self._pushes) and self._pushes[-1].ended_us is None

    @property
    def ended_us(self) -> int:
        return (self._pushes[-1].ended_us or 0) if self._pushes else 0

    def can_start(self) -> bool:
        return self._hosts.is_on(MASTER)

    def start(self, members: Sequence[Member]) -> None:
        text = script(members, parallel=self._parallel)
        self._pushes.append(_Running(members, self._hosts.master_argv(MASTER, PUSH_USER, text)))

    def finish(self) -> None:
        """Ends a push that still hangs; what it did so far counts."""
        for push in self._pushes:
            push.end()

    def launches(self) -> list[Pushed]:
        return [launch for push in self._pushes for launch in push.launches()]


class _Running:
    """One push: its process, and a thread that collects its lines."""

    def __init__(self, members: Sequence[Member], argv: Sequence[str]) -> None:
        self._members = members
        self._lines: list[str] = []
        self.ended_us: int | None = None
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read, name="push", daemon=True)
        self._thread.start()

    def launches(self) -> list[Pushed]:
        return read(self._members, list(self._lines))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._thread.join(timeout=10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        # An incomplete line is cut off by the master's death and is ignored.
        self._lines.extend(line.rstrip("\n") for line in self._process.stdout if line.endswith("\n"))
        self._process.wait()
        self.ended_us = now_us()


def launcher(model: Model, hosts: Hosts) -> Launcher:
    """The launcher of a model."""
    if model is Model.INDEPENDENT:
        return Independent(hosts)
    return Push(hosts, parallel=model is Model.PUSH_PARALLEL)
