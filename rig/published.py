"""Where the data behind a published page lies."""

from __future__ import annotations

from pathlib import Path


def data_directory(directory: Path, pages: Path, data: Path) -> Path:
    """Where the data of pages in ``directory`` goes: beside them; for published pages, which are below
    ``pages``, to the same place below ``data``.
    """
    place = directory.resolve()
    return data / place.relative_to(pages) if place.is_relative_to(pages) else directory
