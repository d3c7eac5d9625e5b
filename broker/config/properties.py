r"""Reads Java's `.properties` format, and keeps the line number of every key.

Comments start with `#` or `!`. Key and value are separated by `=`, `:` or blanks. A backslash at the end of a
line continues it. `\t \n \r \f \uXXXX` are escapes, and any other escaped character stands for itself. Files
are UTF-8. `broker_config` interprets the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.config.problems import ConfigError, Problem

MAX_FILE_BYTES: Final = 1 << 20
_BLANKS: Final = " \t\f"
_NEWLINE: Final = re.compile(r"\r\n|\n|\r")
# A backslash and what it escapes; \u needs four digits.
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Properties(dict[str, str]):
    """Keys and values. ``lines`` has each key's line. ``duplicates`` has the keys that occur more than once,
    with all their lines (the last one counts). ``source`` is the file's name.
    """

    def __init__(self, source: str = "") -> None:
        super().__init__()
        self.source = source
        self.lines: dict[str, int] = {}
        self.duplicates: dict[str, list[int]] = {}

    def put(self, key: str, value: str, line: int) -> None:
        if key in self:
            self.duplicates.setdefault(key, [self.lines[key]]).append(line)
        self[key] = value
        self.lines[key] = line


def read_properties(path: str | Path) -> Properties:
    """Reads a file. Raises ConfigError if it cannot be read or is not a properties file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError([Problem(str(path), None, f"cannot be read: {error.strerror}")]) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(
            [Problem(str(path), None, f"is larger than {MAX_FILE_BYTES} bytes: no properties file")]
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            [Problem(str(path), line, "is not UTF-8; write such letters as \\uXXXX")]
        ) from error
    return parse_properties(text, source=str(path))


def parse_properties(text: str, source: str = "") -> Properties:
    """Parses a file's text. Raises ConfigError for a malformed escape."""
    properties = Properties(source)
    problems = []
    for line, content in _logical_lines(text):
        key, value = _split(content)
        try:
            properties.put(_unescape(key), _unescape(value), line)
        except ValueError as error:
            problems.append(Problem(key, line, str(error)))
    if problems:
        raise ConfigError(problems, source)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with content, with the number of their first line; continuation lines are joined."""
    start, joined = 0, ""
    for number, raw in enumerate(_NEWLINE.split(text), 1):
        content = raw.lstrip(_BLANKS)
        if not joined:
            if not content or content[0] in "#!":
                continue
            start = number
        joined += content
        if _continues(content):
            # A lone backslash also starts a continued line.
            joined = joined[:-1] or " "
            continue
        yield start, joined.lstrip(_BLANKS)
        joined = ""
    if joined.strip(_BLANKS):
        yield start, joined.lstrip(_BLANKS)


def _continues(content: str) -> bool:
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _split(content: str) -> tuple[str, str]:
    """Key and value, both still escaped."""
    end = _key_end(content)
    rest = content[end:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return content[:end], rest


def _key_end(content: str) -> int:
    escaped = False
    for index, char in enumerate(content):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "=:" or char in _BLANKS:
            return index
    return len(content)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if code == "u":
        raise ValueError("has a malformed \\uXXXX escape: four hexadecimal digits are expected")
    return _CONTROL.get(code, code)
