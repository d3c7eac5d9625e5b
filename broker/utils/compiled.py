"""Whether the broker runs compiled code, and whether that was compiled from the sources beside it. ADR 38.

Python prefers a compiled module to its source without a look at either's age, so whoever changes an installed source
would run what it was before.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.utils.misfits import misfit

# Beside the package's modules: the compiler with its version, and the CRC-32C of each source that was compiled.
MANIFEST: Final = "compiled.json"
NOT_COMPILED: Final = "no"
_PACKAGE: Final = Path(__file__).parents[1]


class StaleCodeError(Exception):
    """The compiled modules are not those of the sources; the message says what to do."""


@cache
def compiled_by(package: Path = _PACKAGE) -> str:
    """The compiler of the request path's modules with its version, or ``no``: they run as Python.

    Raises StaleCodeError, OSError.
    """
    if misfit() is not None:
        return NOT_COMPILED
    try:
        manifest = json.loads((package / MANIFEST).read_bytes())
    except FileNotFoundError:
        if _has_code(package):
            raise StaleCodeError(
                f"{package} has compiled modules and no {MANIFEST}, so nothing says what they were compiled from: "
                f"delete them (find {package} -name '*.so' -delete) or install the broker again"
            ) from None
        return NOT_COMPILED
    if not _has_code(package):  # another Python's or another machine's, which this one passes over
        return NOT_COMPILED
    changed = [path for path, crc in manifest["sources"].items() if _crc(package / path) != crc]
    if changed:
        raise StaleCodeError(
            f"{package} has compiled modules whose sources have changed since ({', '.join(changed[:3])}"
            f"{', ...' if len(changed) > 3 else ''}): install the broker again, or delete them to run the sources "
            f"(find {package} -name '*.so' -delete; rm {package / MANIFEST})"
        )
    return str(manifest["compiler"])


def manifest_of(package: Path, paths: list[str], compiler: str) -> str:
    """The content of a manifest for sources, whose paths are relative to the package."""
    return json.dumps(
        {"compiler": compiler, "sources": {path: _crc(package / path) for path in paths}}, indent=1
    )


def _crc(path: Path) -> int:
    try:
        return crc32c(path.read_bytes())
    except FileNotFoundError:
        return -1


def _has_code(package: Path) -> bool:
    """Whether this Python would load compiled modules. One is looked for: a walk would delay each start."""
    return any((package / "network" / f"processor{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
