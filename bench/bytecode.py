"""Compiles the modules that a broker imports, once, as an installation does (roles/broker); Kafka's jars are
compiled too.

Otherwise, where the environment forbids writing bytecode, each start would compile everything again, and that
would be part of a broker's measured memory.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rig.landline_broker import REPOSITORY

PACKAGES = ("crc32c", "kazoo", "kio", "prometheus_client", "structlog", "typing_extensions")


def differing_sources(code: Path, root: Path = REPOSITORY) -> str:
    """The first of the broker's sources that ``code`` has otherwise than this checkout; empty if none."""
    for path in sorted((root / "broker").rglob("*.py")):
        other = code / path.relative_to(root)
        if not other.is_file() or other.read_bytes() != path.read_bytes():
            return str(path.relative_to(root))
    return ""


def compile_broker(code: Path = REPOSITORY) -> None:
    """Compiles in place what is not compiled yet; skips a directory that cannot be written to."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", *map(str, _paths()), str(code / "broker")]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _paths() -> list[Path]:
    """A package's directory, or a module's file."""
    specs = [find_spec(name) for name in PACKAGES]
    origins = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [origin.parent if origin.name == "__init__.py" else origin for origin in origins]
