"""The signals a daemon takes by waiting for them, held back from its first moment on.

Blocked before anything slow is loaded: a stop that comes while Python is still importing waits for the daemon, which
ends cleanly, instead of killing a process half begun.
"""

from __future__ import annotations

import signal
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Sent by a daemon's helper threads to its main thread: there is a report in the queue.
WAKE_SIGNAL: Final = signal.SIGUSR1
WAITED_SIGNALS: Final = (*STOP_SIGNALS, WAKE_SIGNAL)


def block_signals() -> None:
    """Before the first thread starts: what comes from here on waits for a ``sigwait``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)
