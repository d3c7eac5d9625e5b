"""``partition.metadata``: the topic id of a partition's directory."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from uuid import UUID

from broker.log.checkpoints import replace_file

FILE_NAME = "partition.metadata"


def topic_id_text(topic_id: UUID) -> str:
    """Kafka's spelling of an id: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_topic_id(text: str) -> UUID:
    """The id of Kafka's spelling. Raises ValueError."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is no topic id") from error


def read_topic_id(directory: Path) -> UUID | None:
    """The directory's topic id, None without a file. Raises ValueError when it cannot be understood."""
    try:
        text = (directory / FILE_NAME).read_text()
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "topic_id":
            return parse_topic_id(value.strip())
    raise ValueError(f"{directory / FILE_NAME} has no topic_id line")


def write_topic_id(directory: Path, topic_id: UUID) -> None:
    """Replaces the directory's file, durably: an empty one after a power loss would stop the next start.

    Raises OSError.
    """
    text = f"version: 0\ntopic_id: {topic_id_text(topic_id)}"
    replace_file(directory / FILE_NAME, text.encode())
