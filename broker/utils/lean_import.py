"""Imports libraries without dependencies of theirs that the broker never uses.

Much of a library's import time and memory goes to features that a broker does not need: asyncio and TLS in a
logging library, a packaging library in a checksum library. :data:`_NEEDLESS` is the complete list.
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
    """Replaces an exception type of a module that is left out; never raised."""


def _of_the_real(module: str) -> Mapping[str, Any]:
    """What makes a stand-in load the module after all, when an attribute of it is used."""
    return {"__getattr__": lambda name: getattr(import_module(module), name)}


# By library: the modules that are left out. None: as if not installed. Otherwise: the attributes of
# the stand-in.
_NEEDLESS: Final[Mapping[str, Mapping[str, Mapping[str, Any] | None]]] = {
    "crc32c": {
        # For its own version number; pulls in email, zipfile, csv and tempfile: 2 MB.
        "importlib.metadata": {"version": lambda _: ""},
    },
    "http.server": {
        # For the HTTPS client that comes with the request parser, which only a JWKS needs.
        "ssl": _of_the_real("ssl"),
    },
    "kazoo.client": {
        "hashlib": _of_the_real("hashlib"),  # OpenSSL, for digest ACLs
        "puresasl": None,  # if the extra is installed: OpenSSL; a broker that logs in by SASL loads all of kazoo
        "ssl": {"SSLError": _NeverRaisedError},  # OpenSSL, which a broker with TLS has loaded before
    },
    "kio.serial.readers": {
        "typing_extensions": {"Buffer": object},  # one name, in annotations
    },
    "kio.serial": {
        "asyncio": {"StreamWriter": object},  # one name, in an annotation; with it come subprocess and ssl
        "hypothesis": None,  # takes 200 ms, if it happens to be installed
        "typing_extensions": {"Buffer": object},  # one name, in annotations
    },
    "structlog": {
        "asyncio": {},  # for its asynchronous loggers
        "rich": None,  # takes 50 ms, if it happens to be installed
    },
}


def import_lean(library: str) -> Any:
    """The library, loaded without the modules that are not needed; returned as is when already loaded.

    The modules that are left out are hidden from other threads too while this runs. A library that hides
    modules which other threads may import must be loaded while there are no other threads.
    """
    with _one_at_a_time, ExitStack() as stack:
        if library not in sys.modules:
            for name, attributes in _NEEDLESS[library].items():
                stack.enter_context(without(name) if attributes is None else _stand_in(name, attributes))
        return import_module(library)


@contextmanager
def without(name: str) -> Iterator[None]:
    """Makes ``import name`` fail in this context, as if not installed. No effect if it is already loaded.

    Only one thread at a time: two that hide the same name would disturb each other's clean-up.
    """
    with _instead_of(name, None):
        yield


@contextmanager
def _stand_in(name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Makes ``import name`` return a module with only ``attributes``. Later imports get the real one."""
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
