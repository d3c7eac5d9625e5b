"""The ZooKeeper session that this data directory's broker last had, so that its successor can clear up after it.

A broker that crashed leaves ephemeral nodes that live on until its session times out: 18 s in which the cluster counts
it among the living, though systemd has started it again. Whoever holds the directory's lock knows that the holder
before is dead, and with it its session: the nodes may go at once. Standalone has no sessions and needs none.
"""

from __future__ import annotations

from pathlib import Path

import structlog

FILE_NAME = ".landline-session"
_log = structlog.get_logger(__name__)


class SessionFile:
    """Read and written only while the directory's ``.lock`` is held."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def read(self) -> int | None:
        """The last session's id; None when there is none or the file says nothing of use."""
        try:
            return int(self._path.read_text(encoding="ascii"), 16)
        except (OSError, ValueError):
            return None

    def write(self, session_id: int) -> None:
        """Notes the session before it owns anything. Without it a successor only waits longer."""
        try:
            self._path.write_text(f"{session_id:x}\n", encoding="ascii")
        except OSError as error:
            _log.warning("session_not_noted", file=str(self._path), reason=str(error))
