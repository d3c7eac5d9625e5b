"""Imports without what a library pulls in only because it happens to be installed.

structlog imports rich and kio imports hypothesis where they are there: 50 and 200 ms of start-up, and megabytes, for
features that a broker does not use. On a host they are not installed; beside a development environment they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def without(name: str) -> Iterator[None]:
    """Lets ``import name`` fail within, as if it were not installed; no effect when it is loaded already."""
    modules = cast("dict[str, Any]", sys.modules)
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
