"""Small files with a checksum that are replaced as a whole: written to a ``.tmp`` file, synced, then renamed.

Kafka's formats of these files have no room for a checksum, and a flipped bit can turn one digit into another.
The checksum is therefore kept in an extended attribute, which follows the file through renames and does not
disturb other readers. A file without the attribute is accepted as it is: Kafka wrote it, or the file system
has no attributes.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import structlog
from crc32c import crc32c

from broker.log.filesystem_sync import NotSyncedError
from broker.log.segments.segment import sync_dir

TEMPORARY_SUFFIX = ".tmp"
ATTRIBUTE = "user.landline.crc32c"
# Up to this size a repair tries each bit, in about 0.1 s.
_MENDABLE_BYTES = 8192
_BLOCK_BYTES = 65536
_log = structlog.get_logger(__name__)


class DamagedFileError(ValueError):
    """The file is not what was written. The message names the file and says what to do."""


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replaces ``path`` with ``data`` atomically; ``sync`` makes it durable too. Raises OSError."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        seal(fd, data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    if sync:
        try:
            sync_dir(path.parent)
        except NotSyncedError as error:  # who replaces the file again is where it was
            raise OSError(error.errno, error.strerror, str(path)) from error


def seal(fd: int, data: bytes) -> None:
    """Stores the checksum of ``data``, the open file's whole content, if the file system can."""
    with suppress(OSError):
        os.setxattr(fd, ATTRIBUTE, b"%08x" % crc32c(data))


def can_seal(path: Path) -> bool:
    """Whether the file system of the file ``path`` supports attributes. Other errors count as yes."""
    try:
        os.setxattr(path, ATTRIBUTE, b"")
        os.removexattr(path, ATTRIBUTE)
    except OSError as error:
        return error.errno != errno.ENOTSUP
    return True


def read_file(path: str | Path) -> bytes:
    """The data written to ``path``; one wrong bit in a small file is repaired.

    Raises DamagedFileError if more is wrong, OSError.
    """
    fd = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC
    )  # data and checksum of one file, even if it is replaced meanwhile
    try:
        data = _read_whole(fd)
        try:
            noted = int(os.getxattr(fd, ATTRIBUTE), 16)
        except (OSError, ValueError):
            return data
    finally:
        os.close(fd)
    if crc32c(data) == noted:
        return data
    mended = _mended(data, noted)
    if mended is None:
        raise DamagedFileError(
            f"{path} is not what was written: it fails the checksum in its attribute {ATTRIBUTE}. Look at the disk; "
            f"when you changed the file by hand, say so by: setfattr -x {ATTRIBUTE} {path}"
        )
    _log.error("file_mended", file=str(path), bits=1, do="look at the disk: it gave back a flipped bit")
    return mended


def _read_whole(fd: int) -> bytes:
    """Uses few calls: a start reads two such files of each log, and most fit into one block."""
    blocks = [os.read(fd, _BLOCK_BYTES)]
    while len(blocks[-1]) == _BLOCK_BYTES:
        blocks.append(os.read(fd, _BLOCK_BYTES))
    return b"".join(blocks)


def _mended(data: bytes, crc: int) -> bytes | None:
    """``data`` with the one bit flipped that makes the checksum match; CRC32C tells such changes apart."""
    if len(data) > _MENDABLE_BYTES:
        return None
    tried = bytearray(data)
    for place in range(len(tried)):
        for bit in range(8):
            tried[place] ^= 1 << bit
            if crc32c(tried) == crc:
                return bytes(tried)
            tried[place] ^= 1 << bit
    return None
