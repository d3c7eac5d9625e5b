"""The signals that a daemon receives with ``sigwait``, blocked from its first moment on.

They are blocked before any slow import. A stop signal during the imports then waits for the daemon, which
ends cleanly, instead of killing a half-started process.
"""

from __future__ import annotations

import signal
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Sent by a daemon's helper threads to its main thread: an event is in the queue.
WAKE_SIGNAL: Final = signal.SIGUSR1
# Has a daemon write the stacks of all its threads to its standard error.
STACKS_SIGNAL: Final = signal.SIGUSR2
WAITED_SIGNALS: Final = (*STOP_SIGNALS, WAKE_SIGNAL)


def block_signals() -> None:
    """Blocks the signals. Called before the first thread starts; later signals wait for a ``sigwait``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)
