"""Compiled code that cannot be loaded on this host. ADR 39.

pip takes the pure wheel where the compiled one does not fit. What was installed and then copied to another host, or cut
short by its disk, Python would end at, though the sources lie beside it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
# Small, and imports nothing. Each compiled module loads the one library that has the code of all.
_ONE_OF_THEM: Final = "broker.utils.clock"
_misfits: list[str] = []


def pass_over_misfits() -> None:
    """Makes this process run the sources if the compiled code beside them cannot be loaded. To be called before any
    of the compiled modules is imported.
    """
    try:
        import_module(_ONE_OF_THEM)
    except ImportError as error:
        _misfits.append(str(error))
        sys.path_hooks.insert(0, _sources_alone)
        sys.path_importer_cache.clear()


def _sources_alone(path: str) -> FileFinder:
    """Finds the modules of the broker's directories. Raises ImportError for others: the next hook is asked."""
    if not Path(path).is_relative_to(_PACKAGE):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def misfit() -> str | None:
    """Why the compiled code that is there could not be loaded; None if it was, or there is none."""
    return _misfits[0] if _misfits else None
