"""Records every operation on the files of a directory, and computes what a power loss may leave of them.

:class:`Recorder` records the calls of the ``os`` functions that the log uses. :class:`DiskState` replays them
up to a moment, and separates durable data from the rest. Of each file and each directory some *prefix* of the
operations since its last sync survives, as on any file system that keeps the order within a file and within a
directory. Nothing else is guaranteed: neither the order between files, nor that between a file and its name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.log import log_maker, log_manager
from broker.log.segments import batch_file, segment

ROOT = 0


class Op(NamedTuple):
    """One operation. ``node`` is the file that is written or synced or, for names, the directory."""

    kind: str
    node: int
    position: int = 0
    data: bytes = b""
    name: str = ""
    new_name: str = ""
    child: int = -1


class Recorder:
    """The recorder of operations, in order in ``ops``. Everything below ``root`` must be created
    during :meth:`recording`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ops: list[Op] = []
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._nodes = 1
        self._fds: dict[int, int] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in (
                "open", "close", "write", "pwrite", "ftruncate", "truncate", "fsync", "fdatasync",
                "rename", "replace", "unlink", "mkdir",
            ):  # fmt: skip
                patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
            for module in (segment, batch_file):
                patch.setattr(module, "SegmentFile", self._open_segment_file)
            for module in (log_manager, log_maker):
                patch.setattr(module, "sync_filesystem", lambda _path: self.ops.append(Op("syncfs", ROOT)))
            yield

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_{name}")

        def call(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            note(result, *args, **options)
            return result

        return call

    # -- names

    def _find(self, path: Any) -> tuple[int, str, int | None] | None:
        """(directory, name, node or None) of a path; None outside the root."""
        try:
            named = Path(os.fspath(path))
            if named.parts[:4] == ("/", "proc", "self", "fd") and len(named.parts) > 4:
                named = Path(*named.parts[:5]).readlink().joinpath(*named.parts[5:])
            parts = named.relative_to(self.root).parts
        except (TypeError, ValueError):
            return None
        if not parts:
            return ROOT, "", ROOT
        parent = ROOT
        for part in parts[:-1]:
            parent = self._names[parent][part]
        return parent, parts[-1], self._names[parent].get(parts[-1])

    def _make(self, kind: str, parent: int, name: str) -> int:
        node, self._nodes = self._nodes, self._nodes + 1
        if kind == "mkdir":
            self._names[node] = {}
        self._names[parent][name] = node
        self.ops.append(Op(kind, parent, name=name, child=node))
        return node

    def _mkdir(self, _result: Any, path: Any, *_: Any, **__: Any) -> None:
        if found := self._find(path):
            self._make("mkdir", found[0], found[1])

    def _rename(self, _result: Any, source: Any, target: Any) -> None:
        found, new = self._find(source), self._find(target)
        if found is None or new is None:
            return
        (parent, name, node), (new_parent, new_name, _) = found, new
        assert parent == new_parent, "the log renames within a directory"
        assert node is not None
        del self._names[parent][name]
        self._names[parent][new_name] = node
        self.ops.append(Op("rename", parent, name=name, new_name=new_name))

    _replace = _rename

    def _unlink(self, _result: Any, path: Any, **_: Any) -> None:
        if found := self._find(path):
            del self._names[found[0]][found[1]]
            self.ops.append(Op("unlink", found[0], name=found[1]))

    # -- contents

    def _open(self, fd: int, path: Any, flags: int, *_: Any, **__: Any) -> None:
        self._fds.pop(fd, None)
        found = self._find(path)
        if found is None:
            return
        parent, name, node = found
        if node is None:
            node = self._make("create", parent, name)
        elif flags & os.O_TRUNC:
            self.ops.append(Op("truncate", node))
        self._fds[fd] = node

    def _open_segment_file(self, path: Path, mode: str) -> segment.SegmentFile:
        file = _REAL_SEGMENT_FILE(path, mode)
        found = self._find(path)
        if found is not None:
            parent, name, node = found
            self._fds[file.fileno()] = self._make("create", parent, name) if node is None else node
        return file

    def _close(self, _result: Any, fd: int) -> None:
        self._fds.pop(fd, None)

    def _write(self, count: int, fd: int, data: Any) -> None:
        node = self._fds.get(fd)
        if node is not None:
            self.ops.append(Op("write", node, os.lseek(fd, 0, os.SEEK_CUR) - count, bytes(data[:count])))

    def _pwrite(self, count: int, fd: int, data: Any, position: int) -> None:
        node = self._fds.get(fd)
        if node is not None:
            self.ops.append(Op("write", node, position, bytes(data[:count])))

    def _ftruncate(self, _result: Any, fd: int, size: int) -> None:
        node = self._fds.get(fd)
        if node is not None:
            self.ops.append(Op("truncate", node, size))

    def _truncate(self, _result: Any, path: Any, size: int) -> None:
        if (found := self._find(path)) and found[2] is not None:
            self.ops.append(Op("truncate", found[2], size))

    def _fsync(self, _result: Any, fd: int) -> None:
        node = self._fds.get(fd)
        if node is not None:
            self.ops.append(Op("fsync", node))

    _fdatasync = _fsync


_REAL_SEGMENT_FILE = segment.SegmentFile


@dataclass(slots=True)
class _Node:
    """A file or directory. ``durable`` is the bytes of a file or the names of a directory; ``pending`` are
    the later operations.
    """

    is_dir: bool
    content: bytes = b""
    names: dict[str, int] = field(default_factory=dict)
    pending: list[Op] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.pending:
            self.apply(op)
        self.pending.clear()

    def apply(self, op: Op) -> None:
        if self.is_dir:
            _apply_to_names(self.names, op)
        else:
            self.content = _apply_to_content(self.content, op)


def _apply_to_names(names: dict[str, int], op: Op) -> None:
    if op.kind in {"mkdir", "create"}:
        names[op.name] = op.child
    elif op.kind == "rename":
        names[op.new_name] = names.pop(op.name)
    else:
        names.pop(op.name)


def _apply_to_content(content: bytes, op: Op) -> bytes:
    if op.kind == "truncate":
        return content[: op.position].ljust(op.position, b"\0")
    return content[: op.position].ljust(op.position, b"\0") + op.data + content[op.position + len(op.data) :]


class Loss(NamedTuple):
    """What a power loss leaves of the operations since a file's last sync.

    It has their number, and the probability that the last one is torn.
    """

    name: str
    keeps: Callable[[random.Random, int], int]
    tears: float = 0.0


LOSSES = (
    Loss("nothing is lost", lambda _, count: count),  # the process was killed
    Loss("all that was not synced is lost", lambda *_: 0),
    Loss("the last writes are torn", lambda _, count: count, tears=1.0),
    Loss("any part is lost", lambda rng, count: rng.randint(0, count), tears=0.3),
    Loss("most is kept", lambda rng, count: count - min(count, rng.choice((0, 0, 0, 1, 2))), tears=0.2),
)


class DiskState:
    """The disk after the operations replayed so far."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {ROOT: _Node(is_dir=True)}

    def play(self, op: Op) -> None:
        if op.kind == "syncfs":
            for node in self._nodes.values():
                node.sync()
            return
        if op.kind == "fsync":
            self._nodes[op.node].sync()
            return
        if op.child >= 0:
            self._nodes[op.child] = _Node(is_dir=op.kind == "mkdir")
        self._nodes[op.node].pending.append(op)

    def write_image(self, directory: Path, loss: Loss, rng: random.Random) -> None:
        """Writes what ``loss`` leaves into ``directory``, which is created."""
        self._write_dir(ROOT, directory, loss, rng)

    def _write_dir(self, number: int, path: Path, loss: Loss, rng: random.Random) -> None:
        node = self._nodes[number]
        names = dict(node.names)
        for op in node.pending[: loss.keeps(rng, len(node.pending))]:
            _apply_to_names(names, op)
        path.mkdir()
        for name, child in names.items():
            if self._nodes[child].is_dir:
                self._write_dir(child, path / name, loss, rng)
            else:
                (path / name).write_bytes(self._content(self._nodes[child], loss, rng))

    @staticmethod
    def _content(node: _Node, loss: Loss, rng: random.Random) -> bytes:
        kept = node.pending[: loss.keeps(rng, len(node.pending))]
        content = node.content
        for op in kept[:-1]:
            content = _apply_to_content(content, op)
        if kept:
            content = _apply_to_content(
                content, _torn(kept[-1], rng) if rng.random() < loss.tears else kept[-1]
            )
        return content


def _torn(op: Op, rng: random.Random) -> Op:
    """Half a write: its beginning, or a file that grew before the bytes were written."""
    if len(op.data) < 2:
        return op
    half = op.data[: rng.randrange(1, len(op.data))]
    return op._replace(data=half if rng.random() < 0.6 else half + bytes(len(op.data) - len(half)))
