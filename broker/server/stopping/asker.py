"""What a host knows of its broker: by the properties, the data directories, the HTTP port and systemd.

For who asks whether it may stop and waits until it is back (`may_stop`); nothing here is told to anybody.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from broker.config.endpoint import host_port
from broker.config.log_dirs import log_dir_paths
from broker.log.dirs.meta_properties import MetaProperties, read_meta_properties
from broker.log.errors import LogDirError
from broker.server.registration.session_file import SessionFile
from broker.server.stopping.stop_judge import OwnBroker
from broker.zookeeper.cluster_store import MIN_INSYNC_REPLICAS

_HTTP_S: Final = 2.0
# One may be an accident: five are a loop.
_RESTARTS: Final = 5


_DEFAULT_LISTENER: Final = "PLAINTEXT"


class CannotAskError(Exception):
    """The question cannot even be put: says what is missing, and where."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A broker of this host as its properties and its data directories describe it. ``http_url`` is None where it has
    no HTTP port of its own to be asked at; ``listener`` names the listener by which it speaks to other brokers.
    """

    own: OwnBroker
    connect: str
    default_min_isr: int
    http_url: str | None
    log_dir: Path | None = None
    listener: str = _DEFAULT_LISTENER

    def own_now(self) -> OwnBroker:
        """The broker with the session that it has now: somebody else may restart it while its turn is waited for."""
        if self.log_dir is None:
            return self.own
        note = SessionFile(self.log_dir).read()
        return replace(self.own, session_id=note.session.session_id if note else None)

    @classmethod
    def of(cls, properties: Mapping[str, str], source: str) -> Asker:
        """Raises :class:`CannotAskError` for what ``source``, a properties file, does not say."""
        connect = properties.get("zookeeper.connect", "")
        if not connect:
            raise CannotAskError(f"{source} has no zookeeper.connect: there is no cluster to ask")
        directory = Path(log_dir_paths(properties.get("log.dirs"), properties.get("log.dir"))[0])
        try:
            meta = read_meta_properties(directory)
        except (OSError, LogDirError):  # a failed disk is what the restart may be for
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
            _http_url(properties),
            directory,
            properties.get("inter.broker.listener.name")
            or properties.get("security.inter.broker.protocol")
            or _DEFAULT_LISTENER,
        )


def _http_url(properties: Mapping[str, str]) -> str | None:
    port = properties.get("landline.http.port", "")
    host = properties.get("landline.http.host", "")
    if not port.isdecimal() or int(port) == 0:
        return None
    host = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - asked, not bound
    return f"http://{host_port(host, port)}"


def recovery_progress(asker: Asker) -> Callable[[], int]:
    """What the broker of this host has loaded and verified so far; 0 where it does not say."""

    def progress() -> int:
        loading = _status(asker.http_url).get("loading") or {}
        return int(loading.get("logs", 0)) + int(loading.get("segments", 0))

    return progress


def _status(url: str | None) -> dict[str, Any]:
    if url is None:
        return {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/status", timeout=_HTTP_S) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def unit_given_up(unit: str | None) -> Callable[[], str | None]:
    """Why the unit is not to be waited for: systemd has ended it for good, or starts it in vain; None while it may
    come, and where there is no unit.
    """

    def given_up() -> str | None:
        if unit is None:
            return None
        argv = ["systemctl", "show", "--property=ActiveState,NRestarts", unit]
        shown = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        return why_given_up(unit, dict(line.partition("=")[::2] for line in shown.splitlines()))

    return given_up


def why_given_up(unit: str, shown: Mapping[str, str]) -> str | None:
    """The same from systemd's properties; it counts the restarts since somebody last started the unit."""
    restarts = shown.get("NRestarts", "0")
    if shown.get("ActiveState") == "failed":
        return f"systemd gave up on {unit}"
    if restarts.isdecimal() and int(restarts) >= _RESTARTS:
        return f"{unit} ended {restarts} times since it was restarted: see its journal"
    return None
