"""What a host knows about its broker, from the properties, the data directories and systemd.

Used by `may_stop`, to ask for a stop and to wait for the broker's return; `own_status` asks its HTTP port.
Nothing here changes state or sends notifications.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from broker.config.log_dirs import log_dir_paths
from broker.log.dirs.meta_properties import MetaProperties, read_meta_properties
from broker.log.errors import LogDirError
from broker.server.registration.session_file import SessionFile
from broker.server.stopping.stop_judge import OwnBroker
from broker.zookeeper.config_store import MIN_INSYNC_REPLICAS

# One restart may be an accident; five are a loop.
_RESTARTS: Final = 5


_DEFAULT_LISTENER: Final = "PLAINTEXT"


class CannotAskError(Exception):
    """The question cannot be asked; the message says what is missing and where."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A broker of this host, as described by its properties and data directories. ``listener`` is the name of
    its inter-broker listener.
    """

    own: OwnBroker
    connect: str
    default_min_isr: int
    log_dir: Path | None = None
    listener: str = _DEFAULT_LISTENER

    def own_now(self) -> OwnBroker:
        """The broker with its current session: somebody else may have restarted it while
        this command waited.
        """
        if self.log_dir is None:
            return self.own
        note = SessionFile(self.log_dir).read()
        return replace(self.own, session_id=note.session.session_id if note else None)

    @classmethod
    def of(cls, properties: Mapping[str, str], source: str) -> Asker:
        """Reads the properties of the file ``source``. Raises :class:`CannotAskError` for missing ones."""
        connect = properties.get("zookeeper.connect", "")
        if not connect:
            raise CannotAskError(f"{source} has no zookeeper.connect: there is no cluster to ask")
        directory = Path(log_dir_paths(properties.get("log.dirs"), properties.get("log.dir"))[0])
        try:
            meta = read_meta_properties(directory)
        except (OSError, LogDirError):  # a failed disk may be the reason for the restart
            meta = None
        meta = meta or MetaProperties(None, None)
        text = properties.get("broker.id", "-1")
        broker_id = int(text) if text.isdecimal() else meta.broker_id
        if broker_id is None:
            raise CannotAskError(
                f"{source} has no broker.id, and {directory} no meta.properties that says it"
            )
        note = SessionFile(directory).read()
        minimum = properties.get(MIN_INSYNC_REPLICAS, "1")
        return cls(
            OwnBroker(broker_id, meta.cluster_id, note.session.session_id if note else None),
            connect,
            int(minimum) if minimum.isdecimal() else 1,
            directory,
            (
                properties.get("inter.broker.listener.name")
                or properties.get("security.inter.broker.protocol")
                or _DEFAULT_LISTENER
            ).upper(),
        )


def recovery_progress(status: Callable[[], Mapping[str, Any]]) -> Callable[[], int]:
    """Returns the number of logs and segments that this host's broker has loaded and verified, by its
    ``status``; 0 if unknown.
    """

    def progress() -> int:
        loading = status().get("loading") or {}
        return int(loading.get("logs", 0)) + int(loading.get("segments", 0))

    return progress


def unit_given_up(unit: str | None) -> Callable[[], str | None]:
    """Returns why waiting for the unit is useless: systemd has given up on it, or restarts it in vain. None
    while it may start, or without a unit.
    """

    def given_up() -> str | None:
        if unit is None:
            return None
        argv = ["systemctl", "show", "--property=ActiveState,NRestarts", unit]
        shown = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        return why_given_up(unit, dict(line.partition("=")[::2] for line in shown.splitlines()))

    return given_up


def why_given_up(unit: str, shown: Mapping[str, str]) -> str | None:
    """The same, from systemd's properties; systemd counts the restarts since the unit was last
    started manually.
    """
    restarts = shown.get("NRestarts", "0")
    if shown.get("ActiveState") == "failed":
        return f"systemd gave up on {unit}"
    if restarts.isdecimal() and int(restarts) >= _RESTARTS:
        return f"{unit} ended {restarts} times since it was restarted: see its journal"
    return None
