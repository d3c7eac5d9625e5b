"""The ``partition.metadata`` file, which holds the topic id of a partition's directory."""

from __future__ import annotations

import base64
import binascii
import errno
import os
from functools import lru_cache
from pathlib import Path
from uuid import UUID

from broker.log.sealed_file import TEMPORARY_SUFFIX, read_file, replace_file, seal

FILE_NAME = "partition.metadata"


def topic_id_text(topic_id: UUID) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


@lru_cache(maxsize=1024)  # all logs of a topic have the same id
def parse_topic_id(text: str) -> UUID:
    """The id of Kafka's text form. Raises ValueError."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is no topic id") from error


def read_topic_id(directory: Path) -> UUID | None:
    """The directory's topic id, None if there is no file. Raises ValueError if the file is invalid."""
    try:
        text = read_file(f"{directory}/{FILE_NAME}").decode(errors="replace")
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "topic_id":
            return parse_topic_id(value.strip())
    raise ValueError(f"{directory / FILE_NAME} has no topic_id line")


def write_topic_id(directory: Path, topic_id: UUID) -> None:
    """Replaces the directory's file durably; an empty file after a power loss would fail the next start.

    Raises OSError.
    """
    replace_file(directory / FILE_NAME, _content(topic_id))


def prepare_topic_id(directory: Path, topic_id: UUID) -> None:
    """Writes the topic id under a temporary name; the first half of :func:`write_topic_id`, for many
    directories. The caller syncs the result, calls :func:`take_up_topic_id`, and syncs again. Raises OSError.
    """
    path = directory / (FILE_NAME + TEMPORARY_SUFFIX)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        content = _content(topic_id)
        if os.write(fd, content) < len(content):
            raise OSError(errno.ENOSPC, f"no room for {path}")
        seal(fd, content)
    finally:
        os.close(fd)


def take_up_topic_id(directory: Path) -> None:
    """Renames the prepared file to its final name. Raises OSError."""
    path = directory / FILE_NAME
    os.replace(f"{path}{TEMPORARY_SUFFIX}", path)  # noqa: PTH105 - thousands of times when a topic is made


def _content(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()
