"""Compiles what a broker imports, once, as an installation does (roles/broker); Kafka's jars are compiled as well.

Without it each start would compile everything anew where the environment forbids writing bytecode, and a broker's
memory would be what that took.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("broker", "crc32c", "kazoo", "kio", "prometheus_client", "structlog", "typing_extensions")


def compile_broker() -> None:
    """Compiles in place what is not compiled yet; a directory that cannot be written is left as it is."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", *map(str, _paths())]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _paths() -> list[Path]:
    """A package's directory, a module's file."""
    specs = [find_spec(name) for name in PACKAGES]
    origins = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [origin.parent if origin.name == "__init__.py" else origin for origin in origins]
