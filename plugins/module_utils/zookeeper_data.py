# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reads how new the tree of a ZooKeeper server is, from the files on its disk. Writes nothing.

Formats, big-endian: FileTxnLog's header (16 bytes) and records (checksum 8, length 4, the transaction with
its zxid at byte 12, the byte 0x42), after which a preallocated file has zeros. The names of snapshots and
logs contain a zxid in hex.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

VERSION_DIR = "version-2"
_SNAPSHOT = re.compile(r"snapshot\.([0-9a-f]+)(\.gz|\.snappy)?")
_LOG = re.compile(r"log\.([0-9a-f]+)")
_LOG_HEADER_BYTES = 16
_RECORD = struct.Struct(">qi")
_TRANSACTION = struct.Struct(">qiq")
_END_OF_RECORD = b"B"


def last_zxid(data_dir: Path, log_dir: Path | None = None) -> int:
    """Returns the zxid of a server's newest transaction, 0 when it has none; `log_dir` is its dataLogDir."""
    snapshots = [zxid for zxid, _unused in _numbered(data_dir, _SNAPSHOT)]
    newest = max(snapshots, default=0)
    for _unused, log in sorted(_numbered(log_dir or data_dir, _LOG), reverse=True):
        if zxid := _last_in(log):
            return max(newest, zxid)
    return newest


def is_bare(data_dir: Path, log_dir: Path | None = None) -> bool:
    """Whether a server has snapshots and no transaction log at all.

    This is the state after the disk of its dataLogDir was lost: its snapshots may be a day old. A follower
    that its leader has just filled, and that has got no write since, looks the same. Purging always leaves
    a log.
    """
    has_snapshots = any(zxid for zxid, _unused in _numbered(data_dir, _SNAPSHOT))
    return has_snapshots and not _numbered(log_dir or data_dir, _LOG)


def current_epoch(data_dir: Path) -> int:
    """Returns the epoch of the last leader that a server followed, 0 when it was never in an ensemble."""
    try:
        return int((data_dir / VERSION_DIR / "currentEpoch").read_text().strip() or 0)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 0


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    try:
        entries = list((directory / VERSION_DIR).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = [(pattern.fullmatch(entry.name), entry) for entry in entries]
    return [(int(match[1], 16), entry) for match, entry in named if match]


def _last_in(log: Path) -> int:
    """The zxid of the last complete record, 0 when there is none."""
    last = 0
    with log.open("rb") as file:
        file.seek(_LOG_HEADER_BYTES)
        while len(head := file.read(_RECORD.size)) == _RECORD.size:
            _unused, length = _RECORD.unpack(head)
            if length < _TRANSACTION.size:
                break
            body = file.read(length + 1)
            if len(body) <= length or body[length:] != _END_OF_RECORD:
                break
            last = _TRANSACTION.unpack_from(body)[2]
    return last
