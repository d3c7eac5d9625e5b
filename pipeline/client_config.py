"""Kafka's settings of a client, from a properties file, as options of Spark's connector.

The executors get the values themselves. So no file has to be on their hosts, if the file has the certificates in
itself (``ssl.truststore.certificates``), as the one that the role `broker` writes.
"""

from __future__ import annotations

import re
from pathlib import Path

_ESCAPED = re.compile(r"\\(.)")


def parsed(text: str) -> dict[str, str]:
    """The values of ``key=value`` lines, with the escapes of Java's properties."""
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): _ESCAPED.sub(_letter, value.strip()) for key, equals, value in lines if equals}


def client_settings(path: str | None) -> dict[str, str]:
    """The file's keys with the prefix ``kafka.``, without ``bootstrap.servers``, which is an option of its own."""
    values = {} if path is None else parsed(Path(path).read_text())
    return {f"kafka.{key}": value for key, value in values.items() if key != "bootstrap.servers"}


def _letter(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])
