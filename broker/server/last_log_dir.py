"""The end of a broker whose last log directory has failed.

Kafka halts; here the registration is taken back first, so that others lead at once and not when the session has timed
out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, NoReturn

_HALT_AFTER_S: Final = 10.0
_EXIT_FAILED: Final = 1


def halt() -> NoReturn:
    """Ends the process now: there is nothing yet that a stop would undo for others."""
    os._exit(_EXIT_FAILED)


def stop_or_halt(stop: Callable[[], None]) -> None:
    """Has ``stop`` run on a thread of its own. A disk that hangs is given some seconds."""
    timer = threading.Timer(_HALT_AFTER_S, halt)
    timer.daemon = True
    timer.start()
    threading.Thread(target=stop, name="shutdown", daemon=True).start()
