"""`landline deregister`: ends the ZooKeeper session of a crashed broker, once its process is proved dead.

systemd knows at once that a process died, ZooKeeper only after the session time-out. Until then the dead
broker remains registered, leader of its partitions and perhaps controller. The unit runs this command as
``ExecStopPost=`` after every end of the broker. After a clean stop there is no session note, and nothing
to do.

Two proofs are required; if either is missing, the session stays. The process that noted the session must be
gone (by pid, start time and boot), and nobody may hold a lock on a log directory (which works even if the
other's pid is not visible). A new process that starts meanwhile has its own session, which this command
cannot touch, because it read the note first.

Nothing slow is imported before the session has ended: every millisecond here is a millisecond
without leaders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.log.dirs.dir_lock import is_locked
from broker.server.registration.session_file import SessionFile, SessionNote
from broker.zookeeper.session_end import Session, SessionEnd, end_session

TIMEOUT_S: Final = 4.0


class Report(NamedTuple):
    """The outcome, as one log line."""

    level: str
    event: str
    fields: Mapping[str, Any]


def deregister(
    log_dirs: Sequence[Path],
    end: Callable[[Session, float], SessionEnd] = end_session,
    timeout_s: float = TIMEOUT_S,
) -> Report:
    """Ends the session that the broker of ``log_dirs`` left behind, if it is dead. Never raises, and waits no
    longer than ``timeout_s``.
    """
    note = SessionFile(log_dirs[0]).read()
    if note is None:
        return Report("info", "nothing_to_deregister", {"log_dir": str(log_dirs[0])})
    alive = why_alive(note, log_dirs)
    if alive is not None:
        return Report("info", "broker_not_deregistered", {"session": str(note.session), "reason": alive})
    outcome = _bounded(end, note.session, timeout_s)
    fields = {"session": str(note.session), "pid": note.owner.pid}
    if outcome is SessionEnd.UNREACHABLE:
        return Report(
            "warning",
            "broker_not_deregistered",
            {
                **fields,
                "reason": f"no ZooKeeper server of {note.session.servers} answered within {timeout_s:g} s",
                "action": "its place goes when the session times out (zookeeper.session.timeout.ms)",
            },
        )
    if outcome is SessionEnd.GONE:
        return Report("info", "session_had_ended", fields)
    return Report("warning", "dead_broker_deregistered", fields)


def why_alive(note: SessionNote, log_dirs: Sequence[Path]) -> str | None:
    """The reason why the session's process may be alive; None if it is proved dead."""
    try:
        if note.owner.is_running():
            return f"its process {note.owner.pid} runs"
    except OSError as error:
        return f"whether its process {note.owner.pid} runs cannot be found out: {error}"
    unlocked = 0
    for directory in log_dirs:
        try:
            if is_locked(directory):
                return f"a process holds the lock of {directory}"
            unlocked += 1
        except OSError:  # a failed disk proves nothing; perhaps the others do
            continue
    return None if unlocked else "no log directory can be asked for its lock"


def _bounded(end: Callable[[Session, float], SessionEnd], session: Session, timeout_s: float) -> SessionEnd:
    """Runs ``end`` on a thread, which is abandoned if a name server takes too long."""
    outcomes: list[SessionEnd] = []
    thread = threading.Thread(target=lambda: outcomes.append(end(session, timeout_s)), daemon=True)
    thread.start()
    thread.join(timeout_s + 0.5)
    return outcomes[0] if outcomes else SessionEnd.UNREACHABLE
