"""The files that a process has open, as /proc tells."""

from __future__ import annotations

from pathlib import Path

_DELETED = " (deleted)"


def deleted_and_open(pid: int | str = "self") -> list[str]:
    """The former paths of the files that the process has open and that were deleted: their blocks are not free."""
    names = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(link.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return [name.removesuffix(_DELETED) for name in names if name.endswith(_DELETED)]
