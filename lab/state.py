"""A lab's state in `<state root>/<lab>/lab.json`, and the paths of its other files.

The file holds what was requested (hosts, binds, disks, link faults), never what runs. That is read from the
kernel each time, so a lab survives a crash of this tool or a restart of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lab import naming
from lab.errors import LabError, UsageError
from lab.links import LinkFault

NAME_ENV = "LANDLINE_LAB"
STATE_ENV = "LANDLINE_LAB_STATE"
CACHE_ENV = "LANDLINE_LAB_CACHE"
LOCK_ROOT = Path("/run/landline-lab")

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory of the controller that every host sees at `target`, read-only or writable."""

    source: str
    target: str
    writable: bool = False

    @classmethod
    def parse(cls, text: str, *, writable: bool = False) -> Bind:
        """Parse `SRC:DST`. Both must be absolute and the source must exist; otherwise `UsageError`."""
        source, _, target = text.partition(":")
        if not source.startswith("/") or not target.startswith("/") or ":" in target:
            raise UsageError(f"bad bind {text!r}: give SRC:DST, both absolute paths")
        if not Path(source).exists():
            raise UsageError(f"bad bind {text!r}: {source} does not exist")
        return cls(source.rstrip("/") or "/", target.rstrip("/"), writable)


@dataclass(frozen=True, slots=True)
class LabState:
    """The requested state: one value per lab, replaced as a whole on every change."""

    name: str
    image: str
    hosts: int
    binds: tuple[Bind, ...] = ()
    data_disk_mb: int = 0
    """Size of each host's data disk at /var/lib/landline; 0: none."""
    link_faults: tuple[LinkFault, ...] = ()
    suite: str = "bookworm"
    """The suite that the image was built of."""

    def host_list(self) -> tuple[naming.Host, ...]:
        """The lab's hosts, starting with h1."""
        return naming.hosts(self.name, self.hosts)

    def with_hosts(self, hosts: int) -> LabState:
        """The same lab with another number of hosts."""
        return replace(self, hosts=hosts)

    def with_link_faults(self, faults: tuple[LinkFault, ...]) -> LabState:
        """The same lab with other link faults."""
        return replace(self, link_faults=faults)

    def to_json(self) -> str:
        """The text of lab.json."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LabState:
        """Parse the text of lab.json; `LabError` when it is invalid."""
        try:
            values: dict[str, Any] = json.loads(text)
            if values.pop("version") != _VERSION:
                raise ValueError("version")
            values["binds"] = tuple(Bind(**bind) for bind in values["binds"])
            values["link_faults"] = tuple(LinkFault.from_dict(fault) for fault in values["link_faults"])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(
                f"lab.json is damaged ({error}): run `.venv/bin/lab down` and make it anew"
            ) from error


def state_root() -> Path:
    """The directory of all labs' states."""
    return Path(os.environ.get(STATE_ENV) or "/var/lib/landline/lab").absolute()


def cache_root() -> Path:
    """The directory of the base images."""
    return Path(os.environ.get(CACHE_ENV) or "/var/cache/landline/lab").absolute()


class LabFiles:
    """The paths of one lab's files; creates nothing itself."""

    def __init__(self, root: Path, lab: str) -> None:
        self.home = root / lab
        self.json = self.home / "lab.json"
        self.key = self.home / "id_ed25519"
        self.ssh_config = self.home / "ssh_config"
        self.known_hosts = self.home / "known_hosts"
        self.sockets = self.home / "cm"
        self.hosts = self.home / "hosts"

    def host(self, host: naming.Host) -> Path:
        """The directory of all files that the controller keeps for one host."""
        return self.hosts / host.name

    def root(self, host: naming.Host) -> Path:
        """The host's root file system (an overlay mount)."""
        return self.host(host) / "root"

    def load(self) -> LabState | None:
        """The lab's state, or None when there is no such lab."""
        try:
            return LabState.from_json(self.json.read_text())
        except FileNotFoundError:
            return None

    def save(self, state: LabState) -> None:
        """Replace lab.json atomically."""
        temporary = self.json.with_suffix(".tmp")
        temporary.write_text(state.to_json())
        temporary.replace(self.json)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, which is created when missing and removed afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _lock_current_file(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_current_file(path: Path) -> int:
    """Lock the file that has the name now: its last holder may have removed the file that we waited for."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def lab_lock(lab: str) -> contextlib.AbstractContextManager[None]:
    """The lock for a change of a lab, across all processes."""
    return locked(LOCK_ROOT / f"{lab}.lock")


def machine_lock() -> contextlib.AbstractContextManager[None]:
    """The lock for a change of what all labs share (/run/netns, the cgroups' parent)."""
    return locked(LOCK_ROOT / ".machine.lock")
