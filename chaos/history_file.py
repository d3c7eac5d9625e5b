"""Histories as files of JSON lines: a first line that names the columns, then one event per line as an array.

Several files, one from each process, make one history: they are merged by time.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, get_args

from chaos.history import Event, History, merged

FORMAT = "landline-history"
VERSION = 1
IDEMPOTENT, PLAIN, TRANSACTIONAL = "idempotent", "plain", "transactional"
"""The kind of each producer, by its name in the first line. A transactional one is also idempotent."""

_COLUMNS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind)) for kind in get_args(Event)
}
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in _COLUMNS}
_READERS = {kind: attrgetter(*columns) for kind, columns in _COLUMNS.items()}
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class HistoryFormatError(ValueError):
    """The file is not a history; the message names the line."""


class HistoryWriter:
    """A history file that any thread can append to. What was ``flush``ed is in the operating system and
    survives the process.

    Its lock guards the file and the lines not yet written.
    """

    def __init__(self, path: Path, producers: Mapping[str, str] | None = None) -> None:
        """``producers`` says of each producer whether it is IDEMPOTENT, PLAIN or TRANSACTIONAL."""
        self._lock = threading.Lock()
        self._lines: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        columns = {kind.__name__: names for kind, names in _COLUMNS.items()}
        header = {
            "format": FORMAT,
            "version": VERSION,
            "producers": dict(producers or {}),
            "columns": columns,
        }
        self._file.write(_encode(header) + "\n")
        self.flush()

    def add(self, *events: Event) -> None:
        """Appends events in the order in which their client saw them."""
        lines = [_line(event) for event in events]
        with self._lock:
            self._lines += lines

    def flush(self) -> None:
        """Passes everything added so far to the operating system."""
        with self._lock:
            lines, self._lines = self._lines, []
            self._file.writelines(lines)
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.flush()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_history(path: Path, history: History) -> None:
    """Writes a whole history into one file."""
    with HistoryWriter(path, dict.fromkeys(sorted(history.idempotent), IDEMPOTENT)) as writer:
        writer.add(*history.events)


def read_history(*paths: Path) -> History:
    """The history in one file in its order, or in several, merged by time. Raises HistoryFormatError."""
    with collection_paused():
        parts = [_read(path) for path in paths]
        return parts[0] if len(parts) == 1 else merged(parts)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disables garbage collection: a million new events have no cycle, and looking for one takes longer than
    reading them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _line(event: Event) -> str:
    kind = type(event)
    return _encode((kind.__name__, *_READERS[kind](event))) + "\n"


def _read(path: Path) -> History:
    with path.open(encoding="utf-8") as file:
        idempotent, columns = _header(path, file.readline())
        return History(list(_events(path, file, columns)), idempotent)


def _header(path: Path, line: str) -> tuple[frozenset[str], dict[str, Sequence[str]]]:
    try:
        header = json.loads(line)
        found = header["format"], header["version"]
        idempotent = frozenset(name for name, kind in header["producers"].items() if kind != PLAIN)
        columns: dict[str, Sequence[str]] = header["columns"]
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryFormatError(f"{path}: the first line is not a history's: {error!r}") from error
    if found != (FORMAT, VERSION):
        raise HistoryFormatError(f"{path}: a file of {found}, not of {(FORMAT, VERSION)}")
    return idempotent, columns


def _events(path: Path, lines: Iterable[str], columns: Mapping[str, Sequence[str]]) -> Iterator[Event]:
    for name, names in columns.items():
        if name in _KINDS and tuple(names) != _COLUMNS[_KINDS[name]]:
            raise HistoryFormatError(f"{path}: {name} has the columns {names}, not {_COLUMNS[_KINDS[name]]}")
    for number, line in enumerate(lines, 2):
        try:
            name, *values = json.loads(line)
            event: Any = _KINDS[name](*values)
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith("\n"):
                return  # Its process died while it wrote this line.
            raise HistoryFormatError(f"{path}, line {number}: {error!r}") from error
        yield event
