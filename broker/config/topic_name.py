"""Checks a topic's name (Kafka's Topic.validate)."""

from __future__ import annotations

import re

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """The problem of a topic's name; None if it is valid."""
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return "'.' and '..' are no topic names"
    if len(name) > MAX_LENGTH:
        return f"the name has {len(name)} characters, {MAX_LENGTH} are allowed"
    if not _LEGAL.fullmatch(name):
        return f"{name!r} holds characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
