"""Imports of libraries without what they pull in beside it, and the broker never uses.

Much of a library's start-up time and memory is that of features which a broker has no use for: asyncio and TLS under
a logger, a packaging library under a checksum. :data:`_NEEDLESS` is the one list of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast

_one_at_a_time = threading.RLock()  # lock order 90


class _NeverRaisedError(OSError):
    """Stands where a library would catch an error of what was left out."""


# By library: what is left out. None: as if it were not installed. Else what the stand-in has of it at all.
_NEEDLESS: Final[Mapping[str, Mapping[str, Mapping[str, Any] | None]]] = {
    "crc32c": {
        # Its own version, by way of email, zipfile, csv and tempfile: 2 MB.
        "importlib.metadata": {"version": lambda _: ""},
    },
    "http.server": {
        "ssl": {},  # for the HTTPS client that comes with the parser of requests
    },
    "kazoo.client": {
        "hashlib": {},  # OpenSSL, for digest ACLs
        "ssl": {"SSLError": _NeverRaisedError},  # OpenSSL; `zookeeper.ssl.client.enable` is refused
    },
    "kio.serial.readers": {
        "typing_extensions": {"Buffer": object},  # one name, in annotations
    },
    "kio.serial": {
        "asyncio": {"StreamWriter": object},  # one name, in an annotation; with it come subprocess and ssl
        "hypothesis": None,  # 200 ms, where it happens to be installed
        "typing_extensions": {"Buffer": object},  # one name, in annotations
    },
    "structlog": {
        "asyncio": {},  # for its asynchronous loggers
        "rich": None,  # 50 ms, where it happens to be installed
    },
}


def import_lean(library: str) -> Any:
    """The library, loaded without what it does not need here; as it is when it is loaded already.

    What is left out is hidden from other threads too while this runs. A library that hides what somebody may import
    at the same time is loaded while there are no others.
    """
    with _one_at_a_time, ExitStack() as stack:
        if library not in sys.modules:
            for name, attributes in _NEEDLESS[library].items():
                stack.enter_context(without(name) if attributes is None else _stand_in(name, attributes))
        return import_module(library)


@contextmanager
def without(name: str) -> Iterator[None]:
    """Lets ``import name`` fail within, as if it were not installed; no effect when it is loaded already.

    One thread at a time: two that hid the same name would trip over each other's clearing up.
    """
    with _instead_of(name, None):
        yield


@contextmanager
def _stand_in(name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Lets ``import name`` give a module with ``attributes`` only. Whoever imports it later gets the real one."""
    module = ModuleType(name)
    vars(module).update(attributes)
    with _instead_of(name, module):
        yield


@contextmanager
def _instead_of(name: str, module: ModuleType | None) -> Iterator[None]:
    modules = cast("dict[str, Any]", sys.modules)
    with _one_at_a_time:
        if name in modules:
            yield
            return
        modules[name] = module
        try:
            yield
        finally:
            del modules[name]
