"""The ZooKeeper session of a data directory's broker, stored so that a crash does not cost the
session time-out.

A crashed broker leaves ephemeral znodes until its session times out: for 18 s it counts as alive, and
its partitions have no leader. A process that proves the broker dead may end the session at once:
`landline deregister`, or the next broker of the directory. The file contains what proving and ending
requires. It is readable only by its owner, because the password gives control over the session.
Standalone mode has no sessions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from broker.config.problems import ConfigError
from broker.config.properties import read_properties
from broker.utils.process_identity import ProcessIdentity
from broker.zookeeper.session_end import Session

FILE_NAME = ".landline-session"
_VERSION = "1"


class SessionNote(NamedTuple):
    """A session and the process that owns it."""

    session: Session
    owner: ProcessIdentity


class SessionFile:
    """A properties file in the first of ``log.dirs``. Written while the directory is locked."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def read(self) -> SessionNote | None:
        """The stored session; None if there is none or it is unusable."""
        try:
            props = read_properties(self.path)
            if props["version"] != _VERSION:
                return None
            session = Session(
                props["zookeeper.connect"],
                int(props["session.id"], 16),
                bytes.fromhex(props["session.password"]),
            )
            owner = ProcessIdentity(int(props["pid"]), int(props["pid.started"]), props["boot.id"])
        except (ConfigError, KeyError, ValueError):
            return None
        return SessionNote(session, owner)

    def write(self, session: Session) -> None:
        """Stores this process's session, before the session owns anything. Raises OSError.

        Not synced: after a power loss, an older note or none is acceptable, because the session then ends by
        its time-out.
        """
        owner = ProcessIdentity.current()
        values = {
            "version": _VERSION,
            "zookeeper.connect": session.servers,
            "session.id": f"{session.session_id:x}",
            "session.password": session.password.hex(),
            "pid": owner.pid,
            "pid.started": owner.started_ticks,
            "boot.id": owner.boot_id,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        temporary = self.path.with_name(f"{FILE_NAME}.tmp")
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)
        temporary.replace(self.path)

    def clear(self, session_id: int) -> None:
        """Deletes the note after its session has ended. Another session's note is kept. Raises OSError."""
        note = self.read()
        if note is not None and note.session.session_id == session_id:
            self.path.unlink(missing_ok=True)
