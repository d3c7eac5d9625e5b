# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reads Apache Kafka's properties files, as Java does: comments, continued lines, escapes."""

from __future__ import annotations

import re

_PAIR = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties by key; the last of two with the same key counts."""
    found = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair and pair["key"]:
            found[_unescaped(pair["key"])] = _unescaped(pair["value"])
    return found


def _logical_lines(text: str) -> list[str]:
    """The lines with a setting, without the break of one that an odd number of backslashes continues."""
    lines, before = [], ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not before and (not stripped or stripped[0] in "#!"):
            continue
        before += stripped
        backslashes = len(before) - len(before.rstrip("\\"))
        if backslashes % 2:
            before = before[:-1]
            continue
        lines.append(before)
        before = ""
    return [*lines, before] if before else lines


def _unescaped(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        what = escape[1]
        return chr(int(what[1:], 16)) if len(what) > 1 else _NAMED.get(what, what)

    return _ESCAPE.sub(meant, text)
