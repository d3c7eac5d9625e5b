"""Ends a broker whose last log directory has failed.

Kafka halts. Here the broker first removes its registration, so that other replicas take over at once and not
only after the session time-out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, NoReturn

_HALT_AFTER_S: Final = 10.0
_EXIT_FAILED: Final = 1


def halt() -> NoReturn:
    """Ends the process at once: before start-up is complete, there is nothing to clean up for others."""
    os._exit(_EXIT_FAILED)


def stop_or_halt(stop: Callable[[], None]) -> None:
    """Runs ``stop`` on its own thread. If a disk hangs, the process ends after some seconds."""
    timer = threading.Timer(_HALT_AFTER_S, halt)
    timer.daemon = True
    timer.start()
    threading.Thread(target=stop, name="shutdown", daemon=True).start()
