"""Imports without what a library pulls in only because it happens to be installed.

structlog imports rich and kio imports hypothesis where they are there: 50 and 200 ms of start-up, and megabytes, for
features that a broker does not use. On a host they are not installed; beside a development environment they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

_one_at_a_time = threading.RLock()


@contextmanager
def without(name: str) -> Iterator[None]:
    """Lets ``import name`` fail within, as if it were not installed; no effect when it is loaded already.

    One thread at a time: two that hid the same name would trip over each other's clearing up.
    """
    modules = cast("dict[str, Any]", sys.modules)
    with _one_at_a_time:
        if name in modules:
            yield
            return
        modules[name] = None
        try:
            yield
        finally:
            del modules[name]
